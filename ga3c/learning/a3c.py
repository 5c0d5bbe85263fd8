"""Advantage actor-critic on queued segments: A3C's losses, with or without lag correction.

A segment holds the observations x_0 .. x_T of one lane, the actions a_0 .. a_{T-1} taken there, and
the rewards r_1 .. r_T and discounts d_1 .. d_T that followed (`d = 0 if terminated else gamma`).
`first_t` marks a reset frame. No action led to that frame, so the step before it is void.
"""

from collections.abc import Mapping
from typing import ClassVar

import keras
import numpy as np
from keras import ops

from agents.actions import Actions
from ga3c.backend import Column, Tensor
from ga3c.experience.batches import Segments
from ga3c.learning.distributions import distribution
from ga3c.learning.layers import value_unit
from ga3c.learning.networks import dense, resolved, scaled_value, torso
from ga3c.settings.learning import A3CConfig, NetworkConfig, linear


def lambda_returns(
    values: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    valid: Tensor,
    ratios: Tensor,
    trace_decay: float,
) -> tuple[Tensor, Tensor]:
    """Value targets and advantages.

    With rho_t = min(1, ratio_t), c_t = lambda rho_t and
    delta_t = rho_t (r_{t+1} + d_{t+1} v_{t+1} - v_t),

        G_t = v_t + delta_t + d_{t+1} c_t (G_{t+1} - v_{t+1}),    G_T = v_T
        A_t = r_{t+1} + d_{t+1} (v_{t+1} + lambda (G_{t+1} - v_{t+1})) - v_t

    This is V-trace (Espeholt et al. 2018, equation 1). With ratios of 1 it is the lambda-return,
    and at lambda = 1 the n-step return of A3C. A_t is not weighted by rho_t. A void step has
    G_t = v_t, so the steps before it bootstrap from the value of its observation.

    Args:
        values: [B, T + 1] float32, v_t under the newest weights.
        rewards, discounts: [B, T] float32, of the step after x_t.
        valid: [B, T] float32, 0 where the step after x_t is void.
        ratios: [B, T] float32, pi(a_t | x_t) / mu(a_t | x_t), or ones.
        trace_decay: lambda.

    Returns:
        G [B, T] and A [B, T] float32. Pass constants, because no gradient should flow through them.
    """
    v_tm1, v_t = values[:, :-1], values[:, 1:]
    deltas = ops.unstack(rewards + discounts * v_t - v_tm1, axis=1)
    decays = ops.unstack(discounts * trace_decay, axis=1)
    weights = ops.unstack(ops.minimum(ratios, 1.0) * valid, axis=1)
    excesses, advantages = [], []
    excess = ops.zeros_like(values[:, 0])  # G_{t+1} - v_{t+1}
    for delta, decay, weight in reversed(list(zip(deltas, decays, weights, strict=True))):
        advantages.append(delta + decay * excess)
        excess = weight * advantages[-1]
        excesses.append(excess)
    targets = v_tm1 + ops.stack(excesses[::-1], axis=1)
    return targets, ops.stack(advantages[::-1], axis=1) * valid


def normalized(advantages: Tensor, valid: Tensor) -> Tensor:
    """(A - mean) / deviation over the valid entries; 0 elsewhere. Both [B, T]."""
    count = ops.maximum(ops.sum(valid), 1.0)
    centred = (advantages - ops.sum(advantages * valid) / count) * valid
    return centred / (ops.sqrt(ops.sum(ops.square(centred)) / count) + 1e-8)


def policy_gradient_loss(log_probs: Tensor, advantages: Tensor) -> Tensor:
    """-sum log pi(a) A (A3C), a scalar. Both [n]; no gradient flows into A."""
    return -ops.sum(log_probs * ops.stop_gradient(advantages))


