"""Anneals the numbers of agents, predictors and trainers against the measured training rate.

After GA3C, section 4.4, with the faults of its public code mended: equal windows after a
settling time, a comparison with the last accepted setting measured right before, samples and
not updates counted, and a rejected setting undone at once.
"""

import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

COLDEST = 1e-6
NAMES = ("agents", "predictors", "trainers")


class Counts(NamedTuple):
    """How many of each."""

    agents: int
    predictors: int
    trainers: int


@dataclass(frozen=True)
class SchedulerConfig:
    """How the counts are tuned while the run goes on."""

    scheduler: Literal["anneal", "off"] = "anneal"
    """anneal tries other counts of agents, predictors and trainers; off leaves them fixed."""
    settle_s: float = 5.0
    """Seconds between a change and the window that measures it."""
    window_s: float = 15.0
    """Seconds of a window; every window is of this length."""
    wins: int = 2
    """Times in a row that a setting must win, measured anew each time, before it is kept."""
    margin: float = 0.03
    """Relative gain of rate that a change must show: about the noise of a window."""
    temperature: float = 0.01
    """Relative lack of that gain which is accepted with probability 1/e at first."""
    cooling: float = 0.8
    """Factor of the temperature after each decision."""
    patience: float = 4.0
    """After all neighbours were rejected, the time between proposals grows by this factor."""

    def __post_init__(self) -> None:
        if self.wins < 1:
            raise ValueError(f"wins {self.wins}: must be at least 1, or anything would be kept")
        if self.margin < 0:
            raise ValueError(f"margin {self.margin}: must be at least 0, or losses would be kept")
        for name in ("window_s", "temperature"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} {getattr(self, name)}: must be above 0")
        if self.settle_s < 0 or not 0 < self.cooling <= 1 or self.patience < 1:
            raise ValueError(
                "settle_s must be at least 0, cooling in (0, 1] and patience at least 1: given "
                f"{self.settle_s}, {self.cooling}, {self.patience}"
            )


class Decision(NamedTuple):
    """One line of the journal."""

    seconds: float
    kept: Counts
    tried: Counts
    rate_kept: float  # trained samples a second
    rate_tried: float
    temperature: float
    wins: int  # of the tried setting, in a row, this one included
    accepted: bool

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**self._asdict(), "kept": self.kept._asdict(), "tried": self.tried._asdict()}


class Annealer:
    """Simulated annealing over the three counts by steps of +-1. Knows neither clock nor threads.

    `propose` gives a neighbour of the kept setting. It wins if it gains at least the margin, or
    else with probability exp(-relative lack / temperature); after a win it is proposed again, and
    `judge` accepts it when it has won `wins` times in a row: noise seldom does.
    """

    def __init__(
        self, config: SchedulerConfig, start: Counts, most: Counts, seed: int | None
    ) -> None:
        self._config = config
        self._most = most
        self._random = random.Random(seed)
        self._untried: list[Counts] = []
        self.kept = start
        self.temperature = config.temperature
        self._wins = 0
        self.calm = 0  # times that all neighbours in a row were rejected

    def propose(self) -> Counts | None:
        """The next setting to try; None if there is no other."""
        if not self._untried:
            self._untried = [
                self.kept._replace(**{name: getattr(self.kept, name) + change})
                for name in NAMES
                for change in (-1, 1)
                if 1 <= getattr(self.kept, name) + change <= getattr(self._most, name)
            ]
            self._random.shuffle(self._untried)
        return self._untried[-1] if self._untried else None

    def judge(self, tried: Counts, rate_kept: float, rate_tried: float, seconds: float) -> Decision:
        """Judge the setting that `propose` gave, by trained samples a second."""
        gain = rate_tried / rate_kept - 1 if rate_kept > 0 else math.inf
        lacking = min(gain - self._config.margin, 0.0)
        won = self._random.random() < math.exp(lacking / self.temperature)
        self._wins = self._wins + 1 if won else 0
        accepted = self._wins >= self._config.wins
        decision = Decision(
            *(seconds, self.kept, tried, rate_kept, rate_tried),
            *(self.temperature, self._wins, accepted),
        )
        self.temperature = max(self.temperature * self._config.cooling, COLDEST)
        if accepted:
            self.kept, self._untried, self._wins, self.calm = tried, [], 0, 0
        elif not won:
            self._untried.pop()
            self.calm += not self._untried
        return decision


class Scheduler:
    """Drives an annealer by the clock: `tick` is called often and never waits.

    Phases: settle, measure the kept setting, change, settle, measure the tried one, judge.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        annealer: Annealer,
        trained_samples: Callable[[], float],
        apply: Callable[[Counts], None],
        journal: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._annealer = annealer
        self._trained_samples = trained_samples
        self._apply = apply
        self._journal = journal
        self._clock = clock
        self._tried: Counts | None = None
        self._rate_kept = 0.0
        self._started_s = clock()
        self._window_from_s = self._started_s + config.settle_s
        self._samples_from: float | None = None

    def tick(self) -> Decision | None:
        """Do what is due. Returns a decision when one was made."""
        now = self._clock()
        if now < self._window_from_s:
            return None
        if self._samples_from is None:
            self._window_from_s = now
            self._samples_from = self._trained_samples()
            return None
        if now < self._window_from_s + self._config.window_s:
            return None
        rate = (self._trained_samples() - self._samples_from) / (now - self._window_from_s)
        if self._tried is None:
            self._try_neighbour(rate)
            return None
        return self._judge(rate, now)

    def _begin(self, wait_s: float) -> None:
        self._window_from_s = self._clock() + wait_s
        self._samples_from = None

    def _try_neighbour(self, rate: float) -> None:
        self._rate_kept = rate
        self._tried = self._annealer.propose()
        if self._tried is not None:
            self._apply(self._tried)
        self._begin(self._config.settle_s)

    def _judge(self, rate: float, now: float) -> Decision:
        assert self._tried is not None
        decision = self._annealer.judge(self._tried, self._rate_kept, rate, now - self._started_s)
        if not decision.accepted:
            self._apply(self._annealer.kept)
        with open(self._journal, "a") as journal:
            journal.write(json.dumps(decision.plain()) + "\n")
        self._tried = None
        pause = self._config.patience ** min(self._annealer.calm, 8) - 1
        self._begin(self._config.settle_s + pause * self._config.window_s)
        return decision
