"""Warnings during a run: refused updates, stalls, ended schedules, policy lag."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from ga3c.runs.metrics import Snapshot, Window
from ga3c.settings.learning import OptimizerConfig

STILL_S = 60.0  # a run that stalls for this long says so, and again after twice as long
REPEAT_S = 30.0  # between two lines about refused updates
# The largest mean policy lag, in updates, at which learning was measured: a3c with 512
# environments needed a quarter more steps for Pong (benchmarks/results/pong-512-lanes).
MEASURED_LAG_UPDATES = 72
# The same in batches, where each takes many updates: ppo with 512 environments learned Pong at a
# lag of 156 to 160 updates (benchmarks/results/pong-ppo-512-async).
MEASURED_LAG_BATCHES = 7


class Watched(Protocol):
    """What the watch needs of the running service."""

    def progress(self) -> float:
        """Progress of the schedules: 0 at the start, 1 at their end, more after it."""

    def waits(self) -> str:
        """A sentence that says who waits for whom, and what to change."""


class Watch:
    """Notices what the user should know. Owned by the main thread."""

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
        steps: the run ends after this many; None: no limit.
        optimizer: the settings, with this run's schedule.
        max_refused_updates: this many in a row end the run.
        updates_per_batch: how many updates learn from one batch.
        is_scheduled: whether a scheduler changes the number of agents.
        refused: updates already refused before a resume.
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
        """A line, once, if the window's policy lag exceeds any at which learning was measured."""
        lag = window.mean("lag_updates", "trained_samples")
        in_batches = MEASURED_LAG_BATCHES * self._updates_per_batch
        if lag > max(MEASURED_LAG_UPDATES, in_batches) and not self._lag_said:
            self._lag_said = True
            known = (
                f"those of {lag / self._updates_per_batch:.1f} batches, and the largest lag at "
                f"which ppo learned Pong here was {MEASURED_LAG_BATCHES} batches"
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
        stays = "nothing more is learned" if not optimizer.learning_rate_end else "learning goes on"
        yield (
            f"the schedules have ended after {optimizer.schedule_steps:,} steps: the learning rate "
            f"stays at {optimizer.learning_rate_end:g} from now on, so {stays} (--schedule-steps, "
            "--learning-rate-end)"
        )


def resumed_schedule(old: OptimizerConfig, new: OptimizerConfig, steps: int) -> str | None:
    """A line if the schedules of a run resumed after `steps` have changed; else None."""
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
        f"schedules now end at {new.schedule_steps:,} steps, previously at {old.schedule_steps:,}: "
        f"the learning rate continues at {after}{instead}"
    )
