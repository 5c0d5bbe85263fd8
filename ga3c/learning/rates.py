"""Scheduled values by name: the learning rate, and the rates of the loss and of the draws."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ga3c.backend import Tensor
from ga3c.experience.batches import Source
from ga3c.learning.algorithm import Algorithm
from ga3c.learning.optimizers import learning_rate
from ga3c.settings.learning import OptimizerConfig

STEP_SIZE = "learning_rate"


class Rates:
    """The rates of an update: `learning_rate`, those of the algorithm and those of the source.

    Raises ValueError if two rates have the same name, because one value would serve for both.
    """

    def __init__(self, optimizer: OptimizerConfig, algorithm: Algorithm, source: Source) -> None:
        self._optimizer = optimizer
        self._algorithm = algorithm
        self._source = source
        self._names = [STEP_SIZE, *algorithm.rates(0.0), *source.rates(0.0)]
        if len(set(self._names)) < len(self._names):
            raise ValueError(
                f"rates {', '.join(self._names)}: two have the same name, and would have one value"
            )

    def __len__(self) -> int:
        return len(self._names)

    def at(self, progress: float) -> dict[str, np.float32]:
        """All rates at this progress of the schedules: 0 at the start, 1 at the end."""
        rates = {
            STEP_SIZE: learning_rate(self._optimizer, progress),
            **self._algorithm.rates(progress),
            **self._source.rates(progress),
        }
        return {name: np.float32(rate) for name, rate in rates.items()}

    def vector(self, rates: Mapping[str, np.float32]) -> np.ndarray:
        """The rates as compiled functions take them: float32 [number of rates]."""
        return np.array([rates[name] for name in self._names], np.float32)

    def named(self, vector: Tensor) -> dict[str, Any]:
        """The scalar rates by name, from the result of `vector`, for use in compiled functions."""
        return {name: vector[index] for index, name in enumerate(self._names)}
