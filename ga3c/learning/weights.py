"""Reads and restores the variables of networks and optimizers by name, for checkpoints."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

Parts = Mapping[str, Sequence[Any]]
"""The variables of each part by its name, such as `weights`, `target` and `optimizer`."""


def keyed(parts: Parts) -> dict[str, Any]:
    """All variables by their keys, PART/PATH.

    Raises ValueError if two variables have the same key, because one would overwrite the other.
    """
    variables: dict[str, Any] = {}
    for part, members in parts.items():
        for variable in members:
            key = f"{part}/{variable.path}"
            if key in variables:
                raise ValueError(
                    f"two variables are named {key}: a checkpoint would keep only one of them; "
                    "give their layers different names"
                )
            variables[key] = variable
    return variables


def read(parts: Parts) -> dict[str, np.ndarray]:
    """A copy of every variable by its key, PART/PATH. Raises ValueError as `keyed` does."""
    return {
        key: np.array(keras.ops.convert_to_numpy(variable))
        for key, variable in keyed(parts).items()
    }


def restore(parts: Parts, values: Mapping[str, np.ndarray]) -> None:
    """Set every variable to `values["PART/PATH"]`. Values of parts not in `parts` are ignored.

    Raises ValueError, before any variable is set, if a value is missing, has another shape, or
    belongs to one of the parts but to none of its variables.
    """
    variables = keyed(parts)
    for key in values:
        if key.partition("/")[0] in parts and key not in variables:
            raise ValueError(f"{key}: the configured network or optimizer has no such variable")
    for key, variable in variables.items():
        shape, value = tuple(variable.shape), values.get(key)
        if value is None or value.shape != shape:
            part, _, path = key.partition("/")
            found = "nothing" if value is None else str(value.shape)
            raise ValueError(f"{part} {path}: expected {shape}, found {found}")
    for key, variable in variables.items():
        variable.assign(values[key])
