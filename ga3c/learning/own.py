"""A torso of the user's own, given as `module:name`."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from agents.games import fault

Tensor = Any


def own_torso(network: str, x: Tensor, precision: str, name: str) -> Tensor:
    """Features [n, k] that the function called `network` makes of observations x [n, ...] float32.

    The function makes new layers each time it is called, for each torso of each network. They are
    in a model of their own, so that two torsos may use one name.

    Args:
        precision: Keras' name of the arithmetic for layers that ask for none.
        name: of the torso within its network.

    Raises:
        ValueError: if there is no such function, it fails, or it returns anything else.
    """
    function = _function(network)
    observation = keras.Input(x.shape[1:], dtype=x.dtype, name=f"{name}_observation")
    try:
        with keras.name_scope(name), _precision(precision):
            features = function(observation)
    except Exception as error:  # it is anybody's code
        raise ValueError(f"network {network} cannot be built: {fault(error)}") from error
    if not keras.backend.is_keras_tensor(features):
        raise ValueError(
            f"network {network} returned {type(features).__name__}: must be a Keras tensor of "
            "features [n, k]"
        )
    if len(features.shape) != 2 or features.shape[1] is None:
        raise ValueError(
            f"network {network} returned features of shape {tuple(features.shape)}: must be "
            "[n, k] with a known k, or no layer could follow"
        )
    model = keras.Model(observation, features, name=name)
    # Keras numbers layers without a name through the whole process. In a checkpoint a weight must
    # have the same name each time, so it has its number within the torso.
    for number, weight in enumerate(model.weights):
        weight._path = f"{name}/{number}/{weight.name}"
    return model(x)


def _function(network: str) -> Callable[[Tensor], Tensor]:
    module, _, name = network.partition(":")
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise ValueError(
            f"network {network}: module {module} cannot be imported: {fault(error)}"
        ) from error
    function = getattr(found, name, None)
    if function is None:
        raise ValueError(f"network {network}: {found.__file__} has no {name}")
    if not callable(function):
        raise ValueError(
            f"network {network}: {name} is no function but {type(function).__name__}: it must take "
            "observations and return features"
        )
    return function


@contextmanager
def _precision(policy: str) -> Iterator[None]:
    """Layers that are made meanwhile compute as `policy` says, unless they ask for another."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
