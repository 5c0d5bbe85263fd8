"""Settings of the parts that run in parallel: agents, predictors, trainers and their queues."""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agents.headers import check_counts
from ga3c.settings.checks import check_count, check_queue, check_threads, not_negative
from ga3c.settings.machine import CORES
from ga3c.settings.scheduler import Counts

BackendName = Literal["tensorflow", "jax"]
BACKEND: BackendName = "jax" if os.environ.get("KERAS_BACKEND") == "jax" else "tensorflow"

OF_SEGMENTS = {"t_max", "training_batch_min", "training_batch_max", "training_queue", "minibatch"}
OF_SEGMENTS |= {"passes", "training_wait_s", "pending_segments"}
"""Settings of the service that only learning from segments uses."""


@dataclass(frozen=True)
class ServiceConfig:
    """Agents, predictors, trainers and the queues between them."""

    agents: int = CORES
    """Agent processes (N_A) at the start. The default is the preset's: one per core for a3c on
    pictures, one per two cores for ppo on pictures, or one per core with a GPU."""
    predictors: int = 1
    """Predictor threads (N_P) at the start."""
    trainers: int = 1
    """Trainer threads (N_T) at the start."""
    max_agents: int | None = None
    """Maximum agent processes that the scheduler may try; None: the larger of agents and the number
    of cores. Unless --scheduler is off, memory for experience is allocated for this many agents.
    Policy lag grows with the number of agents."""
    max_predictors: int = 4
    """Maximum predictor threads that the scheduler may try."""
    max_trainers: int = 4
    """Maximum trainer threads that the scheduler may try."""
    envs_per_agent: int = 64
    """Environments in each agent process."""
    groups: int = 2
    """Groups of environments per agent: one group steps while the others wait for actions."""
    stagger_steps: int = 0
    """Atari only: cut the first game of each environment short after up to this many steps, so that
    environments are not all at the same point of a game of fixed length. A game that was cut does
    not count as an episode. 0: do not cut."""
    prediction_batch_min: int = 32
    """Minimum observations in a prediction, unless prediction_wait_s passes first."""
    prediction_batch_max: int = 128
    """Maximum observations in a prediction; a group is never split."""
    prediction_wait_s: float = 0.005
    """Longest wait for prediction_batch_min observations, in seconds."""
    t_max: int = 20
    """Steps per segment: the longest n-step return of an algorithm that learns from segments (a3c,
    ppo)."""
    training_batch_min: int = 80
    """Minimum samples in a training batch, unless training_wait_s passes first."""
    training_batch_max: int = 80
    """Maximum samples in a training batch."""
    passes: int = 1
    """Passes (epochs) over each training batch. Each takes its segments, or with ppo their single
    steps, in a new random order."""
    minibatch: int | None = None
    """Maximum samples per update: a pass over a larger training batch makes several updates. None:
    one update per pass. An algorithm that learns from whole segments takes at least one of them."""
    training_wait_s: float = 1.0
    """Longest wait for training_batch_min samples, in seconds."""
    training_queue: int = 320
    """Maximum samples waiting to be trained on. Predictors wait while there is no room."""
    pending_segments: int = 2
    """Maximum segments of one environment that are in progress or waiting to be trained on. This
    bounds policy lag and the size of the ring buffer."""
    experience: Literal["device", "host"] = "device"
    """Where observations are kept: on the device, or in RAM and sent to the device for each use."""
    backend: BackendName = BACKEND
    """The tensor framework. The default is KERAS_BACKEND, or tensorflow if installed."""
    transport: Literal["ipc", "tcp"] = "ipc"
    """How agents connect to the service: a socket in a private directory, or TCP on 127.0.0.1."""
    agent_timeout_s: float = 60.0
    """Replace an agent that takes this many seconds for a step. Must be above 0. While it creates
    its environments, it has another 0.5 s for each environment of a group."""
    intra_op_threads: int = 1
    """Threads of the tensor framework within one operation, from 1 to 1024."""
    synchronized: bool = False
    """Make one prediction for all environments once all have stepped (Synchronized Execution, Daley
    and Amato 2021). Needs --groups 1 --predictors 1 --scheduler off."""
    lockstep: bool = False
    """Alternate between predicting and training, so that the same seed gives the same weights.
    Needs --agents 1 --groups 1 --predictors 1 --trainers 1 --scheduler off --intra-op-threads 1."""

    def __post_init__(self) -> None:
        for name in ("agents", "predictors", "trainers"):
            count, most = getattr(self, name), getattr(self.most, name)
            if not 1 <= count <= most:
                rule = "at least 1" if count < 1 else f"at most max_{name} {most}"
                raise ValueError(f"{name} {count}: must be {rule}, or the run could not start")
        if self.groups < 1 or self.envs_per_agent % self.groups or self.envs_per_agent < 1:
            raise ValueError(
                f"envs_per_agent {self.envs_per_agent}: must be a multiple of groups "
                f"{self.groups}, so that all groups have the same size"
            )
        if self.t_max < 1:
            raise ValueError(f"t_max {self.t_max}: must be at least 1, or nothing is learned")
        if self.pending_segments < 2:
            raise ValueError(
                f"pending_segments {self.pending_segments}: must be at least 2, or a lane could "
                "not act while its last segment awaits training"
            )
        if self.prediction_batch_min > self.prediction_batch_max:
            raise ValueError(
                f"prediction_batch_min {self.prediction_batch_min} > prediction_batch_max "
                f"{self.prediction_batch_max}: no batch would ever be complete"
            )
        if self.passes < 1:
            raise ValueError(f"passes {self.passes}: must be at least 1, or nothing is learned")
        _check_limits(self)
        most_lanes = self.most.agents * self.envs_per_agent
        largest = self.largest_prediction(most_lanes)
        check_queue("prediction", most_lanes, self.prediction_min, largest)
        check_queue(
            "training", self.training_queue, self.training_batch_min, self.training_batch_max
        )

    @property
    def envs_per_group(self) -> int:
        """Environments of an agent that step together."""
        return self.envs_per_agent // self.groups

    @property
    def lanes(self) -> int:
        """Environments of all agents together, at the start."""
        return self.agents * self.envs_per_agent

    @property
    def training_min(self) -> int:
        """The smallest training batch worth waiting for: at most one segment of each environment.

        In lockstep, batches have exactly the configured size.
        """
        if self.lockstep:
            return self.training_batch_min
        return min(self.training_batch_min, self.lanes * self.t_max)

    @property
    def update_max(self) -> int:
        """Most samples in one update."""
        return self.training_batch_max if self.minibatch is None else self.minibatch

    @property
    def updates_per_batch(self) -> int:
        """Updates per full batch: one for each of its minibatches in each pass.

        Algorithms that learn from whole segments make more, of fewer segments, if these do not fill
        a minibatch exactly.
        """
        return self.passes * math.ceil(self.training_batch_max / self.update_max)

    @property
    def counts(self) -> Counts:
        """The counts at the start."""
        return Counts(self.agents, self.predictors, self.trainers)

    @property
    def most(self) -> Counts:
        """The largest counts that the run may have."""
        if self.lockstep and self.counts == (1, 1, 1):
            return self.counts
        most_agents = max(self.agents, CORES) if self.max_agents is None else self.max_agents
        return Counts(most_agents, self.max_predictors, self.max_trainers)

    @property
    def prediction_min(self) -> int:
        """The smallest prediction batch worth waiting for: at most one group of every agent."""
        if self.synchronized:
            return self.lanes
        return min(self.prediction_batch_min, self.lanes // self.groups)

    def largest_prediction(self, lanes: int) -> int:
        """The largest prediction batch of `lanes` environments: a group is never divided."""
        if self.synchronized:
            return self.prediction_min
        return max(min(self.prediction_batch_max, lanes), self.envs_per_group)


def _check_limits(service: ServiceConfig) -> None:
    check_counts(service.groups, service.envs_per_group)
    not_negative(service, "stagger_steps", "prediction_wait_s", "training_wait_s")
    check_count(service, "minibatch")
    if service.agent_timeout_s <= 0:
        raise ValueError(
            f"agent_timeout_s {service.agent_timeout_s}: must be above 0, or every agent would be "
            "killed before its first step"
        )
    check_threads(service.intra_op_threads)


@dataclass(frozen=True)
class HostsConfig:
    """Agents of this service on other machines (docs/machines.md)."""

    launcher: Literal["local", "ray"] = "local"
    """ray also starts agents on the other nodes of a Ray cluster, using all of their cores."""
    ray_address: str = "127.0.0.1:6379"
    """Address of the cluster's head node, with --launcher ray: HOST:PORT."""
    listen: str | None = None
    """Address on which to accept agents of other machines (ga3c agents): tcp://0.0.0.0:PORT. Needs
    --key and --allow, except with --launcher ray, which takes a free port if none is given."""
    key: Path | None = None
    """File with this service's secret key (ga3c keys); --launcher ray makes one for the run."""
    allow: tuple[Path, ...] = ()
    """Files with the public keys of machines that may join, as ga3c keys writes them; a file may
    hold several, one per line."""
    agents_here: int = CORES
    """Maximum agents on this machine if others may join; 0: none. The rest wait for a host."""
    compress: bool = True
    """Compress observations sent by other machines (zstd, level 1)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow", tuple(self.allow))  # JSON has no tuples
        not_negative(self, "agents_here")
        if self.listen is None:
            if self.key is not None or self.allow:
                raise ValueError("key and allow: are for --listen; without it nobody can join")
            return
        if not re.fullmatch(r"tcp://[^/\s]+:(\d{1,5}|\*)", self.listen):
            raise ValueError(
                f"listen {self.listen}: must be tcp://ADDRESS:PORT, such as tcp://0.0.0.0:5555"
            )
        if self.launcher == "local" and (self.key is None or not self.allow):
            raise ValueError(
                f"listen {self.listen}: needs --key and --allow, or anybody could join; ga3c keys "
                "makes keys"
            )

    @property
    def others_may_play(self) -> bool:
        """Whether agents may play on other machines."""
        return self.launcher != "local" or self.listen is not None
