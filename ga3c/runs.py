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
checkpoints/     the newest states, from which the run can go on (ga3c/checkpoints.py)
best/            the state with the best evaluation of the run (--evaluate-every)
result.json      the run's figures, written at the end
lock             held while a service uses the directory
"""

import contextlib
import csv
import fcntl
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from agents.games import resolve
from ga3c import records
from ga3c.checkpoints import sync_directory
from ga3c.config import STEP_CAP, TrainConfig
from ga3c.events import Events
from ga3c.machine import machine
from ga3c.metrics import Episode

CONFIG, RESULT, LOCK = "config.json", "result.json", "lock"
EVALUATIONS = "evaluations.jsonl"


def new_run_path(config: TrainConfig) -> Path:
    """Where a new run's directory will be. Raises ValueError if it is there already."""
    run = config.run
    game = config.environment.game.replace("/", "-")
    now = datetime.now().strftime("%Y%m%d-%H%M%S.%f")[:-3]  # runs may begin in the same second
    path = run.runs_dir / (run.name or f"{game}__{config.algorithm}__{run.seed}__{now}")
    if path.exists():
        raise ValueError(
            f"run {path} is there already: choose another --name, or go on with --resume {path}"
        )
    parent = next(p for p in path.parents if p.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise ValueError(f"run {path} cannot be made: {parent} is no folder to write to")
    return path


def find_run(run: Path, runs_dir: Path = Path("runs")) -> Path:
    """The directory of a run that is there, given as a path or by its name. Raises ValueError."""
    for path in (run, runs_dir / run):
        if (path / CONFIG).is_file():
            return path.resolve()
    names = sorted(path.name for path in runs_in(runs_dir))
    known = f"{runs_dir} has {', '.join(names[-5:])}" if names else f"{runs_dir} has none"
    raise ValueError(f"run {run}: no directory with a {CONFIG}; {known}")


def runs_in(runs_dir: Path) -> list[Path]:
    """The runs there, without `latest`: first what was begun or gone on with last."""
    found = sorted(runs_dir.glob(f"*/{CONFIG}"), key=lambda file: -file.stat().st_mtime)
    return [file.parent for file in found if not file.parent.is_symlink()]


def newest_run(game: str, runs_dir: Path = Path("runs")) -> Path:
    """The run of `game` that was begun or gone on with last. Raises ValueError if there is none."""
    wanted = resolve(game)
    for path in runs_in(runs_dir):
        with contextlib.suppress(ValueError):  # settings that cannot be read
            if resolve(load_config(path).environment.game) == wanted:
                return path.resolve()
    raise ValueError(f"{runs_dir} has no run of {game}: make train GAME={game} begins one")


def load_config(path: Path) -> TrainConfig:
    """The settings of a run that is there. Raises ValueError if they cannot be read."""
    try:
        text = (path / CONFIG).read_bytes()
        return msgspec.json.decode(text, type=TrainConfig, dec_hook=lambda kind, v: kind(v))
    except (OSError, msgspec.MsgspecError) as error:
        raise ValueError(f"run {path}: its {CONFIG} cannot be read: {error}") from error


def check_resumed(config: TrainConfig, before: TrainConfig) -> None:
    """Raises ValueError if a run that was begun with `before` cannot go on with `config`."""
    game, known = config.environment.game, before.environment.game
    one, other = resolve(game), resolve(known)
    if (one.name, one.is_atari) != (other.name, other.is_atari):
        raise ValueError(
            f"game {game}: the run is of {known}, whose learning would be lost: begin a new one"
        )
    if config.preset != before.preset:
        raise ValueError(
            f"preset {config.preset}: a run that is resumed has settings already: name those that "
            "are to change"
        )
    given = (one, replace(config.environment, game=known), config.run.seed)
    if config.service.lockstep and given != (other, before.environment, before.run.seed):
        raise ValueError(
            "lockstep: the seed and the environment's settings must stay, or what was played could "
            "not be played once more"
        )


def evaluations(path: Path) -> list[dict[str, Any]]:
    """The evaluations of the run in `path`, oldest first, each with its whole protocol."""
    return [
        {**entry, "protocol": whole_protocol(entry.get("protocol", {}))}
        for entry in records.read(path / EVALUATIONS)
    ]


def whole_protocol(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """A protocol as it is recorded now. Games of before there was a step_cap ended below it."""
    return {**protocol, "step_cap": protocol.get("step_cap", STEP_CAP)}


def is_running(path: Path) -> bool:
    """Whether a service uses the directory."""
    try:
        with open(path / LOCK) as file:
            return not _locked(file)
    except OSError:
        return False


def _locked(file: IO[str]) -> bool:
    """Lock `file` until it is closed, or its process ends in whatever way; False if another has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _rewrite(file: Path, text: str) -> None:
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
        if not _locked(self._lock):
            raise BlockingIOError(f"another process uses {path}")
        self._log = open(self.path / "log.txt", "a", buffering=1)  # noqa: SIM115
        self._config = config
        self._trouble: set[str] = set()

    def begin(self, steps: int, episodes: int) -> None:
        """The run begins, or goes on from so many: what was noted beyond them has not happened."""
        run = replace(self._config.run, resume=None, trace=None)  # which are of this start alone
        self._write(CONFIG, asdict(replace(self._config, run=run)))
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
        for file in (self._events, self._episodes, self._metrics, self._log, self._lock):
            with self._forgiven():
                file.close()

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
            _rewrite(table, "".join(lines[: episodes + 1]))
        for file in (self.path / "metrics.jsonl", self.path / EVALUATIONS):
            if file.exists():
                known = [entry for entry in records.read(file) if entry["steps"] <= steps]
                _rewrite(file, "".join(json.dumps(entry) + "\n" for entry in known))

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
        _rewrite(self.path / name, json.dumps(values, indent=2, default=str) + "\n")

    def _point_latest(self) -> None:
        """In one move, as other runs may begin in this moment."""
        link = self.path.parent / "latest"
        if link.is_symlink() or not link.exists():
            new = self.path.parent / f".latest-{self.path.name}"
            new.unlink(missing_ok=True)  # of one that was killed in this moment
            new.symlink_to(self.path.name)
            new.replace(link)
