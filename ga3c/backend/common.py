"""What all tensor frameworks have in common."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

Tensor = Any
Column = tuple[tuple[int, ...], str]  # shape and dtype of the entry of one step
Signature = list[tuple[tuple[int | None, ...], str]]  # shapes and dtypes; None means any size


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    """Imports of `name` fail, as if it were not installed, unless it is imported already."""
    imported: Any = sys.modules.get(name)
    absent: Any = None
    sys.modules[name] = imported or absent
    try:
        yield
    finally:
        if not imported:
            del sys.modules[name]
