"""Runs ga3c commands in processes of their own: on this machine, or as tasks of a Ray cluster.

Commands on Ray need directories that all nodes of the cluster share.
"""

import functools
import logging
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from agents.environments import EnvironmentConfig, Spaces, spaces
from agents.launchers import search_path
from agents.machine import COUNTED
from agents.signals import end_with_parent, ending, handled, is_same_request, restore
from ga3c.command.effects import check_effects
from ga3c.command.line import WrongUse, parsed
from ga3c.command.parse import TrainArguments
from ga3c.reports.job import asked_evaluation, protocol_of
from ga3c.settings.begin import given_value
from ga3c.settings.checks import WrongInput
from ga3c.settings.train import TrainConfig

END_S = SAY_S = 12.0  # longer than most clean stops take
KILL_S = 12.0  # after that, a killed command's node counts as unreachable
POLL_S = 0.05
LOST = -1000  # the exit code of a command whose node was lost
INTERRUPTED = 130


# Arguments that a job sets itself. A user's extra arguments may not contain them.
OWN = {"--game", "--seed", "--name", "--runs-dir", "--resume", "--steps", "--seconds", "--score"}
OWN |= {"--protocol", "--episodes", "--checkpoint"}


class Process(Protocol):
    """A command that runs somewhere, with a part of the interface of `subprocess.Popen`."""

    returncode: Any

    def poll(self) -> int | None:
        """Its exit code if it has ended."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """Kill it."""


def check_arguments(setting: str, arguments: str, command: str) -> None:
    """Raises ValueError if a user's `arguments` contain one that the jobs set themselves."""
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise ValueError(f"{setting} {arguments!r}: {error}") from error
    if own := OWN & {word.partition("=")[0].replace("_", "-") for word in words}:
        raise ValueError(
            f"{setting} {arguments!r}: {', '.join(sorted(own))} is set by ga3c {command} itself, "
            "or it could not tell which runs are finished"
        )


def check_commands(training: list[str], evaluating: list[str]) -> None:
    """Raises WrongInput if `ga3c train` or `ga3c evaluate` refuses these arguments.

    With --config, it does not check how they fit together. Args: evaluating: empty if there is no
    evaluation.
    """
    if given_value(training, "--config") is not None:
        asked_evaluation(evaluating)
        return
    try:
        config = parsed(training, TrainArguments, "ga3c train").settings
        check_effects(config, _spaces(config.environment), training)
    except (WrongUse, ValueError) as error:
        raise WrongInput(str(error)) from error
    check_evaluation(evaluating, config)


def check_evaluation(evaluating: list[str], trained: TrainConfig) -> None:
    """Raises WrongInput if `ga3c evaluate` refuses these arguments for a run with such settings.

    Otherwise a mistake would only show after all training. Args: evaluating: as above.
    """
    if not evaluating:
        return
    asked = asked_evaluation(evaluating)
    try:
        protocol_of(asked, trained, _spaces(asked.as_played(trained).environment))
    except ValueError as error:
        raise WrongInput(str(error)) from error


@functools.cache
def _spaces(environment: EnvironmentConfig) -> Spaces:
    """Its spaces; it is made only once, which may take seconds. Raises ValueError."""
    return spaces(environment, tried=False)


def here(command: list[str], errors: Path) -> Process:
    """Start a ga3c command on this machine; its standard error is written to `errors`."""
    with open(errors, "wb") as file:
        whole = [sys.executable, "-m", "ga3c", *command]
        return subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=file)


def end(*processes: Process, within_s: float = END_S) -> None:
    """End the commands that still run: first by SIGTERM, after `within_s` by SIGKILL.

    Another signal meanwhile kills them at once, unless it repeats the same request to end.
    """
    begun_s, is_said = time.monotonic(), False
    kill_s = begun_s + within_s

    def again(number: int, frame: FrameType | None) -> None:
        nonlocal kill_s
        if not is_same_request(begun_s):
            kill_s = min(kill_s, time.monotonic())

    before = handled(ending(), again)
    try:
        running = [process for process in processes if process.poll() is None]
        for process in running:
            process.terminate()
        while running and (now_s := time.monotonic()) < kill_s + KILL_S:
            if now_s >= kill_s:
                for process in running:
                    process.kill()
            elif now_s > begun_s + SAY_S and not is_said:
                is_said = True
                words = "waiting until runs have saved their state; Ctrl-C ends them without saving"
                print(f"ga3c: {words}", file=sys.stderr, flush=True)
            time.sleep(POLL_S)
            running = [process for process in running if process.poll() is None]
    finally:
        restore(before)


class OnRay:
    """Starts ga3c commands on the nodes of a cluster, as Ray finds cores for them."""

    def __init__(self, address: str, cores: int, gpus: float) -> None:
        """Args: cores, gpus: what Ray reserves for each command."""
        import ray

        ray.init(address, namespace="ga3c", log_to_driver=False, logging_level=logging.CRITICAL)
        self._ray = ray
        options = {"num_cpus": cores, "num_gpus": gpus, "max_retries": 0}
        self._command, self._cores = ray.remote(_command).options(**options), cores

    def __call__(self, command: list[str], errors: Path) -> Process:
        """Start a command, whose standard error is written to `errors`."""
        task = self._command.remote(command, str(errors), os.getcwd(), self._cores)
        return RayProcess(self._ray, task, errors)


class RayProcess:
    """A command on some node, with a part of the interface of `subprocess.Popen`."""

    def __init__(self, ray: Any, task: Any, errors: Path) -> None:
        """Args: errors: the file that says why, if its node is lost."""
        self._ray, self._task, self._errors = ray, task, errors
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code if the command has ended; LOST if its node has."""
        if self.returncode is None and self._ray.wait([self._task], timeout=0)[0]:
            try:
                self.returncode = self._ray.get(self._task)
            except self._ray.exceptions.TaskCancelledError:  # may be a RayTaskError, too
                self.returncode = INTERRUPTED
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError as error:
                self.returncode = LOST
                self._errors.write_text(f"{type(error).__name__}: {error}")
        return self.returncode

    def terminate(self) -> None:
        """Ask the command to save its state and end."""
        self._ray.cancel(self._task)

    def kill(self) -> None:
        """Kill the command, whatever it is doing."""
        self._ray.cancel(self._task, force=True)


def _command(command: list[str], errors: str, directory: str, cores: int) -> int:
    """Run `ga3c COMMAND` on `cores` cores of this node.

    Returns its exit code; it ends if this process does.
    """
    paths = os.pathsep.join(search_path())
    with open(errors, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "ga3c", *command],
            cwd=directory if os.path.isdir(directory) else None,
            env={**os.environ, "PYTHONPATH": paths, COUNTED: str(cores)},
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
            preexec_fn=functools.partial(end_with_parent, signal.SIGTERM),
        )
        try:
            return process.wait()
        finally:
            end(process, within_s=math.inf)
