"""Puts the parts together, changes their numbers while they run, and ends them in order.

To stop, the queues are closed, so that predictors and trainers end; then the frontend ends, and
then the agents' processes. Every wait has a limit.
"""

import contextlib
import math
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from agents.environments import Spaces
from ga3c import lanes, pacing
from ga3c.algorithms import build
from ga3c.checkpoints import Checkpoint
from ga3c.config import CORES, TrainConfig
from ga3c.experience import RingShape
from ga3c.frontend import Frontend, Request
from ga3c.lanes import Lanes, ReplayLanes, Segment
from ga3c.lockstep import Lockstep
from ga3c.machine import cpu_s_of_others
from ga3c.metrics import Metrics, Snapshot
from ga3c.model import Model
from ga3c.predictor import Predictor
from ga3c.queues import BatchQueue
from ga3c.scheduler import Counts
from ga3c.trace import Trace
from ga3c.trainer import ReplayTrainer, Trainer
from ga3c.workers import SLICE_S, Agents, Deadline, RunFailed, Workers

MAX_SOCKET_PATH = 107
AGENTS_END_S = 2.0  # an agent that lives so long after the end of its input is frozen


def _endpoint(transport: str, directory: Path) -> str:
    """Where the frontend binds. Raises ValueError if the socket's path would be too long."""
    if transport == "tcp":
        return "tcp://127.0.0.1:*"
    path = directory / "agents"
    if len(str(path)) > MAX_SOCKET_PATH:
        raise ValueError(
            f"socket path {path} has {len(str(path))} characters > {MAX_SOCKET_PATH}: agents "
            "could not connect; set TMPDIR to a shorter path, or --transport tcp"
        )
    return f"ipc://{path}"


