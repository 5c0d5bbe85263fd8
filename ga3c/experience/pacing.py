"""Who waits for whom where segments are trained in the order in which they were played.

Predictors ask before they act. `Free` and `InTurn` are for learning in order; those of a replay are
in `replay_pacing`.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping


class Pacing(ABC):
    """Counts the run's steps, and says when more may be made. Safe from every thread."""

    acts_on_target = False
    """Whether actions are chosen with the target network's weights."""

    def __init__(self, limit_steps: float = float("inf")) -> None:
        """`limit_steps`: no prediction is admitted once so many steps have been."""
        self._limit_steps = limit_steps
        self._changed = threading.Condition()
        """Guards all counts."""
        self._before = 0  # steps of the run that this process has not made
        self._admitted = 0  # steps that may be made
        self._acted = 0  # steps made

    @property
    def steps(self) -> int:
        """Environment steps of the whole run that are in the ring."""
        return self._before + self._acted

    @property
    def schedule_steps(self) -> int:
        """The steps that schedules of learning go by."""
        return self.steps

    @property
    def missing_steps(self) -> int:
        """Steps that this process has yet to make before its first update."""
        return 0

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether all that can be learned from what was played has been."""

    def admit(self, steps: int, timeout_s: float) -> bool:
        """Wait until so many steps may be made; False if they still may not."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._admits(steps), timeout_s):
                return False
            self._admitted += steps
            return True

    def _admits(self, steps: int) -> bool:
        return not self._ended and self._may_act(steps)

    @property
    def _ended(self) -> bool:
        return self._before + self._admitted >= self._limit_steps

    @abstractmethod
    def _may_act(self, steps: int) -> bool:
        """Whether so many more steps may be made now."""

    def acted(self, steps: int) -> None:
        """So many of the admitted steps are in the ring."""
        with self._changed:
            self._acted += steps
            self._changed.notify_all()

    def begin_after(self, steps: int) -> None:
        """The run has made so many steps before, which this process knows nothing of."""
        self._before = steps

    def read(self) -> dict[str, int]:
        """What a resumed run goes on with."""
        return {"before": self._before, "acted": self._acted}

    def restore(self, values: Mapping[str, int]) -> None:
        """Take over what `read` gave. Raises KeyError if something is missing."""
        self._before, self._acted = int(values["before"]), int(values["acted"])
        self._admitted = self._acted


class Free(Pacing):
    """Nobody waits for anybody, but for room in the ring and in the queues (GA3C)."""

    @property
    def is_settled(self) -> bool:
        """Always: what awaits training when the run ends is left."""
        return True

    def _may_act(self, steps: int) -> bool:
        return True


class InTurn(Pacing):
    """Acting and learning take turns (lockstep), so that the same seed gives the same weights.

    A prediction waits until all whole batches have been trained, and none begins once the run's
    steps have been made.
    """

    def __init__(
        self, limit_steps: float, batch: int, settle: Callable[[int, float], bool]
    ) -> None:
        """Args:
        batch: segments of an update.
        settle: waits until at most so many segments await training, for so many seconds.
        """
        super().__init__(limit_steps)
        self._untrained = batch - 1  # segments that may await the ones that complete their batch
        self._settle = settle

    def admit(self, steps: int, timeout_s: float) -> bool:
        """Wait until what was played has been learned from; False if it still has not been."""
        return self._settle(self._untrained, timeout_s) and super().admit(steps, timeout_s)

    @property
    def is_settled(self) -> bool:
        """Whether no prediction is on its way, and no whole batch awaits training."""
        with self._changed:
            return self._admitted == self._acted and self._settle(self._untrained, 0.0)

    def _may_act(self, steps: int) -> bool:
        return True
