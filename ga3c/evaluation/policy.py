"""A run's network on its own: policy and values for observations, without a service."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import keras
import numpy as np

from agents.environments import Spaces
from ga3c import backend
from ga3c.experience.ring import RingShape
from ga3c.learning import weights
from ga3c.service.assembly import build_algorithm
from ga3c.settings.train import TrainConfig


class Stacks:
    """The newest frames of n lanes, stacked as the model sees them."""

    def __init__(self, spaces: Spaces, lanes: int) -> None:
        self._shape = RingShape(1, 1, spaces.shape, spaces.dtype, spaces.stack).observation_shape
        self._frames = np.zeros((lanes, *spaces.shape, spaces.stack), spaces.dtype)

    def push(self, frames: np.ndarray, firsts: np.ndarray) -> np.ndarray:
        """Add `frames` [n, *shape]. Returns a copy of the observations [n, *observation_shape].

        Args: firsts: [n] bool; a first frame of a game fills the whole stack.
        """
        self._frames[..., :-1] = self._frames[..., 1:]
        self._frames[..., -1] = frames
        self._frames[firsts] = frames[firsts][..., None]
        return self._frames.reshape(len(frames), *self._shape).copy()


class Policy:
    """The network for a run's settings. Build it on the main thread, then call it from one thread.

    Raises ValueError if the network does not fit the spaces.
    """

    def __init__(self, config: TrainConfig, spaces: Spaces) -> None:
        ring = RingShape(1, 1, spaces.shape, spaces.dtype, spaces.stack)
        self._algorithm = algorithm = build_algorithm(config, spaces.actions)
        self.spaces = spaces
        # as the weights are, so that it is the same on every machine and in every format
        network = replace(config.network, precision="float32")
        self.network = algorithm.network(
            network, ring.observation_shape, spaces.dtype, spaces.is_picture
        )
        self.model = keras.Model(
            self.network.inputs[0], algorithm.policy_and_value(self.network, self.network.inputs[0])
        )
        """Maps observations [n, ...] to the policy, as `Algorithm` defines it, and values [n]."""
        self._signature = [((None, *ring.observation_shape), spaces.dtype)]
        self._judge = backend.compiled(self.model, self._signature)

    @property
    def is_greedy(self) -> bool:
        """Whether it takes the action with the largest Q, as it does if the algorithm learns Q."""
        return hasattr(self._algorithm, "action_values")

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        """Load `weights/PATH` of a checkpoint. Raises ValueError if they do not fit."""
        weights.restore({"weights": self.network.weights}, values)

    def judge(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities [n, actions] or actions [n, size] in [-1, 1], and values [n]: float32."""
        policies, values = self._judge(observations)
        return np.asarray(policies), np.asarray(values)

    def action_values(self, observations: np.ndarray) -> np.ndarray | None:
        """Q of the actions [n, actions], float32; None if the algorithm learns none."""
        return (
            None if self._action_values is None else np.asarray(self._action_values(observations))
        )

    @cached_property
    def _action_values(self) -> Callable[[np.ndarray], Any] | None:
        of_network = getattr(self._algorithm, "action_values", None)  # not all have it
        return of_network and backend.compiled(partial(of_network, self.network), self._signature)
