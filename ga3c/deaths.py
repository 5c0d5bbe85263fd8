"""When an agent that died is replaced, and when the run must end instead."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

MAX_EARLY_DEATHS = 3  # in one place in a row, each before its agent's first step
MAX_FAILURES = 5  # in one place in a row, each of an agent that was not healthy
HEALTHY_S = 600.0  # an agent that has lived so long may fail without being counted
FIRST_DELAY_S = 0.5  # before the second failure's successor starts; doubled for each further one


class Death(NamedTuple):
    """How an agent ended."""

    played: bool  # whether it had made a step
    from_outside: bool  # by a signal that neither it nor this program sent
    silent_s: float  # how long it had owed a step


@dataclass
class _Place:
    """One agent's number, whoever plays it."""

    began_s: float = 0.0  # of the agent that plays now
    updates: float = 0.0  # of the run when it began
    early_deaths: int = 0  # in a row
    failures: int = 0  # in a row


class Deaths:
    """Counts failures in each agent's place, in a row.

    An agent's death is a failure unless the agent was healthy: it had lived for HEALTHY_S, or it
    was killed from outside and the run had learned since it began. A first failure's successor
    starts at once, so that a rare death costs nothing; later ones wait, each twice as long as the
    one before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: defaultdict[int, _Place] = defaultdict(_Place)

    def began(self, index: int, updates: float) -> None:
        """An agent starts in place `index`, when the run has made so many updates."""
        place = self._places[index]
        place.began_s, place.updates = self._clock(), updates

    def delay_s(self, index: int, death: Death, updates: float) -> float:
        """Count a death in place `index`. Returns how long its successor is to wait."""
        place = self._places[index]
        place.early_deaths = 0 if death.played else place.early_deaths + 1
        if self._clock() - place.began_s - death.silent_s >= HEALTHY_S:
            place.failures = 0
        elif not (death.from_outside and updates > place.updates):
            place.failures += 1
        return FIRST_DELAY_S * 2 ** (place.failures - 2) if place.failures > 1 else 0.0

    def hopeless(self, index: int) -> str:
        """Why no successor would do better in place `index`; empty if one may."""
        place = self._places[index]
        if place.early_deaths >= MAX_EARLY_DEATHS:
            return f"{MAX_EARLY_DEATHS} in a row ended in its place before their first step"
        if place.failures >= MAX_FAILURES:
            return (
                f"{MAX_FAILURES} agents in a row failed in its place, each within "
                f"{HEALTHY_S:g} s of its start"
            )
        return ""
