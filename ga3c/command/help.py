"""Help in two levels: --help shows the options that people use, --help-all shows all of them."""

import contextlib
import dataclasses
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from ga3c.command.arguments import HELP, HELP_ALL, options
from ga3c.command.parse import parse
from ga3c.settings.checks import no_effect
from ga3c.settings.train import TrainConfig

COMMON = {"algorithm", "preset", "game", "env_args", "network", "precision", "learning_rate"}
COMMON |= {"steps", "seconds", "score", "seed", "name", "resume", "runs_dir", "json", "track"}
COMMON |= {"agents", "envs_per_agent", "backend", "checkpoint_every_s", "evaluate_every"}
COMMON |= {"repeats", "part_seconds", "out", "initial_weights"}
"""The shared settings that --help shows. All others, including new ones, are in --help-all."""


def show(arguments: list[str], kind: type[Any], command: str, base: Any) -> None:
    """Print the requested help. Raises SystemExit, or ValueError as `parse` does."""
    hidden = ignored(kind) if HELP_ALL in arguments else ignored(kind) | rare(kind)
    arguments = ["--help" if each in HELP else each for each in arguments]
    text = io.TextIOWrapper(io.BytesIO(), sys.stdout.encoding, "replace")
    text.isatty = sys.stdout.isatty  # type: ignore[method-assign]  # tyro draws as it would there
    try:
        with contextlib.redirect_stdout(text):
            parse(arguments, kind, command, base, rules(hidden, getattr(kind, "texts", {})))
    except SystemExit:
        text.seek(0)
        print(_wrapped(text.read()))
        if hidden > ignored(kind):
            print(f"{command} {HELP_ALL} lists all {len(effective(kind))} options.")
        raise


def _wrapped(text: str) -> str:
    """Help no line of which is wider than the terminal; tyro wraps the text in boxes only."""
    width = shutil.get_terminal_size().columns
    lines = (
        textwrap.fill(line, width, break_on_hyphens=False)
        if len(line) > width and "\x1b" not in line
        else line
        for line in text.splitlines()
    )
    return "\n".join(lines)


def ignored(kind: type[Any]) -> frozenset[str]:
    """The settings of a command's configuration `kind` that have no effect on the command."""
    return getattr(kind, "ignored", frozenset())


def rare(kind: type[Any]) -> frozenset[str]:
    """The settings of `kind` that only --help-all shows.

    Fields that a command adds to the shared settings are always shown.
    """
    is_run = issubclass(kind, TrainConfig)
    shared = {each.name for each in dataclasses.fields(TrainConfig)} if is_run else set()
    own = {each.name for each in dataclasses.fields(kind)} - shared
    return frozenset(set(map(setting, options(kind))) - own - COMMON - ignored(kind))


def effective(kind: type[Any]) -> list[str]:
    """The options that have an effect."""
    return [option for option in options(kind) if setting(option) not in ignored(kind)]


def all_options(kind: type[Any], command: str) -> str:
    """The command that lists every option of `command`."""
    return f"{command} {HELP_ALL if rare(kind) else '--help'}"


def setting(argument: str) -> str:
    """The setting that an option sets: `max_pool` for --no-max-pool, `steps` for --steps=9."""
    option = argument.partition("=")[0].replace("_", "-")
    return option.removeprefix("--").removeprefix("no-").replace("-", "_")


def check_effect(
    arguments: list[str], without_effect: frozenset[str], what: str, command: str
) -> None:
    """Raises ValueError if an option has no effect, because the user expects it to have one.

    Args: without_effect: the settings that have none on `what`.
    """
    for argument in arguments:
        if argument.startswith("--") and setting(argument) in without_effect:
            option = argument.partition("=")[0]
            raise ValueError(f"{no_effect(option, what)}; {command} lists all options")


def rules(hidden: Collection[str], texts: Mapping[str, str]) -> ConstructorRegistry:
    """Rules for tyro's help.

    Args:
        hidden: the settings that it leaves out.
        texts: what it says about settings that mean something else in this command.
    """
    registry = ConstructorRegistry()
    asking = list[StructTypeInfo]()  # what tyro's own rules are being applied to

    @registry.struct_rule
    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        if asking or not dataclasses.is_dataclass(info.type):
            return None
        asking.append(info)
        found = ConstructorRegistry.get_struct_spec(info)
        asking.clear()
        assert isinstance(found, StructConstructorSpec)
        fields = (
            _suppressed(each) if hides(each) else _flowing(each, texts.get(each.name))
            for each in found.fields
        )
        return dataclasses.replace(found, fields=tuple(fields))

    def hides(field: StructFieldSpec) -> bool:
        return field.name in hidden and not dataclasses.is_dataclass(field.type)  # never a section

    return registry


def _flowing(field: StructFieldSpec, text: str | None) -> StructFieldSpec:
    """The field with help text that wraps at the terminal's width, not where our source does.

    Args: text: the help text; None: that of the field.
    """
    if text is None:
        text = field.helptext() if callable(field.helptext) else field.helptext
    flowing = text and re.sub(r"\s*\n\s*", " ", text.strip())
    kind: Any = field.type
    if field.default == ():
        kind = Annotated[kind, tyro.conf.arg(help_behavior_hint="(default: none)")]
    given = [each for each in get_args(kind) if each is not NoneType]
    if get_origin(kind) in (Union, UnionType) and len(given) == 1 and isinstance(given[0], type):
        value = tyro.conf.arg(metavar=given[0].__name__.upper())  # tyro would say {None}|INT
        kind = Annotated[kind, value]
    return dataclasses.replace(field, helptext=flowing, type=kind)


def _suppressed(field: StructFieldSpec) -> StructFieldSpec:
    kind: Any = Annotated[field.type, tyro.conf.Suppress]
    return dataclasses.replace(field, type=kind)
