"""Processes marked by an environment variable, wherever they are in the process tree."""

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from ga3c.runs.scratch import PREFIX

ROOT = Path(__file__).resolve().parents[2]
MARK = "GA3C_MARK"  # set for a command and everything it starts
END_S = 30.0  # a command ends within this after a signal


def new_mark() -> str:
    """A mark that no other process has."""
    return uuid.uuid4().hex


def marked(mark: str) -> list[psutil.Process]:
    """All living processes with this mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:  # it has just ended, or is another user's
            continue
    return found


class Marked:
    """A command with marked processes and a directory of its own for temporary files.

    So whatever it leaves behind can be found.
    """

    def __init__(self, temporary: Path) -> None:
        self.temporary = temporary
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None
        self._mark = new_mark()

    def launch(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, **streams: Any
    ) -> None:
        """Start the command, for the first time or again. Args: streams: stdin, stdout, stderr."""
        self.process = subprocess.Popen(
            command,
            env={**marked_environment(self._mark, self.temporary), **(environment or {})},
            start_new_session=True,
            preexec_fn=_hear_signals,
            **{"stdin": subprocess.DEVNULL, **streams},
        )

    @property
    def runs(self) -> bool:
        """Whether the command is still running."""
        return self.process is not None and self.process.poll() is None

    def agents(self) -> list[psutil.Process]:
        """The processes that it has started: the agents."""
        assert self.process is not None
        return [each for each in marked(self._mark) if each.pid != self.process.pid]

    def signal_all(self, number: int) -> None:
        """Send a signal to the command and everything it has started."""
        for process in marked(self._mark):
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    def kill_all(self) -> None:
        """Kill the command and everything it has started."""
        self.signal_all(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(END_S)

    def left(self) -> list[str]:
        """Processes and temporary files of ga3c that the ended command has left behind."""
        processes = [f"process {each.pid}" for each in marked(self._mark)]
        return processes + [str(path) for path in self.temporary.glob(f"{PREFIX}*")]


def marked_environment(mark: str, temporary: Path) -> dict[str, str]:
    """Environment variables for a command with this mark and directory for temporary files."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {MARK: mark, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(paths)}


def _hear_signals() -> None:
    """Even in a script's background or under nohup, where these signals are ignored."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class Belongings(NamedTuple):
    """What a process holds at a moment."""

    memory_mb: float  # resident
    descriptors: int
    threads: int
    children: int


def belongings(pid: int) -> Belongings | None:
    """What the process holds; None if it has ended."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return Belongings(
                process.memory_info().rss / 2**20,
                len(os.listdir(f"/proc/{pid}/fd")),
                process.num_threads(),
                len(process.children()),
            )
    except (psutil.Error, OSError):
        return None
