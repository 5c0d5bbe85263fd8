"""Anneals the numbers of agents, predictors and trainers against the measured training rate.

After GA3C, section 4.4, with the faults of its public code mended: equal windows after a
settling time, a comparison with the last accepted setting measured right before, samples and
not updates counted, and a rejected setting undone at once. As Multiverse RL asked (Chen and Deng
2017), who waits for whom says what to try first. The paper's random walk is kept beside it.
"""

import contextlib
import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from ga3c import records
from ga3c.metrics import Snapshot, Window

COLDEST = 1e-6
SURE = 0.1  # of their time: who waits less is not made fewer, who works less not more
HOPELESS = 0.15  # less of a rate in a third of a window: the rest of it would be lost time
DISTURBED = 0.1  # of all cores: a window in which other programs took more is measured again,
AT_MOST = 4  # times in a row: they may be there for good


class Counts(NamedTuple):
    """How many of each."""

    agents: int
    predictors: int
    trainers: int


class Figures(NamedTuple):
    """What one window of one setting measured."""

    rate: float  # trained samples a second
    policy_lag: float  # mean, in updates
    memory_mb: float  # resident, of the service and its agents, in MiB
    agent_mb: float  # of the largest agent
    waiting: tuple[float, float, float]  # share of their time, of agents, predictors, trainers


@dataclass(frozen=True)
class SchedulerConfig:
    """How the counts are tuned while the run goes on."""

    scheduler: Literal["anneal", "random", "off"] = "anneal"
    """anneal tries other counts of agents, predictors and trainers; random is the paper's walk,
    which keeps whatever did no harm in one window; off leaves the counts fixed."""
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
    max_policy_lag: float | None = None
    """Mean policy lag, in updates, beyond which no setting wins but one with less of it."""
    max_memory_mb: float | None = None
    """Resident memory of the service and its agents, in MiB: no agent is added that would go
    beyond it, and no setting wins that did."""

    def __post_init__(self) -> None:
        if self.wins < 1:
            raise ValueError(f"wins {self.wins}: must be at least 1, or anything would be kept")
        if self.margin < 0:
            raise ValueError(f"margin {self.margin}: must be at least 0, or losses would be kept")
        for name in ("window_s", "temperature", "max_policy_lag", "max_memory_mb"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} {value}: must be above 0")
        if self.settle_s < 0 or not 0 < self.cooling <= 1 or self.patience < 1:
            raise ValueError(
                "settle_s must be at least 0, cooling in (0, 1] and patience at least 1: given "
                f"{self.settle_s}, {self.cooling}, {self.patience}"
            )


class Decision(NamedTuple):
    """One line of the journal."""

    seconds: float  # on the clock of the scheduler: in a run, since it began
    kept: Counts
    tried: Counts
    figures_kept: Figures
    figures_tried: Figures
    temperature: float
    wins: int  # of the tried setting, in a row, this one included
    accepted: bool

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        parts = ("kept", "tried", "figures_kept", "figures_tried")
        return {**self._asdict(), **{name: getattr(self, name)._asdict() for name in parts}}


class Tuned(Protocol):
    """The running service, as the scheduler sees it."""

    def snapshot(self) -> Snapshot:
        """The counters now."""

    def plays(self) -> bool:
        """Whether every agent has made a step."""

    def memory_mb(self) -> list[float]:
        """Resident memory of its process and of each agent's, in MiB."""

    def taken_s(self) -> float:
        """Seconds of all its cores that other programs have used: for differences."""

    def resize(self, counts: Counts) -> None:
        """Change the counts."""


