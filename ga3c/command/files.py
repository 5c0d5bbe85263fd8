"""Settings in a file: read from TOML or JSON with sections as in a run's config.json, and written.

TOML has no word for None: a setting that is None is left out, or "None" where its preset has a
value.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ga3c.command.names import NONE, SECTIONS, SETTINGS, near
from ga3c.settings.train import TrainConfig

_READERS = {".toml": tomllib.loads, ".json": json.loads}


def read(file: Path) -> dict[str, Any]:
    """What a file holds, as it stands: values by name, those of a section in a dict of their own.

    Raises ValueError if it cannot be read.
    """
    reader = _READERS.get(file.suffix)
    if reader is None:
        kinds = " or ".join(_READERS)
        raise ValueError(f"config {file}: its name must end in {kinds}, or no setting can be read")
    try:
        values = reader(file.read_text())
    except OSError as error:
        raise ValueError(f"config {file} cannot be read: {error.strerror}") from error
    except ValueError as error:  # it is no UTF-8, TOML or JSON
        raise ValueError(f"config {file} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"config {file}: must hold names and values, and not a bare value or list")
    return values


def settings(file: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a file's `values`, by their names alone.

    Raises ValueError, with file, key and what is allowed, if one is unknown or of another type.
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
    """Section, name and value of all that `values` holds."""
    for name, value in values.items():
        if name not in SECTIONS:
            yield "", name, value
        elif isinstance(value, dict):
            yield from ((name, inner, found) for inner, found in value.items())
        else:
            raise ValueError(
                f"config {file}: {name} {value!r}: must be a section, [{name}] in TOML, as "
                "settings are in it"
            )


def as_arguments(values: Mapping[str, Any]) -> list[str]:
    """The settings as the command line would give them."""
    found = []
    for name, value in values.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{option}" if value else f"--no-{option}")
        else:
            found.append(f"--{option}={value}")
    return found


def to_toml(config: TrainConfig, base: TrainConfig) -> str:
    """All settings as TOML. Args: base: what holds for those that a file leaves out."""
    lines = ["# Settings that are None are left out: TOML has no word for it."]
    section = ""
    for setting in SETTINGS.values():
        value, other = (
            getattr(getattr(each, setting.section) if setting.section else each, setting.name)
            for each in (config, base)
        )
        if setting.section != section:
            section = setting.section
            lines += ["", f"[{section}]"]
        if value is not None or other is not None:
            lines.append(f"{setting.name} = {_toml(NONE if value is None else value)}")
    return "\n".join(lines) + "\n"


def _toml(value: bool | int | float | str | Path) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    text = json.dumps(str(value), ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")  # which TOML wants escaped as well
