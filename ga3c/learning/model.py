"""The one model: acts for all predictors, learns for all trainers.

All functions are traced once on the main thread; afterwards any thread may call them. Updates are
made one at a time; predictions run beside them and see weights as they are.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from agents.environments import Spaces
from ga3c import backend
from ga3c.experience.memory import DEVICE, HOST
from ga3c.experience.replay import Replay, Source
from ga3c.experience.ring import Arrivals, Experience, RingShape
from ga3c.experience.window import Block
from ga3c.learning.algorithm import Algorithm
from ga3c.settings.learning import NetworkConfig, OptimizerConfig
from ga3c.settings.schedules import linear

FINITE = "is_finite"  # among the figures of an update: 1, or 0 if it was left out


class Learned(NamedTuple):
    """What one update did."""

    update: int  # updates done, this one included
    means: dict[str, float]  # over the batch's steps
    is_finite: bool = True  # False: its loss or gradient was not finite, so it was left out


def build_optimizer(config: OptimizerConfig) -> keras.optimizers.Optimizer:
    """The Keras optimizer of `config`; its variables' paths begin with its kind, always alike."""
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
    """Make the optimizer's state for `variables`, with RMSProp's mean squares at their start."""
    optimizer.build(variables)
    for state in optimizer.variables:
        if "velocity" in state.path and isinstance(optimizer, keras.optimizers.RMSprop):
            state.assign(keras.ops.full(state.shape, mean_square))


def _read(part: str, variables: list) -> dict[str, np.ndarray]:
    return {f"{part}/{v.path}": np.array(keras.ops.convert_to_numpy(v)) for v in variables}


def restore(parts: Mapping[str, list], values: Mapping[str, np.ndarray]) -> None:
    """Set the variables of each part to `values["PART/PATH"]`, all or none.

    Raises ValueError if one is missing, of another shape, or none of these.
    """
    paths = {f"{part}/{variable.path}" for part in parts for variable in parts[part]}
    for name in values:
        if name.partition("/")[0] in parts and name not in paths:
            raise ValueError(f"{name}: this network has no such weights")
    known = [(part, variable) for part, variables in parts.items() for variable in variables]
    for part, variable in known:
        found = values.get(f"{part}/{variable.path}")
        if found is None or found.shape != tuple(variable.shape):
            raise ValueError(
                f"{part} {variable.path}: expected {tuple(variable.shape)}, found "
                + ("nothing" if found is None else str(found.shape))
            )
    for part, variable in known:
        variable.assign(values[f"{part}/{variable.path}"])


