"""A replay: a long ring, its book, and draws of transitions from the ring's visible steps.

A transition goes from one step to the step n later, or to the last step before a reset if the
reset comes first.
"""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ga3c import backend
from ga3c.backend import Signature, Tensor
from ga3c.experience.batches import Transitions
from ga3c.experience.memory import named, part
from ga3c.experience.ring import Experience
from ga3c.experience.sampling import Sampler, following
from ga3c.experience.window import Block, ReplayBook
from ga3c.settings.replay import ReplayConfig


class Replay:
    """A `batches.Source` of transitions, drawn at random.

    New steps can be drawn after the next `flush`. The thread that draws, learns or flushes holds
    the lock; predictors may write meanwhile.
    """

    batch: Any = Transitions

    def __init__(
        self,
        experience: Experience,
        book: ReplayBook,
        config: ReplayConfig,
        seed: int,
        reward_clip: float = 0.0,
    ) -> None:
        """Args: reward_clip: of the rewards in first priorities, as the algorithm's; 0: none."""
        self.experience = experience
        self.book = book
        self.lock = threading.Lock()
        self.inputs: Signature = []
        self._config = config
        self._memory, self._ring = experience.memory, experience.ring
        self._sampler = Sampler(experience, config, seed, reward_clip)
        self._publish = self._memory.compiled(self._sampler.publish, self._sampler.signature)

    def signature(self, count: int | None = None) -> Signature:
        """Shapes and dtypes of a batch of `count` transitions."""
        observation = ((count, *self._ring.observation_shape), self._ring.dtype)
        steps: Signature = [((count, self._config.n_step), "float32")] * 3
        one: Signature = [((count,), "int32"), ((count,), "float32")]
        shape, dtype = self.experience.columns["action"]
        return [*one, observation, ((count, *shape), dtype), *steps, observation]

    def flush(self) -> Block:
        """Make all steps played so far visible to draws. Returns what changed.

        The order matters: the book decides which steps enter and leave, then the sampler is
        updated, and only then may predictors overwrite the steps that left.
        """
        block = self.book.flush()
        self._show(block)
        self.book.flushed(block)
        return block

    def _show(self, block: Block) -> None:
        entering, leaving = block.entering, block.leaving
        if not self._sampler.is_prioritised:  # only priorities need the rows
            entering = leaving = np.zeros(0, np.int32)
        with self.lock:
            self._publish(block.slots, block.counts, _padded(entering), _padded(leaving))

    def rates(self, progress: float) -> dict[str, float]:
        """The importance-sampling exponent."""
        return {"importance_exponent": self._sampler.rate(progress)}

    def draw(self, rates: Mapping[str, Any], *inputs: Any) -> Transitions:
        """A batch. There are no inputs from the host."""
        return self.transitions(*self._sampler.draw(rates["importance_exponent"]))

    def learned(self, batch: Transitions, errors: Tensor) -> None:
        """Set the priorities of the batch's transitions from their errors [B]."""
        self._sampler.learned(batch.rows, errors)

    def transitions(self, rows: Tensor, weights: Tensor) -> Transitions:
        """The transitions that begin at `rows` [B]."""
        experience = self.experience
        after, valid, last = following(experience, rows, self._config.n_step)
        return Transitions(
            rows=rows,
            weights=weights,
            observations=experience.observations(rows),
            actions=experience.gather("action", rows),
            rewards=experience.gather("reward", after),
            discounts=experience.gather("discount", after),
            valid=valid,
            next_observations=experience.observations(last),
        )

    def devices(self) -> dict[str, str]:
        """The device that holds each column."""
        return {**self.experience.devices(), **self._sampler.devices()}

    def read(self) -> dict[str, np.ndarray]:
        """The ring's `ring/COLUMN`, the sampler's `replay/NAME` and the book's `lanes/NAME`."""
        with self.lock:
            return named(
                ring=self.experience.read(), replay=self._sampler.read(), lanes=self.book.read()
            )

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises ValueError if it does not fit."""
        try:
            self.experience.restore(part(values, "ring"))
            self._sampler.restore(part(values, "replay"))
            self.book.restore(part(values, "lanes"))
        except KeyError as error:
            raise ValueError(f"the experience has no {error}") from error
        self._show(self.book.visible())


def _padded(rows: np.ndarray) -> np.ndarray:
    """The rows, padded with the last one to a size that the framework prefers.

    A function may be compiled once for each size, so there should be few sizes.
    """
    if not len(rows):
        return rows
    return np.pad(rows, (0, backend.filled(len(rows)) - len(rows)), mode="edge")
