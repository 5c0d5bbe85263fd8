"""The one model: acts for all predictors, learns for all trainers.

`act` and `learn` are traced once on the main thread; afterwards any thread may call them.
Updates are made one at a time; predictions run beside them and see weights as they are.
"""

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from agents.environments import Spaces
from ga3c import backend
from ga3c.algorithms.a3c import A3C, Segments
from ga3c.config import NetworkConfig, OptimizerConfig
from ga3c.experience import Arrivals, DeviceExperience, HostExperience, RingShape


class Learned(NamedTuple):
    """What one update did."""

    update: int  # updates done, this one included
    means: dict[str, float]  # over the batch's steps


def build_optimizer(config: OptimizerConfig) -> keras.optimizers.Optimizer:
    """The Keras optimizer of `config`; its variables' paths begin with its kind, always alike."""
    given = {"epsilon": config.optimizer_epsilon, "name": config.optimizer}
    if config.optimizer == "adam":
        return keras.optimizers.Adam(config.learning_rate, **given)
    return keras.optimizers.RMSprop(config.learning_rate, rho=config.rms_decay, **given)


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

    Raises ValueError if one is missing or of another shape.
    """
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


def schedule(start: float, end: float, progress: float) -> float:
    """Linear from `start` at progress 0 to `end` at 1 and beyond."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


