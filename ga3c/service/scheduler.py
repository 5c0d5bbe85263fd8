"""Adapts the numbers of agents, predictors and trainers to the measured training rate.

This follows GA3C, section 4.4, and fixes flaws in its public code: windows have equal length and
follow a settling time, a setting is compared with the accepted one measured just before it, samples
are counted instead of updates, and a rejected setting is undone at once. As Multiverse RL proposed
(Chen and Deng 2017), waiting times decide what to try first. The paper's random walk can be chosen
instead.
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

HOPELESS = 0.15  # a setting that loses this share of the rate is judged before its window ends
DISTURBED = 0.1  # a window in which others use more than this share of all cores is repeated
UNPLAYED_S = 180.0  # longer than agents take to create their environments
NOTHING = Figures(0.0, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0))
AT_MOST = 4  # repeats of a window in a row; the other programs may never end


class Tuned(Protocol):
    """The running service, as the scheduler sees it."""

    def snapshot(self) -> Snapshot:
        """The counters now."""

    def plays(self) -> bool:
        """Whether every agent has made a step."""

    def memory_mb(self) -> list[float]:
        """Resident memory of the service's process and of each agent's, in MiB."""

    def foreign_cpu_s(self) -> float:
        """CPU seconds of other programs divided by the number of cores. Only differences count."""

    def stopped_s(self) -> float:
        """Seconds for which the service was stopped, as by Ctrl-Z. Only differences count."""

    def resize(self, counts: Counts) -> None:
        """Change the counts."""


class Scheduler:
    """Drives an annealer by the clock: `tick` is called often and never waits.

    A journal with the same settings is continued, and `counts` starts from its last ones.

    Phases: settle, measure the kept setting, change, settle, measure the tried one, judge. Settling
    and measuring wait until every agent has made its first step. A window in which other programs
    or an evaluation used the cores, or this process was stopped, is measured again. A setting is
    undone if some agent has not played for UNPLAYED_S, for example because no machine has room for
    it.
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
        self._disturbed = 0  # consecutive disturbed windows
        self._spoiled = False
        self._stopped_s = 0.0
        self._unplayed_from_s: float | None = None  # when some agent was first seen not to play
        self._annealer = Annealer(config, start, most, seed)
        beginning = {"config": asdict(config), "start": start, "most": most, "seed": seed}
        try:
            known = _last_part(journal)
            same = bool(known) and known[0] == json.loads(json.dumps(beginning))
            _decide_anew(self._annealer, known[1:] if same else [])
        except (ValueError, KeyError, TypeError):  # the journal is damaged
            same = False
            self._annealer = Annealer(config, start, most, seed)
        if not same:
            self._write(beginning)

    @property
    def counts(self) -> Counts:
        """The best counts so far."""
        return self._annealer.kept

    def tick(self) -> Decision | None:
        """Do what is due now. Returns the decision if one was made."""
        now = self._clock()
        if not self._service.plays():
            self._first = None
            self._window_from_s = max(self._window_from_s, now + self._config.settle_s)
            if self._unplayed_from_s is None:
                self._unplayed_from_s = now
            if self._tried and self._kept_made and now > self._unplayed_from_s + UNPLAYED_S:
                return self._judge(self._tried, self._kept_made, NOTHING, now)
            return None
        self._unplayed_from_s = None
        if now < self._window_from_s:
            return None
        if self._first is None:
            self._window_from_s = now
            self._first = self._service.snapshot()
            self._foreign_cpu_s = self._service.foreign_cpu_s()
            self._stopped_s = self._service.stopped_s()
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
        """Record that something else, such as an evaluation, is using the cores."""
        self._spoiled = True

    def _is_disturbed(self, now: float) -> bool:
        """Whether the window is spoiled, for example by other programs, and must be repeated."""
        share = (self._service.foreign_cpu_s() - self._foreign_cpu_s) / (now - self._window_from_s)
        spoiled = self._spoiled or self._service.stopped_s() > self._stopped_s
        self._disturbed = self._disturbed + 1 if spoiled or share > DISTURBED else 0
        return 0 < self._disturbed <= AT_MOST

    def _is_hopeless(self, now: float) -> bool:
        """Whether a third of the window already shows that the tried setting does harm."""
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
        pause = self._annealer.config.patience ** min(self._annealer.calm, 8) - 1
        self._begin(self._config.settle_s + pause * self._config.window_s)
        return decision

    def _write(self, entry: dict[str, Any]) -> None:
        # A full disk should not end the run.
        with contextlib.suppress(OSError):
            records.append(self._journal, entry)


def replay(journal: Path) -> list[Decision]:
    """Repeat the decisions from a journal's figures, since its settings last changed.

    Raises ValueError if they differ from those in the journal, which is then damaged.
    """
    first, *entries = _last_part(journal)
    start, most = Counts(*first["start"]), Counts(*first["most"])
    annealer = Annealer(SchedulerConfig(**first["config"]), start, most, first["seed"])
    return _decide_anew(annealer, entries)


def _last_part(journal: Path) -> list[dict[str, Any]]:
    """The journal's last line with settings, and the decisions after it."""
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
            raise ValueError(f"{tried} would be judged differently than it was")
    return decisions
