"""Q-learning from a replay: n-step, double, dueling (Mnih et al. 2015 and later work).

A transition begins at x_0, where the action a_0 was taken, and has the rewards r_1 .. r_n and
discounts d_1 .. d_n that followed (`d = 0 if terminated else gamma`). If the episode ended after
m < n steps, the transition ends there, at x_m.
"""

from collections.abc import Mapping
from typing import ClassVar

import keras
import numpy as np
from keras import ops

from ga3c.backend import Column, Tensor
from ga3c.experience.batches import ACTING_VALUES, Transitions, n_step
from ga3c.learning.networks import body, dense, resolved, stream, torso
from ga3c.settings.learning import DQNConfig, NetworkConfig, linear


def huber(errors: Tensor, delta: float) -> Tensor:
    """e^2 / 2 if |e| <= delta, else delta (|e| - delta / 2) (Huber 1964). With delta = 0 it is
    e^2 / 2 everywhere."""
    if not delta:
        return 0.5 * ops.square(errors)
    within = ops.minimum(ops.abs(errors), delta)
    return within * (ops.abs(errors) - 0.5 * within)


def q_of(values: Tensor, actions: Tensor) -> Tensor:
    """The entries [n] of values [n, actions] at actions int32 [n]."""
    return ops.take_along_axis(values, actions[:, None], axis=1)[:, 0]


def gradient_scaled(x: Tensor, scale: float) -> Tensor:
    """Returns x unchanged, but multiplies the gradient that flows back through it by `scale`."""
    if scale == 1.0:
        return x
    fixed = ops.stop_gradient(x)
    return fixed + scale * (x - fixed)


class DQN:
    """Q-learning, as an `algorithm.Algorithm` for the model."""

    has_target: ClassVar[bool] = True

    def __init__(
        self,
        config: DQNConfig,
        num_actions: int,
        *,
        random_steps: int = 0,
        ladder: np.ndarray | None = None,
        keeps_values: bool = False,
    ) -> None:
        """Args:
        random_steps: steps of the whole run before epsilon starts to decay.
        ladder: constant epsilons [lanes], instead of one that decays.
        keeps_values: whether acting records the values that first priorities need.
        """
        self.config = config
        self.columns: dict[str, Column] = {"action": ((), "int32")}
        if keeps_values:
            self.columns |= ACTING_VALUES
        self._ladder = ladder
        self._num_actions = num_actions
        self._random_steps = random_steps
        self.noise = num_actions + 1

    def network(
        self, config: NetworkConfig, shape: tuple[int, ...], dtype: str, is_picture: bool
    ) -> keras.Model:
        """A network from observations [n, *shape] to action values [n, actions].

        A dueling network computes Q(a) = V + A(a) - mean_a A(a) (Wang et al. 2016, equation 9),
        with a separate mean for each state.
        """
        config = resolved(config, shape, is_picture)
        observation = keras.Input(shape, dtype=dtype)
        if not self.config.dueling:
            features = torso(config, observation, is_picture)
            return keras.Model(observation, self._head(config, features, "q"))
        features = body(config, observation, is_picture)
        features = gradient_scaled(features, self.config.dueling_gradient_scale)
        value = stream(config, features, is_picture, "value_stream")
        value = dense(config, value, 1, 1.0, dtype="float32", name="value")
        advantage = stream(config, features, is_picture, "advantage_stream")
        advantage = self._head(config, advantage, "advantage")
        mean = ops.mean(advantage, axis=1, keepdims=True)
        return keras.Model(observation, value + advantage - mean)

    def _head(self, config: NetworkConfig, features: Tensor, name: str) -> Tensor:
        return dense(config, features, self._num_actions, 0.01, dtype="float32", name=name)

    def act(
        self, network: keras.Model, observations: Tensor, noise: Tensor, exploration: Tensor
    ) -> dict[str, Tensor]:
        """The action with the largest value, or with probability epsilon a uniformly random one.

        `q` is Q of the chosen action and `value` the largest Q; first priorities need both.
        """
        values = network(observations)
        best = ops.argmax(values, axis=-1)
        any_one = ops.argmax(noise[:, 1:], axis=-1)
        action = ops.where(noise[:, 0] < exploration, any_one, best)
        kept = {"q": q_of(values, action), "value": ops.max(values, axis=-1)}
        return {"action": action, **{name: kept[name] for name in kept if name in self.columns}}

    def action_values(self, network: keras.Model, observations: Tensor) -> Tensor:
        """Q of each action [n, actions], to be shown in videos."""
        return network(observations)

    def policy_and_value(self, network: keras.Model, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Probability 1 for the action with the largest value (split among ties), and its value.

        It compares values, because argmax compiles to an operation that ONNX export cannot handle.
        """
        values = network(observations)
        best = ops.max(values, axis=-1, keepdims=True)
        is_best = ops.cast(values >= best, "float32")
        return is_best / ops.sum(is_best, axis=-1, keepdims=True), best[:, 0]

    def targets(self, network: keras.Model, target: keras.Model, batch: Transitions) -> Tensor:
        """y = R + D Q_target(x_m, a*) [B]. The caller must stop the gradient through it.

        a* is the best action under the target's weights (Mnih et al. 2015), or, in double
        Q-learning, under the newest weights (van Hasselt et al. 2016).
        """
        returns, discounts = n_step(batch.rewards, batch.discounts, batch.valid)
        values = target(batch.next_observations)
        chooser = network(batch.next_observations) if self.config.double else values
        return returns + discounts * q_of(values, ops.argmax(chooser, axis=-1))

    def loss(
        self,
        network: keras.Model,
        target: keras.Model | None,
        batch: Transitions,
        rates: Mapping[str, Tensor],
    ) -> tuple[Tensor, tuple[dict[str, Tensor], Tensor]]:
        """sum_i w_i huber(Q(x_i, a_i) - y_i), or the mean if `loss_reduction` says so."""
        assert target is not None
        targets = ops.stop_gradient(self.targets(network, target, batch))
        values = q_of(network(batch.observations), batch.actions)
        errors = values - targets
        losses = batch.weights * huber(errors, self.config.huber_delta)
        loss = ops.mean(losses) if self.config.loss_reduction == "mean" else ops.sum(losses)
        errors = ops.stop_gradient(errors)
        figures = {"value": ops.mean(values), "td_error": ops.mean(ops.abs(errors))}
        return loss, (figures, errors)

    def rates(self, progress: float) -> dict[str, float]:
        """Empty: the loss needs no scheduled values."""
        return {}

    def exploration(self, lanes: np.ndarray, steps: float) -> np.ndarray:
        """Epsilon [n]: the ladder's, or the same for all lanes, linear after the random steps."""
        if self._ladder is not None:
            return self._ladder[lanes]
        config = self.config
        progress = (steps - self._random_steps) / config.epsilon_steps
        epsilon = linear(config.epsilon_start, config.epsilon_end, progress)
        return np.full(len(lanes), epsilon, np.float32)
