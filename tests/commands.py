"""Runs the command `ga3c` in its own process, and checks what it leaves behind."""

import atexit
import contextlib
import functools
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
MARK = "GA3C_TEST_MARK"  # an environment variable of a command and its children
LIGHT = ["--agents", "2", "--envs-per-agent", "4", "--max-agents", "2", "--progress-every-s", "0.5"]
CORRIDOR = ["train", "--game", "tests.tiny:Corridor-v0", "--algorithm", "a3c", *LIGHT]
PATIENCE = 3.0 if os.environ.get("KERAS_BACKEND") == "jax" else 1.0  # JAX compiles each size
STOP_S = 25.0  # a signal ends a run within this; below SILENT_S, when hosts end agents themselves
FRESH = ("-m", "ga3c")  # a new interpreter, as for users, instead of a fork
BEGIN_S = 200.0  # a run begins within this, however busy the machine is


class Command:
    """`ga3c ARGUMENTS` in its own session, with its own directories for runs and temporary files.

    Args: program: arguments for a new Python interpreter; None: fork if possible, see `Forked`.
    """

    def __init__(
        self, tmp_path: Path, arguments: list[str], program: Sequence[str] | None = None
    ) -> None:
        self.runs, self.temporary = tmp_path / "runs", tmp_path / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.mark = uuid.uuid4().hex
        self._out, self._err = tmp_path / f"{self.mark}.out", tmp_path / f"{self.mark}.err"
        if arguments[:1] == ["train"] and "--runs-dir" not in arguments:
            arguments = [*arguments, "--runs-dir", str(self.runs)]
        extra = {"TMPDIR": str(self.temporary), MARK: self.mark, "PYTHONFAULTHANDLER": "1"}
        environment = {**os.environ, **extra}
        self.process: Forked | subprocess.Popen[bytes]
        if program is None and _forked(arguments):
            self.process = Forked(arguments, environment, self._out, self._err)
            return
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, *(program or FRESH), *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=hear_signals,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait(self, timeout_s: float) -> int:
        """Wait for the exit code. On timeout, the error shows where each of its threads is."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(STOP_S)
            raise AssertionError(f"not within {timeout_s} s\n{self.out}\n{self.err}") from None

    def until(self, holds: Callable[[], bool], timeout_s: float = BEGIN_S) -> None:
        """Wait for `holds` while the command runs."""
        try:
            wait_for(lambda: self.process.poll() is not None or holds(), timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.out}\n{self.err}") from None
        assert self.process.poll() is None, f"exited {self.process.returncode}: {self.err}"

    def until_steps_are_made(self) -> None:
        self.until(lambda: any(f"NA {n}]" in self.out for n in (1, 2)) and self.steps() > 0)

    def steps(self) -> int:
        """The steps in the newest complete progress line; the last line may be half written."""
        whole = self.out.rpartition("\n")[0].splitlines()
        lines = [line for line in whole if line.startswith("[Time")]
        return int(lines[-1].split("Steps ")[1].split("]")[0].replace(",", "")) if lines else 0

    def interrupt(self) -> None:
        """Send SIGINT to the process group, as a terminal does for Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def survivors(self) -> list[psutil.Process]:
        """The command, if it still runs, and all processes that it started, orphans included."""
        itself = [psutil.Process(self.process.pid)] if self.process.poll() is None else []
        found = [p for p in itself if p.status() != psutil.STATUS_ZOMBIE]
        for process in psutil.process_iter():
            try:
                alive = process.status() != psutil.STATUS_ZOMBIE
                started = process not in itself and process.environ().get(MARK) == self.mark
                if alive and started:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def agents(self) -> list[psutil.Process]:
        return [p for p in self.survivors() if p.pid != self.process.pid]

    def leftovers(self) -> list[str]:
        """The service's own files outside the run directory."""
        return [path.name for path in self.temporary.glob("ga3c-*")]

    def kill_all(self) -> None:
        for process in self.survivors():
            process.kill()
        self.process.wait(STOP_S)


