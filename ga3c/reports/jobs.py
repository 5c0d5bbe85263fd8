"""Runs many runs, one command after another: train, resume what was interrupted, evaluate.

Used by `ga3c scores` and by the studies of learning. The state is what the runs' directories hold,
so the same jobs, given again, continue.
"""

import json
import math
import shlex
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agents.games import are_same
from ga3c.reports import history
from ga3c.reports.listing import show_states
from ga3c.reports.processes import LOST, Process, check_commands, end, here
from ga3c.runs import checkpoints
from ga3c.runs.finding import is_running
from ga3c.runs.kept_config import CONFIG, load_config
from ga3c.settings.checks import WrongInput

STATES = {"train": "training", "evaluate": "evaluation"}  # by the command that runs
POLL_S = 0.5
MOST_LOSSES = 3  # of a job's nodes, before the job itself is to blame: for its memory, say
SHOW_STATE_S = 60.0  # between two tables of the state of all runs


class Evaluation(NamedTuple):
    """The evaluation of a finished run."""

    protocol: str | None  # None: the run's own
    episodes: int
    arguments: str = ""  # more arguments for ga3c evaluate


class Job(NamedTuple):
    """A run to make."""

    path: Path
    game: str
    seed: int
    steps: int | None  # environment steps of the run
    seconds: float | None  # its longest training time
    arguments: str = ""  # more arguments for ga3c train
    evaluation: Evaluation | None = None

    @property
    def asked(self) -> Path:
        """The file with the further arguments of its training and of its evaluation."""
        return self.path.parent / f"{self.path.name}.arguments.json"

    @property
    def kept(self) -> list[Path]:
        """The checkpoints of its run, the newest last; none if it has not begun."""
        return checkpoints.kept(self.path / "checkpoints")

    def check(self) -> None:
        """Raises WrongInput if another game's run is there, or one that was trained otherwise."""
        if not self.kept:
            return
        game = load_config(self.path).environment.game
        trained = _known(self.asked).get("train", self.arguments)
        if not are_same(game, self.game) or trained != self.arguments:
            raise WrongInput(
                f"{self.path} is a run of {game}, trained with {trained or 'no arguments'!r}, and "
                f"{self.game} with {self.arguments or 'none'!r} is asked for: choose another folder"
            )

    def note(self, **arguments: str) -> None:
        """Keep with which further arguments it is trained (train) or was evaluated (evaluate)."""
        self.asked.write_text(json.dumps({**_known(self.asked), **arguments}))

    @property
    def next_command(self) -> list[str]:
        """The arguments of the next command; empty if the job is done."""
        if not self.kept:
            return ["train", *self.training]
        if not self._trained:
            return ["train", "--resume", str(self.path), "--trust", *self._limits]
        if self.evaluation and not self._evaluated:
            return ["evaluate", str(self.path), "--trust", *self.evaluating]
        return []

    @property
    def _limits(self) -> list[str]:
        """Its ends. More steps if it would end while it fills a replay anew that was not saved."""
        steps = self.steps
        if steps and self.kept and (config := load_config(self.path)).learns_from_replay:
            refill = 0 if config.replay.save_replay else config.replay.replay_min_steps
            steps += refill if steps - int(self.kept[-1].name) <= refill else 0
        return ["--steps", str(steps), "--seconds", str(self.seconds)]

    @property
    def training(self) -> list[str]:
        """The arguments of `ga3c train` for a new run."""
        own = ["--game", self.game, "--seed", str(self.seed), "--name", self.path.name]
        own += ["--runs-dir", str(self.path.parent)]
        return [*own, *self._limits, *shlex.split(self.arguments)]

    @property
    def evaluating(self) -> list[str]:
        """The arguments of its evaluation, without the run; empty if there is to be none."""
        if not self.evaluation:
            return []
        protocol, episodes, arguments = self.evaluation
        own = ["--protocol", protocol] if protocol else []
        return [*own, "--episodes", str(episodes), *shlex.split(arguments)]

    @property
    def _trained(self) -> bool:
        """Whether its newest checkpoint is at a limit. A run with a damaged one is resumed."""
        try:
            newest = checkpoints.read(self.kept[-1])
        except (checkpoints.Damaged, IndexError):
            return False
        reached = newest.state["steps"], newest.state["seconds"]
        limits = self.steps, self.seconds
        return any(limit and done >= limit for done, limit in zip(reached, limits, strict=True))

    @property
    def _evaluated(self) -> bool:
        assert self.evaluation is not None
        newest = int(self.kept[-1].name)
        run = history.read(self.path)
        protocol = self.evaluation.protocol or run.config.evaluation.evaluate_protocol
        arguments = self.evaluation.arguments
        names = {protocol, f"{protocol}, changed"} if arguments else {protocol}
        return _known(self.asked).get("evaluate", arguments) == arguments and any(
            entry["steps"] == newest
            and entry["protocol"]["name"] in names
            and entry["protocol"].get("weights", "newest") == "newest"
            and entry["episodes"] >= self.evaluation.episodes
            for entry in run.evaluations
        )


