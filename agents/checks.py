"""Checks of what environments return: arrays of the declared shapes, and finite numbers."""

import numpy as np


class InvalidStep(RuntimeError):
    """An environment returned something that cannot be learned from."""


def check_shape(game: str, name: str, values: np.ndarray, expected: tuple[int, ...]) -> None:
    """Raises InvalidStep unless `values` have the shape `expected`, one entry per environment."""
    if np.shape(values) != expected:
        raise InvalidStep(
            f"{game}: {name} of shape {np.shape(values)}: must be {expected}, one an environment"
        )


def check_kind(game: str, name: str, values: np.ndarray, dtype: str) -> None:
    """Raises InvalidStep if a conversion of `values` to `dtype` would lose more than precision."""
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        raise InvalidStep(
            f"{game}: {name} of {values.dtype}: must be {dtype}, as its space says, or values "
            "would change"
        )


def check_finite(game: str, name: str, values: np.ndarray, first_number: int) -> None:
    """Raises InvalidStep, with the first value that is not finite, unless all are finite.

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
