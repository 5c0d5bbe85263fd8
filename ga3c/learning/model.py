"""The one model, which acts for all predictors and learns for all trainers.

All functions are traced once on the main thread. Afterwards any thread may call them. Updates run
one at a time. Predictions run concurrently with updates and see the weights of that moment.
"""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

from ga3c import backend
from ga3c.experience.batches import Source
from ga3c.experience.in_order import Prepare, Shuffled
from ga3c.experience.ring import Arrivals, filled_rows, step_record
from ga3c.learning import optimizers, weights
from ga3c.learning.algorithm import Algorithm, Preparing
from ga3c.learning.distributions import bounded
from ga3c.learning.layers import measure, measured_by
from ga3c.settings.learning import NetworkConfig, OptimizerConfig

FINITE = "is_finite"  # a figure of each update: 1, or 0 if the update was skipped


class Learned(NamedTuple):
    """The result of one update."""

    update: int  # number of updates made, including this one
    means: dict[str, float]  # figures of the update, by name
    is_finite: bool = True  # False: the loss or gradient was not finite; the update was skipped


class Model:
    """Networks, optimizer, a source of batches, and the traced functions.

    Raises ValueError if the network does not fit the observations.
    """

    preparations: Sequence[Prepare] = ()  # run on a batch's segments before its updates

    def __init__(
        self,
        *,
        algorithm: Algorithm,
        network: NetworkConfig,
        optimizer: OptimizerConfig,
        source: Source,
        is_picture: bool,
        seed: int,
        acts_on_target: bool = False,
    ) -> None:
        """Args:
        is_picture: whether the observations are pictures; otherwise they are vectors.
        acts_on_target: whether actions are chosen with the target network's weights.
        """
        self._algorithm = algorithm
        self.exploration = algorithm.exploration
        """How much each lane explores after a number of steps of the run; see `Algorithm`."""
        self._optimizer_config = optimizer.scheduled(None)
        self._seed, self._acts, self._updates = seed, 0, 0
        self.refused_in_a_row = 0
        """Updates skipped in a row because they were not finite."""
        self._counting = threading.Lock()  # guards _acts
        self.source, self.experience = source, source.experience
        ring = self.experience.ring
        shape = (ring.observation_shape, ring.dtype, is_picture)
        self.network = algorithm.network(network, *shape)
        self.target = algorithm.network(network, *shape) if algorithm.has_target else None
        if self.target:
            self.target.set_weights(self.network.get_weights())
        self._acting = self.target if self.target and acts_on_target else self.network
        self._optimizer = optimizers.build_optimizer(optimizer)
        optimizers.prepare(self._optimizer, self.network.trainable_variables, optimizer.rms_start)
        weights.keyed(self._parts)
        self._measured = measured_by(self.network)
        self._rates = optimizers.Rates(self._optimizer_config, algorithm, source)
        if isinstance(source, Shuffled) and isinstance(algorithm, Preparing):
            first = [source.preparing(partial(measure, self._measured))] if self._measured else []
            targets = source.preparing(partial(algorithm.prepare, self.network))
            self.preparations = [*first, targets]
            self._measured = []  # so that a batch's targets and updates are all in one unit
        self._trace()

    @property
    def updates(self) -> int:
        """The number of updates made."""
        return self._updates

    def act(self, arrivals: Arrivals) -> np.ndarray:
        """Record n arrivals and choose their actions [n, *shape]. Raises FloatingPointError."""
        with self._counting:
            self._acts = (self._acts + 1) % 2**31
            seed = np.array([self._seed, self._acts], np.int32)
        ring = self.experience.ring
        index = np.stack([arrivals.lanes, arrivals.slots, arrivals.ages], axis=1)
        frames = arrivals.frames.reshape(len(arrivals.lanes), -1)
        exploration = arrivals.exploration
        if self.experience.memory.on_device:
            count, size = len(frames), backend.filled(len(frames))
            index, outcomes, frames, exploration = (
                filled_rows(rows, size) for rows in (index, arrivals.outcomes, frames, exploration)
            )
            index[count:, 0] = ring.lanes  # past the ring's end, so the padding is not written
            actions = np.asarray(self._act(index, outcomes, frames, exploration, seed))
            return bounded(actions[:count])
        rows = ring.rows(arrivals.lanes, arrivals.slots)
        self.experience.write(rows, step_record(index, arrivals.outcomes, frames))
        decision = self.decide(self.experience.stacks(*index.T), exploration, seed)
        self.experience.write(rows, decision)
        return bounded(decision["action"])

    def decide(
        self, observations: np.ndarray, exploration: np.ndarray, seed: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The algorithm's columns for observations [n, ...] in RAM; `seed` is int32 [2]."""
        count, size = len(observations), backend.filled(len(observations))
        filled = (filled_rows(rows, size) for rows in (observations, exploration))
        decision = self._act(*filled, seed)
        return {name: np.asarray(value)[:count] for name, value in decision.items()}

    def learn(self, *inputs: np.ndarray, progress: float) -> Learned:
        """Make one update from the batch that the source draws for `inputs`.

        Args: progress: position in the schedules, 0 at the start and 1 at the end.
        """
        rates = self._rates.at(progress)
        with self.source.lock:
            if self.experience.memory.on_device:
                return self._learned(self._learn(self._rates.vector(rates), *inputs))
            batch = self.source.draw(rates, *inputs)
            figures, errors = self._learn(self._rates.vector(rates), *batch)
            self.source.learned(batch, np.asarray(errors))
            return self._learned(figures)

    def update(self, batch: Sequence[np.ndarray], progress: float) -> Learned:
        """Make one update from a batch in RAM; experience must be kept in RAM too."""
        rates = self._rates.at(progress)
        with self.source.lock:
            figures, _ = self._learn(self._rates.vector(rates), *batch)
            return self._learned(figures)

    def copy_target(self) -> None:
        """Copy the newest weights to the target network, if there is one."""
        if self.target:
            with self.source.lock:
                self._copy()

    def _learned(self, figures: backend.Tensor) -> Learned:
        means = dict(zip(self._figures, np.asarray(figures).tolist(), strict=True))
        is_finite = bool(means.pop(FINITE))
        self._updates += is_finite
        self.refused_in_a_row = 0 if is_finite else self.refused_in_a_row + 1
        return Learned(self._updates, means, is_finite)

    def read(self) -> dict[str, np.ndarray]:
        """A copy of everything learned, taken between two updates, in the form `restore` takes.

        The keys are `weights/PATH`, `target/PATH`, `optimizer/PATH` and `counters`.
        """
        with self.source.lock:
            counters = np.array([self._acts, self._updates], np.int64)
            return {"counters": counters, **weights.read(self._parts)}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises ValueError if a value is missing or misshapen."""
        with self.source.lock:
            weights.restore(self._parts, values)
            self._acts, self._updates = map(int, values["counters"])

    @property
    def _parts(self) -> dict[str, list]:
        parts = {"weights": self.network.weights, "optimizer": self._optimizer.variables}
        return {**parts, "target": self.target.weights} if self.target else parts

    def _trace(self) -> None:
        ring = self.experience.ring
        shape, dtype = ring.columns()["frame"]
        frame, rates = ((None, *shape), dtype), ((len(self._rates),), "float32")
        seed, exploration = ((2,), "int32"), ((None,), "float32")
        if self.experience.memory.on_device:
            arrivals = [((None, 3), "int32"), ((None, 3), "float32"), frame]
            self._act = backend.compiled(self._act_on_device, [*arrivals, exploration, seed])
            self._learn = backend.compiled(self._learn_on_device, [rates, *self.source.inputs])
        else:
            observation = ((None, *ring.observation_shape), ring.dtype)
            self._act = backend.compiled(self._decide, [observation, exploration, seed])
            self._learn = backend.compiled(self._update, [rates, *self.source.signature()])
        if self.target:
            self._copy = backend.compiled(self._copy_weights, [])

    def _act_on_device(
        self, index: Any, outcomes: Any, frames: Any, exploration: Any, seed: Any
    ) -> Any:
        experience = self.experience
        lanes, slots, ages = index[:, 0], index[:, 1], index[:, 2]
        rows = experience.ring.rows(lanes, slots)
        experience.write(rows, step_record(index, outcomes, frames))
        decision = self._decide(experience.stacks(lanes, slots, ages), exploration, seed)
        experience.write(rows, decision)
        return decision["action"]

    def _decide(self, observations: Any, exploration: Any, seed: Any) -> dict[str, backend.Tensor]:
        shape = (keras.ops.shape(observations)[0], self._algorithm.noise)
        noise = backend.uniform(shape, seed)
        decision = self._algorithm.act(self._acting, observations, noise, exploration)
        return {
            name: keras.ops.cast(decision[name], dtype)
            for name, (_, dtype) in self._algorithm.columns.items()
        }

    def _learn_on_device(self, rates: backend.Tensor, *inputs: backend.Tensor) -> backend.Tensor:
        batch = self.source.draw(self._rates.named(rates), *inputs)
        figures, errors = self._update(rates, *batch)
        self.source.learned(batch, errors)
        return figures

    def _update(
        self, rates: backend.Tensor, *parts: backend.Tensor
    ) -> tuple[backend.Tensor, backend.Tensor]:
        """Update the weights from a batch's parts, unless the loss or gradient norm is not finite.

        Returns the figures named in `_figures`, in one array, and the errors of the batch's items.
        """
        batch, named = self.source.batch(*parts), self._rates.named(rates)
        measure(self._measured, batch)
        variables = self.network.trainable_variables
        loss, (figures, errors), gradients = backend.value_and_gradients(
            lambda: self._algorithm.loss(self.network, self.target, batch, named), variables
        )
        norm = optimizers.global_norm(gradients)
        gradients = optimizers.clipped(gradients, norm, self._optimizer_config.clip_norm)
        self._optimizer.learning_rate.assign(named[optimizers.STEP_SIZE])
        is_finite = keras.ops.isfinite(loss) & keras.ops.isfinite(norm)
        backend.when(is_finite, lambda: optimizers.apply(self._optimizer, gradients, variables))
        figures = {**figures, "loss": loss, "gradient_norm": norm, FINITE: is_finite}
        self._figures = list(figures)  # set by tracing, before any update
        return keras.ops.stack([keras.ops.cast(f, "float32") for f in figures.values()]), errors

    def _copy_weights(self) -> None:
        assert self.target is not None
        for to, weight in zip(self.target.weights, self.network.weights, strict=True):
            to.assign(weight)
