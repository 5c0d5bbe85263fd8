"""Priorities of a replay's rows, and draws in proportion to them: a tree of sums.

Every node is the sum of `FANOUT` others. A draw goes down from the top, a change goes up from the
row; both are of whole batches, on the device or in RAM, and cost the logarithm of the rows.
"""

from typing import Any

import numpy as np

from ga3c.backend import Tensor
from ga3c.experience.memory import Memory

FANOUT = 16  # measured: benchmarks/results/replay has others


class Priorities:
    """A priority of at least 0 for each of `rows` rows; all are 0 at first."""

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
        """Set the priorities [n] of `rows` [n]; a row that comes twice has one of its two."""
        rows = self._cast(rows, self._row_dtype)
        self._levels[0].write(rows, {"sum": priorities})
        for below, level in zip(self._levels, self._levels[1:]):
            rows = rows // self._fanout
            level.write(rows, {"sum": self._ops.sum(self._below(below, rows), axis=1)})

    def draw(self, points: Tensor) -> Tensor:
        """Rows [n] at `points` [n] of [0, 1): each has its priority's share of them."""
        ops, top = self._ops, self._levels[-1]
        sums = top.gather("sum", self._children)
        left = points * ops.sum(sums)
        node = self._cast(ops.zeros_like(points), self._row_dtype)
        for level in reversed(self._levels):
            below = self._below(level, node)
            sums = ops.cumsum(below, axis=1)
            passed = ops.sum(self._cast(sums <= left[:, None], self._row_dtype), axis=1)
            last = ops.max(ops.where(below > 0, self._children, 0), axis=1)  # sums are rounded
            child = self._cast(ops.minimum(passed, last), self._row_dtype)
            chosen = child[:, None]
            before = ops.take_along_axis(sums - below, chosen, axis=1)[:, 0]
            left = ops.maximum(left - before, 0.0)
            node = node * self._fanout + child
        return node

    def _below(self, level: Any, nodes: Tensor) -> Tensor:
        """The sums [n, fanout] that the nodes [n] of the level above are made of."""
        return level.gather("sum", nodes[:, None] * self._fanout + self._children)

    def devices(self) -> dict[str, str]:
        """Where each level of the tree lies."""
        return {
            f"sums of {size:,}": level.devices()["sum"]
            for size, level in zip(self._sizes, self._levels, strict=True)
        }

    def read(self) -> np.ndarray:
        """The priorities of all rows."""
        priorities: np.ndarray = self._levels[0].read()["sum"]
        return priorities

    def restore(self, priorities: np.ndarray) -> None:
        """Take over what `read` gave. Raises ValueError if it does not fit."""
        self._levels[0].restore({"sum": priorities})
        for size, level in zip(self._sizes[1:], self._levels[1:]):
            sums = priorities.reshape(-1, self._fanout).sum(axis=1, dtype=np.float32)
            priorities = np.zeros(size, np.float32)
            priorities[: len(sums)] = sums
            level.restore({"sum": priorities})
