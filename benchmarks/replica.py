"""One agent process of A3C on the CPU: its own replica, and parameters that all agents share.

It follows Mnih et al. 2016 (algorithm S3 and section 4): each agent copies the shared parameters,
acts for t_max steps with one observation at a time, and applies its gradient to the shared
parameters without a lock (Hogwild). The mean squares of RMSProp are shared too.
"""

import ga3c.backend as backend  # noqa: I001  first, to silence the framework's start-up messages

import os
import signal
from collections import deque
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Any

import keras
import numpy as np

from agents.environments import Environments, Spaces
from benchmarks.own_process import end_with_parent
from ga3c.experience.batches import Segments
from ga3c.experience.ring import RingShape, outcome_rows
from ga3c.learning.a3c import A3C
from ga3c.learning.optimizers import clipped, global_norm
from ga3c.settings.train import TrainConfig

START_TIMEOUT_S = 120.0
CHUNK = 1 << 16  # the optimizer updates this many parameters at a time, which fit in the cache
SCORES = 20  # episodes over which an agent's mean score is taken


@dataclass(frozen=True)
class Shared:
    """The memory that all agents share: arrays of `multiprocessing.RawArray`."""

    parameters: Any  # float32 [size]
    mean_squares: Any  # float32 [size]
    steps: Any  # int64 [agents], steps made by each agent
    scores: Any  # float64 [agents], mean score of each agent's last episodes; nan before the first


