"""`ga3c scores`: trains, evaluates and tabulates a list of games; it can be interrupted.

Each game and seed has its own run in `out_dir`. The same command, given again, continues: finished
runs stay, unfinished runs are resumed.
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
from ga3c.reports import comparison, history, page, tables
from ga3c.reports.console import show
from ga3c.reports.figures import published_rows
from ga3c.reports.processes import end
from ga3c.runs import checkpoints
from ga3c.runs.finding import is_running
from ga3c.runs.kept_config import CONFIG
from ga3c.settings.checks import WrongInput
from ga3c.settings.run import ProtocolName

LISTS = {  # games of published tables: GA3C's Table 3, fast-dqn's Table 4, and all 57
    "ga3c-paper": "ga3c_scores.csv",
    "fast-dqn": "fast_dqn_scores.csv",
    "atari57": "atari57_random_human.csv",
}
# Arguments that this command sets itself, so that --train and --evaluate may not contain them.
OWN = {"--game", "--seed", "--name", "--runs-dir", "--resume", "--steps", "--seconds", "--score"}
OWN |= {"--protocol", "--episodes", "--checkpoint"}
STATES = {"train": "training", "evaluate": "evaluation"}  # by the command that runs
POLL_S = 0.5
SHOW_STATE_S = 60.0  # between two tables of the state of all runs


@dataclass(frozen=True)
class Config:
    """Train, evaluate and tabulate games. The same command, given again, continues."""

    out_dir: Path
    """Directory of the runs, the tables and the report; created if it is missing."""
    games: tuple[str, ...] = ("Pong",)
    """Names of games, or of lists of games: ga3c-paper (9), fast-dqn (49), atari57."""
    seeds: int = 3
    """Number of runs of each game, with seeds 0, 1, ..."""
    steps: int | None = 1_000_000
    """Environment steps of each run; None: only --seconds limits a run."""
    seconds: float | None = None
    """Longest training time of each run."""
    protocol: ProtocolName = "paper"
    """Protocol of the evaluations: see ga3c evaluate --help."""
    episodes: int = 30
    """Games in the evaluation of each run."""
    at_once: int = 1
    """Number of runs at the same time."""
    train: str = ""
    """More arguments for ga3c train, in quotes: --train="--envs-per-agent 32"."""
    evaluate: str = ""
    """More arguments for ga3c evaluate, in quotes: --evaluate="--at-once 8"."""

    def __post_init__(self) -> None:
        for name in ("seeds", "steps", "seconds", "episodes", "at_once"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} {value}: must be above 0")
        if self.steps is None and self.seconds is None:
            raise ValueError("neither steps nor seconds: no run would end")
        for name in ("train", "evaluate"):
            own = OWN & {word.partition("=")[0] for word in shlex.split(getattr(self, name))}
            if own:
                raise ValueError(
                    f"{name} {getattr(self, name)!r}: {', '.join(sorted(own))} is set by ga3c "
                    "scores itself, or it could not tell which runs are finished"
                )
        parent = next(p for p in (self.out_dir, *self.out_dir.absolute().parents) if p.exists())
        if not (parent.is_dir() and os.access(parent, os.W_OK)):
            raise ValueError(f"out_dir {self.out_dir}: {parent} is not a writable directory")


class Job(NamedTuple):
    """A run to make: a game and a seed."""

    game: str
    seed: int
    path: Path


def run(config: Config) -> None:
    """Run what is missing. Raises WrongInput, or RuntimeError with the output of a process."""
    jobs = _jobs(config)
    config.out_dir.mkdir(parents=True, exist_ok=True)
    while any(is_running(job.path) for job in jobs):  # left by a killed command
        time.sleep(POLL_S)
    waiting = deque(job for job in jobs if _next(config, job))
    running: dict[Job, tuple[subprocess.Popen[bytes], list[str]]] = {}
    shown_s = -SHOW_STATE_S
    try:
        while waiting or running:
            while waiting and len(running) < config.at_once:
                job = waiting.popleft()
                running[job] = _start(config, job)
            for job, (process, command) in list(running.items()):
                if process.poll() is not None:
                    del running[job]
                    _check(config, job, process)
                    next_command = _next(config, job)
                    if next_command == command:
                        raise RuntimeError(f"{job.path.name}: {command} ended without any effect")
                    if next_command:
                        waiting.appendleft(job)
            if time.monotonic() - shown_s > SHOW_STATE_S:
                shown_s = time.monotonic()
                commands = {job: command[0] for job, (_, command) in running.items()}
                _show_state(jobs, waiting, commands)
            time.sleep(POLL_S)
    finally:
        for process, _ in running.values():
            end(process)
    _show_state(jobs, waiting, {})
    _conclude(config, jobs)


def _jobs(config: Config) -> list[Job]:
    games: list[str] = []
    for name in config.games:
        if name in LISTS:
            games += [row["game"] for row in published_rows(LISTS[name])]
        else:
            games.append(name)
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
    """The arguments of the job's next command; empty if the job is done."""
    limits = [
        word
        for name, limit in (("steps", config.steps), ("seconds", config.seconds))
        for word in (f"--{name}", str(limit))
    ]
    if not checkpoints.kept(job.path / "checkpoints"):
        own = ["--game", job.game, "--seed", str(job.seed), "--name", job.path.name]
        own += ["--runs-dir", str(config.out_dir)]
        return ["train", *own, *limits, *shlex.split(config.train)]
    if not _trained(config, job):
        return ["train", "--resume", str(job.path), *limits]
    if not _evaluated(config, job):
        own = ["--protocol", config.protocol, "--episodes", str(config.episodes)]
        return ["evaluate", str(job.path), *own, *shlex.split(config.evaluate)]
    return []


