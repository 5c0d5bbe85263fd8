"""Layers that Keras lacks: input-independent deviations, and layers with measured weights.

Also initializers that give the same weights under each tensor framework.

A measured weight is not learned by gradient descent. It is a running mean over the data trained on
so far, and is kept with the other weights in checkpoints and exports.
"""

import math
import random
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ga3c.backend import Tensor

FARTHEST = 10.0  # normalised observations are clipped to this many deviations
SMALLEST_VARIANCE = 1e-8
LARGEST = 1e9  # numbers are clipped to this size before they are measured
TAKEN_OVER = 10_000.0  # cap on the count of entries behind another run's statistics


class LogDeviations(keras.layers.Layer):
    """Appends one learned log deviation per mean to the means [n, size]: [n, 2 size]."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the weight; the deviations start at 1, half the range of the actions."""
        self._logs = self.add_weight(shape=(shape[-1],), initializer="zeros", name="log_deviations")

    def call(self, means: Tensor) -> Tensor:
        """The parameters of the distribution."""
        return ops.concatenate([means, ops.zeros_like(means) + self._logs], axis=-1)


def biased(layer: keras.layers.Layer, products: Tensor, bias: Tensor) -> Tensor:
    """The activations of a layer, computed in float32 from its products and its bias.

    Both have been rounded to the layer's precision.
    TensorFlow sums the gradient of a bias in the bias's own precision. Over 256 pictures in
    bfloat16, that sum was off by 70% for a convolution and by 8% for a dense layer.
    """
    return layer.activation(ops.cast(products, "float32") + ops.cast(bias, "float32"))


class Conv2D(keras.layers.Conv2D):
    """Keras' convolution, with its bias added in float32."""

    def call(self, inputs: Tensor) -> Tensor:
        """The activations of inputs [n, h, w, channels]."""
        if self.compute_dtype == "float32":
            return super().call(inputs)
        products = ops.conv(inputs, self.kernel, self.strides, self.padding)
        return biased(self, products, self.bias)


class Dense(keras.layers.Dense):
    """Keras' dense layer, with its bias added in float32."""

    def call(self, inputs: Tensor) -> Tensor:
        """The activations of inputs [n, k]."""
        if self.compute_dtype == "float32":
            return super().call(inputs)
        return biased(self, ops.matmul(inputs, self.kernel), self.bias)


class CentredConv2D(keras.layers.Conv2D):
    """A convolution, without padding, of byte pictures x, centred and scaled: (x - mean x) / 255.

    W * (x - mean x) / 255 = (W / 255) * x - mean x sum(W / 255) saves one pass over the pictures,
    which is 7% of training a small network. In bfloat16 this would be the difference of two large
    rounded numbers, so there the rounded mean is subtracted first: it and the bytes are exact.
    """

    def call(self, pictures: Tensor) -> Tensor:
        """The activations, float32, of pictures [n, h, w, channels] uint8."""
        x, kernel = ops.cast(pictures, "float32"), ops.cast(self.kernel / 255, self.compute_dtype)
        means = ops.mean(x, axis=(1, 2, 3), keepdims=True)
        if self.compute_dtype != "float32":
            whole = ops.round(means)
            x, means = ops.cast(x - whole, self.compute_dtype), means - whole
        bias = self.bias - means * ops.sum(ops.cast(kernel, "float32"), axis=(0, 1, 2))
        products = ops.conv(x, kernel, self.strides, "valid")
        return biased(self, products, bias)


class Measured(keras.layers.Layer):
    """A layer whose weights are running means over the data trained on so far."""

    def _add(self, name: str, shape: tuple[int | None, ...], first: str) -> Any:
        """A measured weight. Args: first: its initial values, zeros or ones."""
        given = {"trainable": False, "dtype": "float32"}
        return self.add_weight(shape=shape, initializer=first, name=name, **given)

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the measured weights."""
        self._count = self._add("count", (), "zeros")

    def measure(self, batch: Any) -> None:
        """Update the means with a batch."""
        raise NotImplementedError

    def adapt(self) -> None:
        """Cap the count, so that a new run's batches soon outweigh what was measured so far."""
        self._count.assign(ops.minimum(self._count, TAKEN_OVER))

    def _share(self, entries: Tensor) -> Tensor:
        """Count `entries` [n, ...], and return their share of all entries counted so far."""
        count = ops.cast(ops.shape(entries)[0], "float32")
        share = count / (self._count + count)
        self._count.assign(self._count + count)
        return share


