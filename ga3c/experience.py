"""The observation's home: a ring of steps for every environment lane.

A step's record is its newest frame, the outcome that came with it, and what acting added. It
is written once, when the prediction is made; stacks are gathered from the ring, for acting and
for learning alike. `DeviceExperience` keeps it where the model is, `HostExperience` in RAM, from
where every stack is sent anew: the comparison that the published systems are about.

`Lanes` is the host's book about the ring: which slot comes next, which segments are still to be
trained, and so what may be overwritten.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from agents.environments import Spaces
from ga3c import backend
from ga3c.backend import Column, Tensor

BOOK = ("steps", "starts", "ages", "versions", "free")  # all that `Lanes` knows


class Arrivals(NamedTuple):
    """n newest frames with their outcomes, each of another lane."""

    lanes: np.ndarray  # [n] int32
    slots: np.ndarray  # [n] int32, position in the lane's ring
    ages: np.ndarray  # [n] int32, steps since the reset, at most stack - 1
    outcomes: np.ndarray  # [n, 3] float32: reward, discount, first
    frames: np.ndarray  # [n, *shape]


@dataclass(frozen=True)
class RingShape:
    """How large the ring is and what one observation looks like."""

    lanes: int
    capacity: int  # slots of a lane
    shape: tuple[int, ...]  # of the newest frame
    dtype: str
    stack: int

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """As the network sees an observation: [h, w, channels * stack], or a flat vector."""
        spaces = Spaces(self.shape, self.dtype, 1, self.stack)
        if not spaces.is_picture:
            return (math.prod(self.shape) * self.stack,)
        return (*self.shape[:2], math.prod(self.shape[2:]) * self.stack)

    def columns(self) -> dict[str, Column]:
        """The columns of a step's record that do not depend on the algorithm."""
        return {
            "frame": ((math.prod(self.shape),), self.dtype),
            "age": ((), "int32"),
            "reward": ((), "float32"),
            "discount": ((), "float32"),
            "first": ((), "float32"),
        }

    def rows(self, lanes: Any, slots: Any) -> Any:
        """Rows of the flat ring."""
        return lanes * self.capacity + slots

    def stack_rows(self, lanes: Any, slots: Any, ages: Any, minimum: Callable) -> list[Any]:
        """Rows of an observation's frames, oldest first; a reset's frame stands for all before."""
        return [
            self.rows(lanes, (slots - minimum(ages, back)) % self.capacity)
            for back in reversed(range(self.stack))
        ]


class DeviceExperience:
    """The ring on the device. All methods are for use inside a compiled function."""

    on_device = True

    def __init__(self, ring: RingShape, columns: Mapping[str, Column]) -> None:
        self.ring = ring
        self._ring = backend.DeviceRing({**ring.columns(), **columns}, ring.lanes * ring.capacity)

    def write(self, rows: Tensor, values: Mapping[str, Tensor]) -> None:
        """Put entries at `rows` int32 [n]."""
        self._ring.write(rows, values)

    def gather(self, name: str, rows: Tensor) -> Tensor:
        """A column's entries at `rows`."""
        return self._ring.gather(name, rows)

    def stacks(self, lanes: Tensor, slots: Tensor, ages: Tensor) -> Tensor:
        """Observations [k, *observation_shape] of k int32 lanes, slots and ages."""
        shape = (-1, *self.ring.observation_shape)
        rows = self.ring.stack_rows(lanes, slots, ages, backend.minimum)
        frames = [self.gather("frame", row) for row in rows]
        return backend.reshape(backend.channels_last(frames), shape)

    def read(self) -> dict[str, np.ndarray]:
        """A copy of every column; outside of compiled functions."""
        return self._ring.read()

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave."""
        self._ring.restore(values)


class HostExperience:
    """The same ring in RAM, in numpy."""

    on_device = False

    def __init__(self, ring: RingShape, columns: Mapping[str, Column]) -> None:
        self.ring = ring
        rows = ring.lanes * ring.capacity
        self._columns = {
            name: np.zeros((rows, *shape), dtype)
            for name, (shape, dtype) in {**ring.columns(), **columns}.items()
        }

    def write(self, rows: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        """Put entries at `rows`."""
        for name, value in values.items():
            self._columns[name][rows] = value

    def gather(self, name: str, rows: np.ndarray) -> np.ndarray:
        """A column's entries at `rows`."""
        return self._columns[name][rows]

    def stacks(self, lanes: np.ndarray, slots: np.ndarray, ages: np.ndarray) -> np.ndarray:
        """Observations [k, *observation_shape]."""
        shape = (-1, *self.ring.observation_shape)
        rows = self.ring.stack_rows(lanes, slots, ages, np.minimum)
        if self.ring.stack == 1:
            return self.gather("frame", rows[0]).reshape(shape)
        frames = self.gather("frame", np.stack(rows, axis=-1))
        return np.ascontiguousarray(np.moveaxis(frames, -2, -1)).reshape(shape)

    def read(self) -> dict[str, np.ndarray]:
        """A copy of every column."""
        return {name: column.copy() for name, column in self._columns.items()}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave."""
        for name, column in self._columns.items():
            column[:] = values[name]


class Segment(NamedTuple):
    """`t_max` steps of a lane, whose records are in the ring: a promise not to overwrite them."""

    lane: int
    start: int  # the lane's step count at its first observation


class Lanes:
    """Which slot of its ring each lane fills next, and which segments await training.

    Segment k of a lane holds its steps k T .. (k + 1) T. At most `pending` segments of a lane
    await training, the one being filled among them; the ring has room for those and the older
    frames of the first stack: pending * T + stack slots. `admit` waits where a step would overwrite
    one of them: this is what bounds policy lag. Safe for several predictors and trainers, as
    each lane is with one predictor at a time.
    """

    def __init__(self, lanes: int, t_max: int, pending: int, stack: int) -> None:
        self.capacity = pending * t_max + stack
        self.t_max = t_max
        self._stack = stack
        self._steps = np.full(lanes, -1, np.int64)  # of the newest record
        self._starts = np.zeros(lanes, np.int64)  # the first record of who plays the lane now
        self._ages = np.zeros(lanes, np.int32)
        self._versions = np.zeros((lanes, self.capacity), np.int64)
        self._free = np.ones((lanes, pending), bool)  # of segment k at k % pending
        self._trained = threading.Condition()

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
        steps = self._steps[lanes] + 1
        self._steps[lanes] = steps
        ages = np.where(firsts, 0, np.minimum(self._ages[lanes] + 1, self._stack - 1))
        self._ages[lanes] = ages
        slots = steps % self.capacity
        self._versions[lanes, slots] = version
        return slots.astype(np.int32), ages.astype(np.int32)

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
