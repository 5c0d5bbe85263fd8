"""Warnings of a run about itself: refused updates, standstill, ended schedules, policy lag."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from ga3c.runs.metrics import Snapshot, Window
from ga3c.settings.learning import OptimizerConfig

STILL_S = 60.0  # a run that stands still for this long says so, and again after twice as long
REPEAT_S = 30.0  # between two lines about refused updates
# The largest mean policy lag, in updates, at which learning was measured: by a3c with 512
# environments Pong took a quarter more steps (benchmarks/results/pong-512-lanes).
MEASURED_LAG_UPDATES = 72
# The same where a batch is learned in many updates: by ppo with 512 environments Pong was learned
# with 156 to 160 updates of lag (benchmarks/results/pong-ppo-512-async).
MEASURED_LAG_BATCHES = 7


class Watched(Protocol):
    """What the watch needs of the running service."""

    def progress(self) -> float:
        """Progress of the schedules: 0 at the start, 1 at their end, more after it."""

    def waits(self) -> str:
        """A sentence that says who waits for whom, and what to change."""


class Watch:
    """Notices what the user should know. Belongs to the main thread."""

    def __init__(
        self,
        service: Watched,
        *,
        steps: int | None,
        optimizer: OptimizerConfig,
        max_refused_updates: int,
        updates_per_batch: int = 1,
        is_scheduled: bool = False,
        refused: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        steps: after which the run ends, if it does.
        optimizer: with the schedule of this run.
        max_refused_updates: so many in a row end the run.
        updates_per_batch: that a batch is learned in.
        is_scheduled: whether a scheduler changes the number of agents.
        refused: updates that were refused before, in a resumed run.
        """
        self._steps = steps
        self._optimizer = optimizer
        self._max_refused_updates = max_refused_updates
        self._updates_per_batch = updates_per_batch
        self._service = service
        self._clock = clock
        self._is_scheduled = is_scheduled
        self._refused = refused
        self._refused_said_s = -math.inf
        self._counts = (-1.0, -1.0)
        self._moved_s = clock()
        self._patience_s = STILL_S
        self._ended_said = False
        self._lag_said = False

    def events(self, now: Snapshot) -> Iterator[str]:
        """A line for each new problem since the last call."""
        yield from self._refused_updates(now)
        yield from self._standstill(now)
        yield from self._end_of_schedule(now)

    def figures(self, window: Window) -> Iterator[str]:
        """A line, once, if the policy lag of the window is larger than was ever measured."""
        lag = window.mean("lag_updates", "trained_samples")
        in_batches = MEASURED_LAG_BATCHES * self._updates_per_batch
        if lag > max(MEASURED_LAG_UPDATES, in_batches) and not self._lag_said:
            self._lag_said = True
            known = (
                f"those of {lag / self._updates_per_batch:.1f} batches, and the largest lag with "
                f"which ppo learned Pong here was of {MEASURED_LAG_BATCHES} batches"
                if in_batches > MEASURED_LAG_UPDATES
                else f"a3c's default settings have 19, and at {MEASURED_LAG_UPDATES} it took a "
                "quarter more steps to learn Pong"
            )
            scheduled = "; --max-policy-lag makes the scheduler lower it"
            yield (
                f"policy lag is {lag:.0f} updates: {known}; fewer environments (--envs-per-agent, "
                "--agents) or larger batches (--training-batch-max) lower it"
                f"{scheduled if self._is_scheduled else ''}"
            )

    def _refused_updates(self, now: Snapshot) -> Iterator[str]:
        refused = now["refused_updates"]
        if refused <= self._refused or self._clock() < self._refused_said_s + REPEAT_S:
            return
        new, self._refused, self._refused_said_s = refused - self._refused, refused, self._clock()
        yield (
            f"{new:.0f} updates left out, {refused:.0f} in all: their loss or gradient was not "
            f"finite; {self._max_refused_updates} in a row end the run"
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
        limit = self._steps
        ends_here = limit is not None and now["steps"] >= limit
        if self._ended_said or self._service.progress() < 1 or ends_here:
            return
        self._ended_said = True
        optimizer = self._optimizer
        if optimizer.learning_rate_end == optimizer.learning_rate:
            return  # the rate was constant
        stays = "nothing more is learned" if not optimizer.learning_rate_end else "it stays there"
        yield (
            f"the schedules have ended after {optimizer.schedule_steps:,} steps: the learning rate "
            f"is {optimizer.learning_rate_end:g} from now on, so {stays} (--schedule-steps, "
            "--learning-rate-end)"
        )


def resumed_schedule(old: OptimizerConfig, new: OptimizerConfig, steps: int) -> str | None:
    """A line if a run resumed after `steps` has other schedules than before; else None."""
    if (old.schedule_steps, old.learning_rate_end) == (new.schedule_steps, new.learning_rate_end):
        return None
    rates = [
        schedule.rate_at(steps / horizon)
        for schedule in (old, new)
        if (horizon := schedule.schedule_steps)
    ]
    before, after = (f"{rate:.2g}" for rate in rates)
    instead = f" instead of {before}" if before != after else ""
    return (
        f"schedules now end at {new.schedule_steps:,} steps, before at {old.schedule_steps:,}: the "
        f"learning rate continues at {after}{instead}"
    )
