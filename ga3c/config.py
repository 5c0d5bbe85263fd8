"""Every setting of a run: checked once, here, and handed on in parts."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from agents.environments import EnvironmentConfig
from agents.messages import MAX_COUNT
from ga3c.checks import (
    WrongInput,
    check_count,
    check_file,
    check_finite,
    check_queue,
    check_seed,
    check_slack,
    check_threads,
    not_negative,
)
from ga3c.cores import available_cores
from ga3c.preset_names import preset_lines
from ga3c.scheduler import Counts, SchedulerConfig
from ga3c.settings import (
    A3CConfig,
    DQNConfig,
    LearningConfig,
    NetworkConfig,
    NetworkName,
    OptimizerConfig,
    PacingConfig,
    ReplayConfig,
)

__all__ = [
    "A3CConfig",
    "CheckpointConfig",
    "DQNConfig",
    "EvaluationConfig",
    "LearningConfig",
    "NetworkConfig",
    "NetworkName",
    "OptimizerConfig",
    "PacingConfig",
    "ReplayConfig",
    "RunConfig",
    "ServiceConfig",
    "TrainConfig",
    "WrongInput",
    "check_file",
    "check_seed",
]

AlgorithmName = Literal["a3c", "dqn"]

BackendName = Literal["tensorflow", "jax"]
BACKEND: BackendName = "jax" if os.environ.get("KERAS_BACKEND") == "jax" else "tensorflow"

PresetName = Literal[
    "default",
    "a3c-pictures",
    "a3c-vectors",
    "dqn-pictures",
    "dqn-vectors",
    "paper",
    "dqn",
    "dueling",
    "in-gpu-replay",
    "fast-dqn",
]

PRESET_HELP = f"Settings to begin with, ours or as published:\n{preset_lines()}\n"

ProtocolName = Literal["paper", "nature", "machado"]
STEP_CAP = 100_000  # of an evaluation's game, unless another is asked for

CORES = available_cores()


@dataclass(frozen=True)
class ServiceConfig:
    """Agents, predictors, trainers and what lies between them."""

    agents: int = CORES
    """Agent processes (N_A) at the start; the default is the number of cores."""
    predictors: int = 1
    """Predictor threads (N_P) at the start."""
    trainers: int = 1
    """Trainer threads (N_T) at the start."""
    max_agents: int | None = None
    """Most agent processes that the scheduler may try; None: as many as cores, or as agents.
    Unless it is off, experience is allocated for so many. Policy lag grows with them."""
    max_predictors: int = 4
    """Most predictor threads that the scheduler may try."""
    max_trainers: int = 4
    """Most trainer threads that the scheduler may try."""
    envs_per_agent: int = 64
    """Environments that an agent process steps."""
    groups: int = 2
    """Groups of an agent's environments: one steps while the others wait for their actions."""
    prediction_batch_min: int = 32
    """Observations that a predictor waits for, for at most prediction_wait_s."""
    prediction_batch_max: int = 128
    """Most observations in one prediction."""
    prediction_wait_s: float = 0.005
    """Longest wait for the smallest prediction batch, in seconds."""
    training_batch_min: int = 80
    """Samples that a trainer waits for, for at most training_wait_s."""
    training_batch_max: int = 80
    """Most samples in one update."""
    training_wait_s: float = 1.0
    """Longest wait for the smallest training batch, in seconds."""
    training_queue: int = 320
    """Samples that may await training; predictors wait where there would be more."""
    pending_segments: int = 2
    """Segments of a lane that may be filled or await training: bounds policy lag and the ring."""
    experience: Literal["device", "host"] = "device"
    """Where observations live: on the device, or in RAM and sent anew for each use."""
    backend: BackendName = BACKEND
    """The tensor framework; the default is KERAS_BACKEND's, or tensorflow if it is installed."""
    transport: Literal["ipc", "tcp"] = "ipc"
    """How agents reach the service: a socket in a private directory, or TCP on 127.0.0.1."""
    agent_timeout_s: float = 60.0
    """An agent that owes a step for so many seconds is replaced: above 0."""
    intra_op_threads: int = 1
    """Threads of the tensor framework within one operation: from 1 to 1024."""
    synchronized: bool = False
    """Predict once for all environments, when all have stepped (Synchronized Execution, Daley and
    Amato 2021). Needs --groups 1 --predictors 1 --scheduler off."""
    lockstep: bool = False
    """Predict and train in turn, so that a seed gives the same weights each time. Needs --agents 1
    --groups 1 --predictors 1 --trainers 1 --scheduler off --intra-op-threads 1."""

    def __post_init__(self) -> None:
        for name in ("agents", "predictors", "trainers"):
            count, most = getattr(self, name), getattr(self.most, name)
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
        if self.prediction_batch_min > self.prediction_batch_max:
            raise ValueError(
                f"prediction_batch_min {self.prediction_batch_min} > prediction_batch_max "
                f"{self.prediction_batch_max}: no batch would ever be complete"
            )
        _check_limits(self)
        check_queue("prediction", self.max_lanes, self.prediction_min, self.prediction_max)
        check_queue(
            "training", self.training_queue, self.training_batch_min, self.training_batch_max
        )

    @property
    def counts(self) -> Counts:
        """The counts at the start."""
        return Counts(self.agents, self.predictors, self.trainers)

    @property
    def most(self) -> Counts:
        """The largest counts."""
        if self.lockstep and self.counts == (1, 1, 1):
            return self.counts
        most_agents = max(self.agents, CORES) if self.max_agents is None else self.max_agents
        return Counts(most_agents, self.max_predictors, self.max_trainers)

    @property
    def max_lanes(self) -> int:
        """Environments of all agents that there may be."""
        return self.most.agents * self.envs_per_agent

    @property
    def prediction_min(self) -> int:
        """The smallest prediction batch worth waiting for: at most one group of every agent."""
        if self.synchronized:
            return self.agents * self.envs_per_agent
        return min(self.prediction_batch_min, self.agents * self.envs_per_agent // self.groups)

    @property
    def prediction_max(self) -> int:
        """The largest prediction batch that can come about: a group is never divided."""
        if self.synchronized:
            return self.prediction_min
        group = self.envs_per_agent // self.groups
        return max(min(self.prediction_batch_max, self.max_lanes), group)


@dataclass(frozen=True)
class CheckpointConfig:
    """What a run keeps of itself, to go on from (--resume) and to evaluate."""

    checkpoint_every_s: float = 300.0
    """Seconds between checkpoints; there is one more at the end."""
    checkpoint_every_steps: int | None = None
    """Environment steps between checkpoints, besides."""
    keep_checkpoints: int = 3
    """Newest checkpoints that are kept."""
    milestone_steps: int | None = None
    """The first checkpoint beyond each multiple of so many steps is kept for good."""

    def __post_init__(self) -> None:
        for name in ("checkpoint_every_s", "checkpoint_every_steps", "milestone_steps"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} {value}: must be above 0")
        if self.keep_checkpoints < 2:
            raise ValueError(
                f"keep_checkpoints {self.keep_checkpoints}: must be at least 2, or there would be "
                "none to go back to if the newest is damaged"
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation while the run goes on, in environments of its own; the best weights are kept."""

    evaluate_every: int | None = None
    """Environment steps between evaluations; None: there is none."""
    evaluate_episodes: int = 10
    """Games of an evaluation."""
    evaluate_protocol: ProtocolName = "paper"
    """How they are played: see ga3c evaluate --help."""
    evaluate_step_cap: int = STEP_CAP
    """Environment steps after which a game is cut short: it counts with its score so far."""

    def __post_init__(self) -> None:
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise ValueError(f"evaluate_every {self.evaluate_every}: must be at least 1 step")
        for name in ("evaluate_episodes", "evaluate_step_cap"):
            check_count(self, name)


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
    plain: bool = False
    """Print lines also where a terminal could show a live view."""
    progress_every_s: float = 5.0
    """Seconds between progress lines."""
    trace: Path | None = None
    """File for a trace of the newest events, for ui.perfetto.dev: who does what, and when."""
    resume: Path | None = None
    """Go on with this run, by its directory or its name there, from its newest checkpoint. Its
    settings hold; every other argument changes one of them, such as a larger --steps."""
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
        check_file("trace", self.trace)
        check_seed(self.seed)


@dataclass(frozen=True)
class TrainConfig:
    """Train an agent.

    The settings of --preset come first; every other argument changes one of them.
    """

    algorithm: AlgorithmName = "a3c"
    """a3c learns from what is played, in order; dqn from a replay of it."""
    preset: Annotated[
        PresetName,
        tyro.conf.arg(help=PRESET_HELP),
    ] = "default"
    run: RunConfig = field(default_factory=RunConfig)
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    service: ServiceConfig = field(default_factory=ServiceConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)
    a3c: A3CConfig = field(default_factory=A3CConfig)
    dqn: DQNConfig = field(default_factory=DQNConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    pacing: PacingConfig = field(default_factory=PacingConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        check_finite(self)
        if self.service.lockstep:
            _check_lockstep(self)
        if self.service.synchronized:
            _check_synchronized(self)
        if self.learns_from_replay:
            _check_replay(self)
        else:
            _check_segments(self)

    @property
    def learns_from_replay(self) -> bool:
        """Whether transitions are drawn, and not trained once in the order they were played."""
        return self.algorithm != "a3c"

    @property
    def scheduled_optimizer(self) -> OptimizerConfig:
        """The optimizer's settings with the schedule of this run."""
        return self.optimizer.scheduled(self.run.steps)

    @property
    def max_lanes(self) -> int:
        """Environments that there may be: experience has room for so many."""
        if self.scheduler.scheduler == "off":
            return self.service.agents * self.service.envs_per_agent
        return self.service.max_lanes

    @property
    def replay_window(self) -> int:
        """Steps of each environment that can be drawn."""
        return -(-self.replay.replay_steps // self.max_lanes)

    @property
    def replay_reserve(self) -> int:
        """Further steps of each environment, for those that wait until they can be drawn."""
        pacing, lanes = self.pacing, self.service.agents * self.service.envs_per_agent
        if pacing.pacing == "target-period":
            return 2 * -(-pacing.period_steps // lanes) + 1
        return -(-(2 * self.replay.update_size + pacing.slack_steps) // lanes) + 1


def _check_limits(service: ServiceConfig) -> None:
    groups, envs = service.groups, service.envs_per_agent
    if max(groups, envs // groups) > MAX_COUNT:
        raise ValueError(
            f"envs_per_agent {envs} in groups {groups}: must be at most {MAX_COUNT} groups of at "
            f"most {MAX_COUNT} environments, or no message could name them"
        )
    not_negative(service, "prediction_wait_s", "training_wait_s")
    if service.agent_timeout_s <= 0:
        raise ValueError(
            f"agent_timeout_s {service.agent_timeout_s}: must be above 0, or every agent would be "
            "killed before its first step"
        )
    check_threads(service.intra_op_threads)


def _check_segments(config: TrainConfig) -> None:
    service, t_max = config.service, config.a3c.t_max
    if t_max > service.training_batch_max:
        raise ValueError(
            f"t_max {t_max} > training_batch_max {service.training_batch_max}: no segment would "
            "fit a batch"
        )
    whole = service.training_queue // t_max * t_max
    if whole < service.training_batch_min:
        raise ValueError(
            f"training_queue {service.training_queue} holds {whole} samples in whole segments of "
            f"t_max {t_max} < training_batch_min {service.training_batch_min}: every batch would "
            "wait training_wait_s"
        )


def _check_replay(config: TrainConfig) -> None:
    service, replay, pacing = config.service, config.replay, config.pacing
    if service.lockstep:
        raise ValueError(
            f"lockstep with algorithm {config.algorithm}: is of a3c; --synchronized --pacing "
            "target-period gives the same weights each time"
        )
    if config.run.steps is not None and config.run.steps <= replay.replay_min_steps:
        raise ValueError(
            f"steps {config.run.steps} <= replay_min_steps {replay.replay_min_steps}: the run "
            "would end before its first update; give more --steps or a smaller --replay-min-steps"
        )
    smallest = 2 * config.max_lanes * (config.dqn.n_step + 1)
    for name in ("replay_steps", "replay_min_steps"):
        if getattr(replay, name) < smallest:
            raise ValueError(
                f"{name} {getattr(replay, name)} < {smallest}, twice {config.dqn.n_step + 1} steps "
                f"of {config.max_lanes} environments: there would be nothing to draw"
            )
    if pacing.pacing == "ratio":
        check_slack(pacing.slack_steps, service.prediction_max, pacing.steps_per_update)


def _check_synchronized(config: TrainConfig) -> None:
    service = config.service
    given = {"groups": service.groups, "predictors": service.predictors}
    wrong = [f"{name} {count}" for name, count in given.items() if count != 1]
    if config.scheduler.scheduler != "off":
        wrong.append(f"scheduler {config.scheduler.scheduler}")
    if wrong:
        raise ValueError(
            f"synchronized with {', '.join(wrong)}: needs groups 1, predictors 1 and scheduler "
            "off, or predictions would never be of all environments at once"
        )


def _check_lockstep(config: TrainConfig) -> None:
    service = config.service
    given = {
        "agents": service.agents,
        "groups": service.groups,
        "predictors": service.predictors,
        "trainers": service.trainers,
        "intra_op_threads": service.intra_op_threads,
    }
    wrong = [f"{name} {count}" for name, count in given.items() if count != 1]
    if wrong or config.scheduler.scheduler != "off":
        raise ValueError(
            f"lockstep with {', '.join(wrong) or 'scheduler ' + config.scheduler.scheduler}: needs "
            f"one of each of {', '.join(given)}, and scheduler off, or its order would change"
        )
    smallest, largest, t_max = (
        service.training_batch_min,
        service.training_batch_max,
        config.a3c.t_max,
    )
    if smallest != largest or largest % t_max:
        raise ValueError(
            f"lockstep with training batches of {smallest} to {largest}: must be of one size, a "
            f"multiple of t_max {t_max}, or they would depend on time"
        )
    most = service.envs_per_agent * service.pending_segments * t_max
    if most < largest:
        raise ValueError(
            f"lockstep with training batches of {largest} samples: {service.envs_per_agent} "
            f"environments with {service.pending_segments} pending segments of t_max {t_max} make "
            f"{most} before they wait for an update: it would never come"
        )
