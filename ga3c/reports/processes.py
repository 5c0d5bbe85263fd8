"""Runs ga3c commands in processes of their own: on this machine, or as tasks of a Ray cluster.

Commands on Ray need directories that all nodes of the cluster share.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agents.launchers import search_path
from agents.machine import COUNTED
from agents.signals import end_with_parent

END_S = 12.0  # longer than a clean stop takes
LOST = -1000  # the exit code of a command whose node was lost


class Process(Protocol):
    """A command that runs somewhere, with what a `subprocess.Popen` has of it."""

    returncode: Any

    def poll(self) -> int | None:
        """Its exit code if it has ended."""

    def terminate(self) -> None:
        """Let it end."""

    def kill(self) -> None:
        """End it."""

    def wait(self, timeout: float | None = None) -> Any:
        """Until it has ended. Raises subprocess.TimeoutExpired."""


def here(command: list[str], errors: Path) -> Process:
    """Start a ga3c command on this machine; its standard error is written to `errors`."""
    with open(errors, "wb") as file:
        whole = [sys.executable, "-m", "ga3c", *command]
        return subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=file)


def end(*processes: Process) -> None:
    """End the commands that still run: first by SIGTERM, then by SIGKILL."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    until_s = time.monotonic() + END_S
    for process in running:
        try:
            process.wait(max(until_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # its node cannot be reached
                process.wait(END_S)


class OnRay:
    """Starts ga3c commands on the nodes of a cluster, when Ray finds the cores for them."""

    def __init__(self, address: str, cores: int, gpus: float) -> None:
        """Args: cores, gpus: what Ray counts for each command."""
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
    """A command on some node, with what a `subprocess.Popen` has of it."""

    def __init__(self, ray: Any, task: Any, errors: Path) -> None:
        """Args: errors: the file that says why, if its node is lost."""
        self._ray, self._task, self._errors = ray, task, errors
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code if the command has ended; LOST if its node has."""
        if self.returncode is None and self._ray.wait([self._task], timeout=0)[0]:
            try:
                self.returncode = self._ray.get(self._task)
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError as error:
                self.returncode = LOST
                self._errors.write_text(f"{type(error).__name__}: {error}")
        return self.returncode

    def terminate(self) -> None:
        """Let the command keep its state and end."""
        self._ray.cancel(self._task)

    def kill(self) -> None:
        """End the command, whatever it does."""
        self._ray.cancel(self._task, force=True)

    def wait(self, timeout: float | None = None) -> None:
        """Until the command has ended. Raises subprocess.TimeoutExpired."""
        if not self._ray.wait([self._task], timeout=timeout)[0]:
            raise subprocess.TimeoutExpired("ga3c", timeout or 0.0)


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
            preexec_fn=partial(end_with_parent, signal.SIGTERM),
        )
        try:
            return process.wait()
        finally:
            end(process)
