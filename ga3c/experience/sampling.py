"""Draws the rows of a batch from a replay, uniformly or in proportion to priorities.

Draws run where the ring is, and the host supplies only the importance exponent.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ga3c.backend import Column, Signature, Tensor
from ga3c.experience.priorities import Priorities
from ga3c.experience.ring import Experience
from ga3c.settings.learning import linear
from ga3c.settings.replay import ReplayConfig

TRIES = 4  # candidates per batch slot; those that precede a reset or are repeated are dropped
SMALLEST_ERROR = 1e-6  # keeps every priority above 0 (Schaul et al. 2016, section 3.3)


def following(experience: Experience, rows: Tensor, n_step: int) -> tuple[Tensor, Tensor, Tensor]:
    """The n steps after each of `rows` [B], as far as no reset comes first.

    Returns: their rows [B, n], whether each precedes the first reset [B, n] float32, and the row of
    the last one that does [B].
    """
    memory, dtype = experience.memory, experience.memory.row_dtype
    after = experience.ring.after(rows[:, None], np.arange(1, n_step + 1, dtype=dtype))
    valid = memory.ops.cumprod(1.0 - experience.gather("first", after), axis=1)
    count = memory.cast(memory.ops.sum(valid, axis=1), dtype)
    return after, valid, experience.ring.after(rows, count)


class Sampler:
    """Draws from the visible steps of every lane.

    Not thread-safe: only one thread at a time may draw, learn or publish.
    """

    def __init__(
        self, experience: Experience, config: ReplayConfig, seed: int, reward_clip: float = 0.0
    ) -> None:
        """Args: reward_clip: of the rewards in first priorities; 0: none."""
        self._reward_clip = reward_clip
        memory, ring = experience.memory, experience.ring
        self._experience, self._config, self._seed = experience, config, seed
        self._memory, self._ops, self._ring = memory, memory.ops, ring
        # Each lane's oldest drawable slot and its number of drawable steps, as in `window.Block`.
        visible: dict[str, Column] = {"slot": ((), "int32"), "count": ((), "int32")}
        self._lanes = memory.table(visible, ring.lanes)
        self._every_lane = np.arange(ring.lanes, dtype=np.int32)
        self._dtype = memory.row_dtype
        one: dict[str, Column] = {"draws": ((), "int32"), "largest": ((), "float32")}
        self._state = memory.table(one, 1)
        self._first = np.zeros(1, np.int32)
        self.is_prioritised = config.replay_draws == "prioritised"
        rows = ring.lanes * ring.capacity
        self._priorities = Priorities(memory, rows) if self.is_prioritised else None

    @property
    def signature(self) -> Signature:
        """Shapes and dtypes of the arguments of `publish`."""
        lanes: Signature = [((self._ring.lanes,), "int32")] * 2
        return [*lanes, ((None,), "int32"), ((None,), "int32")]

    def rate(self, progress: float) -> float:
        """The importance-sampling exponent."""
        config = self._config
        return linear(config.importance_exponent, config.importance_exponent_end, progress)

    def publish(self, slots: Tensor, counts: Tensor, entering: Tensor, leaving: Tensor) -> None:
        """Change which steps can be drawn.

        Args:
            slots, counts: int32 [lanes], each lane's oldest drawable slot, and its drawable steps.
            entering, leaving: int32 [k], rows that become drawable, and rows that cease to be.
        """
        ops = self._ops
        self._lanes.write(self._every_lane, {"slot": slots, "count": counts})
        if self._priorities is None:
            return
        if self._config.has_first_priorities:
            errors = self._finite(self._first_errors(entering))
        else:
            largest = ops.maximum(self._state.gather("largest", self._first), SMALLEST_ERROR)
            errors = ops.where(largest > SMALLEST_ERROR, largest, 1.0)
        firsts = self._experience.gather("first", self._ring.after(entering, 1))
        self._priorities.set(entering, errors**self._config.priority_exponent * (1.0 - firsts))
        self._priorities.set(leaving, self._memory.cast(ops.zeros_like(leaving), "float32"))

    def _first_errors(self, rows: Tensor) -> Tensor:
        """The errors of steps [k] by the values that acting had (Horgan et al. 2018, section 3).

        |R + D max_a Q(x_m, a) - Q(x_0, a_0)|, with the return R of the m steps to x_m, at most n,
        before a reset, and the product D of their discounts. Each Q is of the weights that acted.
        """
        ops, gather = self._ops, self._experience.gather
        rows = self._memory.cast(rows, self._dtype)
        after, valid, last = following(self._experience, rows, self._config.n_step)
        discounts = ops.where(valid > 0, gather("discount", after), 1.0)
        carried = ops.cumprod(discounts, axis=1)
        before = ops.concatenate([ops.ones_like(carried[:, :1]), carried[:, :-1]], axis=1)
        rewards = gather("reward", after)
        if self._reward_clip:
            rewards = ops.clip(rewards, -self._reward_clip, self._reward_clip)
        returns = ops.sum(valid * before * rewards, axis=1)
        return returns + carried[:, -1] * gather("value", last) - gather("q", rows)

    def _finite(self, errors: Tensor) -> Tensor:
        """Sizes of errors, above 0. One that is not finite would spoil all sums above it."""
        ops = self._ops
        return ops.where(ops.isfinite(errors), ops.abs(errors), 0.0) + SMALLEST_ERROR

    def draw(self, importance_exponent: Any) -> tuple[Tensor, Tensor]:
        """Rows [B] and weights [B] of a batch."""
        ops, size = self._ops, self._config.batch_size
        seed = self._next_seed()
        if self._priorities is None:
            rows, good = self._evenly(size * TRIES, seed)
        else:
            count = size if self._config.replay_repeats else size * TRIES
            rows = self._priorities.draw(self._memory.uniform((count,), seed))
            good = self._priorities.of(rows) > 0
        order = np.arange(rows.shape[0], dtype=self._dtype)
        if not self._config.replay_repeats:
            twice = (rows[:, None] == rows[None, :]) & good[None, :] & (order[:, None] > order)
            good = good & ~ops.any(twice, axis=1)
        if rows.shape[0] > size:
            chosen = ops.argsort(ops.where(good, order, order + len(order)))[:size]
            rows, good = ops.take(rows, chosen), ops.take(good, chosen)
        return rows, self._weights(rows, good, importance_exponent)

    def learned(self, rows: Tensor, errors: Tensor) -> None:
        """Set the priorities of the transitions at `rows` [B] from their errors [B]."""
        if self._priorities is None:
            return
        ops = self._ops
        errors = self._finite(errors)
        self._priorities.set(rows, errors**self._config.priority_exponent)
        largest = ops.maximum(self._state.gather("largest", self._first), ops.max(errors))
        self._state.write(self._first, {"largest": largest})

    def _next_seed(self) -> Tensor:
        """A seed int32 [2] that is different for each draw."""
        ops = self._ops
        draws = self._state.gather("draws", self._first)
        self._state.write(self._first, {"draws": draws + 1})
        count = self._memory.cast(draws, "int32")
        return ops.concatenate([ops.zeros_like(count) + np.int32(self._seed), count], axis=0)

    def _evenly(self, count: int, seed: Tensor) -> tuple[Tensor, Tensor]:
        """Uniform rows [count] of the drawable ones, and a mask of those that precede no reset."""
        ops, cast, dtype = self._ops, self._memory.cast, self._dtype
        capacity = self._ring.capacity
        counts = self._lanes.gather("count", self._every_lane)
        ends = cast(ops.cumsum(counts), dtype)
        draws = cast(self._memory.integers((count,), seed, cast(ends[-1], "int32")), dtype)
        lanes = cast(ops.searchsorted(ends, draws, side="right"), dtype)
        offsets = draws - ops.take(ends - counts, lanes)
        slots = (self._lanes.gather("slot", lanes) + offsets) % capacity
        rows = cast(lanes * capacity + slots, dtype)
        return rows, self._experience.gather("first", self._ring.after(rows, 1)) == 0

    def _weights(self, rows: Tensor, good: Tensor, exponent: Any) -> Tensor:
        """(N P)^-beta / max over the batch (Schaul et al. 2016, section 3.4); 0 if not good."""
        ops, good = self._ops, self._memory.cast(good, "float32")
        if self._priorities is None:
            return good
        priorities = self._priorities.of(rows)
        smallest = ops.min(ops.where(priorities > 0, priorities, np.float32(np.inf)))
        return good * (ops.maximum(priorities, SMALLEST_ERROR) / smallest) ** -exponent

    def devices(self) -> dict[str, str]:
        """The device that holds each column."""
        lies = {**self._lanes.devices(), **self._state.devices()}
        return {**lies, **self._priorities.devices()} if self._priorities else lies

    def read(self) -> dict[str, np.ndarray]:
        """The sampler's own state: the draw count, the largest error and any priorities."""
        values: dict[str, np.ndarray] = self._state.read()
        if self._priorities is not None:
            values["priorities"] = self._priorities.read()
        return values

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises KeyError or ValueError if it does not fit."""
        self._state.restore(values)
        if self._priorities is not None:
            self._priorities.restore(values["priorities"])
