"""The torsos between an observation and an algorithm's heads.

| name | layers | source |
| --- | --- | --- |
| small | conv 16 8x8/4, conv 32 4x4/2, dense 256 | GA3C and A3C, section 5 |
| large-S | conv 32 8x8/S, conv 32 4x4/2, conv 64 4x4/2, dense 256 | GA3C, Table 2 (S: 4 to 1) |
| nature | conv 32 8x8/4, conv 64 4x4/2, conv 64 3x3/1, dense 512 | Mnih et al. 2015 |
| mlp | dense 64, dense 64, tanh | for vectors |
| parr | dense 128, dense 512 | for vectors: Parr 2018 |

The last dense layer is the first of a stream: a dueling network has two of them.

A torso of the user's own, `module:name`, ends with the features that it returns. In a dueling
network they are what both streams share, and each stream begins with a dense layer of 256 units.
"""

from typing import Any

import keras

from ga3c.learning.own import own_torso
from ga3c.settings.learning import NetworkConfig

Tensor = Any
HIDDEN_GAIN = 2**0.5
OWN_STREAM_UNITS = 256  # of a dueling network's streams, after a torso of the user's own
Conv = tuple[int, int, int]  # filters, size, stride

_VECTORS: dict[str, tuple[int, int, str]] = {"mlp": (64, 64, "tanh"), "parr": (128, 512, "relu")}
_CONVS: dict[str, tuple[list[Conv], int]] = {
    "small": ([(16, 8, 4), (32, 4, 2)], 256),
    "nature": ([(32, 8, 4), (64, 4, 2), (64, 3, 1)], 512),
    **{
        f"large-{stride}": ([(32, 8, stride), (32, 4, 2), (64, 4, 2)], 256)
        for stride in (4, 3, 2, 1)
    },
}


def initializers(config: NetworkConfig, gain: float, fan_in: int) -> dict[str, Any]:
    """First weights and biases of a layer with `fan_in` inputs, as keywords for Keras.

    `gain` is of orthogonal weights; fan-in draws both evenly within 1 / sqrt(fan_in).
    """
    if config.initializer == "orthogonal":
        return {"kernel_initializer": keras.initializers.Orthogonal(gain)}
    bound = fan_in**-0.5
    return {
        name: keras.initializers.RandomUniform(-bound, bound)
        for name in ("kernel_initializer", "bias_initializer")
    }


def dense(config: NetworkConfig, x: Tensor, units: int, gain: float, **options: Any) -> Tensor:
    """A dense layer on features [n, k], of the configured precision unless `options` say other."""
    options = {"dtype": _dtype(config), **initializers(config, gain, x.shape[-1]), **options}
    return keras.layers.Dense(units, **options)(x)


def torso(config: NetworkConfig, observation: Tensor, is_picture: bool, prefix: str = "") -> Tensor:
    """Features [n, k] of observations [n, h, w, channels] uint8 or [n, k] float32 or uint8.

    Args:
        prefix: of the layers' names, which tell two torsos of one model apart.

    Raises:
        ValueError: if the network does not fit the observation.
    """
    if config.is_own:
        return body(config, observation, is_picture, prefix)
    name = prefix + ("dense" if is_picture else "dense_1")
    return stream(config, body(config, observation, is_picture, prefix), is_picture, name)


def stream(config: NetworkConfig, features: Tensor, is_picture: bool, name: str) -> Tensor:
    """The last dense layer, on what `body` gives."""
    if config.is_own:
        units, activation = OWN_STREAM_UNITS, "relu"
    elif is_picture:
        units, activation = _CONVS[_name(config, is_picture)][1], "relu"
    else:
        _, units, activation = _VECTORS[_name(config, is_picture)]
    return dense(config, features, units, HIDDEN_GAIN, activation=activation, name=name)


def body(config: NetworkConfig, observation: Tensor, is_picture: bool, prefix: str = "") -> Tensor:
    """All layers of a torso but the last one, or all of an own one. Raises as `torso`."""
    x = _scaled(config, observation, is_picture)
    if is_picture and config.center:
        x = x - keras.ops.mean(x, axis=(1, 2, 3), keepdims=True)
    if config.is_own:
        return own_torso(config.network, x, _dtype(config), f"{prefix}torso")
    name = _name(config, is_picture)
    if not is_picture:
        units, _, activation = _VECTORS[name]
        return dense(config, x, units, HIDDEN_GAIN, activation=activation, name=f"{prefix}dense_0")
    for layer, (filters, size, stride) in enumerate(_CONVS[name][0]):
        if config.padding == "valid" and min(x.shape[1:3]) < size:
            raise ValueError(
                f"network {name}: a picture of {tuple(observation.shape[1:3])} is too small for "
                f"it without padding: choose --padding same"
            )
        x = keras.layers.Conv2D(
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


def _scaled(config: NetworkConfig, x: Tensor, is_picture: bool) -> Tensor:
    """Bytes as floats, and pictures in the configured range."""
    is_bytes = keras.backend.standardize_dtype(x.dtype) == "uint8"
    if is_bytes:
        x = keras.ops.cast(x, "float32")
    if is_picture and config.pixel_scale == "symmetric":
        return x * ((1 if is_bytes else 255) / 128) - 1.0
    return x * (1 / 255) if is_bytes else x


def _dtype(config: NetworkConfig) -> str:
    """As Keras calls it: of what is computed, from weights that stay float32."""
    return "mixed_bfloat16" if config.precision == "bfloat16" else "float32"


def _name(config: NetworkConfig, is_picture: bool) -> str:
    name = config.network
    if name == "auto":
        return "small" if is_picture else "mlp"
    if (name in _CONVS) != is_picture:
        kind = "pictures" if is_picture else "vectors"
        raise ValueError(
            f"network {name} does not take {kind}: choose "
            + ("small, large-4 to large-1 or nature" if is_picture else "mlp or parr")
        )
    return name
