"""Finds a run by its directory, its name or its game, and names the files in it.

Small pretrained policies ship with ga3c, each as a run directory whose checkpoint has only weights.
"""

import contextlib
import fcntl
import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import tyro

from agents.games import resolve
from agents.spelling import meant
from ga3c.runs import records
from ga3c.runs.durable import is_writable
from ga3c.runs.kept_config import CONFIG, load_config
from ga3c.runs.trust import META, is_begun_by_user
from ga3c.settings.train import TrainConfig

RESULT, LOCK, LOG = "result.json", "lock", "log.txt"
EPISODES, METRICS, JOURNAL = "episodes.csv", "metrics.jsonl", "scheduler.jsonl"
LATEST = "latest"  # a file beside the runs that names the newest; formerly a symlink
EVALUATIONS, VIDEOS = "evaluations.jsonl", "video"
PRETRAINED = Path(__file__).resolve().parents[1] / "pretrained"
NAME_BYTES = 200  # of a run's name: file systems allow 255, and some files are named after it
DEPTH = 3  # folder levels below runs/ that are searched for runs, such as runs/scores/pong-0
SHOWN = 60  # maximum characters of the game and of the algorithm in a default name
GivenRuns = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
]
"""The runs that a command reads, as `find_run` finds them; `history.load` asks for at least one."""


class Resume(NamedTuple):
    """One time that a run was resumed."""

    steps: int  # of the whole run, made before
    changed: Mapping[str, Sequence[Any]]  # settings, by full name: before and now


def new_run_path(config: TrainConfig) -> Path:
    """The directory of a new run. Raises ValueError if it exists or cannot be created."""
    run = config.run
    names = (config.environment.game, config.algorithm)  # ALE/Pong-v5, module:name(key=value)
    game, algorithm = (re.sub(r"[^\w.=-]+", "-", name).strip("-")[-SHOWN:] for name in names)
    now = datetime.now().strftime("%Y%m%d-%H%M%S.%f")[:-3]  # two runs may start in one second
    path = run.runs_dir / (run.name or f"{game}__{algorithm}__{run.seed}__{now}")
    if path.name.isdecimal() or path.name == LATEST:
        raise ValueError(f"name {run.name}: numbers and {LATEST} refer to runs by age")
    if len(path.relative_to(run.runs_dir).parts) > DEPTH:
        raise ValueError(f"name {run.name}: must be at most {DEPTH} folders deep to be found")
    if len(os.fsencode(path.name)) > NAME_BYTES:
        raise ValueError(f"name {run.name}: must be at most {NAME_BYTES} bytes, to fit a file name")
    if is_running(path):
        raise ValueError(f"run {path}: another process uses it: choose another --name")
    if path.exists() and not (path / CONFIG).exists():
        raise ValueError(
            f"run {path} is a folder without a {CONFIG}, as left by a run that was stopped "
            "during startup: remove it, or choose another --name"
        )
    if path.exists():
        raise ValueError(
            f"run {path} exists already: choose another --name, or continue it with --resume "
            f"{shlex.quote(str(path))}"
        )
    parent = next(p for p in path.parents if p.exists())
    if not is_writable(parent):
        raise ValueError(f"run {path} cannot be created: {parent} is not a writable folder")
    return path


def find_run(run: Path, runs_dir: Path = Path("runs")) -> Path:
    """The directory of an existing run: a path, a name in `runs_dir`, or its number there.

    Number 1 is the newest; so is `latest`. Raises ValueError if there is no such run.
    """
    if str(run) == LATEST and (newest := runs_in(runs_dir)[:1]):  # the file covers one folder
        return _from_here(newest[0])
    for path in map(_followed, (run, runs_dir / run)):
        with contextlib.suppress(OSError):  # a name that is too long for a file
            if (path / CONFIG).is_file():
                return _from_here(path)
    known = runs_in(runs_dir)
    if str(run).isdecimal():
        if 1 <= int(str(run)) <= len(known):
            return _from_here(known[int(str(run)) - 1])
        numbers = f"runs 1 to {len(known)}" if known[1:] else "only run 1" if known else "no runs"
        raise ValueError(f"run {run}: the folder {runs_dir} has {numbers}; ga3c runs lists them")
    names = [str(path.relative_to(runs_dir)) for path in known[:5]]
    existing = f"the folder {runs_dir} has {', '.join(names) or 'no runs'}"
    raise ValueError(f"run {run}: no directory with a {CONFIG}; {existing}")


