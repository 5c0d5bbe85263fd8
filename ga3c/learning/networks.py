"""The torsos between observations and an algorithm's heads.

`ga3c.settings.choices` lists the layers of each and where they were published.
`NetworkConfig.units` overrides the sizes of the dense layers, and for vectors also their number.

The last dense layer of a torso starts a stream, of which a dueling network has two. With
`layer_norm`, it is normalised before its activation.

A torso that the user wrote, `module:name`, ends with the features that it returns. In a dueling
network both streams share these features, and each starts with a dense layer of 256 units.
"""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import keras

from ga3c.backend import Tensor
from ga3c.learning.layers import (
    CentredConv2D,
    Conv2D,
    Dense,
    Normalized,
    Orthogonal,
    Uniform,
    ValueScale,
)
from ga3c.learning.own import own_torso
from ga3c.settings.choices import TORSOS
from ga3c.settings.learning import NetworkConfig

HIDDEN_GAIN = 2**0.5
SMALLEST_OF_SMALL = 20  # height and width of the smallest picture that `small` takes
OWN_STREAM_UNITS = 256  # units of each dueling stream after a torso that the user wrote


def initializers(config: NetworkConfig, gain: float, fan_in: int) -> dict[str, Any]:
    """Keyword arguments for Keras: the initializers of a layer with `fan_in` inputs.

    `gain` applies to orthogonal weights only. The initializer fan-in draws weights and biases
    uniformly from [-1 / sqrt(fan_in), 1 / sqrt(fan_in)].
    """
    if config.initializer == "orthogonal":
        return {"kernel_initializer": Orthogonal(gain)}
    bound = fan_in**-0.5
    return {name: Uniform(bound) for name in ("kernel_initializer", "bias_initializer")}


def dense(config: NetworkConfig, x: Tensor, units: int, gain: float, **options: Any) -> Tensor:
    """A dense layer on features [n, k], in the configured precision unless `options` differ."""
    options = {"dtype": _dtype(config), **initializers(config, gain, x.shape[-1]), **options}
    return Dense(units, **options)(x)


def torso(config: NetworkConfig, observation: Tensor, is_picture: bool, prefix: str = "") -> Tensor:
    """Features [n, k] of observations [n, h, w, channels] uint8 or [n, k] float32 or uint8.

    Args:
        prefix: of the layers' names, so that two torsos in one model have different names.

    Raises:
        ValueError: if the network does not fit the observation.
    """
    if config.is_own:
        return body(config, observation, is_picture, prefix)
    name = f"{prefix}dense" if is_picture else f"{prefix}dense_{len(_units(config)) - 1}"
    return stream(config, body(config, observation, is_picture, prefix), is_picture, name)


def stream(config: NetworkConfig, features: Tensor, is_picture: bool, name: str) -> Tensor:
    """A torso's last dense layer, applied to the features that `body` returns."""
    if config.is_own:
        units, activation = OWN_STREAM_UNITS, "relu"
    else:
        units, activation = _units(config)[-1], TORSOS[config.network].activation
    if not config.layer_norm:
        return dense(config, features, units, HIDDEN_GAIN, activation=activation, name=name)
    x = dense(config, features, units, HIDDEN_GAIN, name=name)
    x = keras.layers.LayerNormalization(dtype="float32", name=f"{name}_norm")(x)
    return keras.layers.Activation(activation, dtype="float32")(x)


def body(config: NetworkConfig, observation: Tensor, is_picture: bool, prefix: str = "") -> Tensor:
    """All layers of a torso but the last, or the whole torso if the user wrote it.

    Raises ValueError as `torso` does.
    """
    x = _pictures(config, observation) if is_picture else vectors(config, observation, prefix)
    if config.is_own:
        return own_torso(config.network, x, _dtype(config), f"{prefix}torso")
    name = config.network
    if not is_picture:
        for layer, units in enumerate(_units(config)[:-1]):
            options = {"activation": TORSOS[name].activation, "name": f"{prefix}dense_{layer}"}
            x = dense(config, x, units, HIDDEN_GAIN, **options)
        return x
    for layer, (filters, size, stride) in enumerate(TORSOS[name].convs):
        centres = layer == 0 and _centres_itself(config, observation)
        convolution = CentredConv2D if centres else Conv2D
        x = convolution(
            filters,
            size,
            stride,
            padding=config.padding,
            activation="relu",
            dtype=_dtype(config),
            name=f"{prefix}conv_{layer}",
            **initializers(config, HIDDEN_GAIN, size * size * x.shape[-1]),
        )(x)
    return keras.layers.Flatten(dtype=_dtype(config), name=f"{prefix}flatten")(x)


