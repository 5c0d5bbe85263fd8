"""Layers that Keras lacks: deviations that do not depend on their input, and measured weights.

And first weights that are the same under each tensor framework.

A measured weight is not learned by gradients. It is a mean over what was trained so far, and is
kept with the others in checkpoints and exports.
"""

import math
import random
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ga3c.backend import Tensor

FARTHEST = 10.0  # deviations of a normalised observation
SMALLEST_VARIANCE = 1e-8
LARGEST = 1e9  # number that is measured
TAKEN_OVER = 10_000.0  # entries that statistics of another run count as at most


class LogDeviations(keras.layers.Layer):
    """Appends a weight of each action, its log deviation, to the means [n, size]: [n, 2 size]."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the weight; the deviations begin at 1, half of the range of actions."""
        self._logs = self.add_weight(shape=(shape[-1],), initializer="zeros", name="log_deviations")

    def call(self, means: Tensor) -> Tensor:
        """The parameters of the distribution."""
        return ops.concatenate([means, ops.zeros_like(means) + self._logs], axis=-1)


def biased(layer: keras.layers.Layer, products: Tensor, bias: Tensor) -> Tensor:
    """The activations of a layer whose products are of any precision: the rest is in float32.

    TensorFlow sums the gradient of a bias in the bias's own precision. Of 256 pictures in bfloat16
    such a sum was off by 70% for a convolution, and by 8% for a dense layer.
    """
    return layer.activation(ops.cast(products, "float32") + ops.cast(bias, "float32"))


class Conv2D(keras.layers.Conv2D):
    """Keras' convolution, whose bias is added in float32."""

    def call(self, inputs: Tensor) -> Tensor:
        """The activations of inputs [n, h, w, channels]."""
        if self.compute_dtype == "float32":
            return super().call(inputs)
        products = ops.conv(inputs, self.kernel, self.strides, self.padding)
        return biased(self, products, self.bias)


class Dense(keras.layers.Dense):
    """Keras' dense layer, whose bias is added in float32."""

    def call(self, inputs: Tensor) -> Tensor:
        """The activations of inputs [n, k]."""
        if self.compute_dtype == "float32":
            return super().call(inputs)
        return biased(self, ops.matmul(inputs, self.kernel), self.bias)


class CentredConv2D(keras.layers.Conv2D):
    """A convolution, without padding, of pictures of bytes x that are scaled to (x - mean x) / 255.

    W * (x - mean x) / 255 = (W / 255) * x - mean x sum(W / 255): pictures are read once less, which
    is 7% of training a small network. In bfloat16 that would be the difference of two large rounded
    numbers, so there the whole part of the mean is subtracted first: bytes and it are exact.
    """

    def call(self, pictures: Tensor) -> Tensor:
        """The activations of pictures [n, h, w, channels] uint8, float32."""
        x, kernel = ops.cast(pictures, "float32"), ops.cast(self.kernel / 255, self.compute_dtype)
        means = ops.mean(x, axis=(1, 2, 3), keepdims=True)
        if self.compute_dtype != "float32":
            whole = ops.round(means)
            x, means = ops.cast(x - whole, self.compute_dtype), means - whole
        bias = self.bias - means * ops.sum(ops.cast(kernel, "float32"), axis=(0, 1, 2))
        products = ops.conv(x, kernel, self.strides, "valid")
        return biased(self, products, bias)


class Measured(keras.layers.Layer):
    """A layer whose weights are means of what was trained so far."""

    def _add(self, name: str, shape: tuple[int | None, ...], first: str) -> Any:
        """A measured weight. Args: first: its first values, zeros or ones."""
        given = {"trainable": False, "dtype": "float32"}
        return self.add_weight(shape=shape, initializer=first, name=name, **given)

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the measured weights."""
        self._count = self._add("count", (), "zeros")

    def measure(self, batch: Any) -> None:
        """Take a batch into the means."""
        raise NotImplementedError

    def adapt(self) -> None:
        """Let another run's batches soon outweigh what was measured so far."""
        self._count.assign(ops.minimum(self._count, TAKEN_OVER))

    def _share(self, entries: Tensor) -> Tensor:
        """Count `entries` [n, ...], and return their share of all that were counted so far."""
        count = ops.cast(ops.shape(entries)[0], "float32")
        share = count / (self._count + count)
        self._count.assign(self._count + count)
        return share


