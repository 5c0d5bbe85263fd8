"""What is learned, one module for each algorithm."""

from collections.abc import Mapping
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
        self, network: keras.Model, observations: Tensor, noise: Tensor, exploration: Tensor
    ) -> dict[str, Tensor]:
        """The columns of n steps.

        Args: noise [n, self.noise] uniform in (0, 1); exploration [n], as `exploration` gives it.
        """

    def policy_and_value(self, network: keras.Model, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of the actions [n, actions] without exploration, and values [n]."""

    def loss(
        self,
        network: keras.Model,
        target: keras.Model | None,
        batch: Any,
        rates: Mapping[str, Tensor],
    ) -> tuple[Tensor, tuple[dict[str, Tensor], Tensor]]:
        """The summed loss of a batch; its figures; and an error for each of its parts."""

    def rates(self, progress: float) -> dict[str, float]:
        """What `loss` needs of the schedules, by name.

        Args: progress: of the schedules, 0 at the start and 1 at the end.
        """

    def exploration(self, lanes: np.ndarray, steps: float) -> np.ndarray:
        """How much each of `lanes` [n] explores after so many steps of the whole run: float32 [n].

        For actions of a finite set, the share of them that is drawn evenly (epsilon).
        """
