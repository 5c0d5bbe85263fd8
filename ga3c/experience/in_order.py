"""Batches of segments in the order of completion. Each is trained as often as `--passes` says."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ga3c.backend import Signature
from ga3c.experience.batches import Segments
from ga3c.experience.memory import named, part
from ga3c.experience.ring import Experience
from ga3c.experience.segments import SegmentBook


class InOrder:
    """A `batches.Source` of segments. The host says which segments make up each batch."""

    batch: Any = Segments

    def __init__(self, experience: Experience, book: SegmentBook) -> None:
        self.experience = experience
        self.book = book
        self.lock = threading.Lock()
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
            rewards=experience.gather("reward", after),
            discounts=experience.gather("discount", after),
            firsts=experience.gather("first", after),
        )

    def learned(self, batch: Segments, errors: Any) -> None:
        """Does nothing: no segment is drawn again, so no later draw depends on the errors."""

    def devices(self) -> dict[str, str]:
        """The device that holds each column."""
        return self.experience.devices()

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