def _known(file: Path) -> dict[str, str]:
    """What the file says; nothing of a run that was made by hand, or by an earlier version."""
    try:
        return dict(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def complete(
    jobs: Sequence[Job], at_once: int = 1, start: Callable[[list[str], Path], Process] = here
) -> None:
    """Run what is missing. A run whose node was lost goes on elsewhere from its last checkpoint.

    Args: start: starts a command on this machine or another.

    Raises WrongInput if ga3c would refuse what is asked for, or a run is there that was trained
    otherwise, and RuntimeError with the output of a process that fails.
    """
    for job in jobs:
        job.check()
    if start is here:  # elsewhere are other cores and perhaps other packages
        new = {(job.game, job.arguments): job for job in jobs if not job.kept}
        for job in new.values():
            check_commands(job.training, job.evaluating)
    for parent in {job.path.parent for job in jobs}:
        parent.mkdir(parents=True, exist_ok=True)
    if busy := [job.path.name for job in jobs if is_running(job.path)]:
        print(f"waiting for {', '.join(busy)}: another process trains it", flush=True)
    while any(is_running(job.path) for job in jobs):
        time.sleep(POLL_S)
    waiting = deque(job for job in jobs if job.next_command)
    running: dict[Job, tuple[Process, list[str]]] = {}
    losses: dict[Job, list[str]] = {}
    shown_s = -SHOW_STATE_S
    try:
        while waiting or running:
            free = [job for job in waiting if not is_running(job.path)]
            for job in free[: at_once - len(running)]:
                waiting.remove(job)
                running[job] = _started(job, start)
            for job, (process, command) in list(running.items()):
                if process.poll() is not None:
                    del running[job]
                    if process.returncode == LOST:
                        _count_loss(job, losses)
                        waiting.append(job)
                        continue
                    _check(job, process)
                    if command[0] == "evaluate" and job.evaluation:
                        job.note(evaluate=job.evaluation.arguments)
                    next_command = job.next_command
                    if next_command == command:
                        raise RuntimeError(f"{job.path.name}: {command} ended without any effect")
                    if next_command:
                        waiting.appendleft(job)
            if time.monotonic() - shown_s > SHOW_STATE_S:
                shown_s = time.monotonic()
                _show_states(jobs, waiting, running)
            time.sleep(POLL_S)
    finally:
        end(*(process for process, _ in running.values()), within_s=math.inf)
    _show_states(jobs, waiting, {})


def _started(job: Job, start: Callable[[list[str], Path], Process]) -> tuple[Process, list[str]]:
    command = job.next_command
    if "--resume" not in command and command[0] == "train":
        shutil.rmtree(job.path, ignore_errors=True)  # of a run without a checkpoint
        job.note(train=job.arguments)
    print(f"{job.path.name}: ga3c {shlex.join(command)}", flush=True)
    return start(command, _error_file(job)), command


def _count_loss(job: Job, losses: dict[Job, list[str]]) -> None:
    """Note the newest checkpoint at a loss. Raises RuntimeError at the third with the same one."""
    newest = max((each.name for each in job.kept), default="")
    losses[job] = [*(name for name in losses.get(job, []) if name == newest), newest]
    if len(losses[job]) == MOST_LOSSES:
        words = _error_file(job).read_text(errors="replace")[-2000:]
        lost = f"lost with its node {MOST_LOSSES} times without a newer checkpoint"
        raise RuntimeError(f"{job.path.name}: {lost}: {words}")
    print(f"{job.path.name}: its node is lost; it goes on elsewhere", flush=True)


def _error_file(job: Job) -> Path:
    return job.path.parent / f"{job.path.name}.err"


def _check(job: Job, process: Process) -> None:
    """Print what the process wrote to standard error. Raises RuntimeError if it failed."""
    file = _error_file(job)
    errors = file.read_text(errors="replace").strip()
    file.unlink()
    if errors and not process.returncode:
        print(errors, file=sys.stderr, flush=True)
    if process.returncode:
        raise RuntimeError(f"{job.path.name}: exit {process.returncode}: {errors[-2000:]}")


def _show_states(
    jobs: Sequence[Job], waiting: Collection[Job], running: Mapping[Job, tuple[Process, list[str]]]
) -> None:
    states = dict.fromkeys((job.path for job in jobs), "done")
    for job in waiting:
        states[job.path] = "waiting" if (job.path / CONFIG).exists() else "to do"
    for job, (_, command) in running.items():
        states[job.path] = STATES[command[0]]
    show_states(states)
