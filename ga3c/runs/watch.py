"""What a run says about its own health: updates left out, standstill, ended schedules, lag."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from ga3c.runs.metrics import Snapshot, Window
from ga3c.settings.schedules import linear
from ga3c.settings.train import TrainConfig

STILL_S = 60.0  # without a step and without an update: then it is said, and again at twice that
REPEAT_S = 30.0  # between two lines about updates that were left out
# Mean policy lag, in updates, that the default settings were shown to bear: with 512 environments
# Pong took a quarter more steps (benchmarks/results/pong-512-lanes). Nothing beyond was measured.
BORNE_LAG_UPDATES = 72


class Watched(Protocol):
    """The running service, as the watch sees it."""

    @property
    def progress(self) -> float:
        """Of the schedules: 0 at the start, 1 at their end and more beyond."""

    def waits(self) -> str:
        """Who waits for whom, and what to change, in words."""


class Watch:
    """Notices what a person should hear of. The main thread's."""

    def __init__(
        self, config: TrainConfig, service: Watched, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._service = service
        self._clock = clock
        self._refused = 0.0
        self._refused_said_s = -math.inf
        self._counts = (-1.0, -1.0)
        self._moved_s = clock()
        self._patience_s = STILL_S
        self._ended_said = service.progress >= 1  # a resumed run has said it before
        self._lag_said = False

    def events(self, now: Snapshot) -> Iterator[str]:
        """A line for each thing that has come about since the last call."""
        yield from self._refused_updates(now)
        yield from self._standstill(now)
        yield from self._end_of_schedule(now)

    def figures(self, window: Window) -> Iterator[str]:
        """A line if the policy lag of the window is beyond what was ever measured."""
        lag = window.mean("lag_updates", "trained_samples")
        if lag > BORNE_LAG_UPDATES and not self._lag_said:
            self._lag_said = True
            yield (
                f"policy lag of {lag:.0f} updates: the default settings were measured at 19, and "
                f"at {BORNE_LAG_UPDATES} they took a quarter more steps to learn Pong; fewer "
                "environments (--envs-per-agent, --agents) or larger batches "
                "(--training-batch-max) lower it, --max-policy-lag lets the scheduler do so"
            )

    def _refused_updates(self, now: Snapshot) -> Iterator[str]:
        refused = now["refused_updates"]
        if refused <= self._refused or self._clock() < self._refused_said_s + REPEAT_S:
            return
        more, self._refused, self._refused_said_s = refused - self._refused, refused, self._clock()
        yield (
            f"{more:.0f} updates left out, {refused:.0f} in all: their loss or gradient was not "
            f"finite; {self._config.learning.max_refused_updates} in a row end the run"
        )

    def _standstill(self, now: Snapshot) -> Iterator[str]:
        counts, time_s = (now["steps"], now["updates"] + now["refused_updates"]), self._clock()
        if counts != self._counts:
            self._counts, self._moved_s, self._patience_s = counts, time_s, STILL_S
        elif (still_s := time_s - self._moved_s) >= self._patience_s:
            self._patience_s *= 2
            yield (
                f"no environment step and no update for {still_s:.0f} s: {self._service.waits()}"
            )

    def _end_of_schedule(self, now: Snapshot) -> Iterator[str]:
        limit = self._config.run.steps
        ends_here = limit is not None and now["steps"] >= limit
        if self._ended_said or self._service.progress < 1 or ends_here:
            return
        self._ended_said = True
        optimizer = self._config.scheduled_optimizer
        if optimizer.learning_rate_end == optimizer.learning_rate:
            return  # it was constant
        what = "nothing more is learned" if not optimizer.learning_rate_end else "it stays there"
        yield (
            f"the schedules have ended after {optimizer.schedule_steps:,} steps: the learning rate "
            f"is {optimizer.learning_rate_end:g} from now on, so {what} (--schedule-steps, "
            "--learning-rate-end)"
        )


def resumed_schedule(before: TrainConfig, config: TrainConfig, steps: int) -> str | None:
    """A line if a run that goes on after `steps` has other schedules than it had; None if not."""
    old, new = before.scheduled_optimizer, config.scheduled_optimizer
    if (old.schedule_steps, old.learning_rate_end) == (new.schedule_steps, new.learning_rate_end):
        return None
    rates = [
        linear(each.learning_rate, each.learning_rate_end or 0.0, steps / each.schedule_steps)
        for each in (old, new)
        if each.schedule_steps
    ]
    return (
        f"schedules run to {new.schedule_steps:,} steps now, to {old.schedule_steps:,} before: the "
        f"learning rate goes on at {rates[1]:.2g} and not at {rates[0]:.2g}"
    )
