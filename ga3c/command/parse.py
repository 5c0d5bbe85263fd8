"""Reads the command line: the settings of a preset, and the arguments that change them."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry

from ga3c.settings.begin import BEGIN, begun_with, given_value, given_values
from ga3c.settings.presets import DEFAULT, OF_LANES, OURS
from ga3c.settings.train import TrainConfig

C = TypeVar("C")


@dataclass(frozen=True)
class TrainArguments(TrainConfig):
    """Train an agent.

    A run starts from the settings of --preset. Those in --config override some of them, and each
    further argument overrides one. The defaults shown are those for Pong; add another --game,
    --algorithm or --preset to --help to see theirs.
    """

    config: Path | None = None
    """Settings file, .toml or .json, or a run's config.json. Example: agents = 4 in [service]."""
    print_config: bool = False
    """Print all settings as TOML, which --config reads, without starting a run."""

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
        base: values of settings that the arguments do not name; None: those of the preset with
            what `kind` fixes, or the defaults.
        registry: rules for tyro, if not its own.

    Raises:
        SystemExit: for --help, or (code 2) after one line about wrong arguments.
        ValueError: if settings contradict each other, or the game cannot be played.
    """
    default: Any = tyro.MISSING_NONPROP if base is None else base
    if base is None and issubclass(kind, TrainConfig):
        named = _named(arguments, getattr(kind, "unless_named", None))
        default = kind(**{**_values(named), **getattr(kind, "fixed", {})})
    wanted: Any = Annotated[kind, tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes]
    config: Any = tyro.cli(
        wanted,
        prog=command,
        description=_flowing(kind.__doc__ or ""),
        args=arguments,
        default=default,
        registry=registry,
    )
    if isinstance(config, TrainConfig) and config.preset == DEFAULT:  # --preset default
        config = replace(config, preset=default.preset)
    return config


def _flowing(text: str) -> str:
    """A docstring with one line for each paragraph; tyro would keep some of our line breaks."""
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def _named(arguments: list[str], unless_named: str | None = None) -> TrainConfig:
    """The preset that --preset, --algorithm and --game ask for. tyro reports unknown values later.

    Args: unless_named: the algorithm if neither it nor a preset is named; None: chosen by the game.

    Raises ValueError as `preset_of` does.
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
