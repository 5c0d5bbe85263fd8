"""Every setting of a run: checked once, here, and handed on in parts."""

import math
import os
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from agents.environments import EnvironmentConfig
from ga3c.scheduler import Counts, SchedulerConfig

NetworkName = Literal[
    "auto", "small", "large-4", "large-3", "large-2", "large-1", "nature", "mlp", "parr"
]

AlgorithmName = Literal["a3c", "dqn"]

PresetName = Literal["default", "paper", "dqn", "dueling", "in-gpu-replay", "fast-dqn"]

ProtocolName = Literal["paper", "nature", "machado"]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WrongInput(ValueError):
    """What the user asked for cannot be done; the message says why in one line."""


def _not_negative(config: object, *names: str) -> None:
    for name in names:
        if getattr(config, name) < 0:
            raise ValueError(f"{name} {getattr(config, name)}: must be at least 0")


def _check_share(config: object, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise ValueError(f"{name} {getattr(config, name)}: must be in [0, 1]")


def _check_count(config: object, name: str) -> None:
    if getattr(config, name) < 1:
        raise ValueError(f"{name} {getattr(config, name)}: must be at least 1")


def check_slack(slack_steps: int, largest_batch: int, steps_per_update: float) -> None:
    """Raises ValueError if acting and learning would wait for each other.

    Acting waits where a prediction would be more than the slack ahead of what has been learned;
    learning waits until it is a whole update's steps behind: at most ceil(x) - 1 if x is whole.
    """
    behind = steps_per_update - 1 if steps_per_update == int(steps_per_update) else steps_per_update
    if slack_steps < largest_batch + behind:
        raise ValueError(
            f"slack_steps {slack_steps} < {largest_batch + behind:g}: a prediction of "
            f"{largest_batch} steps would wait for an update, and the update for more steps of the "
            f"{steps_per_update:g} that it takes, forever"
        )


def check_file(name: str, path: Path | None) -> None:
    """Raises ValueError if a file that is wanted could not be written."""
    if path is None:
        return
    file = path.absolute()
    fits = os.access(file, os.W_OK) if file.is_file() else file.parent.is_dir()
    if file.is_dir() or not fits or not os.access(file.parent, os.W_OK):
        raise ValueError(f"{name} {path}: must be a file in a directory to write to")


def check_seed(seed: int) -> None:
    """Raises ValueError if random draws would not take it."""
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed {seed}: must be in [0, 2**31), as random draws take it")


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
    Experience is allocated for so many, and policy lag grows with them."""
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
    transport: Literal["ipc", "tcp"] = "ipc"
    """How agents reach the service: a socket in a private directory, or TCP on 127.0.0.1."""
    agent_timeout_s: float = 60.0
    """An agent that owes a step for so many seconds is replaced."""
    intra_op_threads: int = 1
    """Threads of the tensor framework within one operation."""
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
        _check_queue("prediction", self.max_lanes, self.prediction_min, self.prediction_max)
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
        """The largest prediction batch that can come about."""
        if self.synchronized:
            return self.prediction_min
        return min(self.prediction_batch_max, self.max_lanes)


def _check_queue(name: str, capacity: int, smallest: int, largest: int) -> None:
    if not 0 <= smallest <= largest <= capacity or largest < 1:
        raise ValueError(
            f"{name} queue of {capacity}, batches of at least {smallest} and at most {largest}: "
            "must be 0 <= min <= max <= queue, or no batch would ever be complete"
        )


@dataclass(frozen=True)
class LearningConfig:
    """What is learned, whatever the algorithm: the discounted sum of clipped rewards."""

    discount: float = 0.99
    """Discount per step (gamma)."""
    reward_clip: float = 1.0
    """Rewards are clipped to [-x, x] for learning; 0 leaves them as they are."""

    def __post_init__(self) -> None:
        _check_share(self, "discount")
        _not_negative(self, "reward_clip")


@dataclass(frozen=True)
class A3CConfig:
    """Advantage actor-critic (Mnih et al. 2016; Babaeizadeh et al. 2017)."""

    t_max: int = 20
    """Steps in a segment: the longest n-step return."""
    entropy_weight: float = 0.01
    """Weight of the policy's entropy in the loss (beta) at the start."""
    entropy_weight_end: float = 0.01
    """The same at the end of the schedule."""
    value_weight: float = 0.5
    """Weight of the squared error of the value in the loss."""
    trace_decay: float = 0.95
    """Lambda of the returns: 1 is the paper's n-step return, below it GAE's mixture."""
    correction: Literal["none", "vtrace"] = "vtrace"
    """Correction of policy lag: none (the paper) or V-trace (Espeholt et al. 2018)."""
    normalize_advantages: bool = False
    """Give each batch's advantages mean 0 and deviation 1, as PPO does (Schulman et al. 2017).
    Small batches without a reward then teach their noise as loudly as the others their signal."""
    log_epsilon: float = 1e-6
    """Added to probabilities within logarithms (GA3C, section 5.4)."""

    def __post_init__(self) -> None:
        weights = ("entropy_weight", "entropy_weight_end", "value_weight")
        _not_negative(self, *weights, "log_epsilon")
        if self.t_max < 1:
            raise ValueError(f"t_max {self.t_max}: must be at least 1, or nothing is learned")
        _check_share(self, "trace_decay")


@dataclass(frozen=True)
class DQNConfig:
    """Q-learning from a replay (Mnih et al. 2015) and what has been added to it since."""

    n_step: int = 3
    """Steps of a return before it bootstraps (Sutton 1988): 1 is the original."""
    double: bool = True
    """The newest weights choose the action whose value the target's weights tell (van Hasselt et
    al. 2016)."""
    dueling: bool = False
    """The value of a state and the advantages of its actions are told apart (Wang et al. 2016)."""
    huber_delta: float = 1.0
    """Errors beyond this count linearly; 0 squares them all."""
    batch_size: int = 32
    """Transitions of an update."""
    target_period: int = 500
    """Updates between copies of the weights to the target's. --pacing target-period copies them
    where acting and learning meet, and not by this."""
    epsilon_start: float = 1.0
    """Share of actions drawn evenly until learning begins."""
    epsilon_end: float = 0.01
    """The same after epsilon_steps more, reached linearly."""
    epsilon_steps: int = 100_000
    """Environment steps from the one to the other."""

    def __post_init__(self) -> None:
        for name in ("n_step", "batch_size", "target_period", "epsilon_steps"):
            _check_count(self, name)
        _not_negative(self, "huber_delta")
        _check_share(self, "epsilon_start", "epsilon_end")


@dataclass(frozen=True)
class ReplayConfig:
    """What learning draws from. It lives where --experience says."""

    replay_steps: int = 200_000
    """Newest steps of all environments that are kept and drawn from."""
    replay_min_steps: int = 10_000
    """Steps that are played before learning begins."""
    replay_draws: Literal["uniform", "prioritised"] = "uniform"
    """prioritised draws a step in proportion to its last error (Schaul et al. 2016)."""
    replay_repeats: bool = True
    """A batch may hold a step more than once."""
    priority_exponent: float = 0.6
    """Alpha: how much the error counts; 0 draws uniformly."""
    importance_exponent: float = 0.4
    """Beta: how far weights make up for that at the start."""
    importance_exponent_end: float = 1.0
    """The same at the end of the schedule."""
    update_size: int = 1000
    """New steps wait until they are so many, and can then be drawn."""
    save_replay: bool = False
    """Keep the replay in every checkpoint. Else a resumed run plays replay_min_steps first, as it
    has learned to, before it learns on."""

    def __post_init__(self) -> None:
        for name in ("replay_steps", "replay_min_steps", "update_size"):
            _check_count(self, name)
        _not_negative(self, "priority_exponent", "importance_exponent", "importance_exponent_end")
        if self.replay_min_steps > self.replay_steps:
            raise ValueError(
                f"replay_min_steps {self.replay_min_steps} > replay_steps {self.replay_steps}: "
                "learning would never begin"
            )
        if self.update_size > self.replay_min_steps:
            raise ValueError(
                f"update_size {self.update_size} > replay_min_steps {self.replay_min_steps}: "
                "there would be nothing to draw when learning begins"
            )


@dataclass(frozen=True)
class PacingConfig:
    """Who waits for whom, where learning draws from a replay."""

    pacing: Literal["ratio", "target-period"] = "ratio"
    """ratio: an update every steps_per_update steps, either side waits. target-period: acting uses
    the target's weights, which change each period_steps steps, while learning makes that period's
    updates; then they meet (Concurrent Training, Daley and Amato 2021)."""
    steps_per_update: float = 4.0
    """Environment steps for each update."""
    slack_steps: int = 256
    """Steps that acting may be ahead of learning, with --pacing ratio."""
    period_steps: int = 10_000
    """Steps between two meetings, with --pacing target-period."""

    def __post_init__(self) -> None:
        for name in ("slack_steps", "period_steps"):
            _check_count(self, name)
        if self.steps_per_update <= 0:
            raise ValueError(
                f"steps_per_update {self.steps_per_update}: must be above 0, or acting would wait "
                "forever"
            )
        if self.period_steps < self.steps_per_update:
            raise ValueError(
                f"period_steps {self.period_steps} < steps_per_update {self.steps_per_update:g}: "
                "no period would have an update"
            )

    @property
    def updates_per_period(self) -> int:
        """Updates between two meetings."""
        return int(self.period_steps / self.steps_per_update)


@dataclass(frozen=True)
class NetworkConfig:
    """What lies between the observation and the heads."""

    network: NetworkName = "auto"
    """Torso: auto is small for pictures and mlp for vectors; parr is for vectors as well."""
    padding: Literal["same", "valid"] = "valid"
    """Edges of convolutions: same is the published code's, valid costs less."""
    center: bool = True
    """Subtract a picture's mean from it. An even background is then nothing, and not something
    that moves all units together: Adam's first steps would leave few that are ever active."""
    initializer: Literal["orthogonal", "fan-in"] = "orthogonal"
    """First weights: fan-in is the published code's uniform distribution."""

    def __post_init__(self) -> None:
        if self.network not in get_args(NetworkName):
            raise ValueError(
                f"network {self.network!r}: must be one of {', '.join(get_args(NetworkName))}"
            )


@dataclass(frozen=True)
class OptimizerConfig:
    """How gradients become steps."""

    optimizer: Literal["rmsprop", "adam"] = "adam"
    """Optimizer: rmsprop is the paper's, not centred, epsilon within the root."""
    learning_rate: float = 7e-4
    """Step size at the start."""
    learning_rate_end: float = 0.0
    """Step size at the end of the schedule, reached linearly."""
    schedule_steps: int = 10_000_000
    """Environment steps over which schedules run; afterwards their end holds."""
    rms_decay: float = 0.99
    """RMSProp's decay of the mean square."""
    rms_centered: bool = False
    """RMSProp divides by the deviation of gradients, not by their mean square."""
    momentum: float = 0.0
    """RMSProp's momentum."""
    rms_start: float = 0.0
    """RMSProp's mean square before the first update: 1 is TensorFlow 1's, which GA3C used."""
    optimizer_epsilon: float = 1e-5
    """Added to the mean square (rmsprop) or to its root (adam)."""
    clip_norm: float = 40.0
    """Largest global norm of a batch's summed gradient; 0 does not clip."""

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate {self.learning_rate}: must be above 0 to learn")
        _not_negative(self, "learning_rate_end", "rms_start", "optimizer_epsilon", "clip_norm")
        for name in ("rms_decay", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"{name} {getattr(self, name)}: must be in [0, 1), or it never adapts"
                )
        if self.schedule_steps < 1:
            raise ValueError(f"schedule_steps {self.schedule_steps}: must be at least 1")


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

    def __post_init__(self) -> None:
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise ValueError(f"evaluate_every {self.evaluate_every}: must be at least 1 step")
        if self.evaluate_episodes < 1:
            raise ValueError(f"evaluate_episodes {self.evaluate_episodes}: must be at least 1")


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
    preset: PresetName = "default"
    """default is ours, for each algorithm. As published are: paper (GA3C), dqn (Mnih et al. 2015),
    dueling (Wang et al. 2016), in-gpu-replay (Parr 2018), fast-dqn (Daley and Amato 2021)."""
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
        _check_finite(self)
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
    def replay_window(self) -> int:
        """Steps of each environment that can be drawn."""
        return -(-self.replay.replay_steps // self.service.max_lanes)

    @property
    def replay_reserve(self) -> int:
        """Further steps of each environment, for those that wait until they can be drawn."""
        pacing, lanes = self.pacing, self.service.agents * self.service.envs_per_agent
        if pacing.pacing == "target-period":
            return 2 * -(-pacing.period_steps // lanes) + 1
        return -(-(2 * self.replay.update_size + pacing.slack_steps) // lanes) + 1


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
    smallest = 2 * service.max_lanes * (config.dqn.n_step + 1)
    for name in ("replay_steps", "replay_min_steps"):
        if getattr(replay, name) < smallest:
            raise ValueError(
                f"{name} {getattr(replay, name)} < {smallest}, twice {config.dqn.n_step + 1} steps "
                f"of {service.max_lanes} environments: there would be nothing to draw"
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


def _check_finite(part: Any) -> None:
    for each in fields(part):
        value = getattr(part, each.name)
        if is_dataclass(value):
            _check_finite(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{each.name} {value}: must be a finite number")
