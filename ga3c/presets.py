"""Named settings: ours for each algorithm and kind of observation, and the published ones; and
what the command line makes of them."""

from dataclasses import fields, replace
from itertools import zip_longest
from typing import Annotated, Any, TypeVar

import tyro

from agents.environments import EnvironmentConfig, spaces
from agents.games import resolve
from ga3c import preset_names
from ga3c.config import (
    CORES,
    A3CConfig,
    DQNConfig,
    LearningConfig,
    NetworkConfig,
    OptimizerConfig,
    ReplayConfig,
    ServiceConfig,
    TrainConfig,
)
from ga3c.published import PUBLISHED
from ga3c.scheduler import SchedulerConfig

DEFAULT = "default"
MOST_AGENTS = 16  # of dqn, whose updates are the limit long before: each takes its part of a replay
# Of a3c on vectors: CartPole-v1 took 160,000 steps with 32 environments, over 500,000 with 128.
MOST_AGENTS_VECTORS = 4

_NO_SCHEDULER = SchedulerConfig(scheduler="off")

# For vectors rewards are not clipped, so values are large. The value has a torso of its own, or its
# gradient would drown the policy's, and is scaled, so that it is learned before the policy needs
# it; the advantages of a batch are normalised; gradients are not clipped by norm, as their size
# means nothing to Adam.
OURS: dict[str, TrainConfig] = {
    "a3c-pictures": TrainConfig(preset="a3c-pictures"),
    "a3c-vectors": TrainConfig(
        preset="a3c-vectors",
        service=ServiceConfig(
            agents=min(CORES, MOST_AGENTS_VECTORS),
            envs_per_agent=16,
            prediction_batch_min=16,
        ),
        learning=LearningConfig(reward_clip=0.0),
        a3c=A3CConfig(normalize_advantages=True),
        network=NetworkConfig(separate_value=True, value_scale=10.0),
        optimizer=OptimizerConfig(learning_rate=1e-3, clip_norm=0.0),
        scheduler=_NO_SCHEDULER,
    ),
    "dqn-pictures": TrainConfig(
        algorithm="dqn",
        preset="dqn-pictures",
        service=ServiceConfig(
            agents=min(CORES, MOST_AGENTS), envs_per_agent=16, prediction_batch_min=16
        ),
        optimizer=OptimizerConfig(learning_rate=3e-4, learning_rate_end=3e-4, clip_norm=0.0),
        scheduler=_NO_SCHEDULER,
    ),
    "dqn-vectors": TrainConfig(
        algorithm="dqn",
        preset="dqn-vectors",
        service=ServiceConfig(agents=1, envs_per_agent=8, prediction_batch_min=4),
        learning=LearningConfig(reward_clip=0.0),
        dqn=DQNConfig(n_step=5, batch_size=256, target_period=250, epsilon_steps=10_000),
        replay=ReplayConfig(replay_steps=100_000, replay_min_steps=1_000, update_size=64),
        optimizer=OptimizerConfig(learning_rate=1e-3, learning_rate_end=1e-3, clip_norm=0.0),
        scheduler=_NO_SCHEDULER,
    ),
}

PRESETS: dict[str, TrainConfig] = {**OURS, **PUBLISHED}
"""All but `default`, which stands for one of the first four."""

C = TypeVar("C")


def parse(arguments: list[str], kind: type[C], command: str, base: C | None = None) -> C:
    """The configuration of `kind` that the command line asks for.

    Args: base: what holds for all that the arguments do not name; None: the preset's, or defaults.

    Raises:
        SystemExit: for --help, or (code 2) after one line about wrong arguments.
        ValueError: if settings do not fit each other, or the game cannot be played.
    """
    default: Any = tyro.MISSING_NONPROP if base is None else base
    if base is None and issubclass(kind, TrainConfig):
        preset = _named(arguments)
        default = kind(**{each.name: getattr(preset, each.name) for each in fields(preset)})
    wanted: Any = Annotated[kind, tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes]
    config: Any = tyro.cli(wanted, prog=command, args=arguments, default=default)
    if isinstance(config, TrainConfig) and config.preset == DEFAULT:  # named by --preset
        config = replace(config, preset=default.preset)
    found: C = config
    return found


def _named(arguments: list[str]) -> TrainConfig:
    """The preset that --preset, --algorithm and --game ask for; unknown ones are left to tyro.

    Raises ValueError if they do not fit each other, or the game cannot be played.
    """
    name = given_value(arguments, "--preset") or DEFAULT
    algorithm = given_value(arguments, "--algorithm")
    if name in PRESETS:
        found = PRESETS[name]
        if algorithm not in (None, found.algorithm):
            raise ValueError(
                f"algorithm {algorithm} with preset {name}: must be {found.algorithm}, which "
                "the preset is of"
            )
        return found
    game = given_value(arguments, "--game") or EnvironmentConfig().game
    try:
        shown = "pictures" if shows_pictures(game) else "vectors"
    except ValueError:
        if not {"-h", "--help"} & set(arguments):
            raise
        shown = "pictures"
    return OURS.get(f"{algorithm}-{shown}", OURS[f"a3c-{shown}"])


def shows_pictures(game: str) -> bool:
    """Whether the observations of `game` are pictures. An environment that is no Atari game is made
    once, to ask it.

    Raises ValueError if the game is unknown or cannot be played.
    """
    return resolve(game).is_atari or spaces(EnvironmentConfig(game)).is_picture


def described(config: TrainConfig) -> str:
    """Which preset a run's settings began with, in words."""
    name = config.preset
    return f"settings of preset {name}" + (
        f" ({preset_names.PRESETS[name]})" if name in PRESETS else ""
    )


def given_value(arguments: list[str], name: str) -> str | None:
    """What the command line gives as `name`; None if it does not."""
    for here, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if here == name:
            return following
        if here.startswith(f"{name}="):
            return here.removeprefix(f"{name}=")
    return None