def _from_here(path: Path) -> Path:
    """The resolved directory, relative to the working directory if it is inside."""
    real, here = path.resolve(), Path.cwd()
    return real.relative_to(here) if here in real.parents else real


def _followed(path: Path) -> Path:
    """The run that the file `latest` names, or `path` itself."""
    if path.name == LATEST and path.is_file():
        return path.parent / os.fsdecode(path.read_bytes()).strip()
    return path


def runs_in(runs_dir: Path) -> list[Path]:
    """The runs in `runs_dir` and its folders, without `latest`, last started or resumed first."""
    depths = ("*/" * depth + CONFIG for depth in range(1, DEPTH + 1))
    found = [file.parent for pattern in depths for file in runs_dir.glob(pattern)]
    real = [path for path in found if not _is_linked(path, runs_dir)]
    return sorted(real, key=lambda path: -(path / CONFIG).stat().st_mtime)


def _is_linked(path: Path, runs_dir: Path) -> bool:
    """Whether `path`, or a folder between it and `runs_dir`, is a link such as `latest`."""
    inside = path.relative_to(runs_dir)
    return any((runs_dir / part).is_symlink() for part in (inside, *inside.parents[:-1]))


def newest_run(game: str, runs_dir: Path = Path("runs")) -> Path:
    """The run of `game` that was started or resumed last. Raises ValueError if there is none."""
    wanted = game_of(game)
    for path in runs_in(runs_dir):
        with contextlib.suppress(ValueError):  # settings that cannot be read
            config = load_config(path)
            name = config.environment.game
            if name == game or (is_begun_by_user(path, config) and game_of(name) == wanted):
                return _from_here(path)
    raise ValueError(
        f"{runs_dir} has no run of {game}: ga3c train --game {shlex.quote(game)} starts one"
    )


def game_of(game: str) -> tuple[str, bool]:
    """The game, whatever sticky actions its name implies, and whether it is an Atari game.

    Raises ValueError if it is unknown.
    """
    found = resolve(game)
    return found.name, found.is_atari


def pretrained() -> list[str]:
    """The games that ga3c ships a policy for, as ALE ROM ids."""
    return sorted(file.parent.name for file in PRETRAINED.glob(f"*/{CONFIG}"))


def pretrained_run(game: str) -> Path:
    """The directory of the pretrained policy for `game`. Raises ValueError if there is none."""
    with contextlib.suppress(ValueError):  # no game has this name
        path = PRETRAINED / resolve(game).name
        if (path / CONFIG).is_file():
            return path
    known = pretrained()
    raise ValueError(
        f"pretrained {game}: {meant(game.lower(), known)}must be one of {', '.join(known)}"
    )


def newest_figures(path: Path) -> dict[str, Any]:
    """The figures of the run in `path`: its result or, until it ends, its newest progress line."""
    return records.whole(path / RESULT) or records.newest(path / METRICS)


def resumes(path: Path) -> list[Resume]:
    """The resumes of the run in `path`, by their steps; earlier versions did not note these.

    A run that goes back to an earlier checkpoint loses what it did since, with the resumes in it,
    but keeps the settings that they changed: these then changed where it went back to.
    """
    found: list[Resume] = []
    noted = records.whole(path / META).get("resumed")
    for resume in noted if isinstance(noted, list) else []:
        if "steps" not in resume:
            continue
        changed = resume.get("changed", {})
        while found and found[-1].steps >= resume["steps"]:
            changed = _joined(found.pop().changed, changed)
        found.append(Resume(resume["steps"], changed))
    return found


def _joined(
    first: Mapping[str, Sequence[Any]], then: Mapping[str, Sequence[Any]]
) -> dict[str, Sequence[Any]]:
    """Two changes of settings as one, without the settings that the second changes back."""
    both = {name: (first.get(name, pair)[0], pair[1]) for name, pair in {**first, **then}.items()}
    return {name: (before, now) for name, (before, now) in both.items() if before != now}


def short_names(runs: Sequence[Path]) -> dict[Path, str]:
    """A name for each directory: as many of its last folders as tell all of them apart."""
    depth = 1
    while len({run.parts[-depth:] for run in runs}) < len(set(runs)):
        depth += 1
    return {run: "/".join(run.parts[-depth:]) for run in runs}


def is_running(path: Path) -> bool:
    """Whether a service is using the directory."""
    try:
        with open(path / LOCK) as file:  # opened to read: NFS then allows a shared lock
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def locked(file: IO[str]) -> bool:
    """Lock `file` until it is closed or the process ends. False if another process has the lock."""
    for _ in range(5):  # another process may hold it briefly, in is_running
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.02)
    return False
