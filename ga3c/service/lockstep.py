"""The deterministic mode: one agent, one predictor, one trainer, each in its turn.

A prediction waits until all whole batches have been trained, and none begins once the run's steps
are made. So the same seed gives the same weights, to the last bit, also if the run was stopped and
resumed in between: the agent then plays its recorded actions once more, to where it was.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

import numpy as np

from ga3c.experience.segments import Lanes, Segment
from ga3c.runs.action_log import ActionLog
from ga3c.service.queues import BatchQueue, Closed

WAIT_S = 0.2


class Lockstep:
    """Whose turn it is. Safe from every thread."""

    def __init__(
        self,
        lanes: Lanes,
        segments: BatchQueue[Segment],
        batch: int,
        steps: int | None,
        actions: ActionLog,
    ) -> None:
        """`batch` segments are one update; no prediction begins once `steps` have been made."""
        self._lanes = lanes
        self._segments = segments
        self._untrained = batch - 1  # segments, at most, that await the next ones
        self._limit_steps = steps
        self._turn = threading.RLock()
        self.actions = actions
        """All actions so far."""
        self._steps = 0

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """A prediction's turn, when it comes. Raises Closed once the run ends."""
        while not self._begin():
            if self._segments.closed:
                raise Closed
        try:
            yield
        finally:
            self._turn.release()

    def _begin(self) -> bool:
        if not self._turn.acquire(timeout=WAIT_S):
            return False
        ended = self._limit_steps is not None and self._steps >= self._limit_steps
        if not ended and self._lanes.settle(self._untrained, WAIT_S):
            return True
        self._turn.release()
        if ended:
            time.sleep(WAIT_S)
        return False

    def hold(self, timeout_s: float) -> bool:
        """Let no prediction begin, and train what can be trained; False if that takes too long.

        For the main thread, which may call it again.
        """
        if not self._turn.acquire(timeout=timeout_s):
            return False
        if self._lanes.settle(self._untrained, timeout_s):
            return True
        self._turn.release()
        return False

    def go_on(self) -> None:
        """Undo one `hold`."""
        self._turn.release()

    def acted(self, actions: np.ndarray) -> None:
        """Record a prediction's actions, int32 [n], always of the same n lanes."""
        self.actions.append(actions)
        self._steps += len(actions)

    def restore(self, steps: int) -> None:
        """So many environment steps have been made, whose actions are in the log."""
        self._steps = steps
