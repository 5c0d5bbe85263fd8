"""A replay of whole transitions in numbered slots. Their errors decide which are evicted."""

from collections.abc import Mapping

import numpy as np

from ga3c.backend import Tensor
from ga3c.experience.memory import named, part
from ga3c.experience.replay import Replay, padded
from ga3c.experience.replay_book import Block, ReplayBook
from ga3c.experience.ring import Experience
from ga3c.settings.replay import ReplayConfig

EVICTIONS = "evictions"  # the tree of the priorities by which victims are drawn
MOST_INSERTED = 4096  # transitions inserted at once, to bound the memory that this takes


class SlotReplay(Replay):
    """Evicts by priority: a slot's chance of eviction is proportional to a power of its error.

    The exponent is at most 0, so transitions with the least to teach tend to leave first. Ape-X DPG
    does this with the exponent -0.4 (Horgan et al. 2018). It lets its replay grow, and evicts the
    excess every 100 updates. Here, once all slots are full, each new transition replaces one.

    Acting writes steps to a short ring. A flush copies newly completed transitions to slots, each
    with its first priority; no transition begins at the step right before a reset. Slots do not
    depend on the ring: it does not matter how long ago, or by which agent, their lane was played.
    """

    def __init__(
        self, experience: Experience, book: ReplayBook, config: ReplayConfig, *, seed: int
    ) -> None:
        """Args: book: no step may leave its window before the flush that makes it drawable."""
        self._slots = config.replay_steps
        super().__init__(
            experience,
            book,
            config,
            rows=self._slots,
            exponents={EVICTIONS: config.eviction_exponent},
            seed=seed,
        )
        memory, rows = self._memory, ((None,), "int32")
        self._seed = seed
        self._inserted = 0  # transitions since the replay began
        self._store = memory.table(self._reader.columns, self._slots)
        self._size = memory.table({"filled": ((), "int32")}, 1)
        self._first = np.zeros(1, np.int32)
        self._evictions = self._sampler.trees[EVICTIONS]
        self._begins = memory.compiled(self._may_begin, [rows])
        self._fallen_on = memory.compiled(self._evictions.draw, [((None,), "float32")])
        self._exclude = memory.compiled(self._evictions.clear, [rows])
        self._insert = memory.compiled(self._inserted_at, [rows, rows, ((1,), "int32")])

    @property
    def drawable(self) -> int:
        """How many slots are full."""
        return min(self._inserted, self._slots)

    def _show(self, block: Block) -> None:
        rows = block.entering
        rows = rows[np.asarray(self._begins(padded(rows)))[: len(rows)]]
        size = min(MOST_INSERTED, self._slots)
        for start in range(0, len(rows), size):
            self._add(rows[start : start + size])

    def _add(self, rows: np.ndarray) -> None:
        """Insert the transitions at the ring's `rows` [k], at most as many as there are slots."""
        filled = self.drawable
        free = np.arange(filled, min(filled + len(rows), self._slots), dtype=np.int32)
        slots = np.concatenate([free, self._victims(len(rows) - len(free))])
        size = np.array([filled + len(free)], np.int32)
        self._insert(padded(rows), padded(slots), size)
        self._inserted += len(rows)

    def _victims(self, count: int) -> np.ndarray:
        """The slots [count] int32 to empty, all different, drawn in proportion to their priorities.

        Draws are stratified: point i of k is drawn from the i-th of k equal parts of the sum, so
        two seldom fall on the same slot. A slot on which several fall is a victim once, and the
        missing victims are drawn from the other slots, until there are enough. As float32 sums are
        rounded, a round may find none. Then the first of the other slots are taken, so that the
        loop ends.
        """
        draws = np.random.default_rng([self._seed, self._inserted])
        victims = np.zeros(0, np.int32)
        while missing := count - len(victims):
            if len(victims):
                self._exclude(padded(victims))
            points = (np.arange(missing) + draws.random(missing)) / missing
            fallen_on = np.asarray(self._fallen_on(padded(points.astype(np.float32))))[:missing]
            found = np.setdiff1d(fallen_on.astype(np.int32), victims)
            if not len(found):
                others = np.setdiff1d(np.arange(self._slots, dtype=np.int32), victims)
                found = others[:missing]
            victims = np.concatenate([victims, found])
        return victims

    def _may_begin(self, rows: Tensor) -> Tensor:
        return self._reader.may_begin(self._memory.cast(rows, self._memory.row_dtype))

    def _inserted_at(self, rows: Tensor, slots: Tensor, filled: Tensor) -> None:
        """Copy the transitions at the ring's `rows` [k] to `slots` [k]; `filled` [1] are full."""
        rows = self._memory.cast(rows, self._memory.row_dtype)
        self._store.write(slots, self._reader.read(rows))
        self._sampler.set(slots, self._first_sizes(rows))
        self._size.write(self._first, {"filled": filled})

    def _evenly(self, count: int, seed: Tensor) -> tuple[Tensor, Tensor]:
        memory, ops = self._memory, self._memory.ops
        filled = memory.cast(self._size.gather("filled", self._first)[0], "int32")
        slots = memory.integers((count,), seed, ops.maximum(filled, 1))
        return memory.cast(slots, memory.row_dtype), slots < filled

    def _transitions(self, rows: Tensor) -> Mapping[str, Tensor]:
        return {name: self._store.gather(name, rows) for name in self._reader.columns}

    def _read(self) -> dict[str, np.ndarray]:
        inserted = {"inserted": np.array([self._inserted], np.int64)}
        return {**super()._read(), **named(slots={**self._store.read(), **inserted})}

    def _restore(self, values: Mapping[str, np.ndarray]) -> None:
        super()._restore(values)
        slots = part(values, "slots")
        self._store.restore(slots)
        self._inserted = int(slots["inserted"][0])
        self._size.restore({"filled": np.array([self.drawable], np.int32)})
