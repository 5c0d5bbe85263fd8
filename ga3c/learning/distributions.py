"""The distributions of actions that a policy's head describes: one of a finite set, or normal.

Each has the same methods, so that an actor-critic algorithm is written once for both. The head's
outputs are called parameters: [n, k], logits or means and logarithms of deviations.
"""

import math

import numpy as np
from keras import ops

from agents.actions import Actions
from ga3c.backend import Column, Tensor
from ga3c.learning.layers import LogDeviations
from ga3c.learning.networks import dense
from ga3c.settings.learning import NetworkConfig

SMALLEST = 1e-6  # of the uniform draws that become normal ones; they reach 4.8 deviations


def normal(uniform: Tensor) -> Tensor:
    """Standard normal numbers from uniform ones in (0, 1), of the same shape, by the inverse."""
    return math.sqrt(2.0) * ops.erfinv(ops.clip(2.0 * uniform - 1.0, SMALLEST - 1, 1 - SMALLEST))


def bounded(actions: np.ndarray) -> np.ndarray:
    """Numbers within [-1, 1], the bounds of the wire; actions of a finite set as they are.

    The ring keeps an action as it was drawn, because its probability is of that one.

    Raises FloatingPointError if a number is not finite.
    """
    if actions.dtype.kind != "f":
        return actions
    if not np.isfinite(actions).all():
        raise FloatingPointError("the network's actions are not finite: none can be played")
    return np.clip(actions, -1.0, 1.0)


class Categorical:
    """One of a finite number of actions. The parameters are logits [n, count]."""

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
        """log(pi(a) + epsilon) of actions int32 [n], [n] (the epsilon: GA3C, section 5.4)."""
        return ops.take_along_axis(self._logs(logits, epsilon), actions[:, None], axis=1)[:, 0]

    def entropies(self, logits: Tensor, epsilon: float = 0.0) -> Tensor:
        """-sum_a pi(a) log(pi(a) + epsilon), [n]."""
        return -ops.sum(ops.softmax(logits) * self._logs(logits, epsilon), axis=-1)

    def _logs(self, logits: Tensor, epsilon: float) -> Tensor:
        """log(pi + epsilon), finite also where a probability is rounded to 0."""
        return ops.log(ops.softmax(logits) + epsilon) if epsilon else ops.log_softmax(logits)

    def policy(self, logits: Tensor) -> Tensor:
        """The probabilities [n, count]."""
        return ops.softmax(logits)


class Normal:
    """Independent normal numbers. The parameters are their means and log deviations, [n, 2 size].

    The deviations do not depend on the observation, as is usual in this field (Schulman et al.
    2015, TRPO, appendix). Actions are not bounded here: the environment takes the nearest one
    within its bounds.
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
        """The logarithms of the densities at actions [n, size], [n]. epsilon is not used."""
        means, logs = ops.split(parameters, 2, axis=-1)
        distances = ops.square((actions - means) * ops.exp(-logs))
        return -ops.sum(0.5 * distances + logs + 0.5 * math.log(2 * math.pi), axis=-1)

    def entropies(self, parameters: Tensor, epsilon: float = 0.0) -> Tensor:
        """The differential entropies, sum_i log(deviation_i) + log(2 pi e) / 2, [n]."""
        _, logs = ops.split(parameters, 2, axis=-1)
        return ops.sum(logs + 0.5 * math.log(2 * math.pi * math.e), axis=-1)

    def policy(self, parameters: Tensor) -> Tensor:
        """The means within [-1, 1], [n, size]: what is played without noise."""
        return ops.clip(ops.split(parameters, 2, axis=-1)[0], -1.0, 1.0)


def distribution(actions: Actions) -> Categorical | Normal:
    """The distribution of a policy over these actions."""
    return Normal(actions.size) if actions.is_continuous else Categorical(actions.count)