class Service:
    """A whole run's threads and processes. Made, resized, tended and stopped by the main thread."""

    def __init__(self, config: TrainConfig, spaces: Spaces, model: Model | None = None) -> None:
        """Args: model: if it is not to be the configured one."""
        service = config.service
        self._config = config
        self.metrics = Metrics()
        self.pacing = pacing.build(config) if config.learns_from_replay else None
        self._lanes = lanes.build(config, spaces.stack, self.pacing)
        self._algorithm = build(config, spaces.num_actions)
        self.model = self._configured_model(spaces) if model is None else model
        self.requests: BatchQueue[Request] = BatchQueue(
            service.max_lanes,
            service.prediction_min,
            service.prediction_max,
            math.inf if service.synchronized else service.prediction_wait_s,
        )
        self.segments: BatchQueue[Segment] = BatchQueue(
            service.training_queue,
            service.training_batch_min,
            service.training_batch_max,
            math.inf if service.lockstep else service.training_wait_s,
        )
        self._lockstep = (
            Lockstep(
                self._lanes,
                self.segments,
                service.training_batch_max // config.a3c.t_max,
                config.run.steps,
            )
            if isinstance(self._lanes, Lanes) and service.lockstep
            else None
        )
        self.trace = Trace() if config.run.trace else None
        self._directory = Path(tempfile.mkdtemp(prefix="ga3c-"))  # mode 0700
        token = secrets.token_hex(16)
        try:
            self._frontend = Frontend(
                _endpoint(service.transport, self._directory),
                token,
                spaces,
                service.groups,
                service.envs_per_agent // service.groups,
                self.requests,
                self.metrics,
                self.trace,
            )
        except Exception:
            self._directory.rmdir()
            raise
        self.agents = Agents(config, self._frontend, token, self._directory, self.metrics)
        self._predictors = Workers("predictor", self._predictor)
        self._trainers = Workers("trainer", self._trainer)
        self._stuck: list[str] | None = None  # known once stopped

    def _configured_model(self, spaces: Spaces) -> Model:
        config, service = self._config, self._config.service
        ring = RingShape(
            config.max_lanes, self._lanes.capacity, spaces.shape, spaces.dtype, spaces.stack
        )
        return Model.configured(config, spaces, ring, service.experience == "device")

    @property
    def is_settled(self) -> bool:
        """Whether what has been played has been learned from, as far as it will be."""
        return self.pacing is None or self.pacing.is_settled

    @property
    def counts(self) -> Counts:
        """How many of each there are."""
        return Counts(len(self.agents), len(self._predictors), len(self._trainers))

    def snapshot(self) -> Snapshot:
        """The counters now."""
        return self.metrics.snapshot()

    def plays(self) -> bool:
        """Whether every agent has made a step."""
        return self.agents.play()

    def memory_mb(self) -> list[float]:
        """Resident memory of this process and of each agent's, in MiB."""
        used = []
        for pid in self._pids():
            with contextlib.suppress(psutil.Error):  # it has just ended
                used.append(psutil.Process(pid).memory_info().rss / 2**20)
        return used

    def taken_s(self) -> float:
        """Seconds of all our cores that other programs have used: for differences."""
        return cpu_s_of_others(self._pids()) / CORES

    def _pids(self) -> list[int]:
        return [os.getpid(), *self.agents.pids()]

    def start(self, counts: Counts | None = None) -> None:
        """Begin with `counts`, or with the configured ones."""
        self._frontend.start()
        self.resize(self._config.service.counts if counts is None else counts)

    def resize(self, counts: Counts) -> None:
        """Change the counts while running."""
        self._trainers.resize(counts.trainers)
        self._predictors.resize(counts.predictors)
        self.agents.resize(counts.agents)

    def tend(self) -> list[str]:
        """See to the agents. Returns a line for each event.

        Raises RunFailed if a thread has failed or agents cannot live.
        """
        if failure := self._failure:
            raise RunFailed(f"a service thread failed\n{failure}")
        if not self._frontend.alive:
            raise RunFailed(f"the frontend thread has ended\n{self._frontend.failure}")
        return self.agents.tend()

    @property
    def _failure(self) -> str:
        return self._predictors.failure or self._trainers.failure

    def stop(self, timeout_s: float, hurry: threading.Event | None = None) -> list[str]:
        """End everything within about `timeout_s`, or at once when `hurry` is set.

        Returns what did not end, by name. A second call does nothing more.
        """
        if self._stuck is not None:
            return self._stuck
        deadline = Deadline(timeout_s, hurry or threading.Event())
        if self._lockstep:
            half = Deadline(timeout_s / 2, hurry or threading.Event())
            while half.left_s() and not self._failure and not self._lockstep.hold(SLICE_S):
                pass
        self.requests.close()
        self.segments.close()
        stuck = [
            role
            for role, workers in (("predictors", self._predictors), ("trainers", self._trainers))
            if not workers.join(deadline)
        ]
        if not self._frontend.stop(max(SLICE_S, deadline.left_s())):
            stuck.append("frontend")
        self.agents.stop(min(AGENTS_END_S, max(SLICE_S, deadline.left_s())))
        shutil.rmtree(self._directory, ignore_errors=True)
        self._stuck = stuck
        return stuck

    def read(
        self, timeout_s: float, with_experience: bool = True
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Arrays and counters that a resumed run goes on with; None if an update does not end.

        On-policy experience is not among them: lanes begin anew, but in lockstep. A replay is, if
        --save-replay asks for it.

        Args: with_experience: False leaves out all but what was learned, as an evaluation needs it.
        """
        with self._still(timeout_s) as still:
            arrays = self.model.read(timeout_s) if still else {}
            if not arrays:
                return None
            if self._lockstep and with_experience:
                arrays |= self._read_experience()
                arrays["queue"] = np.array(self.segments.waiting, np.int64).reshape(-1, 2)
                arrays["actions"] = self._lockstep.actions
            state = {**self.metrics.read(), "agents_started": self.agents.started}
            if self.pacing and self._config.replay.save_replay and with_experience:
                arrays |= self._read_experience()
                state["pacing"] = self.pacing.read()
            return arrays, state

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over what `read` gave; before the start. Raises ValueError if it does not fit."""
        self.model.restore(checkpoint.arrays)
        self.metrics.restore(checkpoint.state)
        if self._lockstep is None:
            self.agents.started = checkpoint.state["agents_started"]
            if self.pacing:
                self._restore_replay(checkpoint)
            return
        if "actions" not in checkpoint.arrays:
            raise ValueError("lockstep: the run was not, so it cannot be repeated: leave it out")
        self._restore_experience(checkpoint)
        queue = [Segment(*map(int, pair)) for pair in checkpoint.arrays["queue"]]
        self.segments.put(queue, [self._config.a3c.t_max] * len(queue), timeout_s=0.0)
        self.agents.played = checkpoint.arrays["actions"]
        self._lockstep.restore(self.agents.played)

    def _read_experience(self) -> dict[str, np.ndarray]:
        book = {f"lanes/{k}": v for k, v in self._lanes.read().items()}
        # in this order: what is newer than the book is overwritten
        return {**book, **self.model.read_experience()}

    def _restore_experience(self, checkpoint: Checkpoint) -> None:
        self.model.restore_experience(checkpoint.part("ring"), checkpoint.part("replay"))
        self._lanes.restore(checkpoint.part("lanes"))

    def _restore_replay(self, checkpoint: Checkpoint) -> None:
        """Go on with the replay that was kept, or fill a new one."""
        assert self.pacing
        if not self._config.replay.save_replay or "pacing" not in checkpoint.state:
            self.pacing.begin_after(int(checkpoint.state["steps"]))
            return
        self._restore_experience(checkpoint)
        self.pacing.restore(checkpoint.state["pacing"])

    @contextlib.contextmanager
    def _still(self, timeout_s: float) -> Iterator[bool]:
        """In lockstep: while no prediction and no update is on its way; False if one stays."""
        if self._lockstep is None:
            yield True
        elif not self._lockstep.hold(timeout_s):
            yield False
        else:
            try:
                yield True
            finally:
                self._lockstep.go_on()

    def _progress(self) -> float:
        steps = self.pacing.visible_steps if self.pacing else self.metrics.total("steps")
        return steps / self._config.optimizer.schedule_steps

    def _predictor(self, stop: threading.Event) -> Callable[[], None]:
        return Predictor(
            self.requests,
            self.segments,
            self._lanes,
            self.model,
            self._frontend,
            self.metrics,
            self._config.learning.discount,
            self._algorithm.epsilons,
            stop,
            self._lockstep,
            self.trace,
        ).run

    def _trainer(self, stop: threading.Event) -> Callable[[], None]:
        if self.pacing is None:
            assert isinstance(self._lanes, Lanes)
            return Trainer(
                self.segments,
                self._lanes,
                self.model,
                self.metrics,
                self._progress,
                stop,
                self.trace,
            ).run
        assert isinstance(self._lanes, ReplayLanes)
        config = self._config
        by_updates = config.pacing.pacing == "ratio"
        return ReplayTrainer(
            self.pacing,
            self._lanes,
            self.model,
            self.metrics,
            self._progress,
            config.dqn.batch_size,
            config.dqn.target_period if by_updates else None,
            stop,
            self.trace,
        ).run