def play(config: TrainConfig, index: int, shared: Shared, barrier: Barrier) -> None:
    """Run as agent `index` until the parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
    end_with_parent()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # A3C computes on the CPU only
    backend.configure(1, config.run.seed)
    environments = Environments(config.environment, 1)
    replica = Replica(config, environments.spaces, index)
    optimizer = SharedRMSProp(config, shared)
    steps = np.frombuffer(shared.steps, np.int64)
    scores = np.frombuffer(shared.scores, np.float64)
    finished: deque[float] = deque(maxlen=SCORES)
    replica.see(environments.reset(config.run.seed * 1000 + index))
    barrier.wait(START_TIMEOUT_S)
    while True:
        replica.pull(optimizer.parameters)
        for _ in range(config.service.t_max):
            step = environments.step(replica.act())
            replica.see(step)
            if step.outcomes["finished"][0]:
                finished.append(float(step.outcomes["episode_return"][0]))
                scores[index] = sum(finished) / len(finished)
        optimizer.apply(replica.gradient())
        steps[index] += config.service.t_max


def first_parameters(config: TrainConfig, found: Spaces) -> np.ndarray:
    """The shared parameters before the first update: float32 [size]."""
    return Replica(config, found, 0).parameters()


class SharedRMSProp:
    """RMSProp in place and without a lock, on parameters and mean squares in shared memory."""

    def __init__(self, config: TrainConfig, shared: Shared) -> None:
        self.parameters = np.frombuffer(shared.parameters, np.float32)
        self._mean_squares = np.frombuffer(shared.mean_squares, np.float32)
        self._rate = np.float32(config.optimizer.learning_rate)
        self._decay = np.float32(config.optimizer.rms_decay)
        self._epsilon = np.float32(config.optimizer.optimizer_epsilon)
        self._scratch = np.empty(CHUNK, np.float32)

    def apply(self, gradient: np.ndarray) -> None:
        """Make one descent step along `gradient`, float32 [size]."""
        for start in range(0, len(gradient), CHUNK):
            part = slice(start, start + CHUNK)
            g, square = gradient[part], self._mean_squares[part]
            scratch = self._scratch[: len(g)]
            square *= self._decay
            np.multiply(g, g, out=scratch)
            scratch *= 1 - self._decay
            square += scratch
            np.add(square, self._epsilon, out=scratch)
            np.sqrt(scratch, out=scratch)
            np.divide(g, scratch, out=scratch)
            scratch *= self._rate
            self.parameters[part] -= scratch


class Replica:
    """The network and the last t_max steps of one environment."""

    def __init__(self, config: TrainConfig, found: Spaces, index: int) -> None:
        self._config, self._index, self._acts = config, index, 0
        self._dtype = found.dtype
        self._algorithm = A3C(config.a3c, found.actions)
        self._shape = RingShape(1, 1, found.shape, found.dtype, found.stack).observation_shape
        self._network = self._algorithm.network(
            config.network, self._shape, found.dtype, found.is_picture
        )
        self._variables = self._network.trainable_variables
        self._frames: deque[np.ndarray] = deque(maxlen=found.stack)
        keep = config.service.t_max
        self._observations: deque[np.ndarray] = deque(maxlen=keep + 1)
        self._outcomes: deque[np.ndarray] = deque(maxlen=keep)  # float32 [3]
        self._decisions: deque[tuple[int, float]] = deque(maxlen=keep)
        self._trace()

    def _trace(self) -> None:
        size = sum(int(np.prod(v.shape)) for v in self._variables)
        observations = ((None, *self._shape), self._dtype)
        steps = [((1, self._config.service.t_max), t) for t in ("int32", *["float32"] * 4)]
        self._pull = backend.compiled(self._assign, [((size,), "float32")])
        self._act = backend.compiled(self._decide, [observations, ((2,), "int32")])
        self._learn = backend.compiled(self._flat_gradient, [observations, *steps])

    def parameters(self) -> np.ndarray:
        """All weights as float32 [size]."""
        flat = [np.ravel(keras.ops.convert_to_numpy(v)) for v in self._variables]
        return np.concatenate(flat).astype(np.float32)

    def pull(self, parameters: np.ndarray) -> None:
        """Copy the shared parameters, float32 [size], into the replica."""
        self._pull(parameters)

    def see(self, step: Any) -> None:
        """Record the environment's `Step`, which has one lane."""
        frame = step.frames[0]
        if step.outcomes["first"][0]:
            self._frames.extend([frame] * (self._frames.maxlen or 1))
        self._frames.append(frame)
        self._observations.append(np.stack(self._frames, axis=-1).reshape(self._shape))
        self._outcomes.append(outcome_rows(step.outcomes, self._config.learning.discount)[0])

    def act(self) -> np.ndarray:
        """The action for the newest observation, int32 [1]."""
        self._acts = (self._acts + 1) % 2**31
        seed = np.array([self._index, self._acts], np.int32)
        action, log_prob = self._act(self._observations[-1][None], seed)
        chosen = np.asarray(action)
        self._decisions.append((int(chosen[0]), float(log_prob[0])))
        return chosen

    def gradient(self) -> np.ndarray:
        """Gradient of the loss over the last t_max steps, clipped as configured: float32 [size]."""
        actions, log_probs = (np.array([each]) for each in zip(*self._decisions))
        rewards, discounts, firsts = np.stack(self._outcomes, axis=-1)[:, None]
        if clip := self._config.learning.reward_clip:
            rewards = np.clip(rewards, -clip, clip)
        return np.asarray(
            self._learn(
                np.stack(self._observations),
                actions.astype(np.int32),
                log_probs.astype(np.float32),
                *(rewards, discounts, firsts),
            )
        )

    def _assign(self, flat: Any) -> Any:
        start = 0
        for variable in self._variables:
            size = int(np.prod(variable.shape))
            variable.assign(keras.ops.reshape(flat[start : start + size], variable.shape))
            start += size
        return flat[:1]

    def _decide(self, observations: Any, seed: Any) -> tuple[Any, Any]:
        noise = backend.uniform((1, self._algorithm.noise), seed)
        decision = self._algorithm.act(self._network, observations, noise, None)
        return keras.ops.cast(decision["action"], "int32"), decision["log_prob"]

    def _flat_gradient(self, *inputs: Any) -> Any:
        _, _, gradients = backend.value_and_gradients(
            lambda: self._algorithm.loss(
                self._network,
                None,
                Segments(*inputs),
                {"entropy_weight": self._config.a3c.entropy_weight},
            ),
            self._variables,
        )
        flat = [keras.ops.concatenate([keras.ops.reshape(g, (-1,)) for g in gradients])]
        return clipped(flat, global_norm(flat), self._config.optimizer.clip_norm)[0]
