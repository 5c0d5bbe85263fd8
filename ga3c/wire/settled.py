"""Reports a line that changes often, but only once it has settled."""

from collections.abc import Callable

SETTLED_S = 2.0


class Settled:
    """Guarded by the lock of the state that it reports."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now, self._told = "", ""
        self._since_s = 0.0

    def news(self, words: str) -> list[str]:
        """`words`, if unchanged for SETTLED_S and different from the last ones reported."""
        if words != self._now:
            self._now, self._since_s = words, self._clock()
        if words == self._told or self._clock() - self._since_s < SETTLED_S:
            return []
        self._told = words
        return [words]
