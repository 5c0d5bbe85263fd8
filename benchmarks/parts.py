"""The parts of the service, each alone: environments, the wire, predictions, training."""

import multiprocessing
import secrets
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from agents.environments import EnvironmentConfig, Spaces
from benchmarks.peers import START_TIMEOUT_S, play_alone, rate, send_steps
from ga3c.algorithms.a3c import A3C, Segments
from ga3c.config import TrainConfig
from ga3c.experience import RingShape
from ga3c.frontend import Frontend, Reply, Request
from ga3c.metrics import Metrics, Window
from ga3c.model import Model
from ga3c.queues import BatchQueue, Closed


def environment_only(config: EnvironmentConfig, agents: int, envs: int, seconds: float) -> float:
    """Steps a second of `agents` processes at once, each with one thread and `envs` lanes.

    Raises RuntimeError if a process fails.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(agents)
    pipes = [context.Pipe(duplex=False) for _ in range(agents)]
    processes = [
        context.Process(
            target=play_alone, args=(config, envs, seconds, barrier, pipe[1]), daemon=True
        )
        for pipe in pipes
    ]
    try:
        for process in processes:
            process.start()
        rates = []
        for receiver, _ in pipes:
            if not receiver.poll(START_TIMEOUT_S + seconds):
                raise RuntimeError("an environment process did not answer")
            rates.append(float(receiver.recv()))
        return sum(rates)
    except EOFError as error:
        raise RuntimeError("an environment process failed") from error
    finally:
        for process in processes:
            process.kill()
            process.join()


def wire_only(found: Spaces, agents: int, envs: int, seconds: float) -> float:
    """Messages a second through the real frontend, each answered at once with `envs` actions.

    The senders' frames are always the same, so that nothing but the way is measured.
    """
    requests: BatchQueue[Request] = BatchQueue(agents * envs, 0, envs, 0.0)
    metrics, token = Metrics(), secrets.token_hex()
    with tempfile.TemporaryDirectory() as directory:
        endpoint = f"ipc://{Path(directory) / 'wire'}"
        frontend = Frontend(endpoint, token, found, 1, envs, requests, metrics)
        frontend.start()
        answering = threading.Thread(target=_answer, args=(requests, frontend), daemon=True)
        answering.start()
        context = multiprocessing.get_context("spawn")
        processes = []
        try:
            for index in range(agents):
                identity = f"sender-{index}"
                lanes = np.arange(index * envs, (index + 1) * envs, dtype=np.int32)
                frontend.expect(identity, lanes[None])
                given = (frontend.endpoint, identity, token, found, envs)
                processes.append(context.Process(target=send_steps, args=given, daemon=True))
                processes[-1].start()
            deadline_s = time.monotonic() + START_TIMEOUT_S
            while not all(frontend.has_played(f"sender-{i}") for i in range(agents)):
                if time.monotonic() > deadline_s:
                    raise RuntimeError("a sender did not begin")
                time.sleep(0.05)
            start = metrics.snapshot()
            time.sleep(seconds)
            return Window(start, metrics.snapshot()).rate("messages")
        finally:
            for process in processes:
                process.kill()
                process.join()
            requests.close()
            answering.join(START_TIMEOUT_S)
            frontend.stop(START_TIMEOUT_S)


def _answer(requests: BatchQueue[Request], frontend: Frontend) -> None:
    try:
        while True:
            batch = requests.get(0.2)
            frontend.reply([Reply(each, np.zeros(len(each.lanes), np.int32)) for each in batch])
    except Closed:
        pass


class ModelAlone:
    """The configured model without ring, queues and wire: what only predicts and only trains."""

    def __init__(self, config: TrainConfig, found: Spaces) -> None:
        """Call after `backend.configure`."""
        self._t_max = config.a3c.t_max
        self._dtype = found.dtype
        ring = RingShape(1, 1, found.shape, found.dtype, found.stack)
        self._shape = ring.observation_shape
        self._model = Model(
            A3C(config.a3c, found.num_actions),
            config.network,
            config.optimizer,
            found,
            ring,
            False,
            config.run.seed,
        )

    def _observations(self, count: int) -> np.ndarray:
        random = np.random.default_rng(0)
        return random.integers(0, 255, (count, *self._shape)).astype(self._dtype)

    def predict_only(self, batch: int, seconds: float) -> float:
        """Predictions a second in batches of `batch`."""
        observations, seed = self._observations(batch), np.zeros(2, np.int32)
        return rate(lambda: len(self._model.decide(observations, seed)["action"]), seconds)

    def train_only(self, batch: int, seconds: float) -> float:
        """Trained samples a second in batches of `batch`, in whole segments of t_max."""
        count = max(batch // self._t_max, 1)
        steps = np.zeros((count, self._t_max), np.float32)
        observations = self._observations(count * (self._t_max + 1))
        segments = Segments(observations, steps.astype(np.int32), steps, steps, steps, steps)

        def train() -> int:
            self._model.update(segments, 0.0)
            return steps.size

        return rate(train, seconds)