def _trained(config: Config, job: Job) -> bool:
    """Whether its newest checkpoint is at a limit. A run with a damaged one is resumed."""
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
        shutil.rmtree(job.path, ignore_errors=True)  # of a run without a checkpoint
    print(f"{job.path.name}: ga3c {shlex.join(command)}", flush=True)
    with open(_error_file(config, job), "wb") as errors:
        whole = [sys.executable, "-m", "ga3c", *command]
        return subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=errors), command


def _error_file(config: Config, job: Job) -> Path:
    return config.out_dir / f"{job.path.name}.err"


def _check(config: Config, job: Job, process: subprocess.Popen[bytes]) -> None:
    """Print what the process wrote to standard error. Raises RuntimeError if it failed."""
    file = _error_file(config, job)
    errors = file.read_text(errors="replace").strip()
    file.unlink()
    if errors and not process.returncode:
        print(errors, file=sys.stderr, flush=True)
    if process.returncode:
        raise RuntimeError(f"{job.path.name}: exit {process.returncode}: {errors[-2000:]}")


def _show_state(jobs: Sequence[Job], waiting: Collection[Job], running: Mapping[Job, str]) -> None:
    """Print the state of all jobs. Args: running: the command of each job that runs."""
    rows = []
    for job in jobs:
        steps, minutes, score = "", "", ""
        state = "to do" if job in waiting else STATES.get(running.get(job, ""), "done")
        if (job.path / CONFIG).exists():
            state = "training" if job in waiting else state
            run_history = history.read(job.path)
            figures = run_history.figures
            last = figures[-1] if figures else {"steps": 0, "seconds": 0.0}
            steps, minutes = f"{last['steps']:,}", f"{last['seconds'] / 60:.1f}"
            scores = run_history.curve.score
            score = f"{scores[-1]:,.1f}" if len(scores) else ""
        rows.append((job.path.name, steps, minutes, score, state))
    show(f"{time.strftime('%H:%M')}", ("run", "steps", "minutes", "score", "state"), rows)


def _conclude(config: Config, jobs: Sequence[Job]) -> None:
    runs = [history.read(job.path) for job in jobs]
    scores = comparison.tables(runs)
    print("\n".join(map(tables.markdown, scores)))
    for name in ("scores.md", "scores.csv"):
        tables.write(scores, config.out_dir / name)
    title = f"ga3c: {len({job.game for job in jobs})} games, {config.seeds} seeds"
    (config.out_dir / "report.html").write_text(page.page(title, runs))
    print(f"wrote scores.md, scores.csv and report.html in {config.out_dir}")
