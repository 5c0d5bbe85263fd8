"""Batches of segments in order of completion, or of their single steps in any order."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ga3c import backend
from ga3c.backend import Signature
from ga3c.experience.batches import Segments, Steps
from ga3c.experience.memory import named, part
from ga3c.experience.ring import Experience
from ga3c.experience.segments import SegmentBook

Prepare = Callable[[np.ndarray, np.ndarray], None]
"""Measures segments or sets their targets, given lanes int32 [B] and slots int32 [B, T + 1]."""


class InOrder:
    """A `batches.Source` of segments. The host says which segments make up each batch."""

    batch: Any = Segments

    def __init__(self, experience: Experience, book: SegmentBook) -> None:
        self.experience = experience
        self.book = book
        self.lock = threading.Lock()
        self.item_steps = book.t_max
        self.inputs: Signature = [((None,), "int32"), ((None, book.t_max + 1), "int32")]

    def signature(self, count: int | None = None) -> Signature:
        """Shapes and dtypes of a batch of `count` segments."""
        ring, t_max = self.experience.ring, self.book.t_max
        shape, dtype = self.experience.columns["action"]
        actions: Signature = [((count, t_max, *shape), dtype)]
        steps: Signature = [((count, t_max), "float32")] * 4
        observations = None if count is None else count * (t_max + 1)
        return [((observations, *ring.observation_shape), ring.dtype), *actions, *steps]

    def rates(self, progress: float) -> dict[str, float]:
        """Empty: the draws follow no schedule."""
        return {}

    def draw(self, rates: Mapping[str, Any], *inputs: Any) -> Segments:
        """A batch of segments. The two inputs are lanes [B] and slots [B, T + 1]."""
        lanes, slots = inputs
        experience = self.experience
        rows = experience.ring.rows(lanes[:, None], slots)
        before, after = rows[:, :-1], rows[:, 1:]
        return Segments(
            observations=experience.stacks(lanes[:, None], slots, experience.gather("age", rows)),
            actions=experience.gather("action", before),
            log_probs=experience.gather("log_prob", before),
            rewards=experience.rewards(after),
            discounts=experience.gather("discount", after),
            firsts=experience.gather("first", after),
        )

    def learned(self, batch: Segments, errors: Any) -> None:
        """Does nothing: no segment is drawn again, so no later draw depends on the errors."""

    def read(self) -> dict[str, np.ndarray]:
        """The ring's columns as `ring/COLUMN` and the book's arrays as `lanes/NAME`."""
        with self.lock:
            return named(ring=self.experience.read(), lanes=self.book.read())

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises ValueError if it does not fit."""
        try:
            self.experience.restore(part(values, "ring"))
            self.book.restore(part(values, "lanes"))
        except KeyError as error:
            raise ValueError(f"the experience has no {error}") from error


class Shuffled(InOrder):
    """A `batches.Source` of single steps from segments whose targets have been prepared.

    Its inputs are those of one-step segments: lanes [n] and slots [n, 2].
    """

    batch: Any = Steps

    def __init__(self, experience: Experience, book: SegmentBook) -> None:
        super().__init__(experience, book)
        self.item_steps = 1
        self.inputs = [((None,), "int32"), ((None, 2), "int32")]

    def signature(self, count: int | None = None) -> Signature:
        """Shapes and dtypes of a batch of `count` steps."""
        ring, (shape, dtype) = self.experience.ring, self.experience.columns["action"]
        observations = ((count, *ring.observation_shape), ring.dtype)
        return [observations, ((count, *shape), dtype), *[((count,), "float32")] * 6]

    def preparing(self, function: Callable[[Segments], Mapping[str, Any] | None]) -> Prepare:
        """Makes a `Prepare` that keeps any columns [B, T], by name, that `function` returns."""
        experience, whole = self.experience, InOrder(self.experience, self.book)
        memory, rows = experience.memory, experience.ring.rows

        def given(*parts: Any) -> Mapping[str, Any] | None:
            return function(Segments(*parts))

        if not memory.on_device:
            given = backend.compiled(given, whole.signature())

        def keep(lanes: Any, slots: Any) -> None:
            values = given(*whole.draw({}, lanes, slots)) or {}
            flat = {name: memory.ops.reshape(each, (-1,)) for name, each in values.items()}
            before = memory.ops.reshape(rows(lanes[:, None], slots[:, :-1]), (-1,))
            experience.write(before, flat)

        compiled = memory.compiled(keep, whole.inputs)

        def prepare(lanes: np.ndarray, slots: np.ndarray) -> None:
            with self.lock:
                compiled(lanes, slots)

        return prepare

    def draw(self, rates: Mapping[str, Any], *inputs: Any) -> Any:
        """A batch of steps. The two inputs are lanes [n] and slots [n, 2]."""
        lanes, slots = inputs
        experience, slot = self.experience, slots[:, 0]
        row, after = (experience.ring.rows(lanes, slots[:, place]) for place in (0, 1))
        return Steps(
            observations=experience.stacks(lanes, slot, experience.gather("age", row)),
            actions=experience.gather("action", row),
            log_probs=experience.gather("log_prob", row),
            prior_log_probs=experience.gather("prior_log_prob", row),
            advantages=experience.gather("advantage", row),
            targets=experience.gather("target", row),
            rewards=experience.rewards(after),
            firsts=experience.gather("first", after),
        )


def single_steps(lanes: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The steps of segments [B] as one-step segments: lanes [B T] and slots [B T, 2]."""
    pairs = np.stack([slots[:, :-1], slots[:, 1:]], axis=-1)
    return np.repeat(lanes, slots.shape[1] - 1), pairs.reshape(-1, 2)
