"""Measures each part of the service alone: environments, the wire, predictions, training."""

import contextlib
import multiprocessing
import multiprocessing.process
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from agents.actions import Actions
from agents.environments import EnvironmentConfig, Spaces, spaces
from ga3c import backend
from ga3c.experience.batches import Segments, Source, blank
from ga3c.experience.in_order import InOrder
from ga3c.learning.algorithm import Preparing
from ga3c.measuring.bare import BareNetwork
from ga3c.measuring.children import START_TIMEOUT_S, play_alone, rate, send_steps
from ga3c.runs.metrics import Metrics, Window
from ga3c.runs.scratch import ScratchDirectory
from ga3c.service.assembly import build_algorithm, small_model
from ga3c.settings.checks import WrongInput
from ga3c.settings.machine import CORES
from ga3c.settings.train import TrainConfig
from ga3c.wire.frontend import Frontend
from ga3c.wire.queues import BatchQueue, Closed
from ga3c.wire.requests import Reply, Request


def environment_only(config: EnvironmentConfig, agents: int, envs: int, seconds: float) -> float:
    """Steps a second of `agents` concurrent processes, each with one thread and `envs` lanes.

    Raises RuntimeError if a process fails.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(agents)
    with contextlib.ExitStack() as processes:
        receivers = []
        for number in range(agents):
            receiver, sender = context.Pipe(duplex=False)
            given = (number, config, envs, seconds, barrier, sender)
            processes.enter_context(running(context.Process(target=play_alone, args=given)))
            sender.close()  # only the process holds it now, so its death closes the pipe
            receivers.append(receiver)
        rates = []
        for receiver in receivers:
            if not receiver.poll(START_TIMEOUT_S + seconds):
                raise RuntimeError("an environment process did not answer")
            try:
                rates.append(float(receiver.recv()))
            except EOFError as error:
                raise RuntimeError("an environment process failed") from error
        return sum(rates)


@contextlib.contextmanager
def running(process: multiprocessing.process.BaseProcess) -> Iterator[None]:
    """Start a process and kill it at the end of the context."""
    process.daemon = True
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def wire_only(found: Spaces, agents: int, envs: int, seconds: float) -> float:
    """Messages a second through the real frontend, each answered at once with `envs` actions.

    The senders always send the same frames, so that only the transport is measured.
    """
    requests: BatchQueue[Request] = BatchQueue(agents * envs, 0, envs, 0.0)
    metrics, token = Metrics(), secrets.token_hex()
    with ScratchDirectory() as directory:
        endpoint = f"ipc://{directory / 'wire'}"
        frontend = Frontend(endpoint, token, found, 1, envs, requests, metrics)
        frontend.start()
        answering = threading.Thread(
            target=_answer, args=(requests, frontend, found.actions), daemon=True
        )
        answering.start()
        context = multiprocessing.get_context("spawn")
        try:
            with contextlib.ExitStack() as processes:
                for index in range(agents):
                    identity = f"sender-{index}"
                    lanes = np.arange(index * envs, (index + 1) * envs, dtype=np.int32)
                    frontend.peers.expect(identity, lanes[None])
                    given = (frontend.endpoint, identity, token, found, envs)
                    processes.enter_context(running(context.Process(target=send_steps, args=given)))
                _wait(lambda: all(frontend.peers.has_played(f"sender-{i}") for i in range(agents)))
                start = metrics.snapshot()
                time.sleep(seconds)
                return Window(start, metrics.snapshot()).rate("messages")
        finally:
            requests.close()
            answering.join(START_TIMEOUT_S)
            frontend.stop(START_TIMEOUT_S)


def _wait(until: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not until():
        if time.monotonic() > deadline_s:
            raise RuntimeError("a sender did not begin")
        time.sleep(0.05)


def _answer(requests: BatchQueue[Request], frontend: Frontend, actions: Actions) -> None:
    random = np.random.default_rng(0)
    try:
        while True:
            batch = requests.get(0.2)
            frontend.reply([Reply(each, actions.random(random, len(each.lanes))) for each in batch])
    except Closed:
        pass


def limit(parts: dict[str, float]) -> float:
    """Upper bound on the steps a second of a service with these parts.

    Without a GPU: cores / (seconds of one environment step + one prediction + the samples trained
    per step). With a GPU: the smaller of the rate at which all cores step environments and the rate
    of the GPU's predictions and training. The latter is an estimate, because calls were measured
    one at a time, and those of several threads may overlap.
    """
    thinking = 1 / parts["predict_only"] + parts["samples_a_step"] / parts["train_only"]
    if backend.has_gpu():
        return min(CORES * parts["environment_only"], 1 / thinking)
    return CORES / (1 / parts["environment_only"] + thinking)


def bare_limit(parts: dict[str, float]) -> float:
    """The same bound, if there were only the environments and the bare network."""
    bare = {"predict_only": parts["bare_forward"], "train_only": parts["bare_train"]}
    return limit({**parts, **bare})


def samples_a_step(config: TrainConfig) -> float:
    """Trained samples per environment step; 0 if training takes the time that acting leaves."""
    if not config.learns_from_replay:
        return float(config.service.passes)
    pacing = config.pacing
    if pacing.pacing == "free":
        return 0.0
    if pacing.pacing == "target-period":
        return config.replay.batch_size * pacing.updates_per_period / pacing.period_steps
    return config.replay.batch_size / pacing.steps_per_update


def prepare(config: TrainConfig) -> "tuple[Spaces, ModelAlone]":
    """The game's spaces and the model. Call this first, because it sets up the tensor framework.

    Raises WrongInput if the settings do not fit the game.
    """
    backend.configure(config.service.intra_op_threads, config.run.seed)
    try:
        found = spaces(config.environment)
        return found, ModelAlone(config, found)
    except ValueError as error:
        raise WrongInput(str(error)) from error


class ModelAlone:
    """The configured model without ring, queues and wire, to measure predictions and training.

    With a GPU, rates are per second of wall-clock time. Otherwise they are per second of one core,
    measured by the process's CPU time, because the tensor framework may use several cores.
    """

    def __init__(self, config: TrainConfig, found: Spaces) -> None:
        self._clock = time.monotonic if backend.has_gpu() else time.process_time
        self._dtype = found.dtype
        self._model = small_model(config, found)
        self._shape = self._model.experience.ring.observation_shape
        self._config, self._actions = config, found.actions

    @cached_property
    def _bare(self) -> BareNetwork:
        return BareNetwork(self._model.network)

    def _observations(self, count: int) -> np.ndarray:
        random = np.random.default_rng(0)
        return random.integers(0, 255, (count, *self._shape)).astype(self._dtype)

    def predict_only(self, batch: int, seconds: float) -> float:
        """Predictions a second in batches of `batch`."""
        observations, seed = self._observations(batch), np.zeros(2, np.int32)
        exploration = np.zeros(batch, np.float32)

        def predict() -> int:
            return len(self._model.decide(observations, exploration, seed)["action"])

        return rate(predict, seconds, self._clock)

    def train_only(self, batch: int, seconds: float) -> float:
        """Trained samples a second in batches of `batch`, rounded to whole items.

        If targets are set before the passes, as ppo does, the time for it is included.
        """
        source = self._model.source
        count = max(batch // source.item_steps, 1)
        parts, prepare = self._batch(source, count), self._preparation(count)
        passes = self._config.service.passes

        def train() -> int:
            prepare()
            for _ in range(passes):
                self._model.update(parts, 0.0)
            return passes * count * source.item_steps

        return rate(train, seconds, self._clock)

    def _batch(self, source: Source, count: int) -> list[np.ndarray]:
        return [
            self._observations(len(part)) if "observation" in name else part
            for name, part in zip(source.batch._fields, blank(source, count), strict=True)
        ]

    def _preparation(self, count: int) -> Callable[[], object]:
        """Sets the targets of this many steps, in whole segments; a no-op if none are set."""
        if not self._model.preparations:
            return lambda: None
        source, network = self._model.source, self._model.network
        algorithm = build_algorithm(self._config, self._actions)
        assert isinstance(source, InOrder) and isinstance(algorithm, Preparing)
        whole = InOrder(source.experience, source.book)
        segments = self._batch(whole, max(count // whole.item_steps, 1))
        prepare = backend.compiled(
            lambda *parts: algorithm.prepare(network, Segments(*parts)), whole.signature()
        )
        return lambda: [np.asarray(each) for each in prepare(*segments).values()]

    def bare_forward(self, batch: int, seconds: float) -> float:
        """Observations a second through the network alone, in batches of `batch`."""
        observations = self._observations(batch)
        return rate(lambda: self._bare.forward(observations), seconds, self._clock)

    def bare_train(self, batch: int, seconds: float) -> float:
        """Observations a second that the network alone is trained on, in batches of `batch`."""
        observations = self._observations(batch)
        return rate(lambda: self._bare.train(observations), seconds, self._clock)
