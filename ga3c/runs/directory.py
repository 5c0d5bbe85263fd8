"""A run's directory: its settings, its history and its checkpoints.

config.json      every setting
meta.json        machine, versions and git revision, at the start and at each resume
log.txt          every printed line; log.txt.1 holds the earlier ones
episodes.csv     each finished episode: the fields of `tally.Episode`
metrics.jsonl    the figures of each progress line, one object per line
events.out.*     the same for TensorBoard, by environment steps
scheduler.jsonl  the start, then one object per decision; `scheduler.replay` repeats them
evaluations.jsonl  one object per evaluation: its protocol and scores
actions.bin      every action of a lockstep run; a resumed run replays them
checkpoints/     the newest states, from which the run can be resumed (ga3c/runs/checkpoints.py)
best/            the state with the run's best evaluation (--evaluate-every); if the run is resumed
                 from an earlier step, it is renamed to beyond-STEPS-TIME
result.json      the run's figures, written at the end
tracking.json    only with --track: the run's id at the tracker
lock             locked while a service uses the directory

A run of a billion steps stays within these bounds. `episodes.csv` and `metrics.jsonl` are thinned
evenly to half whenever they exceed 32 and 16 MiB; `log.txt` is rotated to `log.txt.1` at 8 MiB,
replacing the previous one. TensorBoard gets figures less and less often: they fill 16 MiB after
half a day of progress lines, and another 16 MiB each time the run's age doubles: 64 MiB after a
week. The scheduler's journal has at most one decision every 40 s with default settings, 1.5 MB a
day, and far fewer once all neighbours were rejected. It has no limit, and two other files have
none: `evaluations.jsonl` (about 1 kB each) and, in lockstep, `actions.bin` (2 bytes per step, or 4
per component of a continuous action), which a resumed run needs in full.
"""

import contextlib
import csv
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ga3c.runs import records
from ga3c.runs.checkpoints import BEST, kept
from ga3c.runs.durable import rewrite_lines, rewrite_whole
from ga3c.runs.events import Events
from ga3c.runs.finding import EPISODES, EVALUATIONS, LATEST, LOCK, LOG, METRICS, RESULT, locked
from ga3c.runs.kept_config import CONFIG, changes, load_config, to_json
from ga3c.runs.tally import Episode
from ga3c.runs.tracking import Tracking, tracking
from ga3c.runs.trust import META, SEAL, seal
from ga3c.settings.checks import WrongInput
from ga3c.settings.machine import machine
from ga3c.settings.train import TrainConfig

# A line takes about 40, 750 and 130 bytes: 800,000 episodes, a day of progress lines.
MOST_BYTES = {EPISODES: 32 << 20, METRICS: 16 << 20, LOG: 8 << 20}