class Normalized(Measured):
    """Observations [n, k] minus their mean, over their deviation, within 10 deviations.

    Both are of all observations that were trained so far (Welford 1962, by batches: Chan et al.
    1983), each as often as it was trained.
    """

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the measured weights."""
        super().build(shape)
        self._mean = self._add("mean", shape[-1:], "zeros")
        self._variance = self._add("variance", shape[-1:], "ones")

    def call(self, x: Tensor) -> Tensor:
        """The normalised observations."""
        deviation = ops.sqrt(ops.maximum(self._variance, SMALLEST_VARIANCE))
        return ops.clip((x - self._mean) / deviation, -FARTHEST, FARTHEST)

    def measure(self, batch: Any) -> None:
        """Take the observations of a batch into the means."""
        x = ops.reshape(_bounded(batch.observations), (-1, self._mean.shape[0]))
        share, before = self._share(x), self._mean.value
        moved = ops.mean(x, axis=0) - before
        variance = (1 - share) * self._variance + share * ops.var(x, axis=0)
        self._variance.assign(variance + share * (1 - share) * ops.square(moved))
        self._mean.assign(before + share * moved)


class ValueScale(Measured):
    """Values [n] times the root mean square of all rewards that were trained so far.

    It is 1 until there was another reward than 0. Learning then does not depend on the unit of the
    rewards, as losses are of errors in this unit (`value_unit`).
    """

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the measured weights."""
        super().build(shape)
        self._square = self._add("square", (), "zeros")

    @property
    def scale(self) -> Tensor:
        """The size, a scalar."""
        square = ops.convert_to_tensor(self._square)
        return ops.sqrt(ops.where(square > 0, square, 1.0))

    def call(self, x: Tensor) -> Tensor:
        """The scaled values."""
        return x * self.scale

    def measure(self, batch: Any) -> None:
        """Take the rewards of a batch into the mean."""
        squares = ops.square(ops.reshape(_bounded(batch.rewards), (-1,)))
        share = self._share(squares)
        self._square.assign((1 - share) * self._square + share * ops.mean(squares))


def _bounded(x: Tensor) -> Tensor:
    """`x` in float32, with bounds within which no square is infinite, as it would be for ever."""
    return ops.clip(ops.cast(x, "float32"), -LARGEST, LARGEST)


def measured_by(network: keras.Model) -> list[Measured]:
    """All measured layers of a network, those of models within it included."""
    found: dict[int, Measured] = {}
    for layer in network.layers:
        if isinstance(layer, keras.Model):
            found |= {id(each): each for each in measured_by(layer)}
        elif isinstance(layer, Measured):
            found[id(layer)] = layer
    return list(found.values())


def measure(layers: Sequence[Measured], batch: Any) -> None:
    """Take a batch into the weights of all these layers."""
    for layer in layers:
        layer.measure(batch)


def value_unit(network: keras.Model) -> Tensor:
    """What the network's values are multiplied by because of the rewards; 1 if by nothing.

    Losses are of errors over it: squared errors would else grow with the square of the unit.
    """
    return next((m.scale for m in measured_by(network) if isinstance(m, ValueScale)), 1.0)


class _Drawn(keras.initializers.Initializer):
    """First weights drawn by numpy, with a seed that Python's random numbers give, as Keras does.

    The same seed gives the same weights under each tensor framework. JAX would compile Keras's own
    draws for each shape, which takes a second a layer.
    """

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {"scale": self._scale}

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        """The first value of a weight of this shape."""
        drawn = self._draw(np.random.default_rng(random.getrandbits(64)), shape)
        return ops.convert_to_tensor((self._scale * drawn).astype("float32"), dtype)

    def _draw(self, numbers: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        raise NotImplementedError


class Orthogonal(_Drawn):
    """Orthogonal columns, or rows where these are fewer, times `scale` (Saxe et al. 2014).

    The last axis of a weight has the columns, all others together have the rows.
    """

    def _draw(self, numbers: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        normal = numbers.standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(normal)
        q *= np.sign(np.diagonal(r))  # each orthogonal matrix is equally likely (Mezzadri 2007)
        return (q if rows >= columns else q.T).reshape(shape)


class Uniform(_Drawn):
    """Equally likely between -`scale` and `scale`."""

    def _draw(self, numbers: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return numbers.uniform(-1.0, 1.0, shape)
