"""A `ga3c train` process whose speed and resources are recorded while it is being broken."""

import contextlib
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.faults.processes import END_S, Belongings, Marked, belongings
from ga3c.runs import records

GA3C = (sys.executable, "-m", "ga3c")
BEGIN_S = 120.0  # a run has begun within this, however busy the machine
POLL_S = 0.05
PROGRESS_S = 0.5  # between two lines of a run's figures
READ_EVERY_S = 1.0  # between two readings of what the service holds


class Reading(NamedTuple):
    """How far a run was at a moment."""

    at_s: float  # of the monotonic clock
    steps: int
    updates: int


class Watched(Marked):
    """One command after another on the same run, in `directory`. Use it as a context."""

    def __init__(self, directory: Path, name: str = "run") -> None:
        super().__init__(directory / "tmp")
        self.path = directory / "runs" / name
        """The run's directory."""
        self.prefix: tuple[str, ...] = ()
        """What to put before the command; it must exec the command, as `ip netns exec` does."""
        self.output = directory / f"{name}.out"
        self.errors = directory / f"{name}.err"
        self.readings: list[Reading] = []
        self.held: list[Belongings] = []
        """What the service held, once a second."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.kill_all()

    def train(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a new run with these arguments of `ga3c train`."""
        place = ["--runs-dir", str(self.path.parent), "--name", self.path.name]
        self._start(["train", *arguments, *place], environment)

    def resume(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Resume the run."""
        self._start(["train", "--resume", str(self.path), *arguments], environment)

    def _start(self, arguments: list[str], environment: Mapping[str, str] | None) -> None:
        with open(self.output, "ab") as out, open(self.errors, "ab") as err:
            often = ("--progress-every-s", str(PROGRESS_S))
            command = [*self.prefix, *GA3C, *arguments, *often]
            self.launch(command, environment, stdout=out, stderr=err)

    def _read(self) -> None:
        """Record how far the run is and what it holds, until the context ends."""
        file, due_s, last = self.path / "metrics.jsonl", 0.0, b""
        while not self._over.wait(POLL_S):
            with contextlib.suppress(OSError):
                line = _last_line(file)
                if line != last and (entries := records.parsed([line])):
                    last, entry = line, entries[0]
                    steps, updates = int(entry["steps"]), int(entry["updates"])
                    self.readings.append(Reading(time.monotonic(), steps, updates))
            if self.process is not None and time.monotonic() >= due_s:
                due_s = time.monotonic() + READ_EVERY_S
                if self.process.poll() is None and (held := belongings(self.process.pid)):
                    self.held.append(held)

    @property
    def steps(self) -> int:
        """Environment steps of the run's newest line of figures; 0 before the first."""
        return self.readings[-1].steps if self.readings else 0

    @property
    def updates(self) -> int:
        """Updates of the run's newest line of figures; 0 before the first."""
        return self.readings[-1].updates if self.readings else 0

    @property
    def log(self) -> str:
        """All that the run has printed."""
        return self.output.read_text() + self.errors.read_text()

    def pps(self, start_s: float, end_s: float) -> float:
        """Environment steps per second between two moments of the monotonic clock.

        Measured only up to the newest reading, unless that is too old for a run in progress.
        """
        newest_s = self.readings[-1].at_s if self.readings else 0.0
        if end_s - newest_s < 2 * PROGRESS_S and newest_s > start_s:
            end_s = min(end_s, newest_s)
        return (self._steps_at(end_s) - self._steps_at(start_s)) / max(end_s - start_s, 1e-9)

    def _steps_at(self, at_s: float) -> float:
        """Steps at a moment, interpolated linearly between two readings."""
        readings = list(self.readings)
        index = bisect_left(readings, at_s, key=lambda each: each.at_s)
        if index == 0 or index == len(readings):
            return readings[min(index, len(readings) - 1)].steps if readings else 0
        one, two = readings[index - 1 : index + 1]
        return one.steps + (two.steps - one.steps) * (at_s - one.at_s) / (two.at_s - one.at_s)

    def begun(self, agents: int, timeout_s: float = BEGIN_S) -> None:
        """Wait until this many agents run and learning makes updates."""
        self.until(lambda: len(self.agents()) >= agents and self.updates > 0, timeout_s)
        first = self.updates
        self.until(lambda: self.updates > first, timeout_s)

    def until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Wait for `holds` while the command runs. Raises RuntimeError if it takes longer."""
        until_s = time.monotonic() + timeout_s
        while not holds():
            if not self.runs:
                raise RuntimeError(f"the run has ended, {self.process}: {self.tail()}")
            if time.monotonic() > until_s:
                raise RuntimeError(f"not within {timeout_s:g} s: {self.tail()}")
            time.sleep(POLL_S)

    def tail(self, lines: int = 5) -> str:
        """The last lines of what was printed to standard error, else to standard output."""
        said = self.errors.read_text().splitlines() or self.output.read_text().splitlines()
        return " | ".join(said[-lines:])

    def signal(self, number: int) -> None:
        """Send a signal to the service alone."""
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self, timeout_s: float = END_S) -> int:
        """Wait for the end of the command. Returns its exit code, or raises RuntimeError."""
        assert self.process is not None
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"did not end within {timeout_s:g} s: {self.tail()}") from None

    def end(self) -> int:
        """Interrupt the run, as Ctrl-C does, and wait for its end. Returns its exit code."""
        self.signal(signal.SIGINT)
        return self.ended()


def _last_line(file: Path) -> bytes:
    with open(file, "rb") as read:
        read.seek(0, 2)
        read.seek(max(read.tell() - 8192, 0))
        lines = read.read().split(b"\n")
    return lines[-2] if len(lines) > 1 else b""
