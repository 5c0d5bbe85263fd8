"""A run's directory: what was asked for, what happened, and what was learned.

config.json      every setting
meta.json        machine, versions, git revision
episodes.csv     seconds, steps, score, length of each finished episode
metrics.jsonl    one object per progress line
scheduler.jsonl  the start, then one object per decision: `scheduler.replay` decides it anew
weights.npz      the network's weights, written at the end
result.json      the run's figures, written at the end
"""

import csv
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ga3c.config import CORES, TrainConfig
from ga3c.metrics import Episode

VERSIONS = ("ale-py", "gymnasium", "keras", "numpy", "pyzmq")


def new_run_path(config: TrainConfig) -> Path:
    """Where the run's directory will be. Raises ValueError if it is there already."""
    run = config.run
    game = config.environment.game.replace("/", "-")
    now = datetime.now().strftime("%Y%m%d-%H%M%S.%f")[:-3]  # runs may begin in the same second
    path = run.runs_dir / (run.name or f"{game}__a3c__{run.seed}__{now}")
    if path.exists():
        raise ValueError(f"run {path} is there already: choose another --name")
    parent = next(p for p in path.parents if p.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise ValueError(f"run {path} cannot be made: {parent} is no folder to write to")
    return path


class RunDirectory:
    """Makes a run's directory and writes its files; owned by the main thread."""

    def __init__(self, config: TrainConfig, path: Path) -> None:
        self.path = path
        self.path.mkdir(parents=True)
        self._write("config.json", asdict(config))
        self._write("meta.json", machine())
        self._episodes = open(self.path / "episodes.csv", "w", newline="", buffering=1)  # noqa: SIM115
        self._csv = csv.writer(self._episodes)
        self._csv.writerow(Episode._fields)
        self._metrics = open(self.path / "metrics.jsonl", "w", buffering=1)  # noqa: SIM115
        self._point_latest()

    def episodes(self, episodes: Iterable[Episode]) -> None:
        """Append finished episodes."""
        self._csv.writerows((f"{e.seconds:.2f}", e.steps, e.score, e.length) for e in episodes)

    def metrics(self, values: Mapping[str, Any]) -> None:
        """Append one line of figures."""
        self._metrics.write(json.dumps(values) + "\n")

    def finish(self, weights: Mapping[str, np.ndarray], result: Mapping[str, Any]) -> None:
        """Keep the weights, if there are any, and the figures; close the files."""
        if weights:
            self._save(weights)
        self._write("result.json", result)
        self._episodes.close()
        self._metrics.close()

    def _save(self, weights: Mapping[str, np.ndarray]) -> None:
        partial = self.path / "weights.npz.partial"
        with open(partial, "wb") as file:
            np.savez(file, allow_pickle=False, **weights)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self.path / "weights.npz")

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        (self.path / name).write_text(json.dumps(values, indent=2, default=str) + "\n")

    def _point_latest(self) -> None:
        """In one move, as other runs may begin in this moment."""
        link = self.path.parent / "latest"
        if link.is_symlink() or not link.exists():
            new = self.path.parent / f".latest-{self.path.name}"
            new.symlink_to(self.path.name)
            new.replace(link)


def load_weights(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a `weights.npz`. Runs no code from the file."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def machine() -> dict[str, Any]:
    """Machine, versions and git revision; nothing from the environment."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": CORES,
        "python": platform.python_version(),
        "tensorflow": _version("tensorflow-cpu") or _version("tensorflow"),
        **{name: _version(name) for name in VERSIONS},
        "git": _git_revision(),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except ModuleNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git_revision() -> str | None:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
