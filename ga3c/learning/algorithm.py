"""What is learned, one module for each algorithm."""

from typing import Any, ClassVar, Protocol

import keras
import numpy as np

from ga3c.backend import Column, Tensor
from ga3c.settings.learning import NetworkConfig


class Algorithm(Protocol):
    """What the model asks of an algorithm."""

    columns: ClassVar[dict[str, Column]]
    """What acting adds to a step's record."""
    has_target: ClassVar[bool]
    """Whether the loss needs a second, older set of weights."""
    noise: int
    """Uniform draws that choosing one action takes."""

    def network(
        self, config: NetworkConfig, shape: tuple[int, ...], dtype: str, is_picture: bool
    ) -> keras.Model:
        """Of observations [n, *shape]."""

    def act(
        self, network: keras.Model, observations: Tensor, noise: Tensor, epsilons: Tensor
    ) -> dict[str, Tensor]:
        """The columns of n steps. Args: noise [n, self.noise] in (0, 1); epsilons [n]."""

    def judge(self, network: keras.Model, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of the actions [n, actions] without exploration, and values [n]."""

    def loss(
        self, network: keras.Model, target: keras.Model | None, batch: Any, rate: Tensor
    ) -> tuple[Tensor, tuple[dict[str, Tensor], Tensor]]:
        """The summed loss of a batch; its figures; and an error for each of its parts."""

    def rate(self, progress: float) -> float:
        """What `loss` is given as rate, at this progress of the schedules."""

    def epsilons(self, lanes: np.ndarray, steps: float) -> np.ndarray:
        """Shares of actions drawn evenly, float32 [n], after so many steps of the whole run."""
