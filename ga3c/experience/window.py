"""The host's book of a replay: which slot of a lane comes next, and which steps can be drawn."""

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from ga3c.experience.book import Book, Segment

COLUMNS = ("written", "flushed", "firsts", "played")  # what `ReplayBook.read` gives


class Block(NamedTuple):
    """What a flush changes: from then on these are the steps that can be drawn."""

    heads: np.ndarray  # [lanes] int64, steps of each lane that are visible
    firsts: np.ndarray  # [lanes] int64, the oldest step of each lane that can be drawn
    slots: np.ndarray  # [lanes] int32, the ring's slot of that step
    counts: np.ndarray  # [lanes] int32, steps of each lane that can be drawn, from that one on
    entering: np.ndarray  # [k] int32, rows that can be drawn from now on
    leaving: np.ndarray  # [m] int32, rows that can no longer be drawn


class ReplayBook(Book):
    """Which slot of its ring each lane fills next, and which steps can be drawn.

    New steps wait until `flush` makes them visible. Visible are the newest `window` steps of a
    lane; beyond them its ring has `reserve` slots, so that nothing that can be drawn is ever being
    written. A step can be drawn once n more are visible, and while the frames of its stack are.
    While nobody plays a lane, its steps grow old at the pace of the busiest lane, and leave.
    Safe for several predictors, each lane being with one at a time, and one flush at a time.

    Raises:
        ValueError: if no step could ever be drawn.
    """

    def __init__(
        self,
        *,
        lanes: int,
        window: int,
        reserve: int,
        n_step: int,
        stack: int,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        """Args: on_full: called when a lane has no room before the next flush."""
        if window < n_step + stack:
            raise ValueError(
                f"replay of {window} steps for each of {lanes} environments < n_step {n_step} + "
                f"stack {stack}: no transition would fit; give a larger --replay-steps or fewer "
                "environments"
            )
        super().__init__(lanes, window + reserve, stack)
        self.window = window
        self._reserve = reserve
        self._n_step = n_step
        self._on_full = on_full
        self._written = np.zeros(lanes, np.int64)  # records that are in the ring for sure
        self._flushed = np.zeros(lanes, np.int64)  # of them, visible
        self._firsts = np.zeros(lanes, np.int64)  # the oldest step that can be drawn
        self._played = np.zeros(lanes, np.int64)  # the busiest lane's steps when this one gained
        self._room = threading.Condition()

    def admit(self, lanes: np.ndarray, timeout_s: float) -> bool:
        """Wait until the next step of all `lanes` [n] has room; False if it still has none."""
        with self._room:
            if self._has_room(lanes):
                return True
            self._on_full()
            return self._room.wait_for(lambda: self._has_room(lanes), timeout_s)

    def _has_room(self, lanes: np.ndarray) -> bool:
        waiting = self._steps[lanes] + 1 - self._flushed[lanes]
        return bool((waiting < self._reserve).all())

    def begun(self, lanes: np.ndarray) -> list[Segment]:
        """No segment: a replay's steps are drawn one by one."""
        return []

    def complete(self, lanes: np.ndarray) -> list[Segment]:
        """The newest steps of `lanes` are in the ring and await the next flush: no segment."""
        with self._room:
            self._written[lanes] = self._steps[lanes] + 1
        return []

    def flush(self) -> Block:
        """What is to become visible; `flushed` says when it is."""
        with self._room:
            heads = self._written.copy()
        self._played[heads > self._flushed] = heads.max(initial=0)
        firsts = self._oldest(heads)
        ends, ends_before = self._ends(heads, firsts), self._ends(self._flushed, self._firsts)
        return self._block(
            heads,
            firsts,
            self._rows(np.maximum(ends_before, firsts), ends),
            self._rows(self._firsts, np.minimum(firsts, ends_before)),
        )

    def visible(self) -> Block:
        """What can be drawn already: no row enters, none leaves."""
        nothing = np.zeros(0, np.int32)
        return self._block(self._flushed.copy(), self._firsts.copy(), nothing, nothing)

    def flushed(self, block: Block) -> None:
        """The block is visible: its steps make room for others."""
        with self._room:
            self._flushed[:], self._firsts[:] = block.heads, block.firsts
            self._room.notify_all()

    @property
    def written_steps(self) -> int:
        """Steps of all lanes since the replay was begun."""
        with self._room:
            return int(self._written.sum())

    @property
    def drawable(self) -> int:
        """How many steps can be drawn, those before a reset included."""
        return int((self._ends(self._flushed, self._firsts) - self._firsts).sum())

    def _block(
        self, heads: np.ndarray, firsts: np.ndarray, entering: np.ndarray, leaving: np.ndarray
    ) -> Block:
        slots = (firsts % self.capacity).astype(np.int32)
        counts = (self._ends(heads, firsts) - firsts).astype(np.int32)
        return Block(heads, firsts, slots, counts, entering, leaving)

    def _oldest(self, heads: np.ndarray) -> np.ndarray:
        """The first step of each lane that can be drawn when `heads` [lanes] are visible."""
        # Lanes that are played lie apart by less than the reserve.
        idle = np.maximum(heads.max(initial=0) - self._played - self._reserve, 0)
        out = heads + idle - self.window  # steps that have left the window
        return np.maximum(np.where(out > 0, out + self._stack - 1, 0), self._firsts)

    def _ends(self, heads: np.ndarray, firsts: np.ndarray) -> np.ndarray:
        """The step after the last one of each lane that can be drawn."""
        return np.maximum(heads - self._n_step, firsts)

    def _rows(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        counts = np.maximum(last - first, 0)
        lanes = np.repeat(np.arange(len(counts)), counts)
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return (lanes * self.capacity + (first[lanes] + offsets) % self.capacity).astype(np.int32)

    def read(self) -> dict[str, np.ndarray]:
        """A copy of the book."""
        with self._room:
            return {name: getattr(self, f"_{name}").copy() for name in COLUMNS}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave. Raises KeyError or ValueError if it does not fit."""
        self._written[:], self._flushed[:] = values["written"], values["flushed"]
        # Books of before 2026-11-22 have only these two: none of their lanes has been left.
        self._played[:] = values.get("played", self._flushed.max(initial=0))
        self._firsts[:] = values.get("firsts", self._oldest(self._flushed))
        self._steps[:] = self._written - 1
