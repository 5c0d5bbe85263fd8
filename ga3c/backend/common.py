"""What all tensor frameworks have in common."""

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import Any

Tensor = Any
Column = tuple[tuple[int, ...], str]  # shape and dtype of one step's entry
Signature = list[tuple[tuple[int | None, ...], str]]  # shapes and dtypes; None means any size


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Makes imports of these packages fail as if not installed, unless already imported."""
    absent: Any = None
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden, absent))
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Exempts objects created here from garbage collection, now and later.

    Collections take a sixth of the time of importing TensorFlow.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
