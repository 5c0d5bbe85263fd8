"""What learning is given: batches of segments in order or of transitions, and what makes them."""

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from ga3c.backend import Signature, Tensor
from ga3c.experience.book import Book
from ga3c.experience.ring import Experience


class Transitions(NamedTuple):
    """A batch of B transitions of at most n steps each."""

    rows: Tensor  # [B] int, of the ring
    weights: Tensor  # [B] float32, of the losses; 0 where there was nothing to draw
    observations: Tensor  # [B, ...] stacked
    actions: Tensor  # [B] int, the action taken there
    rewards: Tensor  # [B, n] float32, unclipped, of the n steps that follow
    discounts: Tensor  # [B, n] float32, of the same
    valid: Tensor  # [B, n] float32, 1 until a reset comes
    next_observations: Tensor  # [B, ...] stacked, after the last valid step


class Segments(NamedTuple):
    """A batch of B segments of T steps each."""

    observations: Tensor  # [B (T + 1), ...] stacked, a segment's one after another
    actions: Tensor  # [B, T] int32, the action taken at x_t
    log_probs: Tensor  # [B, T] float32, of that action when it was taken
    rewards: Tensor  # [B, T] float32, r_{t+1} unclipped
    discounts: Tensor  # [B, T] float32, d_{t+1}
    firsts: Tensor  # [B, T] float32, 1 where x_{t+1} is a reset's frame


class Source(Protocol):
    """What the model asks for batches, and the service for what it keeps of a run."""

    experience: Experience
    """The ring."""
    lock: threading.Lock
    """Held by whoever draws, learns, or changes what can be drawn: one at a time."""
    batch: Any
    """The type of a batch: a NamedTuple."""
    inputs: Signature
    """What the host says about each batch, where the experience is on the device."""

    @property
    def book(self) -> Book:
        """Which slots of the ring hold what."""

    def signature(self, count: int | None = None) -> Signature:
        """Of a batch of so many segments or transitions; None: of any number."""

    def rates(self, progress: float) -> dict[str, float]:
        """What `draw` needs of the schedules, by name.

        Args: progress: of the schedules, 0 at the start and 1 at the end.
        """

    def draw(self, rates: Mapping[str, Any], *inputs: Any) -> Any:
        """A batch.

        Args:
            rates: values of the names that `rates` gives, and maybe others.
            inputs: as the signature `inputs` says.
        """

    def learned(self, batch: Any, errors: Any) -> None:
        """An update was made of this batch; its parts have these errors."""

    def devices(self) -> dict[str, str]:
        """Where each column lies."""

    def read(self) -> dict[str, np.ndarray]:
        """All experience, by name; outside of compiled functions."""

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave. Raises ValueError if it does not fit."""


def blank(source: Source, count: int) -> list[np.ndarray]:
    """Zeros for all parts of a batch of so many segments or transitions."""
    signature = source.signature(count)
    return [np.zeros([size or 0 for size in shape], dtype) for shape, dtype in signature]
