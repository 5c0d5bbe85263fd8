"""Saves what a study measures: each result as soon as it is made, and all of them at the end."""

import json
from pathlib import Path
from typing import Any

from ga3c.measuring.options import BenchmarkConfig
from ga3c.measuring.reporting import keep
from ga3c.runs import records
from ga3c.settings.machine import machine

ORIGIN = ("processor", "cores", "gpu", "backend", "git")
"""Two measurements are comparable only if these agree: machine, framework, revision."""


def origin() -> list[Any]:
    """The values of `ORIGIN` for this process."""
    known = machine()
    return [known[name] for name in ORIGIN]


class Memo(dict[str, Any]):
    """Results by key, each a line of a file.

    Results of another revision, framework or machine may be there too, under other keys.
    """

    def __init__(self, file: Path, name: str) -> None:
        """Args: name: the result's name in a line."""
        super().__init__({line["key"]: line[name] for line in records.read(file)})
        self._file, self._name, self._origin = file, name, origin()

    def key(self, *of: Any) -> str:
        """The key of a result measured here with these settings."""
        return json.dumps([*of, *self._origin])

    def keep(self, key: str, result: Any) -> None:
        """Add a result, and append its line."""
        self[key] = result
        records.append(self._file, {"key": key, self._name: result})


def keep_all(name: str, result: dict[str, Any], config: Any, print_it: bool) -> None:
    """Write the result as NAME.json to `config.out_dir`; print it if asked for."""
    print(f"saving {name}.json and its plots in {config.out_dir}")
    keep(result, config, BenchmarkConfig(out=config.out_dir / f"{name}.json"), print_it)
