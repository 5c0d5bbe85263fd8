"""Parts that the user wrote, a network's torso or an algorithm.

They are given as `module:name`, or as `module:name(key=value, ...)` to pass arguments.
"""

import ast
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from agents.actions import Actions
from agents.games import fault, imported
from agents.spelling import meant
from ga3c.backend import Tensor
from ga3c.learning.algorithm import Algorithm
from ga3c.settings.checks import without_arguments
from ga3c.settings.learning import LearningConfig

ASKED = (*Algorithm.__annotations__, *(n for n in vars(Algorithm) if not n.startswith("_")))
"""The members of `Algorithm`, all of which the user's class must have."""
SHARES = ("rate", "dropout", "recurrent_dropout", "stddev")  # attributes of Keras layers


def own_torso(network: str, x: Tensor, precision: str, name: str) -> Tensor:
    """Features [n, k] that the user's function `network` computes from x [n, ...] float32.

    The function is called once for each torso of each network, and must make new layers each time.
    They are wrapped in a model of their own, so that two torsos may use the same layer name.

    Args:
        precision: Keras' name for the precision of layers that set none themselves.
        name: the torso's name within its network.

    Raises:
        ValueError: if there is no such function, or if it fails, does not return such features, or
            returns layers that it has returned before.
    """
    function = _function(network)
    observation = keras.Input(x.shape[1:], dtype=x.dtype, name=f"{name}_observation")
    try:
        with keras.name_scope(name), _precision(precision):
            features = function(observation)
    except Exception as error:  # the user's code may raise anything
        raise ValueError(f"network {network} cannot be built: {fault(error)}") from error
    if not keras.backend.is_keras_tensor(features):
        raise ValueError(
            f"network {network} returned {type(features).__name__}: must be a Keras tensor of "
            "features [n, k]"
        )
    if len(features.shape) != 2 or features.shape[1] is None:
        raise ValueError(
            f"network {network} returned features of shape {tuple(features.shape)}: must be "
            "[n, k] with a known k, which the next layer needs"
        )
    model = keras.Model(observation, features, name=name)
    if any(hasattr(weight, "_ga3c_torso") for weight in model.weights):
        raise ValueError(
            f"network {network} returned layers that it has returned before: make new ones at each "
            "call, or networks and runs would share weights"
        )
    if idle := _idle(model):
        _say_once(f"ga3c: network {network}: {idle}")
    # Keras numbers unnamed layers across the whole process. A weight must have the same name in
    # every checkpoint, so its name here is built from its number within the torso.
    for number, weight in enumerate(model.weights):
        weight._path = f"{name}/{number}/{weight.name}"
        weight._ga3c_torso = True
    return model(x)


def _idle(model: keras.Model) -> str | None:
    """What Keras' `fit` would apply in a network but our training does not, or None."""
    layers = list(model._flatten_layers())
    for layer in layers:
        is_keras = type(layer).__module__.startswith("keras.")
        shares = [getattr(layer, name, 0) for name in SHARES if is_keras]
        if any(shares):
            return f"dropout or noise of {max(shares):g} has no effect, even in training"
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
            return "batch normalisation keeps its initial means and deviations, even in training"
    if model.losses or any(layer.activity_regularizer for layer in layers):
        return "regularizers have no effect: only the algorithm's loss is minimised"
    return None


@functools.cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr)


def own_part(setting: str, given: str) -> Any:
    """The object that `given` refers to, with the arguments in `given` bound to it.

    Args:
        given: module:name or module:name(key=value, ...).
        setting: its setting, for errors.

    Raises ValueError if there is no such module, it cannot be imported, or it has no such name, or
    if the arguments are not literals.
    """
    module, _, call = given.partition(":")
    name = without_arguments(call)
    try:
        found = imported(module)
    except ValueError as error:
        raise ValueError(f"{setting} {given}: {error}") from error
    part = getattr(found, name, None)
    if part is None:
        place = getattr(found, "__file__", None) or f"module {module}"
        hint = meant(name, dir(found), 1)
        raise ValueError(f"{setting} {given}: {hint}{place} has no {name}")
    if name == call or not callable(part):  # the caller says what it should be
        return part
    return functools.partial(part, **_keywords(setting, given, call))


def _keywords(setting: str, given: str, call: str) -> dict[str, Any]:
    """The keyword arguments in `call`, name(key=value, ...)."""
    try:
        tree: Any = ast.parse(call, mode="eval").body
        found = {each.arg: ast.literal_eval(each.value) for each in tree.keywords}
        named_once = None not in found and len(found) == len(tree.keywords)
        if isinstance(tree.func, ast.Name) and not tree.args and named_once:
            return found
    except (AttributeError, ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        pass  # as below
    raise ValueError(
        f"{setting} {given}: must be module:name(key=value, ...) whose values are numbers, True, "
        "False, None, quoted text or lists of these, as they are not evaluated as code"
    )


def own_algorithm(given: str, actions: Actions, learning: LearningConfig) -> Algorithm:
    """An instance of the user's class `given`, a module:name (docs/extending.md).

    Raises ValueError if the class is missing, cannot be constructed, or lacks a member of `ASKED`.
    """
    part = own_part("algorithm", given)
    try:
        algorithm: Algorithm = part(actions, learning)
    except Exception as error:  # the user's code may raise anything
        raise ValueError(f"algorithm {given} cannot be constructed: {fault(error)}") from error
    lacking = [name for name in ASKED if not hasattr(algorithm, name)]
    if lacking:
        raise ValueError(
            f"algorithm {given} lacks {', '.join(lacking)}: ga3c.learning.algorithm.Algorithm says "
            "what an algorithm must have"
        )
    return algorithm


def _function(network: str) -> Callable[[Tensor], Tensor]:
    function = own_part("network", network)
    if not callable(function):
        name = without_arguments(network).partition(":")[2]
        raise ValueError(
            f"network {network}: {name} is of type {type(function).__name__}, not a function: it "
            "must take observations and return features"
        )
    return function


@contextmanager
def _precision(policy: str) -> Iterator[None]:
    """Makes `policy` Keras' default precision for layers that are made within the context."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
