"""Checks that environments return arrays of the declared shapes, and finite numbers."""

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np


class InvalidStep(RuntimeError):
    """An environment returned something that cannot be learned from."""


def check_shape(game: str, name: str, values: np.ndarray, expected: tuple[int, ...]) -> None:
    """Raises InvalidStep unless `values` have the shape `expected`, one entry per environment."""
    if np.shape(values) != expected:
        raise InvalidStep(
            f"{game}: {name} of shape {np.shape(values)}: must be {expected}, one per environment"
        )


def check_kind(game: str, name: str, values: np.ndarray, dtype: str) -> None:
    """Raises InvalidStep if converting `values` to `dtype` would lose more than precision."""
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        raise InvalidStep(
            f"{game}: {name} of {values.dtype}: must be {dtype}, as its space declares, or values "
            "would change"
        )


def check_finite(game: str, name: str, values: np.ndarray, first_number: int) -> None:
    """Raises InvalidStep, naming the first non-finite value, unless all are finite.

    Args: first_number: the number of the environment whose values come first.
    """
    finite = np.isfinite(values)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        at = f" at {list(where[1:])}" if where[1:] else ""
        raise InvalidStep(
            f"{game}: {name} of environment {first_number + where[0]} is {values[where]}{at}: "
            "must be finite in float32, or nothing could be learned from it"
        )


def check_interface(game: str, environment: gymnasium.Env) -> None:
    """Start a game and take one step. A vector of environments would hide what is wrong.

    Raises InvalidStep if `reset` or `step` does not follow Gymnasium's API, and what they raise.
    """
    try:
        begun: Any = environment.reset(seed=0, options=None)
    except TypeError as error:
        if _takes_seed_and_options(environment.unwrapped.reset):
            raise
        rule = "must be reset(self, *, seed=None, options=None)"
        raise InvalidStep(f"{game}: reset does not take both seed and options: {rule}") from error
    if not (isinstance(begun, tuple) and len(begun) == 2):
        raise InvalidStep(f"{game}: reset returned {_form(begun)}: must be (observation, info)")
    _check_observation(game, environment, begun[0])
    environment.action_space.seed(0)
    action = environment.action_space.sample()
    try:
        stepped = environment.step(action)
    except (TypeError, ValueError):  # a wrapper may fail on what the environment returned
        _check_step(game, environment.unwrapped.step(action))
        raise
    _check_step(game, stepped)
    _check_observation(game, environment, stepped[0])


def _takes_seed_and_options(reset: Callable[..., Any]) -> bool:
    try:
        inspect.signature(reset).bind(seed=0, options=None)
    except TypeError:
        return False
    return True


def _check_step(game: str, stepped: Any) -> None:
    if not (isinstance(stepped, tuple) and len(stepped) == 5):
        rule = "must be (observation, reward, terminated, truncated, info)"
        raise InvalidStep(f"{game}: step returned {_form(stepped)}: {rule}")
    reward = np.asarray(stepped[1])
    if reward.shape or reward.dtype.kind not in "biuf":
        raise InvalidStep(f"{game}: step returned the reward {stepped[1]!r}: must be one number")


def _form(answer: Any) -> str:
    return f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"


def _check_observation(game: str, environment: gymnasium.Env, observation: Any) -> None:
    space, values = environment.observation_space, np.asarray(observation)
    if values.shape != space.shape:
        rule = f"must be {space.shape}, as its space declares"
        raise InvalidStep(f"{game}: observation of shape {values.shape}: {rule}")
    check_kind(game, "observation", values, str(space.dtype))
