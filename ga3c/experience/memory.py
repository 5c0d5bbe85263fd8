"""Where experience is stored, on the device or in RAM, with the same operations for both.

Code that uses these operations runs in either place: compiled on the device, or in numpy.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from agents.machine import free_ram_bytes
from ga3c import backend
from ga3c.backend import Column, Signature, Tensor


class HostTable:
    """Columns of `rows` entries each in RAM."""

    def __init__(self, columns: Mapping[str, Column], rows: int) -> None:
        self._columns = {
            name: np.zeros((rows, *shape), dtype) for name, (shape, dtype) in columns.items()
        }

    def write(self, rows: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        """Put `values[name]` [n, ...] at `rows` [n]."""
        for name, value in values.items():
            self._columns[name][rows] = value

    def gather(self, name: str, rows: np.ndarray) -> np.ndarray:
        """The entries of a column at `rows` [...], as [..., *shape]."""
        return self._columns[name].take(rows, axis=0)

    def read(self) -> dict[str, np.ndarray]:
        """A copy of every column."""
        return {name: column.copy() for name, column in self._columns.items()}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises KeyError or ValueError if it does not fit."""
        for name, column in self._columns.items():
            column[:] = values[name]


@dataclass(frozen=True)
class Memory:
    """A place for arrays, and the operations that run there."""

    on_device: bool
    ops: Any
    """keras.ops or numpy. Use only functions that both have under the same name."""
    table: Callable[[Mapping[str, Column], int], Any]
    """Makes a table of columns and rows, which has `write`, `gather`, `read` and `restore`."""
    cast: Callable[[Tensor, str], Tensor]
    channels_last: Callable[[Sequence[Tensor]], Tensor]
    """Frames [..., pixels], oldest first, as one [..., pixels, len(frames)]."""
    uniform: Callable[[Any, Tensor], Tensor]
    """Uniform float32 draws from [tiny, 1), given a shape and a seed int32 [2]."""
    integers: Callable[[Any, Tensor, Tensor], Tensor]
    """Uniform int32 draws from [0, total), given a shape, a seed int32 [2] and a total."""
    compiled: Callable[[Callable[..., Any], Signature], Callable[..., Any]]
    """Compiles a function that uses tables. The host calls it with arrays of the signature."""
    row_dtype: str
    """Dtype of lanes, slots and row numbers in this memory's arithmetic."""


def _host_channels_last(frames: Sequence[np.ndarray]) -> np.ndarray:
    if len(frames) != 4 or frames[0].dtype != np.uint8:
        return np.stack(frames, axis=-1)
    packed = frames[3].astype(np.uint32)
    for frame in (frames[2], frames[1], frames[0]):
        packed <<= 8
        packed |= frame
    return packed.astype("<u4", copy=False).view(np.uint8).reshape(*frames[0].shape, 4)


def _generator(seed: np.ndarray) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed.astype(np.uint64)))


def _host_uniform(shape: tuple[int, ...], seed: np.ndarray) -> np.ndarray:
    return np.maximum(_generator(seed).random(shape, np.float32), np.float32(1e-20))


def _host_integers(shape: tuple[int, ...], seed: np.ndarray, total: np.ndarray) -> np.ndarray:
    return _generator(seed).integers(total, size=shape, dtype=np.int32)


DEVICE = Memory(
    on_device=True,
    ops=keras.ops,
    table=backend.DeviceTable,
    cast=keras.ops.cast,
    channels_last=backend.channels_last,
    uniform=backend.uniform,
    integers=backend.integers,
    compiled=backend.compiled,
    row_dtype=backend.ROW_DTYPE,
)
HOST = Memory(
    on_device=False,
    ops=np,
    table=HostTable,
    cast=lambda values, dtype: np.asarray(values, dtype),
    channels_last=_host_channels_last,
    uniform=_host_uniform,
    integers=_host_integers,
    compiled=lambda function, signature: function,
    row_dtype="int32",
)


def row_bytes(columns: Mapping[str, Column]) -> int:
    """Size in bytes of a row of these columns."""
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in columns.values())


def free_bytes(memory: Memory) -> int:
    """Free bytes of this memory."""
    left = backend.free_bytes() if memory.on_device else None
    return free_ram_bytes() if left is None else left


def named(**parts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of all parts in one dictionary, under the names PART/NAME."""
    return {
        f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()
    }


def part(values: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays of the part `name`, by their names without the prefix PART/."""
    start = f"{name}/"
    return {key.removeprefix(start): a for key, a in values.items() if key.startswith(start)}