def hear_signals() -> None:
    """Reset SIGHUP and SIGINT to their defaults in the process that is about to start.

    It would inherit that they are ignored if the tests run under nohup or in a script's background.
    """
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def wait_for(holds: Callable[[], bool], timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s"
        time.sleep(0.02)


def assert_nothing_is_left(run: Command) -> None:
    assert run.survivors() == []
    assert run.leftovers() == []


def ended(
    *arguments: str, timeout_s: float = 400.0, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run `ga3c ARGUMENTS` in its own process until it ends. Args: cwd: its working directory."""
    if not _forked(arguments):
        return subprocess.run(
            [sys.executable, "-m", "ga3c", *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=timeout_s * PATIENCE,
        )
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory) / "out", Path(directory) / "err"
        process = Forked(arguments, dict(os.environ), out, err, cwd)
        try:
            process.wait(timeout_s)
        except BaseException:  # including pytest's own time limit
            os.killpg(process.pid, signal.SIGKILL)
            raise
        said = (file.read_text() for file in (out, err))
        return subprocess.CompletedProcess(list(arguments), process.returncode or 0, *said)


def _forked(arguments: Sequence[str]) -> bool:
    """Whether a command may be forked from a process that has imported TensorFlow."""
    framework = os.environ.get("KERAS_BACKEND", "tensorflow")
    return "--backend" not in arguments and framework == "tensorflow"


class Forked:
    """`ga3c ARGUMENTS`, started by `tests/forks.py`. It is used like a `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        out: Path,
        err: Path,
        cwd: Path = ROOT,
    ) -> None:
        files = {"out": str(out), "err": str(err), "cwd": str(cwd)}
        for file in (out, err):
            file.touch()  # so that they can be read at once
        self._server = _server()
        asked = {"arguments": list(arguments), "environment": dict(environment), **files}
        self.pid = int(_answer(self._server, asked))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self.returncode is None:
            self.returncode = _answer(self._server, self.pid)
        return self.returncode

    def wait(self, timeout_s: float = BEGIN_S) -> int:
        """Its exit code. Raises TimeoutExpired."""
        deadline_s = time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired("ga3c", timeout_s)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM, like Popen."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, like Popen."""
        self.send_signal(signal.SIGKILL)


@functools.cache
def _server() -> "subprocess.Popen[bytes]":
    """The process of `tests/forks.py`. It is started for the first command."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forks"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=hear_signals,
    )
    process.wait(BEGIN_S)  # it ends at once; its child is the server
    assert process.stdin is not None
    atexit.register(process.stdin.close)
    return process


def _answer(server: "subprocess.Popen[bytes]", asked: Any) -> Any:
    """The fork server's answer to one request, which it gives at once."""
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write((json.dumps(asked) + "\n").encode())
    server.stdin.flush()
    if not select.select([server.stdout], [], [], BEGIN_S)[0]:
        _server.cache_clear()  # a late answer would be read as the answer to the next request
        raise TimeoutError("the process that starts commands does not answer")
    return json.loads(server.stdout.readline())


def children() -> set[int]:
    """The ids of this process's children, including ended ones that nobody has reaped.

    The resource tracker is left out: `multiprocessing` starts it once and never ends it.
    """
    tracker = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    return {process.pid for process in psutil.Process().children()} - {tracker}


def refused(*arguments: str, code: int = 2) -> str:
    """The line with which the command refuses its arguments. Its exit code must be `code`.

    The command runs in this process, which has imported the tensor framework already. Otherwise,
    hundreds of refusals would take the suite several minutes. `test_command` tests refusals in
    processes of their own. Do not use this for a command that starts a process before it refuses.
    """
    known = children()
    from ga3c.__main__ import main

    said, environment, directory = io.StringIO(), dict(os.environ), os.getcwd()
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        os.chdir(ROOT)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            returned = main(list(arguments))
    finally:
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert returned == code, said.getvalue()
    assert children() <= known, "a process was left"
    *before, line = said.getvalue().splitlines()
    assert code == 1 or not before, said.getvalue()
    assert "Traceback" not in said.getvalue()
    return line