class ActorCritic:
    """What all actor-critic algorithms share: everything but their losses."""

    has_target: ClassVar[bool] = False

    def __init__(self, config: A3CConfig, actions: Actions) -> None:
        self.config = config
        self.distribution = distribution(actions)
        self.columns: dict[str, Column] = {
            "action": self.distribution.action,
            "log_prob": ((), "float32"),
        }
        self.noise = self.distribution.noise

    def network(
        self, config: NetworkConfig, shape: tuple[int, ...], dtype: str, is_picture: bool
    ) -> keras.Model:
        """A network from observations [n, *shape] to the policy's parameters and values [n]."""
        config = resolved(config, shape, is_picture)
        observation = keras.Input(shape, dtype=dtype)
        features = torso(config, observation, is_picture)
        parameters = self.distribution.head(config, features)
        if config.separate_value:
            features = torso(config, observation, is_picture, "value_")
        value = dense(config, features, 1, 1.0, dtype="float32", name="value")
        value = keras.layers.Reshape((), dtype="float32")(value)
        value = scaled_value(config, value)
        return keras.Model(observation, [parameters, value])

    def act(
        self, network: keras.Model, observations: Tensor, noise: Tensor, exploration: Tensor
    ) -> dict[str, Tensor]:
        """Actions sampled from the policy, and their log-probabilities.

        Args: observations [n, ...]; noise [n, self.noise] uniform in (0, 1); exploration, unused.
        """
        parameters, _ = network(observations)
        actions = self.distribution.draw(parameters, noise)
        return {"action": actions, "log_prob": self.distribution.log_probs(parameters, actions)}

    def policy_and_value(self, network: keras.Model, observations: Tensor) -> tuple[Tensor, Tensor]:
        """The policy, as `distributions` describes it, and values [n] of observations [n, ...]."""
        parameters, values = network(observations)
        return self.distribution.policy(parameters), values

    def unrolled(self, network: keras.Model, segments: Segments) -> tuple[Tensor, Tensor]:
        """The policy's parameters [B T, k] at x_0 .. x_{T-1}, and values [B, T + 1]."""
        steps = segments.rewards.shape[1]
        parameters, values = network(segments.observations)
        count = self.distribution.parameters
        parameters = ops.reshape(parameters, (-1, steps + 1, count))[:, :-1]
        return ops.reshape(parameters, (-1, count)), ops.reshape(values, (-1, steps + 1))

    def log_probs(self, parameters: Tensor, segments: Segments, epsilon: float = 0.0) -> Tensor:
        """log(pi(a) + epsilon) of the segments' actions, [B, T]."""
        actions = ops.reshape(segments.actions, (-1, *self.distribution.action[0]))
        logs = self.distribution.log_probs(parameters, actions, epsilon)
        return ops.reshape(logs, (-1, segments.rewards.shape[1]))

    def returns(
        self, values: Tensor, segments: Segments, moved: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`lambda_returns` with the configured correction, and the advantages' importance weights.

        Args: values [B, T + 1]; moved [B, T], the actions' log-probabilities minus those under the
            policy that acted.
        """
        is_corrected = self.config.correction == "vtrace"
        ratios = ops.exp(moved) if is_corrected else ops.ones_like(moved)
        targets, advantages = lambda_returns(
            values,
            segments.rewards,
            segments.discounts,
            1.0 - segments.firsts,
            ratios,
            self.config.trace_decay,
        )
        return targets, advantages, ops.minimum(ratios, 1.0)

    def combined(
        self,
        policy: Tensor,
        targets: Tensor,
        values: Tensor,
        entropies: Tensor,
        moved: Tensor,
        valid: Tensor,
        entropy_weight: Tensor,
        unit: Tensor,
    ) -> tuple[Tensor, tuple[dict[str, Tensor], Tensor]]:
        """The summed loss, the means of its terms, and the value errors.

        Args: policy, the summed policy loss; entropy_weight; unit, of the values. All others have
            one shape: `moved` is the actions' log-probabilities minus those under the policy that
            acted, `valid` is 0 at void steps and 1 elsewhere.
        """
        count = ops.maximum(ops.sum(valid), 1.0)
        errors = valid * (targets - values)
        value, entropy = ops.sum(ops.square(errors / unit)), ops.sum(valid * entropies)
        figures = {
            "policy_loss": policy / count,
            "value_loss": value / count,
            "entropy": entropy / count,
            "value": ops.sum(valid * values) / count,
            "approx_kl": ops.sum(valid * (ops.exp(moved) - 1.0 - moved)) / count,
        }
        loss = policy + self.config.value_weight * value - entropy_weight * entropy
        return loss, (figures, errors)

    def rates(self, progress: float) -> dict[str, float]:
        """The entropy weight at this position in the schedules, 0 to 1."""
        begin, end = self.config.entropy_weight, self.config.entropy_weight_end
        return {"entropy_weight": linear(begin, begin if end is None else end, progress)}

    def exploration(self, lanes: np.ndarray, steps: float) -> np.ndarray:
        """Zeros [n]: the policy is stochastic and needs no exploration rate."""
        return np.zeros(len(lanes), np.float32)

    def comparable(self, advantages: Tensor, valid: Tensor, unit: Tensor) -> Tensor:
        """Advantages [...], normalised if configured, else divided by the unit of the rewards."""
        if self.config.normalize_advantages:
            return normalized(advantages, valid)
        return advantages / unit


class A3C(ActorCritic):
    """Advantage actor-critic, as an `algorithm.Algorithm` for the model."""

    def loss(
        self,
        network: keras.Model,
        target: keras.Model | None,
        segments: Segments,
        rates: Mapping[str, Tensor],
    ) -> tuple[Tensor, tuple[dict[str, Tensor], Tensor]]:
        """The summed loss of a batch, the means of its terms, and the value errors [B, T].

        The loss, over all steps that are not void (GA3C, section 5.4), is
        value_weight sum (G - V)^2 - sum [log(pi_a + eps) stop_gradient(A) + beta H(pi)].

        `approx_kl` measures how far the policy has moved since it acted: the mean of
        rho - 1 - log rho (Schulman 2020, "Approximating KL Divergence").
        """
        config = self.config
        parameters, values = self.unrolled(network, segments)
        valid = 1.0 - segments.firsts
        moved = ops.stop_gradient(self.log_probs(parameters, segments) - segments.log_probs)
        targets, advantages, weights = self.returns(ops.stop_gradient(values), segments, moved)
        weight, unit = rates["entropy_weight"], value_unit(network)
        advantages = self.comparable(advantages, valid, unit)
        logs = self.log_probs(parameters, segments, config.log_epsilon)
        policy = policy_gradient_loss(logs, advantages * weights)
        entropies = self.distribution.entropies(parameters, config.log_epsilon)
        entropies = ops.reshape(entropies, ops.shape(valid))
        return self.combined(policy, targets, values[:, :-1], entropies, moved, valid, weight, unit)
