"""Decides when a dead agent is replaced, and when replacing it is pointless."""

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

MAX_EARLY_DEATHS = 3  # consecutive deaths in one place before the agent's first step
MAX_FAILURES = 5  # consecutive failures in one place
HEALTHY_S = 600.0  # the death of an agent that lived this long is not counted as a failure
SPARED_S = 120.0  # spared deaths end the run after this long without an update
FIRST_DELAY_S = 0.5  # before the successor after a second failure; doubles with each further one
ELSEWHERE_DELAY_S = 10.0  # before the successor of an agent whose machine was at fault


class Death(NamedTuple):
    """How an agent ended."""

    played: bool  # whether it had made a step
    from_outside: bool  # killed by a signal that neither it nor the service sent
    silent_s: float  # how long its step had been overdue
    of_machine: bool = False  # it was on another machine, or this one could not start it


@dataclass
class _Place:
    """The record of one agent number, across the successive agents that hold it."""

    began_s: float = 0.0  # when the current agent began
    updates: float = 0.0  # the run's updates when the current agent began
    early_deaths: int = 0  # consecutive
    failures: int = 0  # consecutive
    spared_since_s: float = math.inf  # first spared death since an update, long life or failure


class Deaths:
    """Counts consecutive failures in each agent's place.

    A death is a failure unless the agent had lived for HEALTHY_S or was killed from outside. The
    successor starts at once after a first failure; from the second on its delay doubles.

    Two kinds of death are spared: they do not count towards the limits, but they end the run if
    they continue in one place for SPARED_S without an update. One is a kill from outside. The
    other, once the run has made an update, is the failure of an agent on another machine or of one
    that this machine could not start: the run has learned from the game, so the game works and the
    machine is at fault. The run continues, and the successor waits.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_updates = math.inf  # the run's updates when its first agent began
        self._places: defaultdict[int, _Place] = defaultdict(_Place)

    def began(self, index: int, updates: float) -> None:
        """Record that an agent starts in place `index`, after `updates` updates of the run."""
        place = self._places[index]
        place.began_s, place.updates = self._clock(), updates
        self._first_updates = min(self._first_updates, updates)

    def delay_s(self, index: int, death: Death, updates: float) -> float:
        """Count a death in place `index`. Returns how long its successor must wait."""
        place, now_s = self._places[index], self._clock()
        lived_s = now_s - place.began_s - death.silent_s
        of_machine = death.of_machine and updates > self._first_updates
        counts = not (death.from_outside or of_machine)
        place.early_deaths = 0 if death.played else place.early_deaths + counts
        place.failures = 0 if lived_s >= HEALTHY_S else place.failures + counts
        if counts or updates > place.updates or lived_s >= SPARED_S:
            place.spared_since_s = math.inf
        if not counts:
            place.spared_since_s = min(place.spared_since_s, now_s)
        if of_machine and not death.from_outside:
            return ELSEWHERE_DELAY_S
        return FIRST_DELAY_S * 2 ** (place.failures - 2) if place.failures > 1 else 0.0

    def hopeless(self, index: int) -> str:
        """Why a successor in place `index` is pointless; empty if one should be tried."""
        place = self._places[index]
        if place.early_deaths >= MAX_EARLY_DEATHS:
            return f"{MAX_EARLY_DEATHS} in a row ended in its place before their first step"
        if place.failures >= MAX_FAILURES:
            within = f"each within {HEALTHY_S:g} s of its start"
            return f"{MAX_FAILURES} agents in a row failed in its place, {within}"
        if self._clock() - place.spared_since_s >= SPARED_S:
            ends = "have been killed from outside, or failed on other machines,"
            return (
                f"agents in its place {ends} for {SPARED_S:g} s, in which the run made no update: "
                "memory may be short"
            )
        return ""
