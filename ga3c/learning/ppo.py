"""Proximal policy optimization from queued segments (Schulman et al. 2017).

It is advantage actor-critic (`a3c.py`) with another loss of the policy, one that lets each segment
be trained several times.
"""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from agents.actions import Actions
from ga3c.experience.batches import Segments
from ga3c.learning.a3c import A3C
from ga3c.settings.learning import A3CConfig, PPOConfig

Tensor = Any


def clipped_surrogate_loss(moved: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """-sum min(r A, clip(r, 1 - clip, 1 + clip) A) with r = exp(moved) (equation 7).

    Args: moved, log pi(a) - log mu(a), and advantages, both of one shape; no gradient flows into A.
    """
    ratios, advantages = ops.exp(moved), ops.stop_gradient(advantages)
    bounded = ops.clip(ratios, 1.0 - clip, 1.0 + clip)
    return -ops.sum(ops.minimum(ratios * advantages, bounded * advantages))


class PPO(A3C):
    """PPO as the model calls it (`algorithm.Algorithm`). Losses are means over a batch."""

    def __init__(
        self, config: A3CConfig, ppo: PPOConfig, actions: Actions, reward_clip: float = 1.0
    ) -> None:
        super().__init__(config, actions, reward_clip)
        self._ppo = ppo

    def loss(
        self,
        network: keras.Model,
        target: keras.Model | None,
        segments: Segments,
        rates: Mapping[str, Tensor],
    ) -> tuple[Tensor, tuple[dict[str, Tensor], Tensor]]:
        """A3C's loss with the clipped surrogate, divided by the number of steps that count."""
        loss, rest = super().loss(network, target, segments, rates)
        count = ops.maximum(ops.sum(1.0 - segments.firsts), 1.0)
        return loss / count, rest

    def policy_loss(
        self, parameters: Tensor, segments: Segments, advantages: Tensor, ratios: Tensor
    ) -> Tensor:
        """The summed clipped surrogate; the ratios are computed again, as gradients flow here."""
        moved = self.log_probs(parameters, segments) - segments.log_probs
        return clipped_surrogate_loss(moved, advantages, self._ppo.clip_ratio)
