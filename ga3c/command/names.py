"""Settings by name: the section of each, its allowed values, and how to change it."""

import ast
import numbers
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from ga3c.command.arguments import near
from ga3c.settings.train import TrainConfig

C = TypeVar("C", bound=TrainConfig)
NONE = "None"  # the text for None where a value must be text, as on the command line

_RULES: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    NoneType: f'"{NONE}"',
}


class Setting(NamedTuple):
    """One setting of `TrainConfig`."""

    section: str  # the field of `TrainConfig` that holds the setting; "" if it is itself a field
    name: str
    hint: Any  # its type

    def converted(self, value: Any) -> Any:
        """`value` converted to this setting's type. Raises ValueError that says what is allowed."""
        options = _options(self.hint)
        for option in options:
            taken, found = _taken(option, value)
            if taken:
                return found
        raise ValueError(f"{value!r}: must be {' or '.join(map(_rule, reversed(options)))}")


def _found() -> Iterable[Setting]:
    for section, kind in get_type_hints(TrainConfig).items():
        if is_dataclass(kind):
            yield from (Setting(section, *each) for each in get_type_hints(kind).items())
        else:
            yield Setting("", section, kind)


SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _found()}
"""All settings by name. Names are unique across sections."""
SECTIONS: tuple[str, ...] = tuple(
    name for name, kind in get_type_hints(TrainConfig).items() if is_dataclass(kind)
)


def _options(hint: Any) -> tuple[Any, ...]:
    """The types that a type hint allows. None comes first."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(sorted(options, key=lambda option: option is not NoneType))


def _rule(option: Any) -> str:
    if get_origin(option) is Literal:
        return "one of " + ", ".join(map(str, get_args(option)))
    if get_origin(option) is tuple:
        kind, count = _entries(option)
        return "a list of text" if count is None else f"a list of {count} entries: {_RULES[kind]}"
    return _RULES[option]


def _entries(option: Any) -> tuple[Any, int | None]:
    """The type of a tuple's entries, and how many it has; None: any number."""
    kind, *others = get_args(option)
    return kind, None if others == [...] else 1 + len(others)


def _taken(option: Any, value: Any) -> tuple[bool, Any]:
    """Whether the type `option` accepts `value`, and the converted value."""
    if get_origin(option) is Literal:
        return isinstance(value, str) and value in get_args(option), value
    if get_origin(option) is tuple:
        kind, count = _entries(option)
        is_list = isinstance(value, (list, tuple)) and all(_taken(kind, v)[0] for v in value)
        fits = is_list and count in (None, len(value))
        return fits, tuple(value) if fits else None
    if option is NoneType:
        return value is None or (isinstance(value, str) and value == NONE), None
    if option is Path:
        is_path = isinstance(value, (str, Path)) and value != ""
        return is_path, Path(os.path.expanduser(value)) if is_path else None
    if option is bool:
        return isinstance(value, (bool, np.bool_)), bool(value)
    if option is str:
        return isinstance(value, str), value
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if option is int:
        whole = whole or (isinstance(value, float) and value.is_integer())  # 1e6
        return whole, int(value) if whole else None
    real = whole or (isinstance(value, numbers.Real) and not isinstance(value, bool))
    try:
        return real, float(value) if real else None
    except OverflowError:  # a whole number of more than 308 digits
        return False, None


def _literal(name: str, value: Any) -> str:
    """An environment's argument as text that evaluates to it. Raises ValueError if none does."""
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, Path):
        value = str(value)
    text = str(value).replace("inf", "1e999") if isinstance(value, float) else repr(value)
    try:
        same = ast.literal_eval(text) == value
    except (ValueError, SyntaxError, TypeError):
        same = False
    if not same:
        raise ValueError(
            f"env_args {name}={value!r}: must be a number, text, true or false, None, or lists "
            "or the like of these, as a run stores it in its files"
        )
    return text


def checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in `values` by name, each converted to its type.

    Raises ValueError if a name is unknown or a value is not allowed.
    """
    found = {}
    for name, value in values.items():
        if name == "env_args" and isinstance(value, Mapping):
            value = [f"{key}={_literal(key, argument)}" for key, argument in value.items()]
        if name not in SETTINGS:
            hint = near(name, SETTINGS)
            raise ValueError(
                f"unknown setting {name!r}: {hint}`ga3c train --help-all` lists them, with - for _"
            )
        try:
            found[name] = SETTINGS[name].converted(value)
        except ValueError as error:
            hint = "; gymnasium.register gives an environment its id" if name == "game" else ""
            raise ValueError(f"{name} {error}{hint}") from error
    return found


def typed(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the dataclass `kind`, each converted to its type. Raises ValueError."""
    hints, found = get_type_hints(kind), {}
    for name, value in values.items():
        try:
            found[name] = Setting("", name, hints[name]).converted(value)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from error
    return found


def values_of(config: TrainConfig) -> dict[str, Any]:
    """All settings of a configuration by name. Raises ValueError if a section is something else."""
    values = {}
    for name, setting in SETTINGS.items():
        part = getattr(config, setting.section) if setting.section else config
        if not hasattr(part, name):
            raise ValueError(
                f"{setting.section} {part!r}: must be settings, as "
                f"replace(config.{setting.section}, {name}=...) returns"
            )
        values[name] = getattr(part, name)
    return values


def changed(config: C, values: Mapping[str, Any]) -> C:
    """`config` with the settings in `values` replaced. Rules are checked after all replacements.

    Raises ValueError as `checked` does, and if settings contradict each other.
    """
    parts: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in checked(values).items():
        parts[SETTINGS[name].section][name] = value
    top = parts.pop("", {})
    made = {section: replace(getattr(config, section), **new) for section, new in parts.items()}
    return replace(config, **top, **made)
