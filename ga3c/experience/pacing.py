"""Whether acting waits for learning when segments are trained on in order of completion.

Predictors ask the pacing before they act. `Free` and `InTurn` are for learning in order;
`replay_pacing` has the pacings for a replay.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable


class Pacing(ABC):
    """Counts the run's steps and decides when more may be made. Thread-safe."""

    acts_on_target = False
    """Whether actions are chosen with the target network's weights."""

    def __init__(self, limit_steps: float = float("inf")) -> None:
        """`limit_steps`: once this many steps have been admitted, no more are."""
        self._limit_steps = limit_steps
        self._changed = threading.Condition()
        """Guards all counts."""
        self._before = 0  # steps that the run had made before this process began
        self._admitted = 0  # steps that predictors were allowed to make
        self._acted = 0  # steps that are in the ring

    @property
    def steps(self) -> int:
        """Environment steps of the whole run that are in the ring."""
        return self._before + self._acted

    @property
    def schedule_steps(self) -> int:
        """The steps that drive the schedules of learning."""
        return self.steps

    @property
    def missing_steps(self) -> int:
        """Steps that this process has yet to make before its first update."""
        return 0

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether nothing more can be learned from the steps made so far."""

    def admit(self, steps: int, timeout_s: float) -> bool:
        """Wait until `steps` more may be made. False if the timeout passes first."""
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

    def _may_act(self, steps: int) -> bool:
        """Whether `steps` more may be made now."""
        return True

    def acted(self, steps: int) -> None:
        """Record that `steps` of the admitted steps are in the ring."""
        with self._changed:
            self._acted += steps
            self._changed.notify_all()

    def begin_after(self, steps: int) -> None:
        """Continue a run that has made `steps` steps, none of them by this process."""
        self._before = steps


class Free(Pacing):
    """Acting waits only for room in the ring and in the queues, not for learning (GA3C)."""

    @property
    def is_settled(self) -> bool:
        """Always True: segments still waiting for training when the run ends are dropped."""
        return True


class InTurn(Pacing):
    """Acting and learning take turns (lockstep), so that the same seed gives the same weights.

    A prediction waits until every complete batch has been trained on. No prediction begins after
    the run's last step.
    """

    def __init__(
        self, limit_steps: float, batch: int, settle: Callable[[int, float], bool]
    ) -> None:
        """Args:
        batch: segments per update.
        settle: waits until at most a given number of segments await training, with a timeout
            in seconds; returns False on timeout.
        """
        super().__init__(limit_steps)
        self._untrained = batch - 1  # segments of an incomplete batch
        self._settle = settle

    def admit(self, steps: int, timeout_s: float) -> bool:
        """Wait until every complete batch has been trained on. False on timeout."""
        return self._settle(self._untrained, timeout_s) and super().admit(steps, timeout_s)

    @property
    def is_settled(self) -> bool:
        """Whether no prediction is under way and no complete batch awaits training."""
        with self._changed:
            return self._admitted == self._acted and self._settle(self._untrained, 0.0)
