"""Anneals the numbers of agents, predictors and trainers against the measured training rate.

After GA3C, section 4.4, with the faults of its public code mended: equal windows after a
settling time, a comparison with the last accepted setting measured right before, samples and
not updates counted, and a rejected setting undone at once. As Multiverse RL asked (Chen and Deng
2017), who waits for whom says what to try first. The paper's random walk is kept beside it.
"""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from ga3c.runs import records
from ga3c.runs.metrics import Snapshot, Window
from ga3c.service.annealer import Annealer, Decision, Figures
from ga3c.settings.scheduler import Counts, SchedulerConfig

HOPELESS = 0.15  # less of a rate in a third of a window: the rest of it would be lost time
DISTURBED = 0.1  # of all cores: a window in which other programs took more is measured again,
AT_MOST = 4  # times in a row: they may be there for good


class Tuned(Protocol):
    """The running service, as the scheduler sees it."""

    def snapshot(self) -> Snapshot:
        """The counters now."""

    def plays(self) -> bool:
        """Whether every agent has made a step."""

    def memory_mb(self) -> list[float]:
        """Resident memory of its process and of each agent's, in MiB."""

    def foreign_cpu_s(self) -> float:
        """Seconds of all its cores that other programs have used: for differences."""

    def resize(self, counts: Counts) -> None:
        """Change the counts."""


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
        self._foreign_cpu_s = 0.0
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
            self._first, self._foreign_cpu_s = (
                self._service.snapshot(),
                self._service.foreign_cpu_s(),
            )
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
        share = (self._service.foreign_cpu_s() - self._foreign_cpu_s) / (now - self._window_from_s)
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
