"""What all tensor frameworks have in common."""

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import Any

Tensor = Any
Column = tuple[tuple[int, ...], str]  # shape and dtype of the entry of one step
Signature = list[tuple[tuple[int | None, ...], str]]  # shapes and dtypes; None means any size


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Imports of these packages fail, as if not installed, unless they are imported already."""
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
    """What is created here is no garbage: none is looked for, now or by later collections.

    They are a sixth of the time that importing TensorFlow takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