class Annealer:
    """Simulated annealing over the three counts by steps of +-1. Knows neither clock nor threads.

    `propose` gives a neighbour of the kept setting: first one more of those who wait least, or one
    fewer of those who wait most, and never one fewer of those who hardly wait. It wins if it gains
    at least the margin, or else with probability exp(-relative lack / temperature); after a win it
    is proposed again, and `judge` accepts it when it has won `wins` times in a row: noise seldom
    does. Beyond a cap, on policy lag or on memory, nothing wins but what has less of it than the
    kept setting.

    As `random` it is the paper's walk: any neighbour, kept if the rate did not fall in one window.
    """

    def __init__(
        self, config: SchedulerConfig, start: Counts, most: Counts, seed: int | None
    ) -> None:
        if config.scheduler == "random":
            config = replace(config, wins=1, margin=0.0, temperature=COLDEST, patience=1.0)
        self._config = config
        self._most = most
        self._seed = random.random() if seed is None else seed
        self._decisions = 0
        self._untried: list[Counts] = []
        self.kept = start
        self.temperature = config.temperature
        self._wins = 0
        self._judged: Counts | None = None  # the last one
        self.calm = 0  # times that all neighbours in a row were rejected

    def propose(self, kept: Figures) -> Counts | None:
        """The next setting to try, given what the kept one made; None if there is no other."""
        if not self._untried:
            self._untried = self._neighbours(kept)
        cap = self._config.max_memory_mb
        if cap is not None and kept.memory_mb + kept.agent_mb > cap:  # no room for one more
            self._untried = [c for c in self._untried if c.agents <= self.kept.agents]
        return self._untried[-1] if self._untried else None

    def _dice(self, purpose: str) -> random.Random:
        """Of one decision: what was only looked at between two of them does not change the next."""
        return random.Random(f"{self._seed} {self._decisions} {purpose}")

    def _neighbours(self, figures: Figures) -> list[Counts]:
        """In ascending order of promise."""
        found = []
        for name, waiting in zip(Counts._fields, figures.waiting, strict=True):
            for change, promise in ((-1, waiting), (1, 1 - waiting)):
                count = getattr(self.kept, name) + change
                if 1 <= count <= getattr(self._most, name):
                    found.append((promise, self.kept._replace(**{name: count})))
        self._dice("propose").shuffle(found)
        if self._config.scheduler == "random":
            return [counts for _, counts in found[:1]]
        found = [(promise, counts) for promise, counts in found if promise >= SURE]
        return [counts for _, counts in sorted(found, key=lambda pair: pair[0])]

    def judge(self, tried: Counts, kept: Figures, made: Figures, seconds: float) -> Decision:
        """Judge the setting that `propose` gave, by what the `kept` one and it have `made`."""
        gain = made.rate / kept.rate - 1 if kept.rate > 0 else math.inf
        lacking = min(gain - self._config.margin, 0.0)
        won = self._dice("judge").random() < math.exp(lacking / self.temperature)
        self._decisions += 1
        better = [
            after < before
            for cap, before, after in (
                (self._config.max_policy_lag, kept.policy_lag, made.policy_lag),
                (self._config.max_memory_mb, kept.memory_mb, made.memory_mb),
            )
            if cap is not None and max(before, after) > cap
        ]
        if better:
            won = all(better) and made.rate > 0
        if tried != self._judged:
            self._wins = 0  # they were another setting's
        self._judged = tried
        self._wins = self._wins + 1 if won else 0
        accepted = self._wins >= self._config.wins
        decision = Decision(
            *(seconds, self.kept, tried, kept, made), *(self.temperature, self._wins, accepted)
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

    A journal that is there already, of the same settings, is gone on with: `counts` are then those
    that it ends with.

    Phases: settle, measure the kept setting, change, settle, measure the tried one, judge. Nothing
    is measured, nor settles, while an agent has yet to make its first step; a window in which other
    programs, or an evaluation, took the cores is measured again.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        start: Counts,
        most: Counts,
        seed: int,
        service: Tuned,
        journal: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._service = service
        self._journal = journal
        self._clock = clock
        self._tried: Counts | None = None
        self._kept_made: Figures | None = None
        self._window_from_s = clock() + config.settle_s
        self._first: Snapshot | None = None
        self._taken_s = 0.0
        self._disturbed = 0  # windows in a row
        self._spoiled = False
        self._annealer = Annealer(config, start, most, seed)
        beginning = {"config": asdict(config), "start": start, "most": most, "seed": seed}
        try:
            known = _last_part(journal)
            same = bool(known) and known[0] == json.loads(json.dumps(beginning))
            _decide_anew(self._annealer, known[1:] if same else [])
        except (ValueError, KeyError, TypeError):  # damaged
            same = False
            self._annealer = Annealer(config, start, most, seed)
        if not same:
            self._write(beginning)

    @property
    def counts(self) -> Counts:
        """The best counts so far."""
        return self._annealer.kept

    def tick(self) -> Decision | None:
        """Do what is due. Returns a decision when one was made."""
        now = self._clock()
        if not self._service.plays():
            self._first = None
            self._window_from_s = max(self._window_from_s, now + self._config.settle_s)
            return None
        if now < self._window_from_s:
            return None
        if self._first is None:
            self._window_from_s = now
            self._first, self._taken_s = self._service.snapshot(), self._service.taken_s()
            self._spoiled = False
            return None
        if now < self._window_from_s + self._config.window_s and not self._is_hopeless(now):
            return None
        if self._is_disturbed(now):
            self._begin(0.0)
            return None
        made = self._figures(Window(self._first, self._service.snapshot()))
        if self._kept_made is None or self._tried is None:
            self._try_neighbour(made)
            return None
        return self._judge(self._tried, self._kept_made, made, now)

    def disturb(self) -> None:
        """Something besides playing and training uses the cores now, such as an evaluation."""
        self._spoiled = True

    def _is_disturbed(self, now: float) -> bool:
        """Whether the window is spoiled, as by other programs, and worth another one."""
        share = (self._service.taken_s() - self._taken_s) / (now - self._window_from_s)
        self._disturbed = self._disturbed + 1 if self._spoiled or share > DISTURBED else 0
        return 0 < self._disturbed <= AT_MOST

    def _is_hopeless(self, now: float) -> bool:
        """Whether a third of the window shows already that what is tried harms."""
        config = self._config
        capped = config.max_policy_lag is not None or config.max_memory_mb is not None
        if config.scheduler == "random" or capped or not self._kept_made or not self._first:
            return False
        if now < self._window_from_s + config.window_s / 3:
            return False
        rate = Window(self._first, self._service.snapshot()).rate("trained_samples")
        return rate < (1 - HOPELESS) * self._kept_made.rate

    def _figures(self, window: Window) -> Figures:
        memory = self._service.memory_mb()
        return Figures(
            window.rate("trained_samples"),
            window.mean("lag_updates", "trained_samples"),
            sum(memory),
            max(memory[1:], default=0.0),
            (
                window.share("agents", "waiting"),
                window.share("predictors", "waiting"),
                window.share("trainers", "waiting"),
            ),
        )

    def _begin(self, wait_s: float) -> None:
        self._window_from_s = self._clock() + wait_s
        self._first = None

    def _try_neighbour(self, made: Figures) -> None:
        self._kept_made = made
        self._tried = self._annealer.propose(made)
        if self._tried is not None:
            self._service.resize(self._tried)
        self._begin(self._config.settle_s)

    def _judge(self, tried: Counts, kept: Figures, made: Figures, now: float) -> Decision:
        decision = self._annealer.judge(tried, kept, made, now)
        if not decision.accepted:
            self._service.resize(self._annealer.kept)
        self._write(decision.plain())
        self._tried = self._kept_made = None
        pause = self._config.patience ** min(self._annealer.calm, 8) - 1
        self._begin(self._config.settle_s + pause * self._config.window_s)
        return decision

    def _write(self, entry: dict[str, Any]) -> None:
        # a full disk is no reason to end a run
        with contextlib.suppress(OSError):
            records.append(self._journal, entry)


def replay(journal: Path) -> list[Decision]:
    """Decide anew by a journal's figures, from where its settings last changed.

    The same decisions, or the journal is not whole: ValueError.
    """
    first, *entries = _last_part(journal)
    start, most = Counts(*first["start"]), Counts(*first["most"])
    annealer = Annealer(SchedulerConfig(**first["config"]), start, most, first["seed"])
    return _decide_anew(annealer, entries)


def _last_part(journal: Path) -> list[dict[str, Any]]:
    """The newest beginning and the decisions after it."""
    lines = records.read(journal)
    begins = [number for number, line in enumerate(lines) if "config" in line]
    return lines[begins[-1] :] if begins else []


def _decide_anew(annealer: Annealer, entries: list[dict[str, Any]]) -> list[Decision]:
    decisions = []
    for entry in entries:
        kept, made = (
            Figures(**{**entry[name], "waiting": tuple(entry[name]["waiting"])})
            for name in ("figures_kept", "figures_tried")
        )
        tried = annealer.propose(kept)
        if tried is None or tried._asdict() != entry["tried"]:
            raise ValueError(f"{tried} would be tried where {entry['tried']} was")
        decisions.append(annealer.judge(tried, kept, made, entry["seconds"]))
        if decisions[-1].accepted != entry["accepted"]:
            raise ValueError(f"{tried} would be judged otherwise than it was")
    return decisions
