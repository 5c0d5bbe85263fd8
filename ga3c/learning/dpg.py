"""Deterministic policy gradients from a replay (Silver et al. 2014; DDPG, Lillicrap et al. 2016).

The actor chooses an action, a vector in [-1, 1], and the critic estimates its value. Transitions
are as in `dqn`, but with such actions.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import keras
import numpy as np
from keras import ops

from agents.actions import Actions
from ga3c import backend
from ga3c.backend import Column, Tensor
from ga3c.experience.batches import ACTING_VALUES, Transitions, n_step
from ga3c.learning.distributions import normal
from ga3c.learning.layers import value_unit
from ga3c.learning.networks import dense, resolved, scaled_value, torso, vectors
from ga3c.settings.learning import DPGConfig, NetworkConfig

LAST_GAIN = 0.01  # of the last layers' initial weights: actions and values start near 0


class DPG:
    """Actor and critic, as an `algorithm.Algorithm` for the model."""

    has_target: ClassVar[bool] = True

    def __init__(self, config: DPGConfig, actions: Actions, *, keeps_values: bool = False) -> None:
        """Args: keeps_values: whether acting records the values that first priorities need."""
        self.config = config
        self.columns: dict[str, Column] = {"action": (actions.shape, "float32")}
        if keeps_values:
            self.columns |= ACTING_VALUES
        self._size = actions.size
        self.noise = actions.size

    def network(
        self, config: NetworkConfig, shape: tuple[int, ...], dtype: str, is_picture: bool
    ) -> keras.Model:
        """A network from observations [n, *shape] to actions [n, size] and their values [n].

        Its layers `actor` and `critic` are themselves models. The critic takes observations and
        actions, concatenated before its first dense layer. Each has two dense layers, the first
        followed by layer normalisation (if configured) and tanh, the second by ELU. Sizes and tanh
        are from Horgan et al. 2018; the rest is as in Acme's D4PG, by authors of that paper.
        """
        observation, action = keras.Input(shape, dtype=dtype), keras.Input((self._size,))
        x = self._features(config, observation, is_picture, "actor_")
        x = self._layers(config, x, self.config.actor_units, "actor")
        last = replace(config, initializer="orthogonal")  # whichever the other layers use
        head = {"activation": "tanh", "dtype": "float32", "name": "actor_action"}
        x = dense(last, x, self._size, LAST_GAIN, **head)
        actor = keras.Model(observation, x, name="actor")
        x = self._features(config, observation, is_picture, "critic_")
        x = keras.layers.Concatenate(dtype="float32")([x, action])
        x = self._layers(config, x, self.config.critic_units, "critic")
        x = dense(last, x, 1, LAST_GAIN, dtype="float32", name="critic_value")
        value = keras.layers.Reshape((), dtype="float32")(x)
        value = scaled_value(config, value)
        critic = keras.Model([observation, action], value, name="critic")
        best = actor(observation)
        return keras.Model(observation, [best, critic([observation, best])])

    def _features(
        self, config: NetworkConfig, observation: Tensor, is_picture: bool, prefix: str
    ) -> Tensor:
        """The input to the dense layers: vectors without a torso, or a torso's features."""
        if config.network == "auto" and not is_picture:
            return vectors(config, observation, prefix)
        config = resolved(config, tuple(observation.shape[1:]), is_picture)
        return torso(config, observation, is_picture, prefix)

    def _layers(
        self, config: NetworkConfig, x: Tensor, units: tuple[int, int], name: str
    ) -> Tensor:
        x = dense(config, x, units[0], 1.0, name=f"{name}_0")
        if config.layer_norm:
            x = keras.layers.LayerNormalization(dtype="float32", name=f"{name}_norm")(x)
        x = keras.layers.Activation("tanh", dtype="float32")(x)
        return dense(config, x, units[1], 1.0, activation="elu", name=f"{name}_1")

    def act(
        self, network: keras.Model, observations: Tensor, noise: Tensor, exploration: Tensor
    ) -> dict[str, Tensor]:
        """The actor's actions plus normal noise, clipped to [-1, 1].

        `q` is the value of that action and `value` that of the one without noise; first priorities
        need both.

        Args: exploration [n], the standard deviation of the noise.
        """
        best, value = network(observations)
        action = ops.clip(best + exploration[:, None] * normal(noise), -1.0, 1.0)
        if "q" not in self.columns:
            return {"action": action}
        q = network.get_layer("critic")([observations, action])
        return {"action": action, "q": q, "value": value}

    def policy_and_value(self, network: keras.Model, observations: Tensor) -> tuple[Tensor, Tensor]:
        """The actions without noise [n, size], and their values [n]."""
        best, values = network(observations)
        return best, values

    def loss(
        self,
        network: keras.Model,
        target: keras.Model | None,
        batch: Transitions,
        rates: Mapping[str, Tensor],
    ) -> tuple[Tensor, tuple[dict[str, Tensor], Tensor]]:
        """The sum of the critic's and the actor's losses, both means over the batch.

        The critic's is w (Q(x_0, a_0) - y)^2 / 2 with y = R + D Q'(x_m, mu'(x_m)), where ' marks
        the target network. The actor's is -g mu(x_0) with g = dQ(x_0, a) / da at a = mu(x_0),
        clipped element-wise (Horgan et al. 2018, appendix). Apart from the clip, its gradient with
        respect to the actor's weights is that of -Q(x_0, mu(x_0)). It does not reach the critic. If
        Q follows the rewards, both losses are in the unit of Q.
        """
        assert target is not None
        returns, discounts = n_step(batch.rewards, batch.discounts, batch.valid)
        _, next_values = target(batch.next_observations)
        targets = ops.stop_gradient(returns + discounts * next_values)
        actor, critic = network.get_layer("actor"), network.get_layer("critic")
        values = critic([batch.observations, batch.actions])
        errors, unit = values - targets, value_unit(critic)
        critic_loss = ops.mean(batch.weights * 0.5 * ops.square(errors / unit))
        best = actor(batch.observations)
        slopes = backend.gradient(
            lambda actions: ops.sum(critic([batch.observations, actions])), ops.stop_gradient(best)
        )
        slopes = slopes / unit
        if clip := self.config.action_gradient_clip:
            slopes = ops.clip(slopes, -clip, clip)
        played = ops.cast(batch.weights > 0, "float32")  # 0: nothing could be drawn
        actor_loss = -ops.mean(played * ops.sum(ops.stop_gradient(slopes) * best, axis=-1))
        errors = ops.stop_gradient(errors)
        figures = {
            "value": ops.mean(values),
            "td_error": ops.mean(ops.abs(errors)),
            "action_size": ops.mean(ops.abs(best)),
        }
        return critic_loss + actor_loss, (figures, errors)

    def rates(self, progress: float) -> dict[str, float]:
        """Empty: the loss needs no scheduled values."""
        return {}

    def exploration(self, lanes: np.ndarray, steps: float) -> np.ndarray:
        """The standard deviation of the noise [n], the same for all lanes."""
        return np.full(len(lanes), self.config.noise, np.float32)
