"""What all tensor frameworks have in common."""

from typing import Any

Tensor = Any
Column = tuple[tuple[int, ...], str]  # shape and dtype of one step's entry
Signature = list[tuple[tuple[int | None, ...], str]]  # shapes and dtypes; None is any size
