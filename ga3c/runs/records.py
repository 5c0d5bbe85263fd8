"""Files with one JSON object per line. A kill or a full disk may have cut a line short."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def read(file: Path) -> list[dict[str, Any]]:
    """The objects of `file`; none if the file is missing. Damaged lines are skipped."""
    return parsed(file.read_bytes().splitlines()) if file.exists() else []


def parsed(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The objects of these lines. Damaged lines are skipped."""
    objects = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:  # not JSON, or not UTF-8
            continue
        if isinstance(value, dict):
            objects.append(value)
    return objects


def append(file: Path, value: Mapping[str, Any]) -> None:
    """Append a line; if the last line was cut short, start a new one first. Raises OSError."""
    with open(file, "ab+") as out:
        if out.tell():
            out.seek(-1, 2)
            if out.read(1) != b"\n":
                out.write(b"\n")
        out.write(json.dumps(value).encode() + b"\n")
