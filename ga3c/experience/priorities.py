"""Priorities of a replay's rows, and draws in proportion to them, with a sum tree.

Every node is the sum of its `FANOUT` children. A draw descends from the root, and a new priority
propagates up from its row. Both work on whole batches, on the device or in RAM, in time logarithmic
in the number of rows.
"""

from typing import Any

import numpy as np

from ga3c.backend import Tensor
from ga3c.experience.memory import Memory

FANOUT = 16  # chosen by measurement; benchmarks/results/replay compares others


class Priorities:
    """A priority of at least 0 for each of `rows` rows, initially 0."""

    def __init__(self, memory: Memory, rows: int, fanout: int = FANOUT) -> None:
        self._ops, self._cast, self._fanout = memory.ops, memory.cast, fanout
        sizes = [-(-rows // fanout) * fanout]
        while sizes[-1] > fanout:
            sizes.append(-(-sizes[-1] // fanout**2) * fanout)
        self._sizes = sizes
        self._levels: list[Any] = [memory.table({"sum": ((), "float32")}, s) for s in sizes]
        self._row_dtype = memory.row_dtype
        self._children = np.arange(fanout, dtype=memory.row_dtype)

    def of(self, rows: Tensor) -> Tensor:
        """The priorities of `rows` [n]."""
        return self._levels[0].gather("sum", rows)

    def set(self, rows: Tensor, priorities: Tensor) -> None:
        """Set the priorities [n] of `rows` [n]. A row given twice keeps one of its two values."""
        rows = self._cast(rows, self._row_dtype)
        self._levels[0].write(rows, {"sum": priorities})
        for below, level in zip(self._levels, self._levels[1:]):
            rows = rows // self._fanout
            level.write(rows, {"sum": self._ops.sum(self._below(below, rows), axis=1)})

    def clear(self, rows: Tensor) -> None:
        """Set the priorities of `rows` [n] to 0."""
        self.set(rows, self._cast(self._ops.zeros_like(rows), "float32"))

    def draw(self, points: Tensor) -> Tensor:
        """The rows [n] that `points` [n] in [0, 1) fall on, if row i covers p_i / sum_k p_k."""
        ops, top = self._ops, self._levels[-1]
        sums = top.gather("sum", self._children)
        left = points * ops.sum(sums)
        node = self._cast(ops.zeros_like(points), self._row_dtype)
        # Cumulative sums are rounded, so the child is capped at the last one with a sum above 0.
        for level in reversed(self._levels):
            below = self._below(level, node)
            sums = ops.cumsum(below, axis=1)
            passed = ops.sum(self._cast(sums <= left[:, None], self._row_dtype), axis=1)
            last = ops.max(ops.where(below > 0, self._children, 0), axis=1)
            child = self._cast(ops.minimum(passed, last), self._row_dtype)
            chosen = child[:, None]
            before = ops.take_along_axis(sums - below, chosen, axis=1)[:, 0]
            left = ops.maximum(left - before, 0.0)
            node = node * self._fanout + child
        return node

    def _below(self, level: Any, nodes: Tensor) -> Tensor:
        """The sums [n, fanout] of the children, at `level`, of the `nodes` [n] one level up."""
        return level.gather("sum", nodes[:, None] * self._fanout + self._children)

    def read(self) -> np.ndarray:
        """The priorities of all rows."""
        return self._levels[0].read()["sum"]

    def restore(self, priorities: np.ndarray) -> None:
        """Restore what `read` returned. Raises ValueError if it does not fit."""
        self._levels[0].restore({"sum": priorities})
        for size, level in zip(self._sizes[1:], self._levels[1:]):
            sums = priorities.reshape(-1, self._fanout).sum(axis=1, dtype=np.float32)
            priorities = np.zeros(size, np.float32)
            priorities[: len(sums)] = sums
            level.restore({"sum": priorities})
