"""What the command line asks for: the settings of a preset, and what changes them."""

from dataclasses import fields, replace
from itertools import zip_longest
from typing import Annotated, Any, TypeVar

import tyro

from agents.environments import EnvironmentConfig, spaces
from agents.games import resolve
from ga3c.settings.presets import DEFAULT, OURS, PRESETS
from ga3c.settings.train import (
    TrainConfig,
)

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


def given_value(arguments: list[str], name: str) -> str | None:
    """What the command line gives as `name`; None if it does not."""
    for here, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if here == name:
            return following
        if here.startswith(f"{name}="):
            return here.removeprefix(f"{name}=")
    return None
