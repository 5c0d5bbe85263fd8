"""The only store of observations: a ring of steps for every environment lane.

A step's record is its newest frame, the outcome that came with it, and the columns that acting
adds. It is written once, when the prediction is made. Stacks of frames are gathered from the ring,
both for acting and for learning. The ring is either on the model's device, or in RAM, in which case
every stack is sent to the device for each use (`ga3c/experience/memory.py`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from agents.actions import Actions
from agents.environments import Spaces
from ga3c.backend import Column, Tensor
from ga3c.experience.memory import Memory, row_bytes

MOST_ROWS = 2**31


class Arrivals(NamedTuple):
    """The newest frames of n different lanes, with their outcomes."""

    lanes: np.ndarray  # [n] int32
    slots: np.ndarray  # [n] int32, position in the lane's ring
    ages: np.ndarray  # [n] int32, steps since the reset, at most stack - 1
    outcomes: np.ndarray  # [n, 3] float32: reward, discount, first
    frames: np.ndarray  # [n, *shape]
    exploration: np.ndarray  # [n] float32, as `Algorithm.exploration` gives it


def outcome_rows(outcomes: np.ndarray, discount: float) -> np.ndarray:
    """Reward, discount and first of n steps, float32 [n, 3], as `Arrivals.outcomes`.

    Args: outcomes: [n] of `agents.messages.OUTCOME`; discount: of a step that does not terminate.
    """
    discounts = np.where(outcomes["terminated"] == 1, 0.0, discount)
    firsts = outcomes["first"] == 1
    return np.stack([outcomes["reward"], discounts, firsts], axis=1).astype(np.float32)


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


def filled_rows(rows: np.ndarray, size: int) -> np.ndarray:
    """`rows`, padded with zeros to `size` rows."""
    more = size - len(rows)
    return np.concatenate([rows, np.zeros((more, *rows.shape[1:]), rows.dtype)]) if more else rows


@dataclass(frozen=True)
class RingShape:
    """How large the ring is and what one observation looks like."""

    lanes: int
    capacity: int  # slots of a lane
    shape: tuple[int, ...]  # of one frame
    dtype: str
    stack: int

    def __post_init__(self) -> None:
        if self.lanes * self.capacity >= MOST_ROWS:
            raise ValueError(
                f"a ring of {self.lanes:,} environments x {self.capacity:,} steps has "
                f"{self.lanes * self.capacity:,} rows >= {MOST_ROWS:,}: row numbers have 32 bits; "
                "use fewer --agents or --envs-per-agent, or keep fewer steps"
            )

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation as the network sees it: [h, w, channels * stack], or flat."""
        spaces = Spaces(self.shape, self.dtype, Actions(1), self.stack)
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
        """Size in bytes of a ring that has these columns besides its own."""
        return row_bytes({**self.columns(), **columns}) * self.lanes * self.capacity

    def rows(self, lanes: Any, slots: Any) -> Any:
        """Row numbers in the flat ring of these lanes and slots."""
        return lanes * self.capacity + slots

    def after(self, rows: Any, steps: Any) -> Any:
        """The rows of the same lanes, `steps` steps later."""
        return (
            rows // self.capacity * self.capacity + (rows % self.capacity + steps) % self.capacity
        )

    def stack_rows(self, lanes: Any, slots: Any, ages: Any, minimum: Callable) -> list[Any]:
        """Rows of an observation's frames, oldest first. The reset frame repeats to fill it."""
        return [
            self.rows(lanes, (slots - minimum(ages, back)) % self.capacity)
            for back in reversed(range(self.stack))
        ]


class Experience:
    """The ring's data: on the device, for use inside compiled functions, or in RAM."""

    def __init__(
        self,
        ring: RingShape,
        columns: Mapping[str, Column],
        memory: Memory,
        reward_clip: float = 0.0,
    ) -> None:
        """Args: reward_clip: learning clips rewards to [-reward_clip, reward_clip]; 0: never."""
        self.ring = ring
        self.memory = memory
        self._reward_clip = reward_clip
        self.columns = {**ring.columns(), **columns}
        """Shape and dtype of every column's entry."""
        self._table = memory.table(self.columns, ring.lanes * ring.capacity)

    def write(self, rows: Tensor, values: Mapping[str, Tensor]) -> None:
        """Put entries at `rows` [n]."""
        self._table.write(rows, values)

    def gather(self, name: str, rows: Tensor) -> Tensor:
        """A column's entries at `rows`."""
        return self._table.gather(name, rows)

    def rewards(self, rows: Tensor) -> Tensor:
        """The rewards at `rows`, as learning sees them: clipped."""
        return self.clipped(self.gather("reward", rows))

    def clipped(self, rewards: Tensor) -> Tensor:
        """Rewards that the ring or a slot holds, as learning sees them."""
        limit = self._reward_clip
        return self.memory.ops.clip(rewards, -limit, limit) if limit else rewards

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

    def read(self) -> dict[str, np.ndarray]:
        """A copy of every column. Call outside of compiled functions."""
        return self._table.read()

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned."""
        self._table.restore(values)