class RunDirectory:
    """The files of a new or resumed run; owned by the main thread.

    Raises:
        BlockingIOError: if another service uses the directory.
        OSError: if it cannot be created, or already has a run and this one is new.
    """

    def __init__(self, config: TrainConfig, path: Path) -> None:
        self.path = path
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.path / LOCK, "w")  # noqa: SIM115
        if not locked(self._lock):
            self._lock.close()
            raise BlockingIOError("another process uses it: wait until it ends, or stop it")
        if config.run.resume is None and (path / CONFIG).exists():
            self._lock.close()
            raise FileExistsError("another process has created it")
        self._log = records.Rotated(self.path / LOG, MOST_BYTES[LOG])
        self._open: list[Any] = [self._lock, self._log]
        self._config = config
        self._reported_errors: set[str] = set()

    def begin(self, steps: int) -> str | None:
        """Start, or resume after `steps` and remove entries beyond them.

        Returns a line that says where the run is tracked, if it is.

        Raises WrongInput if it cannot be tracked; a new run then leaves no files.
        """
        run = replace(self._config.run, resume=None, trace=None, trust=False)  # for this start only
        settings = to_json(replace(self._config, run=run))
        tracking = self._tracking()
        self._note_start(steps)
        self._write(CONFIG, settings)
        self._cut(steps)
        self._episodes = records.Thinned(self.path / EPISODES, MOST_BYTES[EPISODES])
        self._csv = csv.writer(self._episodes)
        if self._episodes.is_empty:
            self._csv.writerow(Episode._fields)
        self._metrics = records.Thinned(self.path / METRICS, MOST_BYTES[METRICS])
        self._events = Events(self.path, steps, tracking)
        (self.path / RESULT).unlink(missing_ok=True)
        with self._errors_reported():  # the parent folder may be shared
            self._point_latest()
        with self._errors_reported():
            self._events.settings(settings)
        self._open = [self._events, self._episodes, self._metrics, *self._open]
        return tracking.place if tracking else None

    def check(self) -> None:
        """Raises OSError if the directory has been moved or removed since it was opened.

        Whatever is written would lie where no run is, or in another run of the same name.
        """
        held = os.fstat(self._lock.fileno())
        try:
            is_here = os.path.samestat(held, os.stat(self.path / LOCK))
        except FileNotFoundError:
            is_here = False
        if not is_here:
            raise OSError(f"{self.path} has been moved or removed")

    def log(self, line: str) -> None:
        """Write a line to the log."""
        with self._errors_reported():
            self._log.write(line + "\n")

    def episodes(self, episodes: Iterable[Episode]) -> None:
        """Append finished episodes."""
        with self._errors_reported():
            for episode in episodes:
                seconds = f"{episode.seconds:.2f}"
                epsilon, scored = f"{episode.epsilon:.6g}", int(episode.scored)
                self._csv.writerow((seconds, *episode[1:4], epsilon, scored))
                self._events.episode(episode)

    def metrics(self, values: Mapping[str, Any]) -> None:
        """Append one line of figures."""
        with self._errors_reported():
            self._metrics.write(json.dumps(values) + "\n")
        with self._errors_reported():
            self._events.figures(values)

    def evaluation(self, entry: Mapping[str, Any]) -> None:
        """Append an evaluation."""
        with self._errors_reported():
            self.check()
            records.append(self.path / EVALUATIONS, entry)
        with self._errors_reported():
            self._events.evaluation(entry)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the run's figures, and close all files."""
        with self._errors_reported():
            self.check()
            self._write(RESULT, result)
        with self._errors_reported():
            self._events.result(result)
        self.close()

    def close(self) -> None:
        """Close the files and release the directory for other processes. Idempotent."""
        while self._open:
            with self._errors_reported():
                self._open.pop(0).close()

    @contextlib.contextmanager
    def _errors_reported(self) -> Iterator[None]:
        """Report an OSError, such as a full disk, once; it does not end the run."""
        try:
            yield
        except OSError as error:
            if str(error) not in self._reported_errors:
                print(f"ga3c: {self.path}: not written: {error}", file=sys.stderr, flush=True)
            self._reported_errors.add(str(error))

    def _tracking(self) -> Tracking | None:
        name = self._config.run.track
        try:
            return tracking(name, self.path) if name else None
        except WrongInput:
            if not (self.path / CONFIG).exists():
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def _cut(self, steps: int) -> None:
        """Remove what was written after the checkpoint that the run is resumed from."""
        table = self.path / EPISODES
        if table.exists():
            rewrite_lines(table, _episodes_before(table, steps))
        for file in (self.path / METRICS, self.path / EVALUATIONS):
            if file.exists():
                rewrite_lines(file, _entries_until(file, steps))
        for best in kept(self.path / BEST):
            if int(best.name) > steps:  # its evaluation was removed above
                best.rename(best.with_name(f"beyond-{best.name}-{time.time_ns()}"))

    def _note_start(self, steps: int) -> None:
        """Write this machine to meta.json or, if resuming after `steps`, append it there.

        Also the settings that are changed, as config.json will have only the new ones.
        """
        file = self.path / META
        try:
            meta = json.loads(file.read_text())
            others = {"changed": changes(load_config(self.path), self._config)}
            meta.setdefault("resumed", []).append({**machine(), "steps": steps, **others})
        except (OSError, ValueError):
            meta = machine()
        if owner := seal(self._config):
            meta[SEAL] = owner
        self._write(META, meta)

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        rewrite_whole(self.path / name, json.dumps(values, indent=2, default=str) + "\n")

    def _point_latest(self) -> None:
        """Write this run's name to `latest`, as the newest.

        It is a file because TensorBoard showed the former link as a second run. It is replaced
        atomically, as another run may start at the same time.
        """
        latest = self.path.parent / LATEST
        if latest.is_symlink() or latest.is_file() or not latest.exists():
            new = self.path.parent / f".{LATEST}-{self.path.name}"
            new.unlink(missing_ok=True)  # left by a run that was killed right here
            new.write_bytes(os.fsencode(self.path.name) + b"\n")
            new.replace(latest)


def _episodes_before(table: Path, steps: int) -> Iterator[bytes]:
    """The lines of an episode table that belong to a checkpoint after `steps`.

    An episode is recorded with the steps made before the batch in which it was seen, so those in
    the checkpoint have fewer than `steps`.
    """
    with open(table, "rb") as lines:
        next(lines, b"")
        yield (",".join(Episode._fields) + "\r\n").encode()  # older tables have fewer columns
        for line in lines:
            number = line.split(b",", 2)[1:2]
            if line.endswith(b"\n") and number and number[0].isdigit() and int(number[0]) < steps:
                yield line


def _entries_until(file: Path, steps: int) -> Iterator[bytes]:
    """The lines of `file` whose object has at most `steps` steps."""
    with open(file, "rb") as lines:
        for line in lines:
            for entry in records.parsed([line]) if line.endswith(b"\n") else ():
                if entry.get("steps", steps + 1) <= steps:
                    yield line
