"""Every setting of a run: checked once, here, and handed on in parts."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from agents.environments import EnvironmentConfig
from ga3c.algorithms.a3c import A3CConfig
from ga3c.model import OptimizerConfig
from ga3c.networks import NetworkConfig
from ga3c.scheduler import Counts, SchedulerConfig

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class ServiceConfig:
    """Agents, predictors, trainers and what lies between them."""

    agents: int = CORES
    """Agent processes (N_A) at the start; the default is the number of cores."""
    predictors: int = 1
    """Predictor threads (N_P) at the start."""
    trainers: int = 1
    """Trainer threads (N_T) at the start."""
    max_agents: int = 2 * CORES
    """Most agent processes that the scheduler may try; experience is allocated for so many."""
    max_predictors: int = 4
    """Most predictor threads that the scheduler may try."""
    max_trainers: int = 4
    """Most trainer threads that the scheduler may try."""
    envs_per_agent: int = 32
    """Environments that an agent process steps."""
    groups: int = 2
    """Groups of an agent's environments: one steps while the others wait for their actions."""
    prediction_batch_min: int = 1
    """Observations that a predictor waits for, for at most prediction_wait_s."""
    prediction_batch_max: int = 128
    """Most observations in one prediction."""
    prediction_wait_s: float = 0.005
    """Longest wait for the smallest prediction batch, in seconds."""
    training_batch_min: int = 160
    """Samples that a trainer waits for, for at most training_wait_s."""
    training_batch_max: int = 160
    """Most samples in one update."""
    training_wait_s: float = 1.0
    """Longest wait for the smallest training batch, in seconds."""
    training_queue: int = 640
    """Samples that may await training; predictors wait where there would be more."""
    pending_segments: int = 2
    """Segments of a lane that may be filled or await training: bounds policy lag and the ring."""
    experience: Literal["device", "host"] = "device"
    """Where observations live: on the device, or in RAM and sent anew for each use."""
    transport: Literal["ipc", "tcp"] = "ipc"
    """How agents reach the service: a socket in a private directory, or TCP on 127.0.0.1."""
    agent_timeout_s: float = 60.0
    """An agent that owes a step for so many seconds is replaced."""
    intra_op_threads: int = 1
    """Threads of the tensor framework within one operation."""

    def __post_init__(self) -> None:
        for name in ("agents", "predictors", "trainers"):
            count, most = getattr(self, name), getattr(self, f"max_{name}")
            if not 1 <= count <= most:
                raise ValueError(
                    f"{name} {count}: must be between 1 and max_{name} {most}, "
                    "or there is no run to begin with"
                )
        if self.groups < 1 or self.envs_per_agent % self.groups or self.envs_per_agent < 1:
            raise ValueError(
                f"envs_per_agent {self.envs_per_agent}: must be a multiple of groups "
                f"{self.groups}, so that all groups are alike"
            )
        if self.pending_segments < 2:
            raise ValueError(
                f"pending_segments {self.pending_segments}: must be at least 2, or a lane could "
                "not act while its last segment awaits training"
            )
        _check_queue("prediction", self.max_lanes, self.prediction_batch_min, self.prediction_max)
        _check_queue(
            "training", self.training_queue, self.training_batch_min, self.training_batch_max
        )

    @property
    def counts(self) -> Counts:
        """The counts at the start."""
        return Counts(self.agents, self.predictors, self.trainers)

    @property
    def most(self) -> Counts:
        """The largest counts."""
        return Counts(self.max_agents, self.max_predictors, self.max_trainers)

    @property
    def max_lanes(self) -> int:
        """Environments of all agents that there may be."""
        return self.max_agents * self.envs_per_agent

    @property
    def prediction_max(self) -> int:
        """The largest prediction batch that can come about."""
        return min(self.prediction_batch_max, self.max_lanes)


def _check_queue(name: str, capacity: int, smallest: int, largest: int) -> None:
    if not 0 <= smallest <= largest <= capacity or largest < 1:
        raise ValueError(
            f"{name} queue of {capacity}, batches of at least {smallest} and at most {largest}: "
            "must be 0 <= min <= max <= queue, or no batch would ever be complete"
        )


@dataclass(frozen=True)
class RunConfig:
    """When a run ends, and what it leaves."""

    steps: int | None = None
    """Stop after so many environment steps (not frames)."""
    seconds: float | None = None
    """Stop after so many seconds."""
    score: float | None = None
    """Stop when the mean score of the last 100 training episodes reaches this."""
    seed: int = 0
    """Seed of environments, first weights and actions."""
    json: bool = False
    """Print the run's figures as one JSON object in the last line."""
    progress_every_s: float = 5.0
    """Seconds between progress lines."""
    runs_dir: Path = Path("runs")
    """Where run directories are made."""
    name: str | None = None
    """Name of the run directory; the default is {game}__{algorithm}__{seed}__{time}."""

    def __post_init__(self) -> None:
        for name in ("steps", "seconds"):
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                raise ValueError(f"{name} {limit}: must be above 0, or the run would end at once")
        if self.progress_every_s <= 0:
            raise ValueError(f"progress_every_s {self.progress_every_s}: must be above 0")
        if self.seed < 0:
            raise ValueError(f"seed {self.seed}: must be at least 0")


@dataclass(frozen=True)
class TrainConfig:
    """Train an agent.

    The settings of --preset come first; every other argument changes one of them.
    """

    preset: Literal["default", "paper"] = "default"
    """default learns fastest here; paper is GA3C as published."""
    run: RunConfig = field(default_factory=RunConfig)
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    service: ServiceConfig = field(default_factory=ServiceConfig)
    a3c: A3CConfig = field(default_factory=A3CConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)

    def __post_init__(self) -> None:
        if self.a3c.t_max > self.service.training_batch_max:
            raise ValueError(
                f"t_max {self.a3c.t_max} > training_batch_max {self.service.training_batch_max}: "
                "no segment would fit a batch"
            )


PRESETS: dict[str, TrainConfig] = {
    "default": TrainConfig(),
    "paper": TrainConfig(
        preset="paper",
        environment=EnvironmentConfig(life_loss_terminates=False),
        service=ServiceConfig(
            agents=32,
            max_agents=64,
            predictors=2,
            trainers=2,
            max_predictors=16,
            max_trainers=16,
            envs_per_agent=1,
            groups=1,
            training_batch_min=0,
            training_batch_max=40,
            training_queue=500,
        ),
        a3c=A3CConfig(t_max=5, correction="none"),
        network=NetworkConfig(network="auto", padding="same", initializer="fan-in"),
        optimizer=OptimizerConfig(
            learning_rate=3e-4, learning_rate_end=3e-4, optimizer_epsilon=0.1, clip_norm=0.0
        ),
    ),
}


def parse(arguments: list[str]) -> TrainConfig:
    """The configuration that the command line asks for.

    Raises:
        SystemExit: for --help, or (code 2) after one line about wrong arguments.
    """
    chosen = _preset_of(arguments)
    kind: Any = Annotated[TrainConfig, tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes]
    return tyro.cli(kind, prog="ga3c train", args=arguments, default=PRESETS[chosen])


def _preset_of(arguments: list[str]) -> str:
    """The value of --preset, which decides all other defaults; unknown ones are left to tyro."""
    for here, following in zip(arguments, [*arguments[1:], ""], strict=True):
        value = following if here == "--preset" else here.removeprefix("--preset=")
        if here.startswith("--preset") and value in PRESETS:
            return value
    return "default"
