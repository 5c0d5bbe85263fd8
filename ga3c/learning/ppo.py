"""Proximal policy optimization from queued segments (Schulman et al. 2017).

Before the passes over a batch, the targets and advantages of all its steps are computed with the
weights of that moment. The passes then learn from single steps in random order.

The ratio in the clipped loss is pi / prior, where the prior is the policy of that same moment, not
the one that played the step: otherwise policy lag would use up the clip range before the first
update (decoupled PPO, Hilton et al. 2022).
"""

from collections.abc import Mapping
from typing import ClassVar

import keras
from keras import ops

from agents.actions import Actions
from ga3c.backend import Column, Tensor
from ga3c.experience.batches import Segments, Steps
from ga3c.learning.a3c import ActorCritic
from ga3c.learning.layers import value_unit
from ga3c.settings.learning import A3CConfig, PPOConfig


def clipped_surrogate_loss(moved: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """-sum min(r A, clip(r, 1 - clip, 1 + clip) A) with r = exp(moved) (equation 7).

    Args: moved, log pi(a) - log prior(a), and advantages of the same shape, into which no gradient
        flows.
    """
    ratios, advantages = ops.exp(moved), ops.stop_gradient(advantages)
    bounded = ops.clip(ratios, 1.0 - clip, 1.0 + clip)
    return -ops.sum(ops.minimum(ratios * advantages, bounded * advantages))


class PPO(ActorCritic):
    """PPO, as an `algorithm.Preparing` for the model. Losses are means over a batch."""

    prepared: ClassVar[dict[str, Column]] = {
        "prior_log_prob": ((), "float32"),
        "advantage": ((), "float32"),
        "target": ((), "float32"),
    }

    def __init__(self, config: A3CConfig, ppo: PPOConfig, actions: Actions) -> None:
        super().__init__(config, actions)
        self._ppo = ppo

    def prepare(self, network: keras.Model, segments: Segments) -> dict[str, Tensor]:
        """The columns `prepared` of segments, [B, T].

        With V-trace correction of policy lag, advantages are multiplied by min(1, prior / mu),
        where mu is the policy that acted.
        """
        parameters, values = self.unrolled(network, segments)
        priors = self.log_probs(parameters, segments)
        moved = priors - segments.log_probs
        targets, advantages, weights = self.returns(values, segments, moved)
        return {"prior_log_prob": priors, "advantage": advantages * weights, "target": targets}

    def loss(
        self,
        network: keras.Model,
        target: keras.Model | None,
        steps: Steps,
        rates: Mapping[str, Tensor],
    ) -> tuple[Tensor, tuple[dict[str, Tensor], Tensor]]:
        """A3C's loss with the clipped surrogate, divided by the number of steps that count.

        `clip_fraction` is the share of steps whose ratio is outside the clip range.
        """
        parameters, values = network(steps.observations)
        logs = self.distribution.log_probs(parameters, steps.actions)
        valid = 1.0 - steps.firsts
        unit = value_unit(network)
        advantages = self.comparable(steps.advantages * valid, valid, unit)
        clip, moved = self._ppo.clip_ratio, logs - steps.prior_log_probs
        loss, (figures, errors) = self.combined(
            clipped_surrogate_loss(moved, advantages, clip),
            steps.targets,
            values,
            self.distribution.entropies(parameters, self.config.log_epsilon),
            ops.stop_gradient(logs - steps.log_probs),
            valid,
            rates["entropy_weight"],
            unit,
        )
        count = ops.maximum(ops.sum(valid), 1.0)
        left = ops.sum(ops.where(ops.abs(ops.exp(moved) - 1.0) > clip, valid, 0.0))
        return loss / count, ({**figures, "clip_fraction": left / count}, errors)
