"""The observation's home: a ring of steps for every environment lane.

A step's record is its newest frame, the outcome that came with it, and what acting added. It
is written once, when the prediction is made; stacks are gathered from the ring, for acting and
for learning alike. It is kept where the model is, or in RAM, from where every stack is sent anew:
the comparison that the published systems are about (`ga3c/experience/memory.py`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from agents.environments import Spaces
from ga3c.backend import Column, Tensor
from ga3c.experience.memory import Memory

MOST_ROWS = 2**31


class Arrivals(NamedTuple):
    """n newest frames with their outcomes, each of another lane."""

    lanes: np.ndarray  # [n] int32
    slots: np.ndarray  # [n] int32, position in the lane's ring
    ages: np.ndarray  # [n] int32, steps since the reset, at most stack - 1
    outcomes: np.ndarray  # [n, 3] float32: reward, discount, first
    frames: np.ndarray  # [n, *shape]
    exploration: np.ndarray | None = None  # [n] float32, of the algorithm; None: 0


def step_record(index: Tensor, outcomes: Tensor, frames: Tensor) -> dict[str, Tensor]:
    """The columns of n steps' records that do not depend on the algorithm.

    Args:
        index: [n, 3] int32, lane, slot and age.
        outcomes: [n, 3] float32, as in `Arrivals`.
        frames: [n, pixels].
    """
    return {
        "frame": frames,
        "age": index[:, 2],
        "reward": outcomes[:, 0],
        "discount": outcomes[:, 1],
        "first": outcomes[:, 2],
    }


@dataclass(frozen=True)
class RingShape:
    """How large the ring is and what one observation looks like."""

    lanes: int
    capacity: int  # slots of a lane
    shape: tuple[int, ...]  # of the newest frame
    dtype: str
    stack: int

    def __post_init__(self) -> None:
        if self.lanes * self.capacity >= MOST_ROWS:
            raise ValueError(
                f"a ring of {self.lanes:,} environments x {self.capacity:,} steps has "
                f"{self.lanes * self.capacity:,} rows >= {MOST_ROWS:,}: they are numbered with 32 "
                "bits; keep fewer steps"
            )

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

    def bytes(self, columns: Mapping[str, Column]) -> int:
        """Of a ring with these columns besides its own."""
        entries = {**self.columns(), **columns}.values()
        row = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in entries)
        return row * self.lanes * self.capacity

    def rows(self, lanes: Any, slots: Any) -> Any:
        """Rows of the flat ring."""
        return lanes * self.capacity + slots

    def after(self, rows: Any, steps: Any) -> Any:
        """Rows of the same lanes, so many steps later."""
        return (
            rows // self.capacity * self.capacity + (rows % self.capacity + steps) % self.capacity
        )

    def stack_rows(self, lanes: Any, slots: Any, ages: Any, minimum: Callable) -> list[Any]:
        """Rows of an observation's frames, oldest first; a reset's frame stands for all before."""
        return [
            self.rows(lanes, (slots - minimum(ages, back)) % self.capacity)
            for back in reversed(range(self.stack))
        ]


class Experience:
    """The ring in a memory: on the device, for use inside compiled functions, or in RAM."""

    def __init__(self, ring: RingShape, columns: Mapping[str, Column], memory: Memory) -> None:
        self.ring = ring
        self.memory = memory
        self._table = memory.table({**ring.columns(), **columns}, ring.lanes * ring.capacity)

    @property
    def on_device(self) -> bool:
        """Whether it lives where the model is."""
        return self.memory.on_device

    def write(self, rows: Tensor, values: Mapping[str, Tensor]) -> None:
        """Put entries at `rows` [n]."""
        self._table.write(rows, values)

    def gather(self, name: str, rows: Tensor) -> Tensor:
        """A column's entries at `rows`."""
        return self._table.gather(name, rows)

    def stacks(self, lanes: Tensor, slots: Tensor, ages: Tensor) -> Tensor:
        """Observations [k, *observation_shape] of k lanes, slots and ages."""
        memory = self.memory
        lanes, slots, ages = (memory.cast(x, memory.row_dtype) for x in (lanes, slots, ages))
        rows = self.ring.stack_rows(lanes, slots, ages, memory.ops.minimum)
        frames = [self.gather("frame", row) for row in rows]
        shape = (-1, *self.ring.observation_shape)
        return memory.ops.reshape(memory.channels_last(frames), shape)

    def observations(self, rows: Tensor) -> Tensor:
        """Observations [k, *observation_shape] whose newest frames are at `rows` [k]."""
        capacity = self.ring.capacity
        return self.stacks(rows // capacity, rows % capacity, self.gather("age", rows))

    def devices(self) -> dict[str, str]:
        """Where each column lies."""
        return self._table.devices()

    def read(self) -> dict[str, np.ndarray]:
        """A copy of every column; outside of compiled functions."""
        return self._table.read()

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave."""
        self._table.restore(values)
