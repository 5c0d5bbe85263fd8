"""The host's book of a replay: which slot each lane fills next, and which steps can be drawn."""

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from ga3c.experience.book import Book, Segment

COLUMNS = ("written", "flushed", "firsts", "played")  # arrays that `ReplayBook.read` copies


class Block(NamedTuple):
    """The steps that can be drawn after a flush, and the rows that it changes."""

    heads: np.ndarray  # [lanes] int64, number of each lane's steps made visible so far
    firsts: np.ndarray  # [lanes] int64, the oldest step of each lane that can be drawn
    slots: np.ndarray  # [lanes] int32, the ring's slot of that step
    counts: np.ndarray  # [lanes] int32, steps of each lane that can be drawn, from that one on
    entering: np.ndarray  # [k] int32, rows that can be drawn from now on
    leaving: np.ndarray  # [m] int32, rows that can no longer be drawn


class ReplayBook(Book):
    """Which slot of its ring each lane fills next, and which steps can be drawn.

    New steps become visible at the next `flush`; then the newest `window` steps of a lane are
    visible. The lane's ring has `reserve` more slots, so that no drawable step is overwritten.
    A step can be drawn when the n steps after it and all frames of its stack are visible.
    Steps of a lane that no agent plays age at the pace of the busiest lane and so leave the window,
    unless `idle_leave` is off.
    Safe for one flush at a time and several predictors, if only one handles a lane at a time.

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
        idle_leave: bool = True,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        idle_leave: whether steps of a lane that no agent plays leave as other lanes are played.
        on_full: called when a lane has no room until the next flush.
        """
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
        self._idle_leave = idle_leave
        self._on_full = on_full
        self._written = np.zeros(lanes, np.int64)  # steps written to the ring
        self._flushed = np.zeros(lanes, np.int64)  # steps made visible
        self._firsts = np.zeros(lanes, np.int64)  # the oldest step that can be drawn
        self._played = np.zeros(lanes, np.int64)  # busiest lane's steps when this one last grew
        self._room = threading.Condition()

    def admit(self, lanes: np.ndarray, timeout_s: float) -> bool:
        """Wait until the next step of all `lanes` [n] has room. False on timeout."""
        with self._room:
            if self._has_room(lanes):
                return True
            self._on_full()
            return self._room.wait_for(lambda: self._has_room(lanes), timeout_s)

    def _has_room(self, lanes: np.ndarray) -> bool:
        waiting = self._steps[lanes] + 1 - self._flushed[lanes]
        return bool((waiting < self._reserve).all())

    def complete(self, lanes: np.ndarray) -> list[Segment]:
        """Record that the newest steps of `lanes` are in the ring. Returns no segment."""
        with self._room:
            self._written[lanes] = self._steps[lanes] + 1
        return []

    def flush(self) -> Block:
        """The block to be made visible. Call `flushed` once draws use it."""
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
        """The block of steps that can be drawn now; no rows enter or leave."""
        nothing = np.zeros(0, np.int32)
        return self._block(self._flushed.copy(), self._firsts.copy(), nothing, nothing)

    def flushed(self, block: Block) -> None:
        """Record that the block is visible, so that predictors have room for new steps."""
        with self._room:
            self._flushed[:], self._firsts[:] = block.heads, block.firsts
            self._room.notify_all()

    @property
    def written_steps(self) -> int:
        """Steps of all lanes since the replay began."""
        with self._room:
            return int(self._written.sum())

    @property
    def drawable(self) -> int:
        """How many steps can be drawn, including those just before a reset."""
        return int((self._ends(self._flushed, self._firsts) - self._firsts).sum())

    def _block(
        self, heads: np.ndarray, firsts: np.ndarray, entering: np.ndarray, leaving: np.ndarray
    ) -> Block:
        slots = (firsts % self.capacity).astype(np.int32)
        counts = (self._ends(heads, firsts) - firsts).astype(np.int32)
        return Block(heads, firsts, slots, counts, entering, leaving)

    def _oldest(self, heads: np.ndarray) -> np.ndarray:
        """The oldest step of each lane that can be drawn when `heads` [lanes] are visible."""
        # The step counts of lanes that are being played differ by less than the reserve.
        idle = np.maximum(heads.max(initial=0) - self._played - self._reserve, 0)
        out = heads + idle * self._idle_leave - self.window  # steps that have left the window
        # When a lane is played again, its new steps are kept, however long it was idle.
        oldest = np.where(out > 0, np.minimum(out + self._stack - 1, heads), 0)
        return np.maximum(oldest, self._firsts)

    def _ends(self, heads: np.ndarray, firsts: np.ndarray) -> np.ndarray:
        """For each lane, the step after the last drawable one."""
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
        """Restore what `read` returned. Raises KeyError or ValueError if it does not fit."""
        self._written[:], self._flushed[:] = values["written"], values["flushed"]
        # Checkpoints from before 2026-11-22 hold only these two arrays. All lanes count as played.
        self._played[:] = values.get("played", self._flushed.max(initial=0))
        self._firsts[:] = values.get("firsts", self._oldest(self._flushed))
        self._steps[:] = self._written - 1
