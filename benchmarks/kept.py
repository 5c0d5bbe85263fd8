"""Saves what a study measures: each result as soon as it is made, and all of them at the end."""

import hashlib
import json
from pathlib import Path
from typing import Any

from ga3c.measuring.options import BenchmarkConfig
from ga3c.measuring.reporting import keep
from ga3c.runs import records
from ga3c.settings.machine import machine, sees_gpu

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("agents", "benchmarks", "ga3c")
VERSIONS = ("python", "tensorflow", "jax", "ale-py", "gymnasium", "keras", "numpy", "pyzmq")
ORIGIN = ("processor", "cores", "gpu", "backend", *VERSIONS, "git")
"""Two measurements are comparable only if these agree: machine, versions, revision."""


def revision() -> str:
    """The git revision; with changes that are not committed, or without git, also their digest.

    The digest is of all source files, so the same edit has the same one, and another edit another.
    """
    return _with_digest(machine()["git"])


def _with_digest(known: str | None) -> str:
    if known and not known.endswith("-dirty"):
        return known
    code = hashlib.sha256()
    for file in sorted(file for place in SOURCES for file in (ROOT / place).rglob("*.py")):
        code.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return f"{known or 'not-a-checkout'}-{code.hexdigest()[:8]}"


def origin() -> list[Any]:
    """The values of `ORIGIN` for this process, and whether it sees a GPU."""
    here = machine()
    known = {**here, "git": _with_digest(here["git"])}
    return [*(known[name] for name in ORIGIN), sees_gpu()]


class Memo(dict[str, Any]):
    """Results by key, each a line of a file.

    Results of another revision, version, device or machine may be there too, under other keys.
    """

    def __init__(self, file: Path, name: str) -> None:
        """Damaged lines are skipped. Args: name: the result's name in a line."""
        super().__init__()
        for line in records.read(file):
            if isinstance(line.get("key"), str) and isinstance(line.get(name), dict):
                self[line["key"]] = line[name]
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
