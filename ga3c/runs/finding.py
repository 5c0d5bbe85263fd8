"""Finds a run by its directory, its name or its game, and reads what it was asked for."""

import contextlib
import fcntl
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from agents.games import resolve
from ga3c.runs import records
from ga3c.runs.kept_config import CONFIG, load_config
from ga3c.settings.run import STEP_CAP
from ga3c.settings.train import TrainConfig

RESULT, LOCK = "result.json", "lock"
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
            return not locked(file)
    except OSError:
        return False


def locked(file: IO[str]) -> bool:
    """Lock `file` until it is closed, or its process ends in whatever way; False if another has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
