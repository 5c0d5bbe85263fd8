"""The actions of an environment: one of a finite set, or several numbers in [-1, 1].

The numbers are scaled to the environment's own bounds where it is stepped, so the service never
sees those bounds.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Actions:
    """The shape of an action, and which actions are valid."""

    count: int  # size of a finite set, numbered from 0; 0: an action is `size` numbers
    size: int = 1

    @property
    def is_continuous(self) -> bool:
        """Whether an action is `size` numbers in [-1, 1]."""
        return not self.count

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one action: () for a finite set, otherwise (size,)."""
        return (self.size,) if self.is_continuous else ()

    @property
    def dtype(self) -> np.dtype:
        """int32 for a finite set, otherwise float32."""
        return np.dtype("<f4" if self.is_continuous else "<i4")

    @property
    def kept_dtype(self) -> np.dtype:
        """The dtype in the action file that a lockstep run keeps."""
        return np.dtype("<f4" if self.is_continuous else "<u2")

    def are_valid(self, actions: np.ndarray) -> bool:
        """Whether all `actions` [n, *shape] are in range. Their dtype must be right."""
        if self.is_continuous:
            return bool((np.abs(actions) <= 1).all())  # False for NaN
        return bool((actions.view(np.uint32) < self.count).all())  # negative wraps to huge

    def random(self, random: np.random.Generator, n: int) -> np.ndarray:
        """Actions [n, *shape], drawn uniformly."""
        if self.is_continuous:
            return random.uniform(-1, 1, (n, self.size)).astype(np.float32)
        return random.integers(self.count, size=n, dtype=np.int32)

    def __str__(self) -> str:
        """The valid range of an action, for error messages."""
        if self.is_continuous:
            return f"{self.size} numbers in [-1, 1]"
        return f"0..{self.count - 1}"
