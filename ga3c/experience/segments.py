"""The host's books about the ring: which slot of a lane comes next, and what may be overwritten.

`Lanes` is the book of segments that are trained once, in order; `ReplayLanes` that of a replay.
"""

import threading
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

BOOK = ("steps", "starts", "ages", "versions", "free")  # all that `Lanes` knows


class Segment(NamedTuple):
    """`t_max` steps of a lane, whose records are in the ring: a promise not to overwrite them."""

    lane: int
    start: int  # the lane's step count at its first observation


class Book:
    """The newest step of each lane, and how old its episode is."""

    def __init__(self, lanes: int, capacity: int, stack: int) -> None:
        self.capacity = capacity
        self._stack = stack
        self._steps = np.full(lanes, -1, np.int64)  # of the newest record
        self._ages = np.zeros(lanes, np.int32)

    def _next(self, lanes: np.ndarray, firsts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slots and ages, int32 [n], of the next step of `lanes` [n]; firsts [n] bool."""
        self._steps[lanes] += 1
        ages = np.where(firsts, 0, np.minimum(self._ages[lanes] + 1, self._stack - 1))
        self._ages[lanes] = ages
        return (self._steps[lanes] % self.capacity).astype(np.int32), ages.astype(np.int32)


class Lanes(Book):
    """Which slot of its ring each lane fills next, and which segments await training.

    Segment k of a lane holds its steps k T .. (k + 1) T. At most `pending` segments of a lane
    await training, the one being filled among them; the ring has room for those and the older
    frames of the first stack: pending * T + stack slots. `admit` waits where a step would overwrite
    one of them: this is what bounds policy lag. Safe for several predictors and trainers, as
    each lane is with one predictor at a time.
    """

    def __init__(self, lanes: int, t_max: int, pending: int, stack: int) -> None:
        super().__init__(lanes, self.slots_of_a_lane(t_max, pending, stack), stack)
        self.t_max = t_max
        self._starts = np.zeros(lanes, np.int64)  # the first record of who plays the lane now
        self._versions = np.zeros((lanes, self.capacity), np.int64)
        self._free = np.ones((lanes, pending), bool)  # of segment k at k % pending
        self._trained = threading.Condition()

    @staticmethod
    def slots_of_a_lane(t_max: int, pending: int, stack: int) -> int:
        """The ring's slots that a lane needs."""
        return pending * t_max + stack

    def begin(self, lanes: np.ndarray) -> None:
        """Another agent plays `lanes` from now on: their unfinished segments are left out.

        Else their oldest steps would be trained however long ago the last agent ended. Lanes that
        begin together come to their first segment's start one after another, up to t_max - 1
        untrained steps late: if all ended their segments at once, trainers would idle for the
        rest of the time, and predictors wait for room in their queue.
        """
        starts = (self._steps[lanes] // self.t_max + 1) * self.t_max
        self._steps[lanes] = starts - 1 - lanes % self.t_max
        self._starts[lanes] = starts

    def admit(self, lanes: np.ndarray, timeout_s: float) -> bool:
        """Wait until the next step of all `lanes` [n] may be written; False if it still may not."""
        segments = np.maximum(self._steps[lanes], 0) // self.t_max
        places = segments % self._free.shape[1]
        with self._trained:
            return self._trained.wait_for(lambda: bool(self._free[lanes, places].all()), timeout_s)

    def advance(
        self, lanes: np.ndarray, firsts: np.ndarray, version: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Slots and ages, int32 [n], of the next step of each lane.

        Args: lanes [n]; firsts [n] bool; version: updates done by the weights that act.
        """
        slots, ages = self._next(lanes, firsts)
        self._versions[lanes, slots] = version
        return slots, ages

    def newest(self, lanes: np.ndarray) -> np.ndarray:
        """The newest step of each lane: int64 [n], below its first segment's start at first."""
        return np.where(self._steps[lanes] >= self._starts[lanes], self._steps[lanes], -1)

    def complete(self, lanes: np.ndarray) -> list[Segment]:
        """The segments that the newest step of `lanes` completed: to be trained once each."""
        steps = self._steps[lanes]
        done = (steps > self._starts[lanes]) & (steps % self.t_max == 0)
        segments = [
            Segment(int(lane), int(step) - self.t_max)
            for lane, step in zip(lanes[done], steps[done], strict=True)
        ]
        with self._trained:
            for segment in segments:
                self._free[self._place(segment)] = False
        return segments

    def release(self, segments: list[Segment]) -> None:
        """The segments have been trained: their records may be overwritten."""
        with self._trained:
            for segment in segments:
                self._free[self._place(segment)] = True
            self._trained.notify_all()

    def settle(self, most: int, timeout_s: float) -> bool:
        """Wait until at most `most` segments await training; False if there still are more."""
        with self._trained:
            return self._trained.wait_for(lambda: int((~self._free).sum()) <= most, timeout_s)

    def read(self) -> dict[str, np.ndarray]:
        """A copy of the book."""
        return {name: getattr(self, f"_{name}").copy() for name in BOOK}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave. Raises KeyError or ValueError if it does not fit."""
        for name in BOOK:
            getattr(self, f"_{name}")[:] = values[name]

    def slots(self, segments: list[Segment]) -> np.ndarray:
        """Slots [B, T + 1] int32 of the segments' observations."""
        starts = np.array([segment.start for segment in segments], np.int64)
        return ((starts[:, None] + np.arange(self.t_max + 1)) % self.capacity).astype(np.int32)

    def versions(self, lanes: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Updates done by the weights that acted: [B, T] int64 for lanes [B], slots [B, T]."""
        return self._versions[lanes[:, None], slots]

    def _place(self, segment: Segment) -> tuple[int, int]:
        return segment.lane, segment.start // self.t_max % self._free.shape[1]
