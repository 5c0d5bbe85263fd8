"""The batches that updates are made from, segments or transitions, and their source.

A transition goes from one step to the step n later, or to the last step before a reset if that
comes first.
"""

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from ga3c.backend import Column, Signature, Tensor
from ga3c.experience.book import Book
from ga3c.experience.ring import Experience, RingShape

ACTING_VALUES: dict[str, Column] = {"q": ((), "float32"), "value": ((), "float32")}
"""Columns that acting adds for first priorities: value of the action taken, and of the best."""


class Transitions(NamedTuple):
    """A batch of B transitions of at most n steps each."""

    rows: Tensor  # [B] int, where the source keeps them: rows of the ring, or slots
    weights: Tensor  # [B] float32, weights of the losses; 0 where nothing could be drawn
    observations: Tensor  # [B, ...] stacked
    actions: Tensor  # [B, *shape], the actions taken at these observations
    rewards: Tensor  # [B, n] float32, clipped, of the n steps that follow
    discounts: Tensor  # [B, n] float32, of the n steps that follow
    valid: Tensor  # [B, n] float32, 1 before the first reset, 0 from there on
    next_observations: Tensor  # [B, ...] stacked, after the last valid step


class Segments(NamedTuple):
    """A batch of B segments of T steps each."""

    observations: Tensor  # [B (T + 1), ...] stacked, one segment after another
    actions: Tensor  # [B, T, *shape], the action taken at x_t
    log_probs: Tensor  # [B, T] float32, log-probability of that action when it was taken
    rewards: Tensor  # [B, T] float32, r_{t+1} clipped
    discounts: Tensor  # [B, T] float32, d_{t+1}
    firsts: Tensor  # [B, T] float32, 1 where x_{t+1} is a reset frame


class Steps(NamedTuple):
    """A batch of n single steps from segments, in any order, with their `prepared` columns."""

    observations: Tensor  # [n, ...] stacked, x_t
    actions: Tensor  # [n, *shape], the action taken at x_t
    log_probs: Tensor  # [n] float32, log-probability of that action when it was taken
    prior_log_probs: Tensor  # [n] float32, the same when the batch was prepared
    advantages: Tensor  # [n] float32, of that action
    targets: Tensor  # [n] float32, for the value of x_t
    rewards: Tensor  # [n] float32, r_{t+1} clipped
    firsts: Tensor  # [n] float32, 1 where x_{t+1} is a reset frame


def transition_columns(ring: RingShape, action: Column, n_step: int) -> dict[str, Column]:
    """Shapes and dtypes of one transition's fields of `Transitions`, except row and weight."""
    observation: Column = (ring.observation_shape, ring.dtype)
    steps: Column = ((n_step,), "float32")
    return {
        "observations": observation,
        "actions": action,
        "rewards": steps,
        "discounts": steps,
        "valid": steps,
        "next_observations": observation,
    }


def n_step(rewards: Tensor, discounts: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """The m-step return, and the discount of the value after it.

        R = sum_{k=1..m} (prod_{j<k} d_j) r_k,    D = prod_{k=1..m} d_k      (Sutton 1988)

    Args:
        rewards, discounts: [B, n] float32, of any tensor framework.
        valid: [B, n] float32, ones in the first m places of a row and zeros after them.

    Returns:
        R and D, [B] float32.
    """
    returned, carried = 0.0, 1.0
    for k in range(rewards.shape[1]):
        returned = returned + valid[:, k] * carried * rewards[:, k]
        carried = carried * (1.0 + valid[:, k] * (discounts[:, k] - 1.0))
    return returned, carried


class TransitionReader:
    """Reads transitions of at most n steps from the ring."""

    def __init__(self, experience: Experience, n_step: int) -> None:
        self._experience, self._ring = experience, experience.ring
        self._memory, self._ops = experience.memory, experience.memory.ops
        self._after = np.arange(1, n_step + 1, dtype=experience.memory.row_dtype)
        self.columns = transition_columns(self._ring, experience.columns["action"], n_step)
        """Shape and dtype of each field that `read` returns."""

    def _following(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The n steps after each of `rows` [B], and which come before the first reset.

        Returns: their rows [B, n], whether each precedes the first reset [B, n] float32, and the
        row of the last one that does [B].
        """
        ring = self._ring
        after = ring.after(rows[:, None], self._after)
        valid = self._ops.cumprod(1.0 - self._experience.gather("first", after), axis=1)
        count = self._memory.cast(self._ops.sum(valid, axis=1), self._memory.row_dtype)
        return after, valid, ring.after(rows, count)

    def may_begin(self, rows: Tensor) -> Tensor:
        """Whether a transition may begin at each of `rows` [k]: no reset comes next. [k] bool."""
        return self._experience.gather("first", self._ring.after(rows, 1)) == 0

    def read(self, rows: Tensor) -> dict[str, Tensor]:
        """The transitions that begin at `rows` [B]: `columns` by name, rewards unclipped."""
        experience = self._experience
        after, valid, last = self._following(rows)
        return {
            "observations": experience.observations(rows),
            "actions": experience.gather("action", rows),
            "rewards": experience.gather("reward", after),
            "discounts": experience.gather("discount", after),
            "valid": valid,
            "next_observations": experience.observations(last),
        }

    def errors(self, rows: Tensor) -> Tensor:
        """TD errors [k] of steps, from values kept while acting (Horgan et al. 2018, section 3).

        R + D max_a Q(x_m, a) - Q(x_0, a_0), with R and D from `n_step`. Each Q is under the
        weights that acted.
        """
        gather = self._experience.gather
        after, valid, last = self._following(rows)
        rewards = self._experience.rewards(after)
        returns, carried = n_step(rewards, gather("discount", after), valid)
        return returns + carried * gather("value", last) - gather("q", rows)


class Source(Protocol):
    """Provides the model's batches, and the experience that the service saves."""

    experience: Experience
    """The ring."""
    lock: threading.Lock
    """Held by the thread that draws, learns, or changes what can be drawn."""
    batch: Any
    """The type of a batch: a NamedTuple."""
    item_steps: int
    """Steps in each item of a batch: the length of a segment, or 1."""
    inputs: Signature
    """Shapes and dtypes of the host arrays that `draw` takes for each batch."""

    @property
    def book(self) -> Book:
        """The ring's book: which slot holds which step."""

    def signature(self, count: int | None = None) -> Signature:
        """Shapes and dtypes of a batch of `count` items; None: any number."""

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
        """Record that an update has used this batch, and the errors of its items."""

    def read(self) -> dict[str, np.ndarray]:
        """All experience, by name. Call outside of compiled functions."""

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises ValueError if it does not fit."""


def blank(source: Source, count: int) -> list[np.ndarray]:
    """Zeros for every array of a batch of `count` items."""
    signature = source.signature(count)
    return [np.zeros([size or 0 for size in shape], dtype) for shape, dtype in signature]
