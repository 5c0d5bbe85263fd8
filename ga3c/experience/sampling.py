"""Draws the rows of a batch from a replay, uniformly or in proportion to priorities.

Draws run where the replay is, and the host supplies only the importance exponent.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ga3c.backend import Column, Signature, Tensor
from ga3c.experience.memory import Memory
from ga3c.experience.priorities import Priorities
from ga3c.experience.ring import RingShape
from ga3c.settings.learning import linear
from ga3c.settings.replay import ReplayConfig

TRIES = 4  # candidates per batch slot; those that precede a reset or are repeated are dropped
SMALLEST_ERROR = 1e-6  # keeps every priority above 0 (Schaul et al. 2016, section 3.3)
LEAST, MOST = 1e-20, 1e20  # bounds of a priority, so that float32 sums are above 0 and finite
DRAWS = "priorities"  # the tree that prioritised draws use


class Sampler:
    """Draws rows, and keeps powers of their errors as priorities, each power in its own sum tree.

    Rows are drawn in proportion to the priorities in the tree `DRAWS`; uniformly if there is none.
    Not thread-safe: only one thread at a time may draw, learn or change what can be drawn.
    """

    def __init__(
        self,
        *,
        memory: Memory,
        rows: int,
        exponents: Mapping[str, float],
        evenly: Callable[[int, Tensor], tuple[Tensor, Tensor]],
        config: ReplayConfig,
        seed: int,
    ) -> None:
        """Args:
        rows: number of rows.
        exponents: the power of the errors in each tree, by the tree's name.
        evenly: takes a count and a seed int32 [2]; returns uniform rows [count], and a mask of
            those that may be drawn.
        """
        self._memory, self._ops, self._dtype = memory, memory.ops, memory.row_dtype
        self._config, self._seed, self._evenly = config, seed, evenly
        one: dict[str, Column] = {"draws": ((), "int32"), "largest": ((), "float32")}
        self._state = memory.table(one, 1)
        self._first = np.zeros(1, np.int32)
        self._exponents = dict(exponents)
        self.trees = {name: Priorities(memory, rows) for name in exponents}
        self._drawn = self.trees.get(DRAWS)

    def rate(self, progress: float) -> float:
        """The importance-sampling exponent."""
        config = self._config
        return linear(config.importance_exponent, config.importance_exponent_end, progress)

    def largest(self, rows: Tensor) -> Tensor:
        """The largest error so far, or 1 before the first, repeated for `rows` [k]."""
        largest = self._state.gather("largest", self._first)
        largest = self._ops.where(largest > SMALLEST_ERROR, largest, 1.0)
        return largest + self._memory.cast(self._ops.zeros_like(rows), "float32")

    def sizes(self, errors: Tensor) -> Tensor:
        """Sizes of errors, above 0. An error whose square is not finite gets the smallest: nothing
        can be learned from it, and otherwise its transition would be drawn again and again.
        """
        ops = self._ops
        return ops.where(ops.isfinite(errors * errors), ops.abs(errors), 0.0) + SMALLEST_ERROR

    def set(self, rows: Tensor, sizes: Tensor, mask: Any = 1.0) -> None:
        """Set the priorities of `rows` [k] in every tree.

        Args: sizes: [k] of errors, above 0; mask: [k] float32, 0 for rows not to be drawn.
        """
        for name, tree in self.trees.items():
            powers = self._ops.clip(sizes ** self._exponents[name], LEAST, MOST)
            tree.set(rows, powers * mask)

    def remove(self, rows: Tensor) -> None:
        """Set the priorities of `rows` [k] to 0 in every tree, so that they are no longer drawn."""
        for tree in self.trees.values():
            tree.clear(rows)

    def learned(self, rows: Tensor, errors: Tensor) -> None:
        """Set the priorities of the transitions at `rows` [B] from their errors [B]."""
        if not self.trees:
            return
        sizes = self.sizes(errors)
        self.set(rows, sizes)
        largest = self._state.gather("largest", self._first)
        self._state.write(
            self._first, {"largest": self._ops.maximum(largest, self._ops.max(sizes))}
        )

    def draw(self, importance_exponent: Any) -> tuple[Tensor, Tensor]:
        """Rows [B] and weights [B] of a batch."""
        ops, size = self._ops, self._config.batch_size
        seed = self._next_seed()
        if self._drawn is None:
            rows, good = self._evenly(size * TRIES, seed)
        else:
            count = size if self._config.replay_repeats else size * TRIES
            rows = self._drawn.draw(self._memory.uniform((count,), seed))
            good = self._drawn.of(rows) > 0
        order = np.arange(rows.shape[0], dtype=self._dtype)
        if not self._config.replay_repeats:
            twice = (rows[:, None] == rows[None, :]) & good[None, :] & (order[:, None] > order)
            good = good & ~ops.any(twice, axis=1)
        if rows.shape[0] > size:
            chosen = ops.argsort(ops.where(good, order, order + len(order)))[:size]
            rows, good = ops.take(rows, chosen), ops.take(good, chosen)
        return rows, self._weights(rows, good, importance_exponent)

    def _next_seed(self) -> Tensor:
        """A seed int32 [2] that is different for each draw."""
        ops = self._ops
        draws = self._state.gather("draws", self._first)
        self._state.write(self._first, {"draws": draws + 1})
        count = self._memory.cast(draws, "int32")
        return ops.concatenate([ops.zeros_like(count) + np.int32(self._seed), count], axis=0)

    def _weights(self, rows: Tensor, good: Tensor, exponent: Any) -> Tensor:
        """(N P)^-beta / max over the batch (Schaul et al. 2016, section 3.4); 0 if not good."""
        ops, good = self._ops, self._memory.cast(good, "float32")
        if self._drawn is None:
            return good
        priorities = self._drawn.of(rows)
        smallest = ops.min(ops.where(priorities > 0, priorities, np.float32(np.inf)))
        return good * ops.where(priorities > 0, priorities / smallest, np.float32(1)) ** -exponent

    def read(self) -> dict[str, np.ndarray]:
        """The sampler's own state: the draw count, the largest error and any priorities."""
        return {**self._state.read(), **{name: tree.read() for name, tree in self.trees.items()}}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises KeyError or ValueError if it does not fit."""
        self._state.restore(values)
        for name, tree in self.trees.items():
            tree.restore(values[name])


class VisibleSteps:
    """The drawable steps of every lane, as in `replay_book.Block`."""

    def __init__(self, ring: RingShape, memory: Memory) -> None:
        self._ring, self._memory = ring, memory
        columns: dict[str, Column] = {"slot": ((), "int32"), "count": ((), "int32")}
        self._lanes = memory.table(columns, ring.lanes)
        self._every_lane = np.arange(ring.lanes, dtype=np.int32)
        self.signature: Signature = [((ring.lanes,), "int32")] * 2
        """Shapes and dtypes of the arguments of `set`."""

    def set(self, slots: Tensor, counts: Tensor) -> None:
        """Each lane's oldest drawable slot, and its number of drawable steps: int32 [lanes]."""
        self._lanes.write(self._every_lane, {"slot": slots, "count": counts})

    def draw(self, count: int, seed: Tensor) -> Tensor:
        """Rows [count], uniform over the visible rows of the ring. At least one must be visible."""
        ops, cast, dtype = self._memory.ops, self._memory.cast, self._memory.row_dtype
        capacity = self._ring.capacity
        counts = self._lanes.gather("count", self._every_lane)
        ends = cast(ops.cumsum(counts), dtype)
        total = cast(ends[-1], "int32")
        draws = cast(self._memory.integers((count,), seed, total), dtype)
        lanes = cast(ops.searchsorted(ends, draws, side="right"), dtype)
        offsets = draws - ops.take(ends - counts, lanes)
        slots = (self._lanes.gather("slot", lanes) + offsets) % capacity
        return cast(lanes * capacity + slots, dtype)
