"""What learning is given: batches of segments in the order they were played, or of transitions."""

from typing import NamedTuple

from ga3c.backend import Tensor


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
