"""What is drawn from the ring: segments in the order they were played, or transitions of a replay.

A transition goes from a step to that n steps later, or to the last one before a reset if that
comes first. Draws are made where the ring is, and need nothing from the host but a rate.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ga3c import backend
from ga3c.backend import Column, Signature, Tensor
from ga3c.experience.batches import Segments, Transitions
from ga3c.experience.priorities import Priorities
from ga3c.experience.ring import Experience
from ga3c.experience.window import Block
from ga3c.settings.replay import ReplayConfig
from ga3c.settings.schedules import linear

TRIES = 4  # candidates of a batch's every place: some lead to a reset, or are there already
SMALLEST_ERROR = 1e-6  # so that no step is never drawn again (Schaul et al. 2016, section 3.3)


class Source(Protocol):
    """What the model asks for batches."""

    batch: Any
    """The type of a batch: a NamedTuple."""
    inputs: Signature
    """What the host says about each batch, where the experience is on the device."""

    def signature(self, count: int | None = None) -> Signature:
        """Of a batch of so many segments or transitions; None: of any number."""

    def rate(self, progress: float) -> float:
        """What `draw` is given last, at this progress of the schedules."""

    def draw(self, *inputs: Any) -> Any:
        """A batch. Args: inputs: as said, and the rate."""

    def learned(self, batch: Any, errors: Any) -> None:
        """These are the errors of a batch's parts."""

    def read(self) -> dict[str, np.ndarray]:
        """What draws depend on, but the ring itself; outside of compiled functions."""

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave. Raises KeyError or ValueError if it does not fit."""


class InOrder:
    """Segments that the host names: each is trained once."""

    batch: Any = Segments

    def __init__(self, experience: Experience, t_max: int) -> None:
        self._experience = experience
        self._t_max = t_max
        self.inputs: Signature = [((None,), "int32"), ((None, t_max + 1), "int32")]

    def signature(self, count: int | None = None) -> Signature:
        """Of a batch of so many segments."""
        ring = self._experience.ring
        steps = [((count, self._t_max), dtype) for dtype in ("int32", *["float32"] * 4)]
        observations = None if count is None else count * (self._t_max + 1)
        return [((observations, *ring.observation_shape), ring.dtype), *steps]

    def rate(self, progress: float) -> float:
        """Nothing changes as time goes by."""
        return 0.0

    def draw(self, *inputs: Any) -> Segments:
        """The segments of lanes [B] at slots [B, T + 1]."""
        lanes, slots, _ = inputs
        experience = self._experience
        rows = experience.ring.rows(lanes[:, None], slots)
        before, after = rows[:, :-1], rows[:, 1:]
        return Segments(
            observations=experience.stacks(lanes[:, None], slots, experience.gather("age", rows)),
            actions=experience.gather("action", before),
            log_probs=experience.gather("log_prob", before),
            rewards=experience.gather("reward", after),
            discounts=experience.gather("discount", after),
            firsts=experience.gather("first", after),
        )

    def learned(self, batch: Segments, errors: Any) -> None:
        """Nothing depends on what was learned."""

    def read(self) -> dict[str, np.ndarray]:
        """Nothing: the host names what is drawn."""
        return {}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Nothing."""


