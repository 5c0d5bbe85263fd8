"""Makes many runs, one command after another: train, resume what was interrupted, evaluate.

Used by `ga3c scores` and by studies of learning. All state is in the runs' directories, so the same
jobs, given again, continue.
"""

import math
import shlex
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from ga3c.reports.job import Job
from ga3c.reports.listing import show_states
from ga3c.reports.processes import LOST, Process, check_commands, check_evaluation, end, here
from ga3c.runs.finding import is_running
from ga3c.runs.kept_config import CONFIG, load_config

STATES = {"train": "training", "evaluate": "evaluation"}  # by the command that runs
POLL_S = 0.5
MOST_LOSSES = 3  # of a job's nodes; then the job itself is to blame, for its memory, say
SHOW_STATE_S = 60.0  # between two tables of the state of all runs


def complete(
    jobs: Sequence[Job], at_once: int = 1, start: Callable[[list[str], Path], Process] = here
) -> None:
    """Run what is missing. A run whose node was lost continues elsewhere from its last checkpoint.

    Args: start: starts a command on this machine or another.

    Raises WrongInput if ga3c would refuse a command, or if an existing run was trained differently,
    and RuntimeError with the output of a process that fails.
    """
    for job in jobs:
        job.check()
    if start is here:  # other nodes differ in cores and perhaps in packages
        new = {(job.game, job.arguments): job for job in jobs if not job.kept}
        for job in new.values():
            check_commands(job.training, job.evaluating)
        for job in jobs:
            if job.kept and job.next_command:
                check_evaluation(job.evaluating, load_config(job.path))
    for parent in {job.path.parent for job in jobs}:
        parent.mkdir(parents=True, exist_ok=True)
    if busy := [job.path.name for job in jobs if is_running(job.path)]:
        print(f"waiting for {', '.join(busy)}: another process is training it", flush=True)
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
    elif command[0] == "train":
        job.note(steps=str(job.steps), until=str(job.resumed_until))
    print(f"{job.path.name}: ga3c {shlex.join(command)}", flush=True)
    return start(command, _error_file(job)), command


def _count_loss(job: Job, losses: dict[Job, list[str]]) -> None:
    """Note the newest checkpoint at a loss. Raises RuntimeError at the third loss with it."""
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