class Model:
    """Networks, optimizer, experience and the traced functions.

    Raises:
        ValueError: if the network does not fit the spaces.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        network: NetworkConfig,
        optimizer: OptimizerConfig,
        spaces: Spaces,
        ring: RingShape,
        on_device: bool,
        seed: int,
        source: Callable[[Experience], Source],
        acts_on_target: bool = False,
    ) -> None:
        """Args:
        source: what learning draws, from this experience.
        acts_on_target: actions are chosen with the target's weights.
        """
        self._algorithm = algorithm
        self._optimizer_config = optimizer.scheduled(None)
        self._seed = seed
        self._acts = 0
        self._updates = 0
        self.refused_in_a_row = 0
        """Updates left out since the last one that was made: their loss or gradient was not
        finite."""
        self._learning = threading.Lock()
        self._counting = threading.Lock()
        self.experience = Experience(ring, algorithm.columns, DEVICE if on_device else HOST)
        self.source = source(self.experience)
        shape = (ring.observation_shape, ring.dtype, spaces.is_picture)
        self.network = algorithm.network(network, *shape)
        self.target = algorithm.network(network, *shape) if algorithm.has_target else None
        if self.target:
            self.target.set_weights(self.network.get_weights())
        self._acting = self.target if self.target and acts_on_target else self.network
        self._optimizer = build_optimizer(optimizer)
        prepare(self._optimizer, self.network.trainable_variables, optimizer.rms_start)
        self._trace()

    @property
    def updates(self) -> int:
        """Updates done."""
        return self._updates

    def epsilons(self, lanes: np.ndarray, steps: float) -> np.ndarray:
        """Shares of actions drawn evenly, float32 [n], of `lanes` [n] after `steps` of the run."""
        return self._algorithm.epsilons(lanes, steps)

    def act(self, arrivals: Arrivals) -> np.ndarray:
        """Record n arrivals and choose their actions: int32 [n]."""
        with self._counting:
            self._acts = (self._acts + 1) % 2**31
            seed = np.array([self._seed, self._acts], np.int32)
        ring = self.experience.ring
        index = np.stack([arrivals.lanes, arrivals.slots, arrivals.ages], axis=1)
        frames = arrivals.frames.reshape(len(arrivals.lanes), -1)
        epsilons = arrivals.epsilons
        if epsilons is None:
            epsilons = np.zeros(len(frames), np.float32)
        if self.experience.on_device:
            count = len(frames)
            size = backend.filled(count)
            index, outcomes, frames, epsilons = (
                _filled(each, size) for each in (index, arrivals.outcomes, frames, epsilons)
            )
            index[count:, 0] = ring.lanes  # beyond the ring: nothing is written there
            return np.asarray(self._act(index, outcomes, frames, epsilons, seed))[:count]
        rows = ring.rows(arrivals.lanes, arrivals.slots)
        self.experience.write(rows, _record(index, arrivals.outcomes, frames))
        decision = self.decide(self.experience.stacks(*index.T), epsilons, seed)
        self.experience.write(rows, decision)
        return decision["action"]

    def decide(
        self, observations: np.ndarray, epsilons: np.ndarray, seed: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The algorithm's columns for observations [n, ...] in RAM; `seed` is int32 [2]."""
        decision = self._act(observations, epsilons, seed)
        return {name: np.asarray(value) for name, value in decision.items()}

    def learn(self, *inputs: np.ndarray, progress: float) -> Learned:
        """One update from what the source draws by `inputs`.

        Args: progress: of the schedules, 0 at the start and 1 at the end.
        """
        rates = self._rates(progress)
        with self._learning:
            if self.experience.on_device:
                return self._learned(self._learn(*inputs, rates))
            batch = self.source.draw(*inputs, rates[-1])
            metrics, errors = self._learn(*batch, rates)
            self.source.learned(batch, np.asarray(errors))
            return self._learned(metrics)

    def update(self, batch: Sequence[np.ndarray], progress: float) -> Learned:
        """One update from a batch in RAM, where experience is in RAM too."""
        rates = self._rates(progress)
        with self._learning:
            metrics, _ = self._learn(*batch, rates)
            return self._learned(metrics)

    def publish(self, block: Block) -> None:
        """Let what the block says be drawn from now on."""
        assert isinstance(self.source, Replay)
        with self._learning:
            self._publish(*self.source.publish_args(block))

    def copy_target(self) -> None:
        """Give the target's network the weights of the other one."""
        with self._learning:
            self._copy()

    def _learned(self, metrics: Mapping[str, Any]) -> Learned:
        means = {name: float(value) for name, value in metrics.items()}
        is_finite = bool(means.pop(FINITE))
        self._updates += is_finite
        self.refused_in_a_row = 0 if is_finite else self.refused_in_a_row + 1
        return Learned(self._updates, means, is_finite)

    def _rates(self, progress: float) -> np.ndarray:
        optimizer = self._optimizer_config
        rates = [
            linear(optimizer.learning_rate, optimizer.learning_rate_end or 0.0, progress),
            self._algorithm.rate(progress),
            self.source.rate(progress),
        ]
        return np.array(rates, np.float32)

    def read(self, timeout_s: float = -1.0) -> dict[str, np.ndarray]:
        """All that was learned, from between two updates: what `restore` takes.

        `weights/PATH`, `target/PATH`, `optimizer/PATH` and the counters; nothing if an update does
        not end within the timeout, if any.
        """
        if not self._learning.acquire(timeout=timeout_s):
            return {}
        try:
            found = {"counters": np.array([self._acts, self._updates], np.int64)}
            for part, variables in self._parts.items():
                found |= _read(part, variables)
            return found
        finally:
            self._learning.release()

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave. Raises ValueError if something is missing or misshapen."""
        with self._learning:
            restore(self._parts, values)
            self._acts, self._updates = map(int, values["counters"])

    def read_experience(self) -> dict[str, np.ndarray]:
        """The ring as `ring/COLUMN` and what draws know as `replay/NAME`."""
        with self._learning:
            parts = {"ring": self.experience.read(), "replay": self.source.read()}
        return {f"{part}/{name}": a for part, found in parts.items() for name, a in found.items()}

    def restore_experience(
        self, ring: Mapping[str, np.ndarray], replay: Mapping[str, np.ndarray]
    ) -> None:
        """Take over what `read_experience` gave. Raises ValueError if it does not fit."""
        try:
            self.experience.restore(ring)
            self.source.restore(replay)
        except KeyError as error:
            raise ValueError(f"the experience has no {error}") from error

    @property
    def _parts(self) -> dict[str, list]:
        parts = {"weights": self.network.weights, "optimizer": self._optimizer.variables}
        return {**parts, "target": self.target.weights} if self.target else parts

    def _trace(self) -> None:
        ring, drawn = self.experience.ring, self.source
        shape, dtype = ring.columns()["frame"]
        frame = ((None, *shape), dtype)
        seed, rates, epsilons = ((2,), "int32"), ((3,), "float32"), ((None,), "float32")
        if self.experience.on_device:
            arrivals = [((None, 3), "int32"), ((None, 3), "float32"), frame]
            self._act = backend.compiled(self._act_on_device, [*arrivals, epsilons, seed])
            self._learn = backend.compiled(self._learn_on_device, [*drawn.inputs, rates])
        else:
            observation = ((None, *ring.observation_shape), ring.dtype)
            self._act = backend.compiled(self._decide, [observation, epsilons, seed])
            self._learn = backend.compiled(self._update, [*drawn.signature(), rates])
        if isinstance(drawn, Replay):
            block = [((size,), "int32") for size in (ring.lanes, ring.lanes, None, None)]
            on_device = self.experience.on_device
            self._publish = backend.compiled(drawn.publish, block) if on_device else drawn.publish
        if self.target:
            self._copy = backend.compiled(self._copy_weights, [])

    def _act_on_device(
        self, index: Any, outcomes: Any, frames: Any, epsilons: Any, seed: Any
    ) -> Any:
        experience = self.experience
        lanes, slots, ages = index[:, 0], index[:, 1], index[:, 2]
        rows = experience.ring.rows(lanes, slots)
        experience.write(rows, _record(index, outcomes, frames))
        decision = self._decide(experience.stacks(lanes, slots, ages), epsilons, seed)
        experience.write(rows, decision)
        return decision["action"]

    def _decide(self, observations: Any, epsilons: Any, seed: Any) -> dict[str, backend.Tensor]:
        shape = (backend.shape(observations)[0], self._algorithm.noise)
        noise = backend.uniform(shape, seed)
        decision = self._algorithm.act(self._acting, observations, noise, epsilons)
        return {
            name: keras.ops.cast(decision[name], dtype)
            for name, (_, dtype) in self._algorithm.columns.items()
        }

    def _learn_on_device(self, *inputs: backend.Tensor) -> dict[str, backend.Tensor]:
        batch = self.source.draw(*inputs[:-1], inputs[-1][-1])
        metrics, errors = self._update(*batch, inputs[-1])
        self.source.learned(batch, errors)
        return metrics

    def _update(self, *inputs: backend.Tensor) -> tuple[dict[str, backend.Tensor], backend.Tensor]:
        """An update from a batch: its figures, and an error for each of its parts.

        Weights and optimizer stay as they are if the loss or the gradient's norm is not finite.
        """
        batch, rates = self.source.batch(*inputs[:-1]), inputs[-1]
        variables = self.network.trainable_variables
        loss, (metrics, errors), gradients = backend.value_and_gradients(
            lambda: self._algorithm.loss(self.network, self.target, batch, rates[1]), variables
        )
        norm = keras.ops.sqrt(sum(keras.ops.sum(keras.ops.square(g)) for g in gradients))
        if limit := self._optimizer_config.clip_norm:
            scale = limit / keras.ops.maximum(norm, limit)
            gradients = [g * scale for g in gradients]
        self._optimizer.learning_rate.assign(rates[0])
        is_finite = keras.ops.isfinite(loss) & keras.ops.isfinite(norm)
        backend.when(is_finite, lambda: self._optimizer.apply(gradients, variables))
        figures = {"loss": loss, "gradient_norm": norm, FINITE: keras.ops.cast(is_finite, "int32")}
        return {**metrics, **figures}, errors

    def _copy_weights(self) -> None:
        assert self.target is not None
        for to, weight in zip(self.target.weights, self.network.weights, strict=True):
            to.assign(weight)


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    """With zeros up to `size` rows."""
    more = size - len(rows)
    return np.concatenate([rows, np.zeros((more, *rows.shape[1:]), rows.dtype)]) if more else rows


def _record(index: Any, outcomes: Any, frames: Any) -> dict[str, Any]:
    return {
        "frame": frames,
        "age": index[:, 2],
        "reward": outcomes[:, 0],
        "discount": outcomes[:, 1],
        "first": outcomes[:, 2],
    }
