"""Variables by name: what a checkpoint holds of networks and optimizers, and how it comes back."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

Parts = Mapping[str, Sequence[Any]]
"""Variables of each part, such as `weights`, `target` and `optimizer`."""


def keyed(parts: Parts) -> dict[str, Any]:
    """All variables as PART/PATH.

    Raises ValueError if two of them have the same name: one would overwrite the other.
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
    """A copy of every variable as PART/PATH. Raises ValueError as `keyed`."""
    return {
        key: np.array(keras.ops.convert_to_numpy(variable))
        for key, variable in keyed(parts).items()
    }


def restore(parts: Parts, values: Mapping[str, np.ndarray]) -> None:
    """Set every variable to `values["PART/PATH"]`, all or none. Other parts' values are left.

    Raises ValueError if one is missing, of another shape, or none of these.
    """
    variables = keyed(parts)
    for key in values:
        if key.partition("/")[0] in parts and key not in variables:
            raise ValueError(f"{key}: this network has no such weights")
    for key, variable in variables.items():
        shape, value = tuple(variable.shape), values.get(key)
        if value is None or value.shape != shape:
            part, _, path = key.partition("/")
            found = "nothing" if value is None else str(value.shape)
            raise ValueError(f"{part} {path}: expected {shape}, found {found}")
    for key, variable in variables.items():
        variable.assign(values[key])
