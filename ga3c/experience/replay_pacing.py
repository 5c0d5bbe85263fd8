"""How acting and learning wait for each other when learning draws from a replay.

Predictors ask before they act, and trainers ask for their next turn. Every run begins with
`min_steps` steps without an update. A run resumed without its replay does too, to fill a new one.
"""

from abc import abstractmethod
from collections.abc import Mapping
from enum import Enum, auto

from ga3c.experience.pacing import Pacing

COUNTS = ("before", "acted", "flushed", "learned", "periods")


class Turn(Enum):
    """What a trainer does next."""

    LEARN = auto()  # one update, and then `learned`
    FLUSH = auto()  # make the new steps visible, and then `flushed`
    MEET = auto()  # flush, and copy the weights to the target network


class ReplayPacing(Pacing):
    """Counts steps made, steps made visible and updates, and lets threads wait on the counts."""

    def __init__(self, min_steps: int, limit_steps: float) -> None:
        super().__init__(limit_steps)
        self._min_steps = min_steps
        self._flushed = 0  # steps made visible
        self._claimed = 0  # updates begun
        self._learned = 0  # updates done
        self._periods = 0
        self._flushing = self._meeting = False
        self._hurried = False  # a lane has no room until the next flush

    @abstractmethod
    def _next(self) -> Turn | None:
        """What a trainer can do now; None if it must wait."""

    @abstractmethod
    def copies_target(self, update: int) -> bool:
        """Whether the weights are copied to the target after this update, counted from 1."""

    @abstractmethod
    def _limits(self) -> str:
        """What acting and learning wait for, and what to change, in words."""

    def waits(self) -> str:
        """The progress of acting and learning, and what each waits for, in words."""
        with self._changed:
            made = f"{self.steps:,} steps made, {self._flushed:,} of them flushed to the replay"
            return f"{made}, {self._learned:,} updates done; {self._limits()}"

    def hurry(self) -> None:
        """Ask for a flush soon, because a lane has no room for another step until then."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def turn(self, timeout_s: float) -> Turn | None:
        """What the caller must do now; None if nothing is due within the timeout."""
        with self._changed:
            turn = self._changed.wait_for(self._next, timeout_s)
            if turn is Turn.LEARN:
                self._claimed += 1
            elif turn:
                self._flushing, self._meeting = True, turn is Turn.MEET
            return turn

    def learned(self) -> None:
        """Record that an update is done."""
        with self._changed:
            self._learned += 1
            self._changed.notify_all()

    def flushed(self, steps: int) -> None:
        """Record that `steps` steps in total have been made visible."""
        with self._changed:
            self._flushed = steps
            self._periods += self._meeting
            self._flushing = self._hurried = self._meeting = False
            self._changed.notify_all()

    @property
    def schedule_steps(self) -> int:
        """Steps of the whole run up to the last flush."""
        return self._before + self._flushed

    @property
    def missing_steps(self) -> int:
        """Steps that this process has yet to make before its first update."""
        with self._changed:
            return max(self._min_steps - self._acted, 0)

    @property
    def is_settled(self) -> bool:
        """Whether no prediction, update or flush is under way and no update is due."""
        with self._changed:
            busy = self._flushing or self._claimed > self._learned or self._admitted > self._acted
            return not busy and self._next() is not Turn.LEARN

    def read(self) -> dict[str, int]:
        """The counts that a run resumed with its replay continues with."""
        with self._changed:
            return {name: getattr(self, f"_{name}") for name in COUNTS}

    def restore(self, values: Mapping[str, int]) -> None:
        """Restore what `read` returned. Raises KeyError if a count is missing."""
        for name in COUNTS:
            setattr(self, f"_{name}", int(values[name]))
        self._admitted, self._claimed = self._acted, self._learned


class FreeReplay(ReplayPacing):
    """Acting and learning do not wait for each other (Ape-X, Horgan et al. 2018).

    Learning begins after the first `min_steps` steps. Acting waits only when a lane has no room
    until the next flush. Learning ends once all of the run's steps are made.
    """

    def __init__(
        self, *, update_size: int, min_steps: int, target_period: int, limit_steps: float
    ) -> None:
        """Args:
        update_size: number of new steps that triggers a flush.
        target_period: updates between two copies of the weights to the target network.
        """
        super().__init__(min_steps, limit_steps)
        self._update_size = update_size
        self._target_period = target_period

    def copies_target(self, update: int) -> bool:
        """Once every `target_period` updates."""
        return update % self._target_period == 0

    def _limits(self) -> str:
        return (
            f"learning begins after {self._min_steps:,} steps, and acting waits only when an "
            "environment has no room for another step: give a smaller --update-size"
        )

    def _next(self) -> Turn | None:
        if self._flushing:
            return None
        waiting = self._acted - self._flushed
        if not self._ended and (waiting >= self._update_size or (self._hurried and waiting)):
            return Turn.FLUSH
        return Turn.LEARN if self._flushed and self._may_learn() else None

    def _may_learn(self) -> bool:
        """Whether another update may begin, given that there is something to draw."""
        return not self._ended and self._acted >= self._min_steps


class Ratio(FreeReplay):
    """One update for every `steps_per_update` steps; acting is at most `slack_steps` ahead.

    Learning is never ahead. `TrainConfig` refuses a slack that would make both wait forever.
    """

    def __init__(
        self,
        *,
        steps_per_update: float,
        slack_steps: int,
        update_size: int,
        min_steps: int,
        target_period: int,
        limit_steps: float = float("inf"),
    ) -> None:
        super().__init__(
            update_size=update_size,
            min_steps=min_steps,
            target_period=target_period,
            limit_steps=limit_steps,
        )
        self._steps_per_update = steps_per_update
        self._slack_steps = slack_steps

    def _steps_of(self, updates: int) -> float:
        """The step count at which this many updates are due."""
        return self._min_steps + updates * self._steps_per_update

    def _may_act(self, steps: int) -> bool:
        return self._admitted + steps <= self._steps_of(self._learned) + self._slack_steps

    def _limits(self) -> str:
        due = self._steps_of(self._claimed + 1)
        ahead = self._steps_of(self._learned) + self._slack_steps
        return (
            f"the next update is due at {due:,.0f} steps, and acting may go up to {ahead:,.0f}: "
            "give a larger --slack-steps or a smaller --update-size"
        )

    def _may_learn(self) -> bool:
        return self._acted >= self._steps_of(self._claimed + 1)


class TargetPeriod(ReplayPacing):
    """Concurrent Training (Daley and Amato 2021, section 3).

    Acting makes `period_steps` steps with the target network's weights while learning makes
    `updates` updates, or one more or less if that is not a whole number. When both are done, the
    new steps become visible, the weights are copied to the target, and the next period begins. The
    first period has `min_steps` steps and no update.
    """

    acts_on_target = True

    def __init__(
        self, period_steps: int, updates: float, min_steps: int, limit_steps: float = float("inf")
    ) -> None:
        super().__init__(min_steps, limit_steps)
        self._period_steps = period_steps
        self._updates = updates

    def copies_target(self, update: int) -> bool:
        """Always False: the weights are copied at the end of a period, not after an update."""
        return False

    @property
    def _updates_due(self) -> int:
        """Updates of all periods that have begun."""
        return int(self._periods * self._updates)

    def _may_act(self, steps: int) -> bool:
        return self._admitted < self._min_steps + self._periods * self._period_steps

    def _limits(self) -> str:
        ends = self._min_steps + self._periods * self._period_steps
        return (
            f"the period ends at {ends:,} steps and {self._updates_due:,} updates: "
            "give a different --period-steps"
        )

    def _next(self) -> Turn | None:
        if self._flushing:
            return None
        if self._claimed < self._updates_due:
            return Turn.LEARN
        still = self._admitted == self._acted and self._claimed == self._learned
        if self._ended or not still:
            return None
        if not self._may_act(1):
            # Even if everything is visible: a flush for a full lane may have taken the last steps.
            return Turn.MEET
        return Turn.FLUSH if self._hurried and self._acted > self._flushed else None
