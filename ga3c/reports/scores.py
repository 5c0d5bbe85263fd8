"""`ga3c scores`: train, evaluate and tabulate a list of games, whatever interrupts it.

Each game and seed has a run of its own in `out_dir`. The command, given again, goes on: what is
finished stays, what was begun is resumed.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agents.games import check
from ga3c.reports import history, tables
from ga3c.reports import page as reports
from ga3c.reports.console import show
from ga3c.reports.figures import published_rows
from ga3c.runs import checkpoints
from ga3c.runs.finding import is_running
from ga3c.runs.kept_config import CONFIG
from ga3c.runs.processes import end
from ga3c.settings.checks import WrongInput
from ga3c.settings.run import ProtocolName

LISTS = {  # the games of published tables: GA3C's Table 3, fast-dqn's Table 4, all 57
    "ga3c-paper": "ga3c_scores.csv",
    "fast-dqn": "fast_dqn_scores.csv",
    "atari57": "atari57_random_human.csv",
}
OURS = {"--game", "--seed", "--name", "--runs-dir", "--resume", "--steps", "--seconds", "--score"}
OURS |= {"--protocol", "--episodes", "--checkpoint"}
STATES = {"train": "training", "evaluate": "evaluation"}  # by the command that runs
POLL_S = 0.5
TELL_S = 60.0  # between two states of the whole


@dataclass(frozen=True)
class Config:
    """Train, evaluate and tabulate games; given again, go on."""

    out_dir: Path
    """Directory of the runs, the tables and the report; made if need be, and gone on with."""
    games: tuple[str, ...] = ("Pong",)
    """Games, or a list of them: ga3c-paper (9), fast-dqn (49), atari57."""
    seeds: int = 3
    """Runs of each game, of seeds 0, 1, ..."""
    steps: int | None = 1_000_000
    """Environment steps of each run; None: --seconds alone decide."""
    seconds: float | None = None
    """Longest training of each run."""
    protocol: ProtocolName = "paper"
    """How the scores are made: see ga3c evaluate --help."""
    episodes: int = 30
    """Games that each run is evaluated over."""
    at_once: int = 1
    """Runs at once."""
    train: str = ""
    """Further arguments of ga3c train, as one text: --train="--envs-per-agent 32"."""
    evaluate: str = ""
    """Further arguments of ga3c evaluate, as one text: --evaluate="--at-once 8"."""

    def __post_init__(self) -> None:
        for name in ("seeds", "steps", "seconds", "episodes", "at_once"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} {value}: must be above 0")
        if self.steps is None and self.seconds is None:
            raise ValueError("neither steps nor seconds: no run would end")
        for name in ("train", "evaluate"):
            ours = OURS & {word.partition("=")[0] for word in shlex.split(getattr(self, name))}
            if ours:
                raise ValueError(
                    f"{name} {getattr(self, name)!r}: {', '.join(sorted(ours))} is for the list "
                    "to say, or it could not know what is done"
                )
        place = next(p for p in (self.out_dir, *self.out_dir.absolute().parents) if p.exists())
        if not (place.is_dir() and os.access(place, os.W_OK)):
            raise ValueError(f"out_dir {self.out_dir}: {place} is no directory to write to")


class Job(NamedTuple):
    """A run that is wanted."""

    game: str
    seed: int
    path: Path


def run(config: Config) -> None:
    """Do what is missing. Raises WrongInput, or RuntimeError with what a process said."""
    jobs = _jobs(config)
    config.out_dir.mkdir(parents=True, exist_ok=True)
    while any(is_running(job.path) for job in jobs):  # by what a killed list has left behind
        time.sleep(POLL_S)
    waiting = deque(job for job in jobs if _next(config, job))
    running: dict[Job, tuple[subprocess.Popen[bytes], list[str]]] = {}
    told_s = -TELL_S
    try:
        while waiting or running:
            while waiting and len(running) < config.at_once:
                job = waiting.popleft()
                running[job] = _start(config, job)
            for job, (process, command) in list(running.items()):
                if process.poll() is not None:
                    del running[job]
                    _check(config, job, process)
                    following = _next(config, job)
                    if following == command:
                        raise RuntimeError(f"{job.path.name}: nothing came of {command}")
                    if following:
                        waiting.appendleft(job)
            if time.monotonic() - told_s > TELL_S:
                told_s = time.monotonic()
                _tell(jobs, waiting, {job: command[0] for job, (_, command) in running.items()})
            time.sleep(POLL_S)
    finally:
        for process, _ in running.values():
            end(process)
    _tell(jobs, waiting, {})
    _conclude(config, jobs)


def _jobs(config: Config) -> list[Job]:
    games: list[str] = []
    for each in config.games:
        if each in LISTS:
            games += [row["game"] for row in published_rows(LISTS[each])]
        else:
            games.append(each)
    try:
        names = {check(game).name: game for game in games}
    except ValueError as error:
        raise WrongInput(f"{error}; lists: {', '.join(LISTS)}") from error
    return [
        Job(game, seed, config.out_dir / f"{name.replace('/', '-')}-{seed}")
        for name, game in names.items()
        for seed in range(config.seeds)
    ]


def _next(config: Config, job: Job) -> list[str]:
    """The command that brings the job on; none if it is done."""
    limits = [
        word
        for name, limit in (("steps", config.steps), ("seconds", config.seconds))
        for word in (f"--{name}", str(limit))
    ]
    if not checkpoints.kept(job.path / "checkpoints"):
        chosen = ["--game", job.game, "--seed", str(job.seed), "--name", job.path.name]
        places = ["--runs-dir", str(config.out_dir)]
        return ["train", *chosen, *places, *limits, *shlex.split(config.train)]
    if not _trained(config, job):
        return ["train", "--resume", str(job.path), *limits]
    if not _evaluated(config, job):
        chosen = ["--protocol", config.protocol, "--episodes", str(config.episodes)]
        return ["evaluate", str(job.path), *chosen, *shlex.split(config.evaluate)]
    return []


def _trained(config: Config, job: Job) -> bool:
    """By its newest checkpoint; should that be damaged, the run is resumed, which says so."""
    try:
        newest = checkpoints.read(checkpoints.kept(job.path / "checkpoints")[-1])
    except (checkpoints.Damaged, IndexError):
        return False
    reached = newest.state["steps"], newest.state["seconds"]
    limits = config.steps, config.seconds
    return any(limit and done >= limit for done, limit in zip(reached, limits, strict=True))


def _evaluated(config: Config, job: Job) -> bool:
    newest = int(checkpoints.kept(job.path / "checkpoints")[-1].name)
    return any(
        entry["steps"] == newest
        and entry["protocol"]["name"].startswith(config.protocol)
        and entry["episodes"] >= config.episodes
        for entry in history.read(job.path).evaluations
    )


def _start(config: Config, job: Job) -> tuple[subprocess.Popen[bytes], list[str]]:
    command = _next(config, job)
    if "--resume" not in command and command[0] == "train":
        shutil.rmtree(job.path, ignore_errors=True)  # killed before its first checkpoint, if at all
    print(f"{job.path.name}: ga3c {shlex.join(command)}", flush=True)
    with open(_said(config, job), "wb") as said:
        whole = [sys.executable, "-m", "ga3c", *command]
        return subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=said), command


def _said(config: Config, job: Job) -> Path:
    return config.out_dir / f"{job.path.name}.err"


def _check(config: Config, job: Job, process: subprocess.Popen[bytes]) -> None:
    said = _said(config, job)
    words = said.read_text(errors="replace").strip()
    said.unlink()
    if words and not process.returncode:
        print(words, file=sys.stderr, flush=True)
    if process.returncode:
        raise RuntimeError(f"{job.path.name}: exit {process.returncode}: {words[-2000:]}")


def _tell(jobs: Sequence[Job], waiting: Collection[Job], running: Mapping[Job, str]) -> None:
    """Print the state of the whole. Args: running: the command that each runs."""
    rows = []
    for job in jobs:
        steps, minutes, score = "", "", ""
        state = "to do" if job in waiting else STATES.get(running.get(job, ""), "done")
        if (job.path / CONFIG).exists():
            state = "training" if job in waiting else state
            course = history.read(job.path)
            last = course.figures[-1] if course.figures else {"steps": 0, "seconds": 0.0}
            steps, minutes = f"{last['steps']:,}", f"{last['seconds'] / 60:.1f}"
            score = f"{course.curve.score[-1]:,.1f}" if len(course.curve.score) else ""
        rows.append((job.path.name, steps, minutes, score, state))
    show(f"{time.strftime('%H:%M')}", ("run", "steps", "minutes", "score", "state"), rows)


def _conclude(config: Config, jobs: Sequence[Job]) -> None:
    found = [history.read(job.path) for job in jobs]
    scores = tables.tables(found)
    print("\n".join(map(tables.markdown, scores)))
    for name in ("scores.md", "scores.csv"):
        tables.write(scores, config.out_dir / name)
    title = f"ga3c: {len({job.game for job in jobs})} games, {config.seeds} seeds"
    (config.out_dir / "report.html").write_text(reports.page(title, found))
    print(f"wrote scores.md, scores.csv and report.html in {config.out_dir}")
