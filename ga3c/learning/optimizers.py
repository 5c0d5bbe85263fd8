"""The configured optimizer, its state, its learning rate, and gradient clipping."""

from collections.abc import Sequence

import keras

from ga3c import backend
from ga3c.backend import Tensor
from ga3c.settings.learning import OptimizerConfig, linear


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
    for state in optimizer.variables:
        if "velocity" in state.path and isinstance(optimizer, keras.optimizers.RMSprop):
            state.assign(keras.ops.full(state.shape, mean_square))


def learning_rate(config: OptimizerConfig, progress: float) -> float:
    """The learning rate, linear in progress from the schedule's start (0) to its end (1)."""
    return linear(config.learning_rate, config.learning_rate_end or 0.0, progress)


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients together, a scalar."""
    return keras.ops.sqrt(sum(keras.ops.sum(keras.ops.square(g)) for g in gradients))


def clipped(gradients: list[Tensor], norm: Tensor, limit: float) -> list[Tensor]:
    """All gradients times one factor, so that their global norm is at most `limit`, if not 0."""
    if not limit:
        return gradients
    scale = limit / keras.ops.maximum(norm, limit)
    return [gradient * scale for gradient in gradients]
