"""The interface between the model and an algorithm. Each algorithm has its own module."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import keras
import numpy as np

from ga3c.backend import Column, Tensor
from ga3c.experience.batches import Segments
from ga3c.settings.learning import NetworkConfig


class Algorithm(Protocol):
    """The attributes and methods of an algorithm that the model uses."""

    @property
    def columns(self) -> dict[str, Column]:
        """The columns that `act` adds to a step's record, each with its shape and dtype."""

    has_target: ClassVar[bool]
    """Whether the loss needs a second, older set of weights."""
    noise: int
    """The number of uniform random draws that `act` needs for each observation."""

    def network(
        self, config: NetworkConfig, shape: tuple[int, ...], dtype: str, is_picture: bool
    ) -> keras.Model:
        """The Keras model that takes observations [n, *shape]."""

    def act(
        self, network: keras.Model, observations: Tensor, noise: Tensor, exploration: Tensor
    ) -> dict[str, Tensor]:
        """The values of `columns` for n steps, including the actions.

        Args: noise [n, self.noise] uniform in (0, 1); exploration [n], from `exploration`.
        """

    def policy_and_value(self, network: keras.Model, observations: Tensor) -> tuple[Tensor, Tensor]:
        """The policy without exploration, and values [n].

        The policy: probabilities [n, actions], or continuous actions [n, size] in [-1, 1].
        """

    def loss(
        self,
        network: keras.Model,
        target: keras.Model | None,
        batch: Any,
        rates: Mapping[str, Tensor],
    ) -> tuple[Tensor, tuple[dict[str, Tensor], Tensor]]:
        """The loss of a batch, its figures by name, and the errors of the batch's items."""

    def rates(self, progress: float) -> dict[str, float]:
        """The scheduled values that `loss` needs, by name.

        Args: progress: position in the schedules, 0 at the start and 1 at the end.
        """

    def exploration(self, lanes: np.ndarray, steps: float) -> np.ndarray:
        """How much each of `lanes` [n] explores after `steps` steps of the whole run: float32 [n].

        For a finite set of actions: epsilon, the probability of a uniformly random one. For
        continuous actions: the standard deviation of the noise added to them.
        """


@runtime_checkable
class Preparing(Algorithm, Protocol):
    """An algorithm that sets targets first, and then makes several passes over single steps."""

    prepared: ClassVar[dict[str, Column]]
    """The columns that `prepare` adds to a step's record."""

    def prepare(self, network: keras.Model, segments: Segments) -> dict[str, Tensor]:
        """The values [B, T] of `prepared` for segments, under the weights before the passes."""


def kept_columns(algorithm: Algorithm) -> dict[str, Column]:
    """All columns that the algorithm adds to a step's record."""
    prepared = algorithm.prepared if isinstance(algorithm, Preparing) else {}
    return {**algorithm.columns, **prepared}
