"""The batches that learning trains on, segments or transitions, and the source of such batches."""

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from ga3c.backend import Signature, Tensor
from ga3c.experience.book import Book
from ga3c.experience.ring import Experience


class Transitions(NamedTuple):
    """A batch of B transitions of at most n steps each."""

    rows: Tensor  # [B] int, rows of the ring
    weights: Tensor  # [B] float32, weights of the losses; 0 where there was nothing to draw
    observations: Tensor  # [B, ...] stacked
    actions: Tensor  # [B, *shape], the actions taken at these observations
    rewards: Tensor  # [B, n] float32, unclipped, of the n steps that follow
    discounts: Tensor  # [B, n] float32, of the n steps that follow
    valid: Tensor  # [B, n] float32, 1 before the first reset, 0 from there on
    next_observations: Tensor  # [B, ...] stacked, after the last valid step


class Segments(NamedTuple):
    """A batch of B segments of T steps each."""

    observations: Tensor  # [B (T + 1), ...] stacked, one segment after another
    actions: Tensor  # [B, T, *shape], the action taken at x_t
    log_probs: Tensor  # [B, T] float32, log-probability of that action when it was taken
    rewards: Tensor  # [B, T] float32, r_{t+1} unclipped
    discounts: Tensor  # [B, T] float32, d_{t+1}
    firsts: Tensor  # [B, T] float32, 1 where x_{t+1} is a reset's frame


class Source(Protocol):
    """Gives the model its batches, and gives the service the experience that it saves."""

    experience: Experience
    """The ring."""
    lock: threading.Lock
    """Held by the thread that draws, learns, or changes what can be drawn."""
    batch: Any
    """The type of a batch: a NamedTuple."""
    inputs: Signature
    """Shapes and dtypes of the host arrays that `draw` takes for each batch."""

    @property
    def book(self) -> Book:
        """The book about the ring: which slot holds which step."""

    def signature(self, count: int | None = None) -> Signature:
        """Shapes and dtypes of a batch of `count` segments or transitions; None: any number."""

    def rates(self, progress: float) -> dict[str, float]:
        """The scheduled values that `draw` needs, by name.

        Args: progress: position in the schedules, 0 at the start and 1 at the end.
        """

    def draw(self, rates: Mapping[str, Any], *inputs: Any) -> Any:
        """A batch.

        Args:
            rates: a value for each name that `rates` returns; other names are ignored.
            inputs: arrays as the signature `inputs` describes.
        """

    def learned(self, batch: Any, errors: Any) -> None:
        """An update has used this batch, whose items have these errors."""

    def devices(self) -> dict[str, str]:
        """The device that holds each column."""

    def read(self) -> dict[str, np.ndarray]:
        """All experience, by name. Call outside of compiled functions."""

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises ValueError if it does not fit."""


def blank(source: Source, count: int) -> list[np.ndarray]:
    """Zeros for every array of a batch of `count` segments or transitions."""
    signature = source.signature(count)
    return [np.zeros([size or 0 for size in shape], dtype) for shape, dtype in signature]