class Normalized(Measured):
    """Observations [n, k] minus their mean, divided by their deviation, clipped to 10 deviations.

    Both are over all observations trained on so far, counted each time they are trained on
    (Welford 1962; for batches: Chan et al. 1983).
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
        """Update the mean and the variance with a batch's observations."""
        x = ops.reshape(_bounded(batch.observations), (-1, self._mean.shape[0]))
        share, before = self._share(x), self._mean.value
        moved = ops.mean(x, axis=0) - before
        variance = (1 - share) * self._variance + share * ops.var(x, axis=0)
        self._variance.assign(variance + share * (1 - share) * ops.square(moved))
        self._mean.assign(before + share * moved)


class ValueScale(Measured):
    """Values [n] times the root mean square of all rewards trained on so far.

    The factor is 1 until the first nonzero reward. It makes learning independent of the unit of the
    rewards, because losses are computed from errors in this unit (`value_unit`).
    """

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the measured weights."""
        super().build(shape)
        self._square = self._add("square", (), "zeros")

    @property
    def scale(self) -> Tensor:
        """The factor, a scalar."""
        square = ops.convert_to_tensor(self._square)
        return ops.sqrt(ops.where(square > 0, square, 1.0))

    def call(self, x: Tensor) -> Tensor:
        """The scaled values."""
        return x * self.scale

    def measure(self, batch: Any) -> None:
        """Update the mean with a batch's rewards."""
        squares = ops.square(ops.reshape(_bounded(batch.rewards), (-1,)))
        share = self._share(squares)
        self._square.assign((1 - share) * self._square + share * ops.mean(squares))


def _bounded(x: Tensor) -> Tensor:
    """`x` in float32, clipped so that no square is infinite: a mean would stay infinite forever."""
    return ops.clip(ops.cast(x, "float32"), -LARGEST, LARGEST)


def measured_by(network: keras.Model) -> list[Measured]:
    """All measured layers of a network, including those of models nested in it."""
    found: dict[int, Measured] = {}
    for layer in network.layers:
        if isinstance(layer, keras.Model):
            found |= {id(each): each for each in measured_by(layer)}
        elif isinstance(layer, Measured):
            found[id(layer)] = layer
    return list(found.values())


def measure(layers: Sequence[Measured], batch: Any) -> None:
    """Update the weights of all these layers with a batch."""
    for layer in layers:
        layer.measure(batch)


def value_unit(network: keras.Model) -> Tensor:
    """The factor by which a `ValueScale` multiplies the network's values; 1 if it has none.

    Losses divide errors by it: otherwise squared errors would grow with the square of the unit.
    """
    return next((m.scale for m in measured_by(network) if isinstance(m, ValueScale)), 1.0)


class _Drawn(keras.initializers.Initializer):
    """Initial weights drawn by numpy, seeded from Python's random numbers, as Keras does.

    The same seed gives the same weights under each tensor framework. JAX would compile Keras' own
    draws for each shape, which takes a second per layer.
    """

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {"scale": self._scale}

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        """The initial value of a weight of this shape."""
        drawn = self._draw(np.random.default_rng(random.getrandbits(64)), shape)
        return ops.convert_to_tensor((self._scale * drawn).astype("float32"), dtype)

    def _draw(self, numbers: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        raise NotImplementedError


class Orthogonal(_Drawn):
    """Orthogonal columns, or rows if there are fewer of them, times `scale` (Saxe et al. 2014).

    The last axis of a weight indexes the columns, all others together index the rows.
    """

    def _draw(self, numbers: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        normal = numbers.standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(normal)
        q *= np.sign(np.diagonal(r))  # all orthogonal matrices are equally likely (Mezzadri 2007)
        return (q if rows >= columns else q.T).reshape(shape)


class Uniform(_Drawn):
    """Uniform between -`scale` and `scale`."""

    def _draw(self, numbers: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return numbers.uniform(-1.0, 1.0, shape)
