"""Layers that Keras lacks: weights that no observation changes, and measured ones.

A measured weight is not learned by gradients. It is a mean over what was trained so far, and is
kept with the others in checkpoints and exports.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

Tensor = Any
FARTHEST = 10.0  # deviations of a normalised observation
SMALLEST_VARIANCE = 1e-4
SMALLEST_SCALE = 1e-3


class LogDeviations(keras.layers.Layer):
    """Appends a weight of each action, its log deviation, to the means [n, size]: [n, 2 size]."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the weight; the deviations begin at 1, half of the range of actions."""
        self._logs = self.add_weight(shape=(shape[-1],), initializer="zeros", name="log_deviations")

    def call(self, means: Tensor) -> Tensor:
        """The parameters of the distribution."""
        return ops.concatenate([means, ops.zeros_like(means) + self._logs], axis=-1)


class Normalized(keras.layers.Layer):
    """Observations [n, k] minus their mean, over their deviation, within 10 deviations.

    Both are of all observations that were trained so far (Welford 1962, by batches: Chan et al.
    1983), each as often as it was trained.
    """

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the measured weights."""
        given = {"trainable": False, "dtype": "float32"}
        self._count = self.add_weight(shape=(), initializer="zeros", name="count", **given)
        self._mean = self.add_weight(shape=(shape[-1],), initializer="zeros", name="mean", **given)
        self._variance = self.add_weight(
            shape=(shape[-1],), initializer="ones", name="variance", **given
        )

    def call(self, x: Tensor) -> Tensor:
        """The normalised observations."""
        deviation = ops.sqrt(ops.maximum(self._variance, SMALLEST_VARIANCE))
        return ops.clip((x - self._mean) / deviation, -FARTHEST, FARTHEST)

    def measure(self, batch: Any) -> None:
        """Take the observations of a batch into the means."""
        x = ops.reshape(ops.cast(batch.observations, "float32"), (-1, self._mean.shape[0]))
        count = ops.cast(ops.shape(x)[0], "float32")
        mean, before = ops.mean(x, axis=0), self._mean.value
        share = count / (self._count + count)
        moved = mean - before
        variance = (1 - share) * self._variance + share * ops.var(x, axis=0)
        self._variance.assign(variance + share * (1 - share) * ops.square(moved))
        self._mean.assign(before + share * moved)
        self._count.assign(self._count + count)


class ValueScale(keras.layers.Layer):
    """Values [n] times the root mean square of all rewards that were trained so far.

    Learning then does not depend on the unit of the rewards.
    """

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the measured weights."""
        given = {"trainable": False, "dtype": "float32"}
        self._count = self.add_weight(shape=(), initializer="zeros", name="count", **given)
        self._square = self.add_weight(shape=(), initializer="ones", name="square", **given)

    @property
    def scale(self) -> Tensor:
        """The size, a scalar."""
        return ops.maximum(ops.sqrt(self._square), SMALLEST_SCALE)

    def call(self, x: Tensor) -> Tensor:
        """The scaled values."""
        return x * self.scale

    def measure(self, batch: Any) -> None:
        """Take the rewards of a batch into the mean."""
        squares = ops.square(ops.cast(batch.rewards, "float32"))
        count = ops.cast(ops.size(squares), "float32")
        share = count / (self._count + count)
        self._square.assign((1 - share) * self._square + share * ops.mean(squares))
        self._count.assign(self._count + count)


def measured_by(network: keras.Model) -> list[Normalized | ValueScale]:
    """All measured layers of a network, those of models within it included."""
    found: dict[int, Any] = {}
    for layer in network.layers:
        if isinstance(layer, keras.Model):
            found |= {id(each): each for each in measured_by(layer)}
        elif isinstance(layer, Normalized | ValueScale):
            found[id(layer)] = layer
    return list(found.values())


def measure(layers: Sequence[Normalized | ValueScale], batch: Any) -> None:
    """Take a batch into the weights of all these layers."""
    for layer in layers:
        layer.measure(batch)


def value_unit(network: keras.Model) -> Tensor:
    """What the network's values are multiplied by because of the rewards; 1 if by nothing."""
    scales = [layer.scale for layer in measured_by(network) if isinstance(layer, ValueScale)]
    return scales[0] if scales else 1.0
