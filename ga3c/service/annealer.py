"""Searches the counts of agents, predictors and trainers: annealing, or the paper's random walk."""

import math
import random
from dataclasses import replace
from typing import Any, NamedTuple

from ga3c.settings.scheduler import Counts, SchedulerConfig

COLDEST = 1e-6
TINY = 1e-9  # samples a second, in place of 0 as a divisor
# A role waiting less than this share of its time is not shrunk; one working less is not grown.
SURE = 0.1


class Figures(NamedTuple):
    """The figures measured in one window with one setting."""

    rate: float  # trained samples a second
    policy_lag: float  # mean, in updates
    memory_mb: float  # resident memory of the service and its agents, in MiB
    agent_mb: float  # resident memory of the largest agent, in MiB
    waiting: tuple[float, float, float]  # share of time that agents, predictors, trainers wait


class Decision(NamedTuple):
    """One line of the journal."""

    seconds: float  # on the scheduler's clock; in a run, since the run began
    kept: Counts
    tried: Counts
    figures_kept: Figures
    figures_tried: Figures
    temperature: float
    wins: int  # consecutive wins of the tried setting, including this one
    accepted: bool

    def plain(self) -> dict[str, Any]:
        """The decision as values that JSON can hold."""
        parts = ("kept", "tried", "figures_kept", "figures_tried")
        return {**self._asdict(), **{name: getattr(self, name)._asdict() for name in parts}}


class Annealer:
    """Simulated annealing over the three counts, in steps of +-1. Uses neither clock nor threads.

    `propose` gives a neighbour of the kept setting. The first choices are one more of the role that
    waits least and one fewer of the role that waits most; a role that hardly waits is not shrunk. A
    neighbour wins if it raises the rate by the margin or more, or else with probability
    exp(-shortfall / temperature), with the shortfall relative to the kept rate. After a win it is
    proposed again, and `judge` accepts it after `wins` wins in a row, which noise seldom produces.
    While policy lag or memory exceeds its cap, only a setting that lowers it can win.

    `random` is the paper's walk: a neighbour is kept if the rate did not fall in one window.
    """

    def __init__(self, config: SchedulerConfig, start: Counts, most: Counts, seed: int) -> None:
        if config.scheduler == "random":
            config = replace(config, wins=1, margin=0.0, temperature=COLDEST, patience=1.0)
        self.config = config
        self._most = most
        self._seed = seed
        self._decisions = 0
        self._untried: list[Counts] = []
        self.kept = start
        self.temperature = config.temperature
        self._wins = 0
        self._judged: Counts | None = None  # the setting judged last
        self.calm = 0  # consecutive rounds in which every neighbour was rejected

    def propose(self, kept: Figures) -> Counts | None:
        """The next setting to try, given the kept one's figures; None if there is none."""
        cap, most = self.config.max_memory_mb, self._most
        if cap is not None and kept.memory_mb + kept.agent_mb > cap:  # no room for one more
            most = most._replace(agents=self.kept.agents)
        untried = [counts for counts in self._untried if counts.agents <= most.agents]
        untried = untried or self._neighbours(kept, most)
        self._untried = untried or self._untried  # a None leaves no entry in the journal
        return untried[-1] if untried else None

    def _dice(self, purpose: str) -> random.Random:
        """Random numbers for one decision. They depend only on how many came before it."""
        return random.Random(f"{self._seed} {self._decisions} {purpose}")

    def _neighbours(self, figures: Figures, most: Counts) -> list[Counts]:
        """The neighbours of the kept setting up to `most`, the most promising one last."""
        found = []
        for name, waiting in zip(Counts._fields, figures.waiting, strict=True):
            for change, promise in ((-1, waiting), (1, 1 - waiting)):
                count = getattr(self.kept, name) + change
                if 1 <= count <= getattr(most, name):
                    found.append((promise, self.kept._replace(**{name: count})))
        self._dice("propose").shuffle(found)
        if self.config.scheduler == "random":
            return [counts for _, counts in found[:1]]
        found = [(promise, counts) for promise, counts in found if promise >= SURE]
        return [counts for _, counts in sorted(found, key=lambda pair: pair[0])]

    def judge(self, tried: Counts, kept: Figures, made: Figures, seconds: float) -> Decision:
        """Judge `tried` by its figures `made` and those of the kept setting, `kept`."""
        gain = made.rate / max(kept.rate, TINY) - 1
        lacking = min(gain - self.config.margin, 0.0)
        won = self._dice("judge").random() < math.exp(lacking / self.temperature)
        self._decisions += 1
        better = [
            after < before
            for cap, before, after in (
                (self.config.max_policy_lag, kept.policy_lag, made.policy_lag),
                (self.config.max_memory_mb, kept.memory_mb, made.memory_mb),
            )
            if cap is not None and max(before, after) > cap
        ]
        if better:
            won = all(better) and made.rate > 0
        if tried != self._judged:
            self._wins = 0  # the wins belong to another setting
        self._judged = tried
        self._wins = self._wins + 1 if won else 0
        accepted = self._wins >= self.config.wins
        decision = Decision(
            seconds=seconds,
            kept=self.kept,
            tried=tried,
            figures_kept=kept,
            figures_tried=made,
            temperature=self.temperature,
            wins=self._wins,
            accepted=accepted,
        )
        self.temperature = max(self.temperature * self.config.cooling, COLDEST)
        if accepted:
            self.kept, self._untried, self._wins, self.calm = tried, [], 0, 0
        elif not won:
            self._untried.pop()
            self.calm += not self._untried
        return decision