def _units(config: NetworkConfig) -> tuple[int, ...]:
    """The units of a torso's dense layers."""
    return config.units or TORSOS[config.network].units


def scaled_value(config: NetworkConfig, value: Tensor) -> Tensor:
    """A head's output [n], scaled to a value in the unit of the rewards."""
    if config.value_scale != 1.0:
        value = value * config.value_scale
    if config.follow_rewards:
        value = ValueScale(dtype="float32", name="value_scale")(value)
    return value


def _pictures(config: NetworkConfig, observation: Tensor) -> Tensor:
    """Observations [n, h, w, channels] as the first layer takes them: float32, or unchanged."""
    if _centres_itself(config, observation):
        return observation
    x = _scaled(config, observation, is_picture=True)
    return x - keras.ops.mean(x, axis=(1, 2, 3), keepdims=True) if config.center else x


def vectors(config: NetworkConfig, observation: Tensor, prefix: str = "") -> Tensor:
    """Observations [n, k] as the first layer takes them, float32."""
    if not config.normalize_observations:
        return _scaled(config, observation, is_picture=False)
    x = keras.ops.cast(observation, "float32") if _is_bytes(observation) else observation
    return Normalized(dtype="float32", name=f"{prefix}normalized")(x)  # unscaled, as it measures


def _scaled(config: NetworkConfig, x: Tensor, is_picture: bool) -> Tensor:
    """The observations with bytes as floats and pictures scaled to the configured range."""
    is_bytes = _is_bytes(x)
    if is_bytes:
        x = keras.ops.cast(x, "float32")
    if is_picture and config.pixel_scale == "symmetric":
        return x * ((1 if is_bytes else 255) / 128) - 1.0
    return x * (1 / 255) if is_bytes else x


def _centres_itself(config: NetworkConfig, pictures: Tensor) -> bool:
    """Whether the first layer is `CentredConv2D`, which takes bytes."""
    given = config.is_own, config.center, config.pixel_scale, config.padding
    return given == (False, True, "unit", "valid") and _is_bytes(pictures)


def _is_bytes(x: Tensor) -> bool:
    return keras.backend.standardize_dtype(x.dtype) == "uint8"


def _dtype(config: NetworkConfig) -> str:
    """Keras' name for the precision of a layer's products. Weights stay float32."""
    return "mixed_bfloat16" if config.precision == "bfloat16" else "float32"


def count_weights(config: NetworkConfig, shape: tuple[int, ...], is_picture: bool) -> int:
    """The number of weights in a torso, nearly all of the network's, without building it.

    Args: config: as `resolved` returns it; shape: of an observation, [h, w, channels] or [k].

    Raises ValueError if a picture is too small.
    """
    name = config.network
    if not is_picture:
        return sum(
            before * after for before, after in pairwise([math.prod(shape), *_units(config)])
        )
    convs, (units,) = TORSOS[name].convs, _units(config)
    height, width, channels = shape
    count = 0
    for filters, size, stride in convs:
        if config.padding == "valid" and min(height, width) < size:
            raise ValueError(
                f"network {name}: a picture of {shape[:2]} is too small for it without padding: "
                "choose --padding same"
            )
        count += size * size * channels * filters
        missing = 0 if config.padding == "same" else size - 1
        height, width = (-(-(n - missing) // stride) for n in (height, width))
        channels = filters
    return count + height * width * channels * units


def resolved(config: NetworkConfig, shape: tuple[int, ...], is_picture: bool) -> NetworkConfig:
    """The configuration with `auto` replaced by the torso for observations of this shape.

    Raises ValueError if the torso is for the other kind of observation.
    """
    if config.is_own:
        return config
    name = config.network
    if name == "auto":
        if is_picture:
            name = "minatar" if min(shape[:2]) < SMALLEST_OF_SMALL else "small"
        else:
            name = "mlp"
    kind = "pictures" if is_picture else "vectors"
    if TORSOS[name].kind != kind:
        fitting = ", ".join(name for name, torso in TORSOS.items() if torso.kind == kind)
        raise ValueError(f"network {name} does not take {kind}: choose {fitting}")
    if is_picture and len(config.units or (1,)) > 1:
        raise ValueError(f"units {config.units}: network {name} has one dense layer")
    found = replace(config, network=name)
    count_weights(found, shape, is_picture)  # checks the size
    return found
