"""The action distributions that a policy head can describe: categorical or normal.

Both have the same methods, so actor-critic algorithms work with either. The head's outputs are
called parameters: [n, k], either logits, or means and log standard deviations.
"""

import math

import numpy as np
from keras import ops

from agents.actions import Actions
from ga3c.backend import Column, Tensor
from ga3c.learning.layers import LogDeviations
from ga3c.learning.networks import dense
from ga3c.settings.learning import NetworkConfig

SMALLEST = 1e-6  # 2 u - 1 stays this far from -1 and 1, so normal draws stay within +-4.9


def normal(uniform: Tensor) -> Tensor:
    """Standard normal samples from uniform ones in (0, 1), of the same shape, by inverse CDF."""
    return math.sqrt(2.0) * ops.erfinv(ops.clip(2.0 * uniform - 1.0, SMALLEST - 1, 1 - SMALLEST))


def bounded(actions: np.ndarray) -> np.ndarray:
    """Continuous actions clipped to [-1, 1], the bounds of the wire; discrete ones unchanged.

    The ring keeps each action as sampled, because its log-probability is that of the sample.

    Raises FloatingPointError if a number is not finite.
    """
    if actions.dtype.kind != "f":
        return actions
    if not np.isfinite(actions).all():
        raise FloatingPointError("the network's actions are not finite: none can be played")
    return np.clip(actions, -1.0, 1.0)


class Categorical:
    """A choice among a finite number of actions. The parameters are logits [n, count]."""

    def __init__(self, count: int) -> None:
        self.action: Column = ((), "int32")
        self.noise = self.parameters = count

    def head(self, config: NetworkConfig, features: Tensor) -> Tensor:
        """The logits of features [n, k]."""
        return dense(config, features, self.parameters, 0.01, dtype="float32", name="policy")

    def draw(self, logits: Tensor, noise: Tensor) -> Tensor:
        """Actions [n] by the Gumbel-max trick. Args: noise [n, count] uniform in (0, 1)."""
        return ops.argmax(logits - ops.log(-ops.log(noise)), axis=-1)

    def log_probs(self, logits: Tensor, actions: Tensor, epsilon: float = 0.0) -> Tensor:
        """log(pi(a) + epsilon) [n] of actions int32 [n] (for the epsilon: GA3C, section 5.4)."""
        return ops.take_along_axis(self._logs(logits, epsilon), actions[:, None], axis=1)[:, 0]

    def entropies(self, logits: Tensor, epsilon: float = 0.0) -> Tensor:
        """-sum_a pi(a) log(pi(a) + epsilon), [n]."""
        return -ops.sum(ops.softmax(logits) * self._logs(logits, epsilon), axis=-1)

    def _logs(self, logits: Tensor, epsilon: float) -> Tensor:
        """log(pi + epsilon), finite even where a probability rounds to 0."""
        return ops.log(ops.softmax(logits) + epsilon) if epsilon else ops.log_softmax(logits)

    def policy(self, logits: Tensor) -> Tensor:
        """The probabilities [n, count]."""
        return ops.softmax(logits)


class Normal:
    """Independent normal numbers. The parameters are their means and log deviations, [n, 2 size].

    The deviations do not depend on the observation, as is common (Schulman et al. 2015, TRPO,
    appendix). Actions are unbounded here; what the environment gets is clipped to its bounds.
    """

    def __init__(self, size: int) -> None:
        self.action: Column = ((size,), "float32")
        self.noise, self.parameters = size, 2 * size

    def head(self, config: NetworkConfig, features: Tensor) -> Tensor:
        """The parameters of features [n, k]."""
        means = dense(config, features, self.noise, 0.01, dtype="float32", name="policy")
        return LogDeviations(dtype="float32", name="log_deviations")(means)

    def draw(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Actions [n, size]. Args: noise [n, size] uniform in (0, 1)."""
        means, logs = ops.split(parameters, 2, axis=-1)
        return means + ops.exp(logs) * normal(noise)

    def log_probs(self, parameters: Tensor, actions: Tensor, epsilon: float = 0.0) -> Tensor:
        """The log densities [n] of actions [n, size]. epsilon is unused."""
        means, logs = ops.split(parameters, 2, axis=-1)
        distances = ops.square((actions - means) * ops.exp(-logs))
        return -ops.sum(0.5 * distances + logs + 0.5 * math.log(2 * math.pi), axis=-1)

    def entropies(self, parameters: Tensor, epsilon: float = 0.0) -> Tensor:
        """The differential entropies, sum_i log(deviation_i) + log(2 pi e) / 2, [n]."""
        _, logs = ops.split(parameters, 2, axis=-1)
        return ops.sum(logs + 0.5 * math.log(2 * math.pi * math.e), axis=-1)

    def policy(self, parameters: Tensor) -> Tensor:
        """The means clipped to [-1, 1], [n, size]: the actions played without noise."""
        return ops.clip(ops.split(parameters, 2, axis=-1)[0], -1.0, 1.0)


def distribution(actions: Actions) -> Categorical | Normal:
    """A policy's distribution over these actions."""
    return Normal(actions.size) if actions.is_continuous else Categorical(actions.count)
