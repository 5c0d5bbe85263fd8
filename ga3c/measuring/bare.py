"""The network alone in plain Keras: what any system that trains it has to compute.

That is a forward pass, or a forward and a backward pass and a step of Keras's own Adam, on
observations that are ready in memory. There are no returns, no algorithm's loss, no clipping or
checks of gradients, no ring and no copies.
"""

import keras
import numpy as np
from keras import ops

from ga3c import backend
from ga3c.backend import Tensor


class BareNetwork:
    """A network without the system around it."""

    def __init__(self, network: keras.Model) -> None:
        self._network = network
        self._optimizer = keras.optimizers.Adam(1e-4)
        self._optimizer.build(network.trainable_variables)
        signature = [(network.input.shape, network.input.dtype)]
        self._forward = backend.compiled(lambda x: self._outputs(x)[0], signature)
        self._train = backend.compiled(self._trained, signature)

    def forward(self, observations: np.ndarray) -> int:
        """Compute the outputs for `observations` [n, ...]. Returns n."""
        return len(np.asarray(self._forward(observations)))

    def train(self, observations: np.ndarray) -> int:
        """Make an update from `observations` [n, ...]. Returns n."""
        np.asarray(self._train(observations))  # waits for it
        return len(observations)

    def _outputs(self, observations: Tensor) -> list[Tensor]:
        return keras.tree.flatten(self._network(observations))

    def _trained(self, observations: Tensor) -> Tensor:
        variables = self._network.trainable_variables

        def loss() -> tuple[Tensor, tuple[()]]:
            return sum(ops.mean(ops.square(each)) for each in self._outputs(observations)), ()

        value, _, gradients = backend.value_and_gradients(loss, variables)
        self._optimizer.apply(gradients, variables)
        return value
