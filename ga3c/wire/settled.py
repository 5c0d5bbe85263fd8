"""Says what changes often only when it has come to rest."""

from collections.abc import Callable

SETTLED_S = 2.0


class Settled:
    """Owned by whoever holds the lock of what it tells of."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now, self._told = "", ""
        self._since_s = 0.0

    def news(self, words: str) -> list[str]:
        """`words` if they have been the same for SETTLED_S and were not the last ones told."""
        if words != self._now:
            self._now, self._since_s = words, self._clock()
        if words == self._told or self._clock() - self._since_s < SETTLED_S:
            return []
        self._told = words
        return [words]
