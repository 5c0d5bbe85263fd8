"""Torsos as a user might write them, for tests: valid ones, and one for each possible fault."""

from typing import Any

import keras

Tensor = Any


def torso(observation: Tensor) -> Tensor:
    """Has an unnamed layer, and a named one, whose name two torsos of a network then share."""
    x = keras.layers.Flatten()(observation)
    x = keras.layers.Dense(24, activation="tanh")(x)
    return keras.layers.Dense(16, activation="tanh", name="last")(x)


def of_sizes(observation: Tensor, sizes: list[int], activation: str = "tanh") -> Tensor:
    """Layers of these sizes."""
    x = keras.layers.Flatten()(observation)
    for units in sizes:
        x = keras.layers.Dense(units, activation=activation)(x)
    return x


def as_seen(observation: Tensor) -> Tensor:
    """Returns the observation itself, flattened."""
    return keras.layers.Flatten()(observation)


def raising(observation: Tensor) -> Tensor:
    raise RuntimeError("the network\nhas a hole")


def of_rank_3(observation: Tensor) -> Tensor:
    return keras.ops.expand_dims(observation, 1)


SHARED = keras.layers.Dense(16)


def of_shared_layers(observation: Tensor) -> Tensor:
    return SHARED(keras.layers.Flatten()(observation))


def with_dropout(observation: Tensor) -> Tensor:
    """The dropout layer is inside a nested model, as in a block of a larger network."""
    block = keras.Sequential([keras.layers.Dense(16), keras.layers.SpatialDropout1D(0.5)])
    return keras.layers.Flatten()(block(keras.ops.expand_dims(observation, 1)))


def with_recurrent_dropout(observation: Tensor) -> Tensor:
    return keras.layers.GRU(16, dropout=0.25)(keras.ops.expand_dims(observation, 1))


def with_regularizer(observation: Tensor) -> Tensor:
    layer = keras.layers.Dense(16, kernel_regularizer=keras.regularizers.L2(0.01))
    return layer(keras.layers.Flatten()(observation))


def with_activity_regularizer(observation: Tensor) -> Tensor:
    return keras.layers.Dense(16, activity_regularizer="l2")(observation)


def with_batch_normalisation(observation: Tensor) -> Tensor:
    return keras.layers.BatchNormalization()(keras.layers.Flatten()(observation))


def with_attention(observation: Tensor) -> Tensor:
    """Valid: the dropout is 0, and batch normalisation is frozen, as in a pretrained encoder."""
    x = keras.ops.expand_dims(observation, 1)
    x = keras.layers.Flatten()(keras.layers.MultiHeadAttention(2, 2)(x, x))
    return keras.layers.BatchNormalization(trainable=False)(x)


def a_number(observation: Tensor) -> int:
    return 3


UNITS = 16
