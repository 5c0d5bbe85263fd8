"""What all tensor frameworks have in common."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

Tensor = Any
Column = tuple[tuple[int, ...], str]  # shape and dtype of one step's entry
Signature = list[tuple[tuple[int | None, ...], str]]  # shapes and dtypes; None is any size


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    """As if that module were not installed, unless it is imported already."""
    known: Any = sys.modules.get(name)
    absent: Any = None
    sys.modules[name] = known or absent
    try:
        yield
    finally:
        if not known:
            del sys.modules[name]
