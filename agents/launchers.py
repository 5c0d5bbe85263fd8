"""Starts agent processes on this machine, and sees them end."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from agents.worker import Task

LOG_TAIL_BYTES = 4000
KILL_TIMEOUT_S = 5.0


class Exit(NamedTuple):
    """An agent process that has ended."""

    identity: str
    code: int  # negative: the signal that killed it
    log: str  # the end of what it wrote to its standard error


class LocalLauncher:
    """Agent processes of this machine. Owned by one thread.

    Each has a pipe as its standard input, which it reads to its end: should this process die,
    however it dies, every agent ends too.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory  # where agents' standard error goes
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __len__(self) -> int:
        return len(self._processes)

    def pid(self, identity: str) -> int:
        """The process id of a running agent."""
        return self._processes[identity].pid

    def start(self, task: Task) -> None:
        """Start an agent in a session of its own, so that a terminal's Ctrl-C passes it by."""
        with open(self._log(task.identity), "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "agents.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._give(process, task)

    def start_again(self, identity: str, task: Task) -> None:
        """Let an agent that has retired take up another task: its environments are there."""
        with contextlib.suppress(FileNotFoundError):  # a cleaner of old files came first
            self._log(identity).rename(self._log(task.identity))
        self._give(self._processes.pop(identity), task)

    def end(self, identity: str) -> None:
        """End an agent by the end of its input; `reap` reports it."""
        _end_input(self._processes[identity])

    def _give(self, process: subprocess.Popen[bytes], task: Task) -> None:
        assert process.stdin is not None
        self._processes[task.identity] = process
        with contextlib.suppress(BrokenPipeError):  # it has died already: reap() says so
            process.stdin.write(task.to_json().encode() + b"\n")
            process.stdin.flush()

    def reap(self) -> list[Exit]:
        """The agents that have ended since the last call."""
        ended = []
        for identity, process in list(self._processes.items()):
            if process.poll() is not None:
                ended.append(self._forget(identity))
        return ended

    def kill(self, identity: str) -> None:
        """End an agent that does not answer; `reap` reports it."""
        if identity in self._processes:
            self._processes[identity].kill()

    def stop(self, timeout_s: float) -> None:
        """End all agents: by the end of their input, and after `timeout_s` by force."""
        deadline_s = time.monotonic() + timeout_s
        for process in self._processes.values():
            _end_input(process)
        for identity, process in list(self._processes.items()):
            try:
                process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(KILL_TIMEOUT_S)
            self._forget(identity)

    def _log(self, identity: str) -> Path:
        return self._directory / f"{identity}.log"

    def _forget(self, identity: str) -> Exit:
        process = self._processes.pop(identity)
        _end_input(process)
        log = self._log(identity)
        tail = ""
        with contextlib.suppress(FileNotFoundError):  # a cleaner of old files came first
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            log.unlink()
        return Exit(identity, process.returncode, tail.strip())


def _end_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # what it did not read before it died
        process.stdin.close()
