"""The command `ga3c` in a process of its own, and what it leaves behind."""

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
MARK = "GA3C_TEST_MARK"  # in the environment of a command and of all that it starts
LIGHT = ["--agents", "2", "--envs-per-agent", "4", "--max-agents", "2", "--progress-every-s", "0.5"]
CORRIDOR = ["train", "--game", "tests.tiny:Corridor-v0", "--algorithm", "a3c", *LIGHT]
PATIENCE = 3.0 if os.environ.get("KERAS_BACKEND") == "jax" else 1.0  # it compiles for each size
STOP_S = 25.0  # a signal ends a run within this; before a host ends its agents by itself, SILENT_S
FRESH = ("-m", "ga3c")  # from nothing, as users do
BEGIN_S = 200.0  # a run has begun within this, however busy the machine


class Command:
    """`ga3c ARGUMENTS` in a session of its own, with its own places for files.

    Args: program: what Python is to run instead of a command that was forked, see `Forked`.
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
        """Its exit code. One that does not end says where every thread of it is."""
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
        """Of the newest whole progress line: the last one may be half written."""
        whole = self.out.rpartition("\n")[0].splitlines()
        lines = [line for line in whole if line.startswith("[Time")]
        return int(lines[-1].split("Steps ")[1].split("]")[0].replace(",", "")) if lines else 0

    def interrupt(self) -> None:
        """As a terminal does for Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def survivors(self) -> list[psutil.Process]:
        """Processes that the command started, wherever they hang now, and itself."""
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
    """Let the process that is about to start hear what a person's would, also if the tests run
    under nohup or in the background of a script, where these signals are ignored."""
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
    """`ga3c ARGUMENTS` in a process of its own, waited for. Args: cwd: its working directory."""
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
        except BaseException:  # pytest's own time limit among them
            os.killpg(process.pid, signal.SIGKILL)
            raise
        said = (file.read_text() for file in (out, err))
        return subprocess.CompletedProcess(list(arguments), process.returncode or 0, *said)


def _forked(arguments: Sequence[str]) -> bool:
    """Whether a command may start from a process that has imported TensorFlow."""
    framework = os.environ.get("KERAS_BACKEND", "tensorflow")
    return "--backend" not in arguments and framework == "tensorflow"


class Forked:
    """`ga3c ARGUMENTS`, started by `tests/forks.py`. It is used as a `subprocess.Popen` is."""

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
        """Nothing happens if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """As Popen's."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As Popen's."""
        self.send_signal(signal.SIGKILL)


@functools.cache
def _server() -> "subprocess.Popen[bytes]":
    """The process of `tests/forks.py`, which starts with the first command."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forks"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=hear_signals,
    )
    process.wait(BEGIN_S)  # the process that serves is its child
    assert process.stdin is not None
    atexit.register(process.stdin.close)
    return process


def _answer(server: "subprocess.Popen[bytes]", asked: Any) -> Any:
    """What the server of forks says, at once."""
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write((json.dumps(asked) + "\n").encode())
    server.stdin.flush()
    if not select.select([server.stdout], [], [], BEGIN_S)[0]:
        _server.cache_clear()  # what it says later is no answer to what is asked next
        raise TimeoutError("the process that starts commands does not answer")
    return json.loads(server.stdout.readline())


def children() -> set[int]:
    """This process's children; ended ones that nobody has reaped count too.

    Without the tracker that `multiprocessing` starts with its first process and never ends.
    """
    tracker = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    return {process.pid for process in psutil.Process().children()} - {tracker}


def refused(*arguments: str, code: int = 2) -> str:
    """The one line that the command says when it refuses, with `code`, to do any work.

    It runs in this process, which knows the tensor framework already: hundreds of refusals would
    else take the suite several minutes. `test_command` refuses in processes of their own. What
    starts a process before it refuses does not belong here.
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
