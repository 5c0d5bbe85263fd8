"""Files of one JSON object a line, which a kill or a full disk may have cut short."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(file: Path) -> list[dict[str, Any]]:
    """The objects of `file`, none if it is not there; lines that are none are left out."""
    if not file.exists():
        return []
    found = []
    for line in file.read_bytes().splitlines():
        try:
            value = json.loads(line)
        except ValueError:  # not UTF-8 either
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def append(file: Path, value: Mapping[str, Any]) -> None:
    """Add a line, on its own also if the last one was cut short. Raises OSError."""
    with open(file, "ab+") as out:
        if out.tell():
            out.seek(-1, 2)
            if out.read(1) != b"\n":
                out.write(b"\n")
        out.write(json.dumps(value).encode() + b"\n")
