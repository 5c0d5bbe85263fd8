"""Puts the parts together, changes their numbers while they run, and ends them in order.

To stop, the queues are closed, so that predictors and trainers end; then the frontend ends, and
then the agents' processes. Every wait has a limit.
"""

import contextlib
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from agents import messages
from agents.environments import Spaces
from ga3c.experience.ring import RingShape
from ga3c.experience.segments import Lanes, Segment
from ga3c.experience.window import ReplayLanes
from ga3c.learning.model import Model
from ga3c.runs.action_log import ActionLog
from ga3c.runs.checkpoints import Checkpoint
from ga3c.runs.metrics import Metrics, Snapshot
from ga3c.runs.scratch import ScratchDirectory
from ga3c.runs.trace import Trace
from ga3c.service.agents import Agents
from ga3c.service.assembly import build_book, build_model, build_pacing
from ga3c.service.frontend import Frontend, Request
from ga3c.service.gate import Gate
from ga3c.service.lockstep import Lockstep
from ga3c.service.predictor import Predictor
from ga3c.service.queues import BatchQueue
from ga3c.service.threads import SLICE_S, Deadline, RunFailed, Workers
from ga3c.service.trainer import ReplayTrainer, Trainer
from ga3c.settings.machine import CORES, cpu_s_of_others
from ga3c.settings.scheduler import Counts
from ga3c.settings.train import TrainConfig

