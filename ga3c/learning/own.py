"""Parts of the user's own, given as `module:name`: a torso of the network, an algorithm."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from agents.games import fault
from ga3c.learning.algorithm import Algorithm
from ga3c.settings.learning import LearningConfig

Tensor = Any
ASKED = (
    "columns",
    "has_target",
    "noise",
    "network",
    "act",
    "policy_and_value",
    "loss",
    "rates",
    "exploration",
)
"""What `Algorithm` has."""


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


def own_part(setting: str, given: str) -> Any:
    """What `given`, a module:name, stands for. Args: setting: whose value it is, for errors.

    Raises ValueError if there is no such module, it cannot be imported, or it has no such name.
    """
    module, _, name = given.partition(":")
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # it is anybody's code
        raise ValueError(
            f"{setting} {given}: module {module} cannot be imported: {fault(error)}"
        ) from error
    part = getattr(imported, name, None)
    if part is None:
        place = getattr(imported, "__file__", None) or f"module {module}"
        raise ValueError(f"{setting} {given}: {place} has no {name}")
    return part


def own_algorithm(given: str, num_actions: int, learning: LearningConfig) -> Algorithm:
    """An instance of the user's class `given`, a module:name (docs/extending.md).

    Raises ValueError if there is no such class, it cannot be made, or it lacks what the model asks.
    """
    part = own_part("algorithm", given)
    try:
        algorithm: Algorithm = part(num_actions, learning)
    except Exception as error:  # it is anybody's code
        raise ValueError(f"algorithm {given} cannot be made: {fault(error)}") from error
    lacking = [name for name in ASKED if not hasattr(algorithm, name)]
    if lacking:
        raise ValueError(
            f"algorithm {given} lacks {', '.join(lacking)}: ga3c.learning.algorithm.Algorithm says "
            "what an algorithm has"
        )
    return algorithm


def _function(network: str) -> Callable[[Tensor], Tensor]:
    function = own_part("network", network)
    if not callable(function):
        name = network.partition(":")[2]
        raise ValueError(
            f"network {network}: {name} is no function but {type(function).__name__}: it must take "
            "observations and return features"
        )
    found: Callable[[Tensor], Tensor] = function
    return found


@contextmanager
def _precision(policy: str) -> Iterator[None]:
    """Layers that are made meanwhile compute as `policy` says, unless they ask for another."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
