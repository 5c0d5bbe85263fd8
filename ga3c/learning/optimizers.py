"""The configured optimizer, its state, gradient clipping, and the scheduled rates of an update."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from ga3c import backend
from ga3c.backend import Tensor
from ga3c.experience.batches import Source
from ga3c.learning.algorithm import Algorithm
from ga3c.settings.learning import OptimizerConfig

STEP_SIZE = "learning_rate"
ROUNDED = 2.0**-19  # more than an update rounds a mean square by, as a share of it
ENOUGH_EPSILON = 0.01  # outweighs the rounding of mean squares up to 40 squared


def build_optimizer(config: OptimizerConfig) -> keras.optimizers.Optimizer:
    """The Keras optimizer of `config`.

    Its variables' paths begin with "adam" or "rmsprop", so they are the same in every process.
    """
    given = {"epsilon": config.optimizer_epsilon, "name": config.optimizer}
    if config.optimizer == "adam":
        return backend.Adam(config.learning_rate, **given)
    return backend.RMSprop(
        config.learning_rate,
        rho=config.rms_decay,
        momentum=config.momentum,
        centered=config.rms_centered,
        **given,
    )


def prepare(optimizer: keras.optimizers.Optimizer, variables: list, mean_square: float) -> None:
    """Build the state for `variables`, with RMSProp's mean squares starting at `mean_square`."""
    optimizer.build(variables)
    if isinstance(optimizer, keras.optimizers.RMSprop):
        for state in optimizer._velocities:
            state.assign(keras.ops.full(state.shape, mean_square))


def apply(optimizer: keras.optimizers.Optimizer, gradients: list[Tensor], variables: list) -> None:
    """Update the variables and the optimizer's state.

    Centred RMSprop divides by the root of a variance: the mean square minus the squared mean. Where
    a gradient hardly varies, rounding could make it negative, and the weight NaN. So the mean
    square is kept above the squared mean. It takes 7% of an update of DQN, whose large epsilon
    makes it unnecessary.
    """
    optimizer.apply(gradients, variables)
    is_rmsprop = isinstance(optimizer, keras.optimizers.RMSprop)
    if is_rmsprop and optimizer.centered and optimizer.epsilon < ENOUGH_EPSILON:
        for square, mean in zip(optimizer._velocities, optimizer._average_gradients, strict=True):
            least = (1.0 + ROUNDED) * keras.ops.square(mean)
            square.assign(keras.ops.maximum(square, least))


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients together, a scalar."""
    return keras.ops.sqrt(sum(keras.ops.sum(keras.ops.square(g)) for g in gradients))


def clipped(gradients: list[Tensor], norm: Tensor, limit: float) -> list[Tensor]:
    """All gradients times one factor, so that their global norm is at most `limit`; 0: no limit."""
    if not limit:
        return gradients
    scale = limit / keras.ops.maximum(norm, limit)
    return [gradient * scale for gradient in gradients]


class Rates:
    """The rates of an update: `learning_rate`, those of the algorithm and those of the source.

    Raises ValueError if two rates have the same name, because they would share one value.
    """

    def __init__(self, optimizer: OptimizerConfig, algorithm: Algorithm, source: Source) -> None:
        self._optimizer = optimizer
        self._algorithm = algorithm
        self._source = source
        self._names = [STEP_SIZE, *algorithm.rates(0.0), *source.rates(0.0)]
        if len(set(self._names)) < len(self._names):
            raise ValueError(
                f"rates {', '.join(self._names)}: two have the same name, and would share one value"
            )

    def __len__(self) -> int:
        return len(self._names)

    def at(self, progress: float) -> dict[str, np.float32]:
        """All rates at this position in the schedules: 0 at the start, 1 at the end."""
        rates = {
            STEP_SIZE: self._optimizer.rate_at(progress),
            **self._algorithm.rates(progress),
            **self._source.rates(progress),
        }
        return {name: np.float32(rate) for name, rate in rates.items()}

    def vector(self, rates: Mapping[str, np.float32]) -> np.ndarray:
        """The rates in the form that compiled functions take: float32 [number of rates]."""
        return np.array([rates[name] for name in self._names], np.float32)

    def named(self, vector: Tensor) -> dict[str, Any]:
        """The scalar rates by name, from the result of `vector`, for use in compiled functions."""
        return {name: vector[index] for index, name in enumerate(self._names)}
