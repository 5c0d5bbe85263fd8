"""The host's book of the ring: where each step is written, and whether it may be written yet."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Segment(NamedTuple):
    """Consecutive steps of a lane. Their records stay in the ring until they are trained on."""

    lane: int
    start: int  # the lane's step count at its first observation
    steps: int  # transitions, one less than observations


class Book(ABC):
    """Which slot of its ring each lane fills next.

    Safe for several predictors, because only one of them handles a lane at a time.
    """

    def __init__(self, lanes: int, capacity: int, stack: int) -> None:
        self.lanes = lanes
        self.capacity = capacity
        self._stack = stack
        self._steps = np.full(lanes, -1, np.int64)  # step of the newest record
        self._ages = np.zeros(lanes, np.int32)

    def begin(self, lanes: np.ndarray) -> None:
        """Record that a new agent plays `lanes`. Its observations contain no earlier frames."""
        self._ages[lanes] = -1

    @abstractmethod
    def admit(self, lanes: np.ndarray, timeout_s: float) -> bool:
        """Wait until the next step of all `lanes` [n] may be written. False on timeout."""

    def advance(
        self, lanes: np.ndarray, firsts: np.ndarray, version: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Slots and ages, int32 [n], of the next step of each lane.

        Args:
            lanes: [n] int.
            firsts: [n] bool, whether the step is a reset frame.
            version: number of updates that made the acting weights. Books that report policy lag
                store it.
        """
        self._steps[lanes] += 1
        ages = np.where(firsts, 0, np.minimum(self._ages[lanes] + 1, self._stack - 1))
        self._ages[lanes] = ages
        return (self._steps[lanes] % self.capacity).astype(np.int32), ages.astype(np.int32)

    def begun(self, lanes: np.ndarray) -> list[Segment]:
        """The segments whose first observation is the newest step of one of `lanes`."""
        return []

    @abstractmethod
    def complete(self, lanes: np.ndarray) -> list[Segment]:
        """Record that the newest steps of `lanes` are in the ring. Returns completed segments."""

    @abstractmethod
    def read(self) -> dict[str, np.ndarray]:
        """A copy of the book's arrays, by name."""

    @abstractmethod
    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises KeyError or ValueError if it does not fit."""
