"""Named settings: ours for each algorithm, and the published ones; and what the command line makes
of them."""

from dataclasses import fields, replace
from itertools import zip_longest
from typing import Annotated, Any, TypeVar

import tyro

from agents.environments import EnvironmentConfig
from ga3c.config import (
    CORES,
    A3CConfig,
    DQNConfig,
    NetworkConfig,
    OptimizerConfig,
    PacingConfig,
    ReplayConfig,
    ServiceConfig,
    TrainConfig,
)
from ga3c.scheduler import SchedulerConfig

MOST_AGENTS = 16  # of dqn, whose updates are the limit long before: each takes its part of a replay

# One environment, one update every four steps, strictly in turn (Mnih et al. 2015). Gradients are
# of summed losses, as theirs; their RMSProp has epsilon 0.01 within the root.
_NATURE = TrainConfig(
    algorithm="dqn",
    preset="dqn",
    environment=EnvironmentConfig(max_pool=True),
    service=ServiceConfig(
        agents=1, max_agents=1, envs_per_agent=1, groups=1, prediction_batch_min=1
    ),
    dqn=DQNConfig(
        n_step=1,
        double=False,
        target_period=10_000,
        epsilon_end=0.1,
        epsilon_steps=1_000_000,
    ),
    replay=ReplayConfig(replay_steps=1_000_000, replay_min_steps=50_000, update_size=1),
    pacing=PacingConfig(slack_steps=4),
    network=NetworkConfig(network="nature", center=False, initializer="fan-in"),
    optimizer=OptimizerConfig(
        optimizer="rmsprop",
        learning_rate=2.5e-4,
        learning_rate_end=2.5e-4,
        rms_decay=0.95,
        rms_centered=True,
        optimizer_epsilon=0.01,
        clip_norm=0.0,
    ),
    scheduler=SchedulerConfig(scheduler="off"),
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
            prediction_batch_min=1,
            training_batch_min=0,
            training_batch_max=40,
            training_queue=500,
        ),
        a3c=A3CConfig(t_max=5, trace_decay=1.0, correction="none"),
        network=NetworkConfig(padding="same", center=False, initializer="fan-in"),
        optimizer=OptimizerConfig(
            optimizer="rmsprop",
            learning_rate=3e-4,
            learning_rate_end=3e-4,
            rms_start=1.0,
            clip_norm=0.0,
        ),
    ),
    "dqn": _NATURE,
    "dueling": replace(
        _NATURE,
        preset="dueling",
        dqn=replace(_NATURE.dqn, double=True, dueling=True),
        optimizer=replace(
            _NATURE.optimizer, learning_rate=6.25e-5, learning_rate_end=6.25e-5, clip_norm=10.0
        ),
    ),
    # Vectors; what the paper leaves open (who plays, how much, exploration) is ours.
    "in-gpu-replay": TrainConfig(
        algorithm="dqn",
        preset="in-gpu-replay",
        environment=EnvironmentConfig("CartPole-v1"),
        service=ServiceConfig(agents=1, envs_per_agent=8, prediction_batch_min=1),
        dqn=DQNConfig(
            n_step=1, double=False, dueling=True, target_period=10_000, epsilon_steps=50_000
        ),
        replay=ReplayConfig(replay_steps=1_000_000, update_size=2000),
        pacing=PacingConfig(steps_per_update=1.0),
        network=NetworkConfig(network="parr"),
        optimizer=OptimizerConfig(
            optimizer="rmsprop",
            learning_rate=2.5e-4,
            learning_rate_end=2.5e-4,
            rms_decay=0.95,
            momentum=0.95,
            optimizer_epsilon=0.01,
            clip_norm=0.0,
        ),
        scheduler=SchedulerConfig(scheduler="off"),
    ),
    "fast-dqn": replace(
        _NATURE,
        preset="fast-dqn",
        environment=EnvironmentConfig(max_pool=False),
        service=replace(
            _NATURE.service,
            agents=8,
            max_agents=8,
            synchronized=True,
        ),
        pacing=PacingConfig(pacing="target-period"),
    ),
}

DEFAULTS: dict[str, TrainConfig] = {
    "a3c": PRESETS["default"],
    "dqn": TrainConfig(
        algorithm="dqn",
        service=ServiceConfig(
            agents=min(CORES, MOST_AGENTS), envs_per_agent=16, prediction_batch_min=16
        ),
        optimizer=OptimizerConfig(learning_rate=3e-4, learning_rate_end=3e-4, clip_norm=0.0),
        scheduler=SchedulerConfig(scheduler="off"),
    ),
}

C = TypeVar("C")


def parse(arguments: list[str], kind: type[C], command: str, base: C | None = None) -> C:
    """The configuration of `kind` that the command line asks for.

    Args: base: what holds for all that the arguments do not name; None: the preset's, or defaults.

    Raises:
        SystemExit: for --help, or (code 2) after one line about wrong arguments.
        ValueError: if settings do not fit each other.
    """
    default: Any = tyro.MISSING_NONPROP if base is None else base
    if base is None and issubclass(kind, TrainConfig):
        preset = _named(arguments)
        default = kind(**{each.name: getattr(preset, each.name) for each in fields(preset)})
    wanted: Any = Annotated[kind, tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes]
    return tyro.cli(wanted, prog=command, args=arguments, default=default)


def _named(arguments: list[str]) -> TrainConfig:
    """What --preset and --algorithm name; unknown ones are left to tyro.

    Raises ValueError if they do not fit each other.
    """
    preset = given_value(arguments, "--preset") or "default"
    algorithm = given_value(arguments, "--algorithm")
    if preset in PRESETS and preset != "default":
        found = PRESETS[preset]
        if algorithm not in (None, found.algorithm):
            raise ValueError(
                f"algorithm {algorithm} with preset {preset}: must be {found.algorithm}, which "
                "the preset is of"
            )
        return found
    return DEFAULTS.get(algorithm or "a3c", PRESETS["default"])


def given_value(arguments: list[str], name: str) -> str | None:
    """What the command line gives as `name`; None if it does not."""
    for here, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if here == name:
            return following
        if here.startswith(f"{name}="):
            return here.removeprefix(f"{name}=")
    return None