class Replay:
    """Draws from the visible steps of every lane, evenly or by priority.

    Not safe: one thread at a time draws, learns or makes visible.
    """

    batch: Any = Transitions

    def __init__(
        self,
        experience: Experience,
        config: ReplayConfig,
        n_step: int,
        batch_size: int,
        seed: int,
    ) -> None:
        self.inputs: Signature = []
        memory, ring = experience.memory, experience.ring
        self._experience, self._config = experience, config
        self._memory, self._ops, self._ring = memory, memory.ops, ring
        self._n_step, self._batch_size = n_step, batch_size
        self._seed = seed
        # The oldest step of each lane that can be drawn, and how many: as `lanes.Block` says.
        visible: dict[str, Column] = {"slot": ((), "int32"), "count": ((), "int32")}
        self._lanes = memory.table(visible, ring.lanes)
        self._every_lane = np.arange(ring.lanes, dtype=np.int32)
        self._dtype = memory.row_dtype
        one: dict[str, Column] = {"draws": ((), "int32"), "largest": ((), "float32")}
        self._state = memory.table(one, 1)
        self._first = np.zeros(1, np.int32)
        prioritised = config.replay_draws == "prioritised"
        self._priorities = Priorities(memory, ring.lanes * ring.capacity) if prioritised else None

    def signature(self, count: int | None = None) -> Signature:
        """Of a batch of so many transitions."""
        observation = ((count, *self._ring.observation_shape), self._ring.dtype)
        steps: Signature = [((count, self._n_step), "float32")] * 3
        one: Signature = [((count,), "int32"), ((count,), "float32")]
        return [*one, observation, ((count,), "int32"), *steps, observation]

    def rate(self, progress: float) -> float:
        """The importance exponent."""
        config = self._config
        return linear(config.importance_exponent, config.importance_exponent_end, progress)

    def publish_args(self, block: Block) -> tuple[np.ndarray, ...]:
        """The arguments of `publish` for a block.

        Rows are given only where they are needed, and padded to few different numbers, as a
        function may have to be compiled for each.
        """
        entering, leaving = block.entering, block.leaving
        if self._priorities is None:
            entering = leaving = np.zeros(0, np.int32)
        return block.slots, block.counts, _padded(entering), _padded(leaving)

    def publish(self, slots: Tensor, counts: Tensor, entering: Tensor, leaving: Tensor) -> None:
        """Let what a block says be drawn: `slots` and `counts` int32 [lanes], rows int32 [k]."""
        ops = self._ops
        self._lanes.write(self._every_lane, {"slot": slots, "count": counts})
        if self._priorities is None:
            return
        largest = ops.maximum(self._state.gather("largest", self._first), SMALLEST_ERROR)
        largest = ops.where(largest > SMALLEST_ERROR, largest, 1.0)
        firsts = self._experience.gather("first", self._after(entering, 1))
        self._priorities.set(entering, largest**self._config.priority_exponent * (1.0 - firsts))
        self._priorities.set(leaving, self._memory.cast(ops.zeros_like(leaving), "float32"))

    def draw(self, *inputs: Any) -> Transitions:
        """A batch. Args: inputs: the importance exponent."""
        rows, weights = self._rows(*inputs)
        return self.transitions(rows, weights)

    def learned(self, batch: Transitions, errors: Tensor) -> None:
        """Errors [B] of the batch's transitions: their next priorities."""
        if self._priorities is None:
            return
        ops = self._ops
        # One that is not finite would make every sum above it so, and draws with them.
        errors = ops.where(ops.isfinite(errors), ops.abs(errors), 0.0) + SMALLEST_ERROR
        self._priorities.set(batch.rows, errors**self._config.priority_exponent)
        largest = ops.maximum(self._state.gather("largest", self._first), ops.max(errors))
        self._state.write(self._first, {"largest": largest})

    def transitions(self, rows: Tensor, weights: Tensor) -> Transitions:
        """What begins at `rows` [B]."""
        ops, experience = self._ops, self._experience
        after = self._after(rows[:, None], np.arange(1, self._n_step + 1, dtype=self._dtype))
        valid = ops.cumprod(1.0 - experience.gather("first", after), axis=1)
        last = self._after(rows, self._memory.cast(ops.sum(valid, axis=1), self._dtype))
        return Transitions(
            rows=rows,
            weights=weights,
            observations=self._observations(rows),
            actions=experience.gather("action", rows),
            rewards=experience.gather("reward", after),
            discounts=experience.gather("discount", after),
            valid=valid,
            next_observations=self._observations(last),
        )

    def _observations(self, rows: Tensor) -> Tensor:
        capacity = self._ring.capacity
        ages = self._experience.gather("age", rows)
        return self._experience.stacks(rows // capacity, rows % capacity, ages)

    def _after(self, rows: Tensor, steps: Any) -> Tensor:
        """Rows of the same lane, so many steps later."""
        capacity = self._ring.capacity
        return rows // capacity * capacity + (rows % capacity + steps) % capacity

    def _rows(self, rate: Any) -> tuple[Tensor, Tensor]:
        """Rows [B] and weights [B] of a batch."""
        ops, size = self._ops, self._batch_size
        draws = self._state.gather("draws", self._first)
        self._state.write(self._first, {"draws": draws + 1})
        count_of_draws = self._memory.cast(draws, "int32")
        own = ops.zeros_like(count_of_draws) + np.int32(self._seed)
        seed = ops.concatenate([own, count_of_draws], axis=0)
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
        return rows, self._weights(rows, good, rate)

    def _evenly(self, count: int, seed: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [count] out of all that can be drawn, and which do not lead to a reset."""
        ops, cast, dtype = self._ops, self._memory.cast, self._dtype
        capacity = self._ring.capacity
        counts = self._lanes.gather("count", self._every_lane)
        ends = cast(ops.cumsum(counts), dtype)
        draws = cast(self._memory.integers((count,), seed, cast(ends[-1], "int32")), dtype)
        lanes = cast(ops.searchsorted(ends, draws, side="right"), dtype)
        offsets = draws - ops.take(ends - counts, lanes)
        slots = (self._lanes.gather("slot", lanes) + offsets) % capacity
        rows = cast(lanes * capacity + slots, dtype)
        return rows, self._experience.gather("first", self._after(rows, 1)) == 0

    def _weights(self, rows: Tensor, good: Tensor, rate: Any) -> Tensor:
        """(N P)^-beta over the batch's largest (Schaul et al. 2016, section 3.4); 0 if not good."""
        ops, good = self._ops, self._memory.cast(good, "float32")
        if self._priorities is None:
            return good
        priorities = self._priorities.of(rows)
        smallest = ops.min(ops.where(priorities > 0, priorities, np.float32(np.inf)))
        return good * (ops.maximum(priorities, SMALLEST_ERROR) / smallest) ** -rate

    def devices(self) -> dict[str, str]:
        """Where each column lies but those of the ring."""
        found = {**self._lanes.devices(), **self._state.devices()}
        if self._priorities is not None:
            found |= self._priorities.devices()
        return found

    def read(self) -> dict[str, np.ndarray]:
        """What draws depend on but the ring and what is visible of it."""
        found = self._state.read()
        if self._priorities is not None:
            found["priorities"] = self._priorities.read()
        return found

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave. Raises KeyError or ValueError if it does not fit."""
        self._state.restore(values)
        if self._priorities is not None:
            self._priorities.restore(values["priorities"])


def blank(drawn: Source, count: int) -> list[np.ndarray]:
    """Zeros for all parts of a batch of so many segments or transitions."""
    return [
        np.zeros([size or 0 for size in shape], dtype) for shape, dtype in drawn.signature(count)
    ]


def _padded(rows: np.ndarray) -> np.ndarray:
    """As many as the framework wants at once, by the last one again."""
    if not len(rows):
        return rows
    return np.pad(rows, (0, backend.filled(len(rows)) - len(rows)), mode="edge")
