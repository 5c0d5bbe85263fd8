"""The torsos between an observation and an algorithm's heads.

| name | layers | source |
| --- | --- | --- |
| small | conv 16 8x8/4, conv 32 4x4/2, dense 256 | GA3C and A3C, section 5 |
| large-S | conv 32 8x8/S, conv 32 4x4/2, conv 64 4x4/2, dense 256 | GA3C, Table 2 (S: 4 to 1) |
| nature | conv 32 8x8/4, conv 64 4x4/2, conv 64 3x3/1, dense 512 | Mnih et al. 2015 |
| mlp | dense 64, dense 64, tanh | for vectors |
"""

from typing import Any

import keras

from ga3c.config import NetworkConfig

Tensor = Any
Conv = tuple[int, int, int]  # filters, size, stride

_CONVS: dict[str, tuple[list[Conv], int]] = {
    "small": ([(16, 8, 4), (32, 4, 2)], 256),
    "nature": ([(32, 8, 4), (64, 4, 2), (64, 3, 1)], 512),
    **{
        f"large-{stride}": ([(32, 8, stride), (32, 4, 2), (64, 4, 2)], 256)
        for stride in (4, 3, 2, 1)
    },
}


def initializer(config: NetworkConfig, gain: float) -> keras.initializers.Initializer:
    """First weights of a layer; `gain` applies to orthogonal ones only."""
    if config.initializer == "orthogonal":
        return keras.initializers.Orthogonal(gain)
    return keras.initializers.VarianceScaling(1 / 3, mode="fan_in", distribution="uniform")


def torso(config: NetworkConfig, observation: Tensor, is_picture: bool) -> Tensor:
    """Features [n, k] of observations [n, h, w, channels] uint8 or [n, k] float32.

    Raises:
        ValueError: if the network does not fit the observation.
    """
    name = config.network
    if name == "auto":
        name = "small" if is_picture else "mlp"
    if (name != "mlp") != is_picture:
        kind = "pictures" if is_picture else "vectors"
        raise ValueError(
            f"network {name} does not take {kind}: choose "
            + ("small, large-4 to large-1 or nature" if is_picture else "mlp")
        )
    if name == "mlp":
        x = observation
        for _ in range(2):
            x = keras.layers.Dense(
                64, activation="tanh", kernel_initializer=initializer(config, 2**0.5)
            )(x)
        return x
    convs, units = _CONVS[name]
    x = keras.layers.Rescaling(1 / 255)(observation)
    for filters, size, stride in convs:
        x = keras.layers.Conv2D(
            filters,
            size,
            stride,
            padding=config.padding,
            activation="relu",
            kernel_initializer=initializer(config, 2**0.5),
        )(x)
    x = keras.layers.Flatten()(x)
    return keras.layers.Dense(
        units, activation="relu", kernel_initializer=initializer(config, 2**0.5)
    )(x)
