"""Torsos of a user's own, for tests: good ones, and one for each thing that can be wrong."""

from typing import Any

import keras

Tensor = Any


def torso(observation: Tensor) -> Tensor:
    """One layer without a name, and one with a name, which two torsos of a network share."""
    x = keras.layers.Flatten()(observation)
    x = keras.layers.Dense(24, activation="tanh")(x)
    return keras.layers.Dense(16, activation="tanh", name="last")(x)


def as_seen(observation: Tensor) -> Tensor:
    """The observation itself."""
    return keras.layers.Flatten()(observation)


def raising(observation: Tensor) -> Tensor:
    raise RuntimeError("the network\nhas a hole")


def of_rank_3(observation: Tensor) -> Tensor:
    return keras.ops.expand_dims(observation, 1)


SHARED = keras.layers.Dense(16)


def of_shared_layers(observation: Tensor) -> Tensor:
    return SHARED(keras.layers.Flatten()(observation))


def with_dropout(observation: Tensor) -> Tensor:
    """The layer is within a model, as a block of a larger network may be."""
    block = keras.Sequential([keras.layers.Dense(16), keras.layers.Dropout(0.5)])
    return block(keras.layers.Flatten()(observation))


def with_regularizer(observation: Tensor) -> Tensor:
    layer = keras.layers.Dense(16, kernel_regularizer=keras.regularizers.L2(0.01))
    return layer(keras.layers.Flatten()(observation))


def a_number(observation: Tensor) -> int:
    return 3


UNITS = 16
