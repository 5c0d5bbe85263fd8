"""Reads settings from TOML or JSON files, and writes them as TOML.

The sections are those of a run's config.json. TOML has no null: a setting that is None is left
out, or written as "None" if its preset has a value.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ga3c.command.arguments import near
from ga3c.command.names import NONE, SECTIONS, SETTINGS, values_of
from ga3c.settings.train import TrainConfig

_READERS = {".toml": tomllib.loads, ".json": json.loads}


def read(file: Path) -> dict[str, Any]:
    """The unchecked content of a file: values by name, with a nested dict for each section.

    Raises ValueError if the file cannot be read.
    """
    reader = _READERS.get(file.suffix)
    if reader is None:
        kinds = " or ".join(_READERS)
        raise ValueError(f"config {file}: its name must end in {kinds}, or no setting can be read")
    try:
        values = reader(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ValueError(f"config {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"config {file} cannot be read: it is not text in UTF-8") from error
    except (ValueError, RecursionError) as error:  # the file is not valid TOML or JSON
        raise ValueError(f"config {file} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"config {file}: must hold names and values, not a bare value or list")
    return values


def settings(file: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a file's `values`, by name and without sections.

    Raises ValueError, with the file, the key and what is allowed, if a setting is unknown or has
    the wrong type.
    """
    found = {}
    for section, name, value in _leaves(file, values):
        known = [each.name for each in SETTINGS.values() if each.section == section]
        setting = SETTINGS.get(name)
        key = f"{section}.{name}" if section else name
        if setting is None or setting.section != section:
            elsewhere = f"it belongs in [{setting.section}]; " if setting else near(name, known)
            names = ", ".join(known if section else [*known, *SECTIONS])
            raise ValueError(f"config {file}: unknown key {key}: {elsewhere}must be one of {names}")
        try:
            found[name] = setting.converted(value)
        except ValueError as error:
            raise ValueError(f"config {file}: {key} {error}") from error
    return found


def _leaves(file: Path, values: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Section, name and value of each setting in `values`; the section is "" at the top level."""
    for name, value in values.items():
        if name not in SECTIONS:
            yield "", name, value
        elif isinstance(value, dict):
            yield from ((name, inner, found) for inner, found in value.items())
        else:
            raise ValueError(
                f"config {file}: {name} {value!r}: must be a section, [{name}] in TOML, "
                "with its settings"
            )


def as_arguments(values: Mapping[str, Any]) -> list[str]:
    """The settings as command-line arguments."""
    found = []
    for name, value in values.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{option}" if value else f"--no-{option}")
        elif isinstance(value, (list, tuple)):
            found += [f"--{option}", *map(str, value)]
        else:
            found.append(f"--{option}={value}")
    return found


def to_toml(config: TrainConfig, base: TrainConfig) -> str:
    """All settings as TOML. Args: base: the settings that apply where a file has none."""
    lines = ["# Settings that are None are left out: TOML has no word for it."]
    section, values, others = "", values_of(config), values_of(base)
    for setting in SETTINGS.values():
        value, other = values[setting.name], others[setting.name]
        if setting.section != section:
            section = setting.section
            lines += ["", f"[{section}]"]
        if value is not None or other is not None:
            lines.append(f"{setting.name} = {_toml(NONE if value is None else value)}")
    return "\n".join(lines) + "\n"


def _toml(value: bool | int | float | str | Path | tuple[Any, ...]) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    text = json.dumps(str(value), ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")  # TOML requires DEL escaped too