class Model:
    """Network, optimizer, experience and the two traced functions.

    Raises:
        ValueError: if the network does not fit the spaces.
    """

    def __init__(
        self,
        algorithm: A3C,
        network: NetworkConfig,
        optimizer: OptimizerConfig,
        spaces: Spaces,
        ring: RingShape,
        on_device: bool,
        seed: int,
    ) -> None:
        self._algorithm = algorithm
        self._optimizer_config = optimizer
        self._num_actions = spaces.num_actions
        self._seed = seed
        self._acts = 0
        self._updates = 0
        self._learning = threading.Lock()
        self._counting = threading.Lock()
        place = DeviceExperience if on_device else HostExperience
        self.experience = place(ring, algorithm.columns)
        self.network = algorithm.network(
            network, ring.observation_shape, ring.dtype, spaces.is_picture
        )
        self._optimizer = build_optimizer(optimizer)
        prepare(self._optimizer, self.network.trainable_variables, optimizer.rms_start)
        self._trace()

    @property
    def updates(self) -> int:
        """Updates done."""
        return self._updates

    def act(self, arrivals: Arrivals) -> np.ndarray:
        """Record n arrivals and choose their actions: int32 [n]."""
        with self._counting:
            self._acts = (self._acts + 1) % 2**31
            seed = np.array([self._seed, self._acts], np.int32)
        ring = self.experience.ring
        index = np.stack([arrivals.lanes, arrivals.slots, arrivals.ages], axis=1)
        frames = arrivals.frames.reshape(len(arrivals.lanes), -1)
        if self.experience.on_device:
            return np.asarray(self._act(index, arrivals.outcomes, frames, seed))
        rows = ring.rows(arrivals.lanes, arrivals.slots)
        self.experience.write(rows, _record(index, arrivals.outcomes, frames))
        decision = self.decide(self.experience.stacks(*index.T), seed)
        self.experience.write(rows, decision)
        return decision["action"]

    def decide(self, observations: np.ndarray, seed: np.ndarray) -> dict[str, np.ndarray]:
        """The algorithm's columns for observations [n, ...] in RAM; `seed` is int32 [2]."""
        return {name: np.asarray(value) for name, value in self._act(observations, seed).items()}

    def learn(self, lanes: np.ndarray, slots: np.ndarray, progress: float) -> Learned:
        """One update from B segments, given by lanes [B] and slots [B, T + 1] int32.

        Args: progress: of the schedules, 0 at the start and 1 at the end.
        """
        if self.experience.on_device:
            return self._step([lanes, slots], progress)
        return self.update(self._segments(lanes, slots), progress)

    def update(self, segments: Segments, progress: float) -> Learned:
        """One update from segments in RAM."""
        return self._step(list(segments), progress)

    def _step(self, inputs: list[np.ndarray], progress: float) -> Learned:
        config, optimizer = self._algorithm.config, self._optimizer_config
        rates = np.array(
            [
                schedule(optimizer.learning_rate, optimizer.learning_rate_end, progress),
                schedule(config.entropy_weight, config.entropy_weight_end, progress),
            ],
            np.float32,
        )
        with self._learning:
            metrics = self._learn(*inputs, rates)
            self._updates += 1
            update = self._updates
        return Learned(update, {name: float(value) for name, value in metrics.items()})

    def read(self, timeout_s: float = -1.0) -> dict[str, np.ndarray]:
        """All that was learned, from between two updates: what `restore` takes.

        `weights/PATH`, `optimizer/PATH` and the counters; nothing if an update does not end within
        the timeout, if any.
        """
        if not self._learning.acquire(timeout=timeout_s):
            return {}
        try:
            return {
                **_read("weights", self.network.weights),
                **_read("optimizer", self._optimizer.variables),
                "counters": np.array([self._acts, self._updates], np.int64),
            }
        finally:
            self._learning.release()

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave. Raises ValueError if something is missing or misshapen."""
        with self._learning:
            parts = {"weights": self.network.weights, "optimizer": self._optimizer.variables}
            restore(parts, values)
            self._acts, self._updates = map(int, values["counters"])

    def _segments(self, lanes: Any, slots: Any) -> Segments:
        """Gather B segments: arrays from the host's ring, tensors from the device's (traced)."""
        experience = self.experience
        rows = experience.ring.rows(lanes[:, None], slots)
        before, after = rows[:, :-1], rows[:, 1:]
        return Segments(
            observations=experience.stacks(lanes[:, None], slots, experience.gather("age", rows)),
            actions=experience.gather("action", before),
            log_probs=experience.gather("log_prob", before),
            rewards=experience.gather("reward", after),
            discounts=experience.gather("discount", after),
            firsts=experience.gather("first", after),
        )

    def _trace(self) -> None:
        ring, t_max = self.experience.ring, self._algorithm.config.t_max
        shape, dtype = ring.columns()["frame"]
        frame = ((None, *shape), dtype)
        seed, rates = ((2,), "int32"), ((2,), "float32")
        observation = ((None, *ring.observation_shape), ring.dtype)
        if self.experience.on_device:
            arrivals = [((None, 3), "int32"), ((None, 3), "float32"), frame]
            self._act = backend.compiled(self._act_on_device, [*arrivals, seed])
            segments = [((None,), "int32"), ((None, t_max + 1), "int32")]
            self._learn = backend.compiled(self._learn_on_device, [*segments, rates])
        else:
            self._act = backend.compiled(self._decide, [observation, seed])
            steps = [((None, t_max), dtype) for dtype in ("int32", *["float32"] * 4)]
            self._learn = backend.compiled(self._update, [observation, *steps, rates])

    def _act_on_device(
        self, index: backend.Tensor, outcomes: backend.Tensor, frames: backend.Tensor, seed: Any
    ) -> backend.Tensor:
        experience = self.experience
        lanes, slots, ages = index[:, 0], index[:, 1], index[:, 2]
        rows = experience.ring.rows(lanes, slots)
        experience.write(rows, _record(index, outcomes, frames))
        decision = self._decide(experience.stacks(lanes, slots, ages), seed)
        experience.write(rows, decision)
        return decision["action"]

    def _decide(self, observations: backend.Tensor, seed: Any) -> dict[str, backend.Tensor]:
        noise = backend.uniform((backend.shape(observations)[0], self._num_actions), seed)
        decision = self._algorithm.act(self.network, observations, noise)
        return {
            name: keras.ops.cast(decision[name], dtype)
            for name, (_, dtype) in self._algorithm.columns.items()
        }

    def _learn_on_device(
        self, lanes: backend.Tensor, slots: backend.Tensor, rates: backend.Tensor
    ) -> dict[str, backend.Tensor]:
        return self._update(*self._segments(lanes, slots), rates)

    def _update(self, *inputs: backend.Tensor) -> dict[str, backend.Tensor]:
        segments, rates = Segments(*inputs[:-1]), inputs[-1]
        variables = self.network.trainable_variables
        loss, metrics, gradients = backend.value_and_gradients(
            lambda: self._algorithm.loss(self.network, segments, rates[1]), variables
        )
        norm = keras.ops.sqrt(sum(keras.ops.sum(keras.ops.square(g)) for g in gradients))
        if limit := self._optimizer_config.clip_norm:
            scale = limit / keras.ops.maximum(norm, limit)
            gradients = [g * scale for g in gradients]
        self._optimizer.learning_rate.assign(rates[0])
        self._optimizer.apply(gradients, variables)
        return {**metrics, "loss": loss, "gradient_norm": norm}


def _record(index: Any, outcomes: Any, frames: Any) -> dict[str, Any]:
    return {
        "frame": frames,
        "age": index[:, 2],
        "reward": outcomes[:, 0],
        "discount": outcomes[:, 1],
        "first": outcomes[:, 2],
    }
