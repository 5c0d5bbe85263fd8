"""Settings by their names: where each belongs, which values it takes, and how it is changed."""

import difflib
import numbers
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from ga3c.settings.train import TrainConfig

C = TypeVar("C", bound=TrainConfig)
NONE = "None"  # stands for None where there is no other word for it, as on the command line

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

    section: str  # the field of `TrainConfig` that has it; empty if the setting is that field
    name: str
    hint: Any  # its type

    @property
    def key(self) -> str:
        """Its name with its section's, as files have it."""
        return f"{self.section}.{self.name}" if self.section else self.name

    def converted(self, value: Any) -> Any:
        """`value` as this setting takes it. Raises ValueError, which says what it must be."""
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
"""All settings; no two have one name."""
SECTIONS: tuple[str, ...] = tuple(
    name for name, kind in get_type_hints(TrainConfig).items() if is_dataclass(kind)
)


def _options(hint: Any) -> tuple[Any, ...]:
    """The types that a union allows, None first; or the one type."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(sorted(options, key=lambda option: option is not NoneType))


def _rule(option: Any) -> str:
    if get_origin(option) is Literal:
        return "one of " + ", ".join(map(str, get_args(option)))
    return _RULES[option]


def _taken(option: Any, value: Any) -> tuple[bool, Any]:
    """Whether a type takes `value`, and what it makes of it."""
    if get_origin(option) is Literal:
        return isinstance(value, str) and value in get_args(option), value
    if option is NoneType:
        return value is None or (isinstance(value, str) and value == NONE), None
    if option is Path:
        is_path = isinstance(value, (str, Path))
        return is_path, Path(value) if is_path else None
    if option in (bool, str):
        return isinstance(value, option), value
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if option is int:
        return whole, int(value) if whole else None
    real = whole or (isinstance(value, numbers.Real) and not isinstance(value, bool))
    return real, float(value) if real else None


def near(name: str, known: Iterable[str]) -> str:
    """Words that name what was perhaps meant; empty if nothing is like it."""
    found = difflib.get_close_matches(name, list(known), n=2)
    return f"did you mean {' or '.join(found)}? " if found else ""


def checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their names, each as it takes its value.

    Raises ValueError for a name or a value that cannot be.
    """
    found = {}
    for name, value in values.items():
        if name not in SETTINGS:
            hint = near(name, SETTINGS)
            raise ValueError(
                f"unknown setting {name!r}: {hint}`ga3c train --help` names them all, with - for _"
            )
        try:
            found[name] = SETTINGS[name].converted(value)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from error
    return found


def changed(config: C, values: Mapping[str, Any]) -> C:
    """`config` with the settings in `values`, by their names: only the whole is checked.

    Raises ValueError as `checked`, and where settings do not fit each other.
    """
    parts: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in checked(values).items():
        parts[SETTINGS[name].section][name] = value
    top = parts.pop("", {})
    made = {section: replace(getattr(config, section), **new) for section, new in parts.items()}
    return replace(config, **top, **made)
