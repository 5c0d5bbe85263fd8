"""Reads the command line: the settings of a preset, and the arguments that change them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry

from agents.environments import EnvironmentConfig, spaces
from agents.games import resolve
from ga3c.settings.presets import DEFAULT, OF_LANES, OURS, PRESETS, for_lanes
from ga3c.settings.train import LEARNS_FROM, TrainConfig

C = TypeVar("C")
Kind = Literal["pictures", "vectors", "control"]
"""Of a task: control has continuous actions, and observations that are vectors."""

DEFAULT_ALGORITHMS: dict[Kind, str] = {"pictures": "ppo", "vectors": "ppo", "control": "dpg"}
"""The algorithm for each kind of game where the user names none."""
BEGIN = ("preset", "algorithm", "game", "learns_from", *OF_LANES)
"""The settings, beside env_args, by which those that a run begins with are chosen."""


@dataclass(frozen=True)
class TrainArguments(TrainConfig):
    """Train an agent.

    The run begins with the settings of --preset. The settings in --config replace some of them, and
    each further argument replaces one. The defaults shown are those for Pong; give another --game,
    --algorithm or --preset beside --help to see theirs.
    """

    config: Path | None = None
    """File of settings, .toml or .json, or a run's config.json. Example: [service] agents = 4."""
    print_config: bool = False
    """Print all settings as TOML, which --config reads, and do not start a run."""

    @property
    def settings(self) -> TrainConfig:
        """The settings of the run, without the arguments that only the command has."""
        return TrainConfig(**_values(self))


def _values(config: TrainConfig) -> dict[str, Any]:
    """The fields of `TrainConfig` by name."""
    return {each.name: getattr(config, each.name) for each in fields(TrainConfig)}


def parse(
    arguments: list[str],
    kind: type[C],
    command: str,
    base: C | None = None,
    registry: ConstructorRegistry | None = None,
) -> C:
    """The configuration of `kind` that the command line asks for.

    Args:
        base: settings that the arguments do not name; None: those of the preset with what `kind`
            fixes, or the defaults.
        registry: how tyro takes settings, if not by its own rules.

    Raises:
        SystemExit: for --help, or (code 2) after one line about wrong arguments.
        ValueError: if settings contradict each other, or the game cannot be played.
    """
    default: Any = tyro.MISSING_NONPROP if base is None else base
    if base is None and issubclass(kind, TrainConfig):
        named = _named(arguments, getattr(kind, "unless_named", None))
        default = kind(**{**_values(named), **getattr(kind, "fixed", {})})
    wanted: Any = Annotated[kind, tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes]
    config: Any = tyro.cli(wanted, prog=command, args=arguments, default=default, registry=registry)
    if isinstance(config, TrainConfig) and config.preset == DEFAULT:  # --preset default
        config = replace(config, preset=default.preset)
    found: C = config
    return found


def _named(arguments: list[str], unless_named: str | None = None) -> TrainConfig:
    """The preset that --preset, --algorithm and --game ask for. tyro reports unknown values later.

    Args: unless_named: the algorithm if neither it nor a preset is named; None: by the game.

    Raises ValueError as `preset_of`.
    """
    given: dict[str, Any] = {n: given_value(arguments, f"--{n.replace('_', '-')}") for n in BEGIN}
    if given["preset"] in (None, DEFAULT):
        given["algorithm"] = given["algorithm"] or unless_named
    for name in OF_LANES:
        given[name] = int(given[name]) if (given[name] or "").isdecimal() else None
    try:
        return begun_with(given | {"env_args": given_values(arguments, "--env-args")})
    except ValueError:
        if {"-h", "--help"} & set(arguments):
            return OURS["ppo-pictures"]
        raise


def begun_with(given: Mapping[str, Any]) -> TrainConfig:
    """The settings that a run begins with, by `BEGIN` and env_args among those given.

    Raises ValueError as `preset_of`.
    """
    preset, algorithm, game, learns_from, *lanes = map(given.get, BEGIN)
    env_args = tuple(given.get("env_args", ()))
    return for_lanes(preset_of(preset, algorithm, game, learns_from, env_args=env_args), *lanes)


def preset_of(
    name: str | None,
    algorithm: str | None,
    game: str | None,
    learns_from: Any = None,
    *,
    env_args: tuple[str, ...] = (),
) -> TrainConfig:
    """The settings that a run begins with, before other arguments change them.

    They are those of the preset called `name`, or else those for the algorithm and the game's kind
    of observation. An algorithm that the user wrote gets the settings of dqn if it learns from a
    replay, else those of a3c. An argument that is not given is None.

    Raises ValueError if the arguments contradict each other, or the game cannot be played.
    """
    if name in PRESETS:
        found = PRESETS[name]
        if algorithm not in (None, found.algorithm):
            raise ValueError(
                f"algorithm {algorithm} with preset {name}: must be {found.algorithm}, which "
                "the preset is of"
            )
        return found
    kind = kind_of(game or EnvironmentConfig().game, env_args)
    if algorithm is None:
        algorithm = DEFAULT_ALGORITHMS[kind]
    if f"{algorithm}-{kind}" in OURS:
        return OURS[f"{algorithm}-{kind}"]
    by_replay = LEARNS_FROM.get(algorithm, learns_from) == "replay"
    like = ("dpg" if kind == "control" else "dqn") if by_replay else "a3c"
    return replace(OURS[f"{like}-{kind}"], algorithm=algorithm, learns_from=learns_from)


def preset_like(config: TrainConfig) -> TrainConfig:
    """The settings that a run with these settings began with. Raises ValueError as `preset_of`."""
    played, begun = config.environment, PRESETS.get(config.preset)
    name = config.preset if begun and begun.algorithm == config.algorithm else None
    given = (name, config.algorithm, played.game, config.learns_from)
    return preset_of(*given, env_args=played.env_args)


def kind_of(game: str, env_args: tuple[str, ...] = ()) -> Kind:
    """What the presets for `game` are called after.

    An environment that is not an Atari game is made once to find out.

    Raises ValueError if the game is unknown or cannot be played.
    """
    if resolve(game).is_atari:
        return "pictures"
    found = spaces(EnvironmentConfig(game, env_args), tried=False)  # the run's start tries it
    if found.is_picture:
        return "pictures"
    return "control" if found.actions.is_continuous else "vectors"


def given_values(arguments: list[str], name: str) -> tuple[str, ...]:
    """The values, up to the next option, that the command line gives for the last option `name`."""
    split = [argument.partition("=") for argument in arguments]
    at = [i for i, (option, *_) in enumerate(split) if option.replace("_", "-") == name]
    if not at:
        return ()
    _, equals, first = split[at[-1]]
    after = takewhile(lambda argument: not argument.startswith("--"), arguments[at[-1] + 1 :])
    return (*([first] if equals else []), *after)


def given_value(arguments: list[str], name: str) -> str | None:
    """The value that the command line gives for the last option `name`; None if there is none."""
    found = next(iter(given_values(arguments, name)), None)
    return None if found == "None" else found
