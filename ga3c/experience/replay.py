"""Replays: sources of transitions drawn at random. `RingReplay` keeps the newest steps."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from ga3c import backend
from ga3c.backend import Signature, Tensor
from ga3c.experience.batches import TransitionReader, Transitions
from ga3c.experience.memory import named, part
from ga3c.experience.replay_book import Block, ReplayBook
from ga3c.experience.ring import Experience
from ga3c.experience.sampling import DRAWS, Sampler, VisibleSteps
from ga3c.settings.replay import ReplayConfig


class Replay(ABC):
    """A `batches.Source` of transitions, drawn at random.

    New steps can be drawn after the next `flush`. The thread that draws, learns or flushes holds
    the lock; predictors may write meanwhile.
    """

    batch: Any = Transitions
    item_steps: int = 1

    def __init__(
        self,
        experience: Experience,
        book: ReplayBook,
        config: ReplayConfig,
        *,
        rows: int,
        exponents: Mapping[str, float],
        seed: int,
    ) -> None:
        """Args:
        rows: how many transitions it has room for.
        exponents: power of the errors in each priority tree other than that of prioritised draws.
        """
        self.experience = experience
        self.book = book
        self.lock = threading.Lock()
        self.inputs: Signature = []
        self._config = config
        self._memory, self._ring = experience.memory, experience.ring
        self._reader = TransitionReader(experience, config.n_step)
        prioritised = config.replay_draws == "prioritised"
        self._sampler = Sampler(
            memory=self._memory,
            rows=rows,
            exponents={**({DRAWS: config.priority_exponent} if prioritised else {}), **exponents},
            evenly=self._evenly,
            config=config,
            seed=seed,
        )

    @property
    @abstractmethod
    def drawable(self) -> int:
        """How many transitions there are to draw from."""

    @abstractmethod
    def _show(self, block: Block) -> None:
        """Let draws use the steps that the block makes visible. The caller holds the lock."""

    @abstractmethod
    def _evenly(self, count: int, seed: Tensor) -> tuple[Tensor, Tensor]:
        """Uniform rows [count] for a seed int32 [2], and a mask of those that may be drawn."""

    @abstractmethod
    def _transitions(self, rows: Tensor) -> Mapping[str, Tensor]:
        """The transitions at `rows` [B]: fields of `Transitions` by name; rewards unclipped."""

    def _first_sizes(self, rows: Tensor) -> Tensor:
        """Initial error sizes [k] of the steps at the ring's `rows` [k]."""
        if self._config.has_first_priorities:
            return self._sampler.sizes(self._reader.errors(rows))
        return self._sampler.largest(rows)

    def signature(self, count: int | None = None) -> Signature:
        """Shapes and dtypes of a batch of `count` transitions."""
        one: Signature = [((count,), "int32"), ((count,), "float32")]
        columns = self._reader.columns.values()
        return [*one, *(((count, *shape), dtype) for shape, dtype in columns)]

    def flush(self) -> Block:
        """Make all steps played so far visible to draws. Returns what changed.

        The order matters: the book decides which steps enter and leave, then draws switch to them,
        and only then may predictors overwrite the steps that left.
        """
        block = self.book.flush()
        with self.lock:
            self._show(block)
        self.book.flushed(block)
        return block

    def rates(self, progress: float) -> dict[str, float]:
        """The importance-sampling exponent."""
        return {"importance_exponent": self._sampler.rate(progress)}

    def draw(self, rates: Mapping[str, Any], *inputs: Any) -> Transitions:
        """A batch. There are no inputs from the host."""
        rows, weights = self._sampler.draw(rates["importance_exponent"])
        drawn = Transitions(rows=rows, weights=weights, **self._transitions(rows))
        return drawn._replace(rewards=self.experience.clipped(drawn.rewards))

    def learned(self, batch: Transitions, errors: Tensor) -> None:
        """Set the priorities of the batch's transitions from their errors [B]."""
        self._sampler.learned(batch.rows, errors)

    def read(self) -> dict[str, np.ndarray]:
        """The ring's `ring/COLUMN`, the sampler's `replay/NAME` and the book's `lanes/NAME`."""
        with self.lock:
            return self._read()

    def _read(self) -> dict[str, np.ndarray]:
        return named(
            ring=self.experience.read(), replay=self._sampler.read(), lanes=self.book.read()
        )

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises ValueError if it does not fit."""
        try:
            with self.lock:
                self._restore(values)
        except KeyError as error:
            raise ValueError(f"the experience has no {error}") from error

    def _restore(self, values: Mapping[str, np.ndarray]) -> None:
        self.experience.restore(part(values, "ring"))
        self._sampler.restore(part(values, "replay"))
        self.book.restore(part(values, "lanes"))


class RingReplay(Replay):
    """First in, first out: a long ring, from whose visible steps transitions are drawn."""

    def __init__(
        self, experience: Experience, book: ReplayBook, config: ReplayConfig, *, seed: int
    ) -> None:
        rows = experience.ring.lanes * experience.ring.capacity
        super().__init__(experience, book, config, rows=rows, exponents={}, seed=seed)
        self._visible = VisibleSteps(self._ring, self._memory)
        changes: Signature = [((None,), "int32")] * 2
        signature = [*self._visible.signature, *changes]
        self._publish = self._memory.compiled(self._published, signature)

    @property
    def drawable(self) -> int:
        """How many steps can be drawn, including those just before a reset."""
        return self.book.drawable

    def _show(self, block: Block) -> None:
        entering, leaving = block.entering, block.leaving
        if not self._sampler.trees:  # only priorities need the rows
            entering = leaving = np.zeros(0, np.int32)
        self._publish(block.slots, block.counts, padded(entering), padded(leaving))

    def _published(self, slots: Tensor, counts: Tensor, entering: Tensor, leaving: Tensor) -> None:
        """Change which steps can be drawn.

        Args:
            slots, counts: int32 [lanes], each lane's oldest drawable slot and drawable step count.
            entering, leaving: int32 [k], rows that become drawable, and rows that cease to be.
        """
        self._visible.set(slots, counts)
        if not self._sampler.trees:
            return
        cast = self._memory.cast
        entering = cast(entering, self._memory.row_dtype)
        mask = cast(self._reader.may_begin(entering), "float32")
        self._sampler.set(entering, self._first_sizes(entering), mask)
        self._sampler.remove(leaving)

    def _evenly(self, count: int, seed: Tensor) -> tuple[Tensor, Tensor]:
        rows = self._visible.draw(count, seed)
        return rows, self._reader.may_begin(rows)

    def _transitions(self, rows: Tensor) -> Mapping[str, Tensor]:
        return self._reader.read(rows)

    def _restore(self, values: Mapping[str, np.ndarray]) -> None:
        super()._restore(values)
        self._show(self.book.visible())


def padded(rows: np.ndarray) -> np.ndarray:
    """The rows, padded with the last one to a size that the framework prefers.

    A function may be compiled once for each size, so there should be few sizes.
    """
    if not len(rows):
        return rows
    return np.pad(rows, (0, backend.filled(len(rows)) - len(rows)), mode="edge")