MAX_SOCKET_PATH = 107
ACTIONS = "actions.bin"  # of a run in lockstep
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
        """Args: model: if it is not to be the configured one.

        Raises ValueError if the settings do not fit the environment.
        """
        service = config.service
        envs_per_group = service.envs_per_agent // service.groups
        messages.check_sizes(
            spaces.shape, spaces.dtype, spaces.num_actions, service.groups, envs_per_group
        )
        self._config = config
        self._schedule_steps = config.scheduled_optimizer.schedule_steps or math.inf
        self.metrics = Metrics()
        self.pacing = build_pacing(config)
        self._lanes = build_book(config, spaces.stack, self.pacing)
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
        self._gate = Gate()
        self.trace = Trace() if config.run.trace else None
        self._scratch = ScratchDirectory()
        self._lockstep = (
            Lockstep(
                self._lanes,
                self.segments,
                service.training_batch_max // config.a3c.t_max,
                config.run.steps,
                ActionLog(self._scratch.path / ACTIONS),
            )
            if isinstance(self._lanes, Lanes) and service.lockstep
            else None
        )
        token = secrets.token_hex(16)
        try:
            self._frontend = Frontend(
                _endpoint(service.transport, self._scratch.path),
                token,
                spaces,
                service.groups,
                envs_per_group,
                self.requests,
                self.metrics,
                self.trace,
            )
        except Exception:
            self._scratch.remove()
            raise
        self.agents = Agents(config, self._frontend, token, self.metrics)
        self._predictors = Workers("predictor", self._predictor)
        self._trainers = Workers("trainer", self._trainer)
        self._stuck: list[str] | None = None  # known once stopped

    def _configured_model(self, spaces: Spaces) -> Model:
        config, service = self._config, self._config.service
        ring = RingShape(
            config.max_lanes, self._lanes.capacity, spaces.shape, spaces.dtype, spaces.stack
        )
        return build_model(config, spaces, ring, service.experience == "device")

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

    def keep_actions(self, directory: Path) -> None:
        """In lockstep: keep the file of all actions there. Call before all else."""
        if self._lockstep:
            self._lockstep.actions.path = directory / ACTIONS

    def start(self, counts: Counts | None = None) -> None:
        """Begin with `counts`, or with the configured ones."""
        self._frontend.start()
        self.resize(self._config.service.counts if counts is None else counts)

    def resize(self, counts: Counts) -> None:
        """Change the counts while running."""
        self._trainers.resize(counts.trainers)
        self._predictors.resize(counts.predictors)
        self.agents.resize(counts.agents)

    def waits(self) -> str:
        """Who waits for whom, and what to change, in words: for a run in which nothing moves."""
        service, begun, unanswered = (
            self._config.service,
            self.agents.begun,
            self._frontend.unanswered,
        )
        if begun < len(self.agents):
            return (
                f"{begun} of {len(self.agents)} agents have made a step; the others make their "
                f"environments ({service.envs_per_agent} each) or are being replaced"
            )
        if not unanswered:
            return (
                "every observation has its action, and no agent sends its next step: an "
                f"environment may hang; --agent-timeout-s {service.agent_timeout_s:g} is when such "
                "an agent is replaced"
            )
        if service.synchronized and 0 < self.requests.size < service.prediction_min:
            return (
                f"the predictor waits for all {service.prediction_min} observations and has "
                f"{self.requests.size}: an agent's environments may hang"
            )
        learning = (
            self.pacing.waits()
            if self.pacing
            else (
                f"{self.segments.size} samples await training, a batch takes at least "
                f"{service.training_batch_min}: give a smaller --training-batch-min, a larger "
                "--training-queue or more --pending-segments"
            )
        )
        return f"{unanswered} observations await actions until learning catches up; {learning}"

    def tend(self) -> list[str]:
        """See to the agents. Returns a line for each event.

        Raises RunFailed if a thread has failed, agents cannot live, or too many updates in a row
        were not finite.
        """
        refused, most = self.model.refused_in_a_row, self._config.learning.max_refused_updates
        if refused >= most:
            raise RunFailed(
                f"{refused} updates in a row were left out, as their loss or gradient was not "
                "finite: nothing more would be learned; a smaller --learning-rate, a --clip-norm "
                "or a --reward-clip may help, from the last checkpoint or anew"
            )
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
        self._scratch.remove()
        self._stuck = stuck
        return stuck

    def read(
        self, timeout_s: float, experience: bool = True
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Arrays and counters of one moment, between two predictions and two updates.

        On-policy experience is not among them: lanes begin anew, but in lockstep. A replay is, if
        --save-replay asks for it.

        Args:
            experience: False leaves out all experience: what was learned, and the counters.

        Returns:
            What `restore` takes; None if a prediction or an update does not end within `timeout_s`.
        """
        with self._still(timeout_s) as still:
            arrays = self.model.read(timeout_s) if still else {}
            if not arrays:
                return None
            state = {**self.metrics.read(), "agents_started": self.agents.started}
            if experience and self._lockstep:
                arrays |= self._read_experience()
                arrays["queue"] = np.array(self.segments.waiting, np.int64).reshape(-1, 2)
                state["actions"] = self._lockstep.actions.save()
            if experience and self.pacing and self._config.replay.save_replay:
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
        if "actions" not in (*checkpoint.state, *checkpoint.arrays):
            raise ValueError("lockstep: the run was not, so it cannot be repeated: leave it out")
        self._restore_experience(checkpoint)
        queue = [Segment(*map(int, pair)) for pair in checkpoint.arrays["queue"]]
        self.segments.put(queue, [self._config.a3c.t_max] * len(queue), timeout_s=0.0)
        log = self._lockstep.actions
        if "actions" in checkpoint.arrays:
            made = log.adopt(checkpoint.arrays["actions"])
        else:
            made = log.restore(checkpoint.state["actions"])
        self.agents.play_again(log.path, made // self._config.service.envs_per_agent)
        self._lockstep.restore(made)

    def _read_experience(self) -> dict[str, np.ndarray]:
        book = {f"lanes/{k}": v for k, v in self._lanes.read().items()}
        return {**book, **self.model.read_experience()}

    def _restore_experience(self, checkpoint: Checkpoint) -> None:
        self.model.restore_experience(checkpoint.part("ring"), checkpoint.part("replay"))
        self._lanes.restore(checkpoint.part("lanes"))

    def _restore_replay(self, checkpoint: Checkpoint) -> None:
        """Go on with the replay that was kept, or fill a new one.

        What follows from the book is derived from it: then the parts cannot disagree.
        """
        assert self.pacing and isinstance(self._lanes, ReplayLanes)
        steps = int(checkpoint.state["steps"])
        if not self._config.replay.save_replay or "pacing" not in checkpoint.state:
            self.pacing.begin_after(steps)
            return
        self._restore_experience(checkpoint)
        visible, acted = self._lanes.visible(), self._lanes.written_steps
        self.model.publish(visible)
        derived = {"before": steps - acted, "acted": acted, "flushed": int(visible.heads.sum())}
        self.pacing.restore({**checkpoint.state["pacing"], **derived})

    @contextlib.contextmanager
    def _still(self, timeout_s: float) -> Iterator[bool]:
        """While no prediction and no update is on its way; False if one does not end in time."""
        with contextlib.ExitStack() as stack:
            if self._lockstep:
                if not self._lockstep.hold(timeout_s):
                    yield False
                    return
                stack.callback(self._lockstep.go_on)
            yield stack.enter_context(self._gate.held(timeout_s))

    @property
    def progress(self) -> float:
        """Of the schedules: 0 at the start, 1 at their end and more beyond."""
        steps = self.pacing.visible_steps if self.pacing else self.metrics.total("steps")
        return steps / self._schedule_steps

    def _predictor(self, stop: threading.Event) -> Callable[[], None]:
        return Predictor(
            self.requests,
            self.segments,
            self._lanes,
            self.model,
            self._frontend,
            self.metrics,
            self._config.learning.discount,
            stop,
            self._gate,
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
                lambda: self.progress,
                stop,
                self._gate,
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
            lambda: self.progress,
            config.dqn.batch_size,
            config.dqn.target_period if by_updates else None,
            stop,
            self._gate,
            self.trace,
        ).run
