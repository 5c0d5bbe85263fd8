"""All settings of a run. They are checked once, here; each part of the system gets only its own."""

from dataclasses import dataclass, field
from typing import Annotated, get_args

import tyro

from agents.environments import EnvironmentConfig
from agents.spelling import meant
from ga3c.settings.checks import check_finite, check_slack, is_own
from ga3c.settings.choices import TRAITS, LearnsFrom, PresetName, learns_from, preset_lines
from ga3c.settings.learning import (
    A3CConfig,
    DPGConfig,
    DQNConfig,
    LearningConfig,
    NetworkConfig,
    OptimizerConfig,
    PPOConfig,
)
from ga3c.settings.replay import PacingConfig, ReplayConfig
from ga3c.settings.run import CheckpointConfig, EvaluationConfig, RunConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import HostsConfig, ServiceConfig

FAMILIES = get_args(LearnsFrom)
PRESET_HELP = f"Settings to start from, ours or published ones:\n{preset_lines()}\n"


@dataclass(frozen=True)
class TrainConfig:
    """Train an agent.

    The run starts from the settings of --preset; every other argument overrides one of them.
    """

    algorithm: str = "a3c"
    """a3c and ppo learn from segments, in the order they were played; dqn, and dpg for continuous
    actions, from a replay. The default is dpg for continuous actions with vector observations, and
    ppo for everything else. Or your own, as module:name of a class, or as
    module:name(key=value) to pass arguments (docs/extending.md)."""
    learns_from: LearnsFrom | None = None
    """What your own algorithm learns from: segments, in the order they were played, or a replay.
    Not needed for a3c, ppo, dqn and dpg."""
    preset: Annotated[PresetName, tyro.conf.arg(help=PRESET_HELP)] = "default"
    run: RunConfig = field(default_factory=RunConfig)
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    service: ServiceConfig = field(default_factory=ServiceConfig)
    hosts: HostsConfig = field(default_factory=HostsConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)
    a3c: A3CConfig = field(default_factory=A3CConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    dqn: DQNConfig = field(default_factory=DQNConfig)
    dpg: DPGConfig = field(default_factory=DPGConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    pacing: PacingConfig = field(default_factory=PacingConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        ours = TRAITS.get(self.algorithm)
        if ours is None and not is_own(self.algorithm):
            raise ValueError(
                f"algorithm {self.algorithm!r}: {meant(self.algorithm, TRAITS)}must be "
                f"{' or '.join(TRAITS)}, or module:name "
                "of your own"
            )
        if ours is None and self.learns_from not in FAMILIES:
            raise ValueError(
                f"algorithm {self.algorithm} of your own: --learns-from {' or '.join(FAMILIES)} "
                "must say what it learns from"
            )
        if ours and self.learns_from not in (None, ours.learns_from):
            raise ValueError(f"algorithm {self.algorithm}: learns from {ours.learns_from}")
        check_finite(self)
        if self.service.lockstep:
            _check_lockstep(self)
        if self.service.synchronized:
            _check_synchronized(self)
        (_check_replay if self.learns_from_replay else _check_segments)(self)

    @property
    def learns_from_replay(self) -> bool:
        """Whether learning draws transitions from a replay, not each segment once in order."""
        return learns_from(self.algorithm, self.learns_from) == "replay"

    @property
    def seeds_games(self) -> bool:
        """Whether environments are seeded: Atari games only where that matters."""
        service = self.service  # a seed makes ALE load each ROM a second time
        return service.lockstep or service.synchronized or self.environment.needs_seeds

    @property
    def update_samples(self) -> int:
        """The largest number of samples in one update."""
        return self.replay.batch_size if self.learns_from_replay else self.service.update_max

    @property
    def scheduled_optimizer(self) -> OptimizerConfig:
        """The optimizer's settings with the schedule of this run."""
        return self.optimizer.scheduled(self.run.steps)

    @property
    def has_ladder(self) -> bool:
        """Whether each environment has its own constant share of random actions."""
        return self.algorithm == "dqn" and self.dqn.exploration == "ladder"

    @property
    def most_agents(self) -> int:
        """The most agents that the run may have."""
        service = self.service
        return service.agents if self.scheduler.scheduler == "off" else service.most.agents

    @property
    def max_lanes(self) -> int:
        """The most environments that the run may have; experience has room for this many."""
        return self.most_agents * self.service.envs_per_agent

    @property
    def replay_room(self) -> int:
        """The most steps that the replay can draw from."""
        if self.replay.eviction == "priority":
            return self.replay.replay_steps
        return self.max_lanes * -(-self.replay.replay_steps // self.max_lanes)

    def replay_window(self, stack: int) -> int:
        """Steps of each environment that stay in the ring at a flush.

        They are all the steps that can be drawn. With --eviction priority, they are instead those
        that the transitions of the steps since the last flush are built from.
        """
        if self.replay.eviction == "priority":
            return self.replay_reserve + self.replay.n_step + stack
        return self.replay_room // self.max_lanes

    @property
    def replay_reserve(self) -> int:
        """Extra room per environment, in steps, which holds new steps until they can be drawn."""
        pacing, lanes = self.pacing, self.service.lanes
        if pacing.pacing == "target-period":
            return 2 * -(-pacing.period_steps // lanes) + 1
        if pacing.pacing == "free":  # acting goes on during an update and a flush
            return -(-4 * self.replay.update_size // lanes) + 1
        return -(-(2 * self.replay.update_size + pacing.slack_steps) // lanes) + 1


def _check_segments(config: TrainConfig) -> None:
    service, t_max = config.service, config.service.t_max
    whole = config.algorithm == "a3c"  # updates of ppo, and of some others, split segments
    name = "minibatch" if whole and service.minibatch is not None else "training_batch_max"
    if t_max > (largest := getattr(service, name)):
        raise ValueError(f"t_max {t_max} > {name} {largest}: no segment would fit an update")
    held = service.training_queue // t_max * t_max
    if held < service.training_batch_min:
        raise ValueError(
            f"training_queue {service.training_queue} holds {held} samples in whole segments of "
            f"t_max {t_max} < training_batch_min {service.training_batch_min}: every batch would "
            "wait training_wait_s"
        )


def _check_replay(config: TrainConfig) -> None:
    service, replay, pacing, lanes = config.service, config.replay, config.pacing, config.max_lanes
    if config.run.steps is not None and config.run.steps <= replay.replay_min_steps:
        raise ValueError(
            f"steps {config.run.steps} <= replay_min_steps {replay.replay_min_steps}: the run "
            "would end before its first update; give more --steps or a smaller --replay-min-steps"
        )
    needed = replay.n_step + 1
    smallest = 2 * lanes * needed
    for name in ("replay_steps", "replay_min_steps"):
        if getattr(replay, name) < smallest:
            raise ValueError(
                f"{name} {getattr(replay, name)} < {smallest}, twice {needed} steps "
                f"of {lanes} environments: there would be nothing to draw"
            )
    if replay.update_size > replay.replay_min_steps and pacing.pacing != "target-period":
        raise ValueError(
            f"update_size {replay.update_size} > replay_min_steps {replay.replay_min_steps}: "
            "there would be nothing to draw when learning begins"
        )
    if pacing.pacing == "ratio":
        check_slack(pacing.slack_steps, service.largest_prediction(lanes), pacing.steps_per_update)


def _check_synchronized(config: TrainConfig) -> None:
    service = config.service
    given = {"groups": service.groups, "predictors": service.predictors}
    wrong = [f"{name} {count}" for name, count in given.items() if count != 1]
    if config.scheduler.scheduler != "off":
        wrong.append(f"scheduler {config.scheduler.scheduler}")
    if wrong:
        raise ValueError(
            f"synchronized with {', '.join(wrong)}: needs groups 1, predictors 1 and scheduler "
            "off, or no prediction would be for all environments at once"
        )


def _check_lockstep(config: TrainConfig) -> None:
    service = config.service
    if config.learns_from_replay:
        raise ValueError(
            f"lockstep with algorithm {config.algorithm}: is for a3c and ppo; --synchronized "
            "--pacing target-period gives the same weights each time"
        )
    alone = "agents", "groups", "predictors", "trainers", "intra_op_threads"
    wrong = [f"{name} {count}" for name in alone if (count := getattr(service, name)) != 1]
    if wrong or config.scheduler.scheduler != "off":
        raise ValueError(
            f"lockstep with {', '.join(wrong) or 'scheduler ' + config.scheduler.scheduler}: needs "
            f"one of each of {', '.join(alone)}, and scheduler off, or the order would vary"
        )
    if config.hosts.others_may_play:
        raise ValueError(
            "lockstep with --listen or --launcher ray: its agent must play on this machine, which "
            "keeps the actions that a resumed run replays"
        )
    smallest, largest, t_max = service.training_batch_min, service.training_batch_max, service.t_max
    if smallest != largest or largest % t_max:
        raise ValueError(
            f"lockstep with training batches of {smallest} to {largest}: must be of one size, a "
            f"multiple of t_max {t_max}, or they would depend on timing"
        )
    # All lanes wait once one has no room. It has all its pending segments, others one less.
    envs = service.envs_per_agent
    most = (envs * (service.pending_segments - 1) + 1) * t_max
    if most < largest:
        raise ValueError(
            f"lockstep with training batches of {largest} samples: {envs} environments with "
            f"{service.pending_segments} pending segments of t_max {t_max} make {most} before they "
            "wait for an update: it would never come; give more --pending-segments"
        )
