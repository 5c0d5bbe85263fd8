"""A run's directory: what was asked for, what happened, and what was learned.

config.json      every setting
meta.json        machine, versions, git revision, at the start and at each resumption
log.txt          what was said
episodes.csv     seconds, steps, score, length of each finished episode
metrics.jsonl    one object per progress line
events.out.*     the same for TensorBoard, by environment steps
scheduler.jsonl  the start, then one object per decision: `scheduler.replay` decides it anew
evaluations.jsonl  one object per evaluation: its protocol, its scores
actions.bin      every action of a run in lockstep, which is played once more when it is resumed
checkpoints/     the newest states, from which the run can go on (ga3c/runs/checkpoints.py)
best/            the state with the best evaluation of the run (--evaluate-every)
result.json      the run's figures, written at the end
lock             held while a service uses the directory
"""

import contextlib
import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ga3c.runs import records
from ga3c.runs.checkpoints import sync_directory
from ga3c.runs.events import Events
from ga3c.runs.finding import EVALUATIONS, LOCK, RESULT, locked
from ga3c.runs.kept_config import CONFIG, to_json
from ga3c.runs.metrics import Episode
from ga3c.settings.machine import machine
from ga3c.settings.train import TrainConfig


def rewrite_whole(file: Path, text: str) -> None:
    """Whole or not at all: a run can still be resumed after a kill or a power cut meanwhile."""
    partial = file.with_name(f".{file.name}")
    with open(partial, "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(file)
    sync_directory(file.parent)


class RunDirectory:
    """A run's files, new or gone on with; owned by the main thread.

    Raises:
        BlockingIOError: if another service uses the directory.
        OSError: if it cannot be made.
    """

    def __init__(self, config: TrainConfig, path: Path) -> None:
        self.path = path
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.path / LOCK, "w")  # noqa: SIM115
        if not locked(self._lock):
            self._lock.close()
            raise BlockingIOError(f"another process uses {path}")
        self._log = open(self.path / "log.txt", "a", buffering=1)  # noqa: SIM115
        self._open: list[Any] = [self._lock, self._log]
        self._config = config
        self._trouble: set[str] = set()

    def begin(self, steps: int, episodes: int) -> None:
        """The run begins, or goes on from so many: what was noted beyond them has not happened."""
        run = replace(self._config.run, resume=None, trace=None)  # which are of this start alone
        self._write(CONFIG, to_json(replace(self._config, run=run)))
        self._note_start()
        (self.path / RESULT).unlink(missing_ok=True)
        self._point_latest()
        self._cut(steps, episodes)
        self._episodes = open(self.path / "episodes.csv", "a", newline="", buffering=1)  # noqa: SIM115
        self._csv = csv.writer(self._episodes)
        if not self._episodes.tell():
            self._csv.writerow(Episode._fields)
        self._metrics = open(self.path / "metrics.jsonl", "a", buffering=1)  # noqa: SIM115
        self._events = Events(self.path, steps)
        self._open = [self._events, self._episodes, self._metrics, *self._open]

    def log(self, line: str) -> None:
        """Keep a line."""
        with self._forgiven():
            self._log.write(line + "\n")

    def episodes(self, episodes: Iterable[Episode]) -> None:
        """Append finished episodes."""
        with self._forgiven():
            for each in episodes:
                self._csv.writerow((f"{each.seconds:.2f}", each.steps, each.score, each.length))
                self._events.episode(each)

    def metrics(self, values: Mapping[str, Any]) -> None:
        """Append one line of figures."""
        with self._forgiven():
            self._metrics.write(json.dumps(values) + "\n")
            self._events.figures(values)

    def evaluation(self, entry: Mapping[str, Any]) -> None:
        """Append an evaluation."""
        with self._forgiven():
            records.append(self.path / EVALUATIONS, entry)
            self._events.evaluation(entry)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Keep the figures; close the files."""
        with self._forgiven():
            self._write(RESULT, result)
        self.close()

    def close(self) -> None:
        """Close the files; another process may use the directory then. Once more does nothing."""
        while self._open:
            with self._forgiven():
                self._open.pop(0).close()

    @contextlib.contextmanager
    def _forgiven(self) -> Iterator[None]:
        """What cannot be written, as where the disk is full, is said once and ends no run."""
        try:
            yield
        except OSError as error:
            if str(error) not in self._trouble:
                print(f"ga3c: {self.path}: not kept: {error}", file=sys.stderr, flush=True)
            self._trouble.add(str(error))

    def _cut(self, steps: int, episodes: int) -> None:
        table = self.path / "episodes.csv"
        if table.exists():
            lines = table.read_text(errors="replace").splitlines(keepends=True)
            rewrite_whole(table, "".join(lines[: episodes + 1]))
        for file in (self.path / "metrics.jsonl", self.path / EVALUATIONS):
            if file.exists():
                known = [entry for entry in records.read(file) if entry["steps"] <= steps]
                rewrite_whole(file, "".join(json.dumps(entry) + "\n" for entry in known))

    def _note_start(self) -> None:
        """In meta.json: the machine of the first start, and of each resumption."""
        file = self.path / "meta.json"
        try:
            known = json.loads(file.read_text())
            known.setdefault("resumed", []).append(machine())
        except (OSError, ValueError):
            known = machine()
        self._write("meta.json", known)

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        rewrite_whole(self.path / name, json.dumps(values, indent=2, default=str) + "\n")

    def _point_latest(self) -> None:
        """In one move, as other runs may begin in this moment."""
        link = self.path.parent / "latest"
        if link.is_symlink() or not link.exists():
            new = self.path.parent / f".latest-{self.path.name}"
            new.unlink(missing_ok=True)  # of one that was killed in this moment
            new.symlink_to(self.path.name)
            new.replace(link)
