"""Starts agent processes on this machine, and reports when they end."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import NamedTuple, Protocol

from agents import start
from agents.link import name_of
from agents.machine import raise_descriptor_limit
from agents.registrations import handed_over
from agents.tails import Tails
from agents.worker import Task

KILL_TIMEOUT_S = 5.0
UNSTARTED = 1000  # exit code of an agent whose process could not be started; no process has it
PREPARED = "prepared "  # prefix of the name of an agent that has no task yet
NUMBER = "GA3C_AGENT"
"""The environment variable with an agent's number, from 0 on. No two agents of a launcher have the
same one at the same time, so simulators can derive ports from it."""
PLACES = "agents: "  # prefix of the line in a launcher's news that says where they are


class Exit(NamedTuple):
    """An agent process that has ended."""

    identity: str
    code: int  # negative: the signal that killed it
    log: str  # the tail of its standard output and error


class _Process(NamedTuple):
    """A running agent process."""

    process: subprocess.Popen[bytes]
    output: int  # the read end of the pipe that it writes to
    number: int  # the smallest that no other agent had when it started


class Launcher(Protocol):
    """Starts, stops and watches agents somewhere. Owned by one thread."""

    waiting: dict[str, Task]  # agents without a place, by identity

    def pid(self, identity: str) -> int | None:
        """The process id of a running agent; None if it is not on this machine."""

    def start(self, task: Task) -> None:
        """Start an agent."""

    def news(self) -> list[str]:
        """Lines about machines that have joined or left, and lines that agents print here."""

    def start_again(self, identity: str, task: Task) -> None:
        """Give a retired agent another task, which reuses its environments."""

    def end(self, identity: str) -> None:
        """End an agent; `reap` reports it."""

    def kill(self, identity: str) -> None:
        """Kill an agent that does not answer; `reap` reports it."""

    def reap(self) -> list[Exit]:
        """The agents that have ended since the last call."""

    def dismiss(self) -> None:
        """Order the agents on other machines to end, while they can still be reached."""

    def stop(self, timeout_s: float) -> None:
        """End all agents here, by force after `timeout_s`. None can be started afterwards."""


class LocalLauncher:
    """Agent processes on this machine. Owned by one thread.

    Each agent's standard input is a pipe, and the agent ends when the pipe closes. If this process
    dies for any reason, the pipes close, and every agent ends too. An agent's output is drained as
    it arrives, and only its first lines and its tail are kept.
    """

    def __init__(self) -> None:
        raise_descriptor_limit()
        self.waiting: dict[str, Task] = {}  # always: every agent starts at once
        self._tails = Tails()
        self._processes: dict[str, _Process] = {}
        self._unstarted: list[Exit] = []

    def __len__(self) -> int:
        return len(self._processes)

    def pid(self, identity: str) -> int | None:
        """The process id of a running agent; None if it could not be started."""
        agent = self._processes.get(identity)
        return agent and agent.process.pid

    def prepare(self, count: int, task: Task) -> None:
        """Start agents that make their first environments and then wait for `start`.

        Args: task: for a service that does not exist yet. Its environments are not seeded.
        """
        for number in range(count):
            self._start(replace(task, identity=f"{PREPARED}{number}"))

    def start(self, task: Task) -> None:
        """Start an agent, or give the task to a prepared one."""
        waits = next((name for name in self._processes if name.startswith(PREPARED)), None)
        if waits is None:
            self._start(task)
        else:
            self.start_again(waits, task)

    def _start(self, task: Task) -> None:
        try:
            process = self._new()
        except OSError as error:  # out of memory or processes, which may pass
            words = f"no process could be started: {error}"
            self._unstarted.append(Exit(task.identity, UNSTARTED, words))
        else:
            self._give(process, task)

    def _new(self) -> _Process:
        """A process in its own session, so that a terminal's Ctrl-C does not reach it."""
        taken = {agent.number for agent in self._processes.values()}
        number = min(set(range(len(taken) + 1)) - taken)
        output, written = self._tails.open()
        try:
            process = subprocess.Popen(
                [sys.executable, "-u", "-P", start.__file__, *search_path()],
                stdin=subprocess.PIPE,
                stdout=written,
                stderr=written,
                start_new_session=True,
                env={**os.environ, NUMBER: str(number)},
            )
        except OSError:
            self._tails.close(output)
            raise
        finally:
            os.close(written)
        return _Process(process, output, number)

    def start_again(self, identity: str, task: Task) -> None:
        """Give a retired agent another task, which reuses its environments."""
        self._give(self._processes.pop(identity), task)

    def end(self, identity: str) -> None:
        """End an agent by closing its input; `reap` reports it."""
        if identity in self._processes:
            _end_input(self._processes[identity].process)

    def _give(self, agent: _Process, task: Task) -> None:
        assert agent.process.stdin is not None
        task = replace(task, registration=handed_over(task.environment.game))
        self._processes[task.identity] = agent
        with contextlib.suppress(BrokenPipeError):  # the agent has died; reap() reports it
            agent.process.stdin.write(task.to_json().encode() + b"\n")
            agent.process.stdin.flush()

    def news(self) -> list[str]:
        """The first lines that agents print."""
        names = {agent.output: identity for identity, agent in self._processes.items()}
        return [f"{name_of(names[output])}: {line}" for output, line in self._tails.lines()]

    def dismiss(self) -> None:
        """Do nothing: all agents are on this machine."""

    def reap(self) -> list[Exit]:
        """The agents that have ended since the last call."""
        ended, self._unstarted = self._unstarted, []
        for identity, agent in list(self._processes.items()):
            if agent.process.poll() is not None:
                ended.append(self._forget(identity))
        return ended

    def kill(self, identity: str) -> None:
        """Kill an agent that does not answer; `reap` reports it."""
        if identity in self._processes:
            _kill(self._processes[identity].process)

    def stop(self, timeout_s: float) -> None:
        """End all agents by closing their inputs, and by force after `timeout_s`.

        No agent can be started afterwards.
        """
        deadline_s = time.monotonic() + timeout_s
        for agent in self._processes.values():
            _end_input(agent.process)
        for identity, agent in list(self._processes.items()):
            try:
                agent.process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                _kill(agent.process)
                with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel
                    agent.process.wait(KILL_TIMEOUT_S)
            self._forget(identity)
        self._tails.stop()

    def _forget(self, identity: str) -> Exit:
        agent = self._processes.pop(identity)
        _end_input(agent.process)
        _kill(agent.process)
        tail = self._tails.close(agent.output).decode(errors="replace")
        return Exit(identity, agent.process.returncode, tail.strip())


def search_path() -> list[str]:
    """The module search path of this process, with "" replaced by the working directory."""
    return [entry or os.getcwd() for entry in sys.path if isinstance(entry, str)]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill what remains of an agent's process group: it, or what its environments started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # the agent died with unread input
        process.stdin.close()
