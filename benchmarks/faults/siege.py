"""A service that is besieged by messages: how fast its own agents are, and what it learns."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil
import zmq

from agents.actions import Actions
from agents.keys import own
from agents.messages import Hello, encode_hello
from benchmarks.faults.processes import Belongings, belongings, marked, new_mark
from benchmarks.faults.watched import BEGIN_S, END_S, hear_signals, marked_environment
from ga3c.runs.scratch import PREFIX

SEND_MS = 10_000  # a service that takes no message for so long has failed
MOST_MORE_MB = 48.0  # resident memory may grow by this, which is a few arenas of the allocator


class Count(NamedTuple):
    """What the service had counted at a moment."""

    at_s: float
    values: dict[str, Any]


class Siege:
    """A service in a process of its own. Use it as a context."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mark = new_mark()
        self._temporary = directory / "tmp"
        self._temporary.mkdir()
        self._errors = directory / "service.err"
        self.counts: list[Count] = []
        self.context = zmq.Context()
        with open(self._errors, "wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.besieged", str(directory)],
                env=marked_environment(self._mark, self._temporary),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                start_new_session=True,
                preexec_fn=hear_signals,
            )
        self._place: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)
        for process in marked(self._mark):
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait(END_S)
        self._thread.join(END_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            values = json.loads(line)
            if self._place:
                self.counts.append(Count(time.monotonic(), values))
            else:
                self._place = values

    def begun(self) -> None:
        """Wait until all agents play and the service learns."""
        until_s = time.monotonic() + BEGIN_S
        while not self.counts or self.now["learned"] < 200:
            self.check()
            if time.monotonic() > until_s:
                raise RuntimeError(f"did not begin: {self.said()}")
            time.sleep(0.05)

    @property
    def now(self) -> dict[str, Any]:
        """What the service has counted."""
        return self.counts[-1].values

    @property
    def hello(self) -> Hello:
        """What an agent of the service says first."""
        values = self._place["hello"]
        actions = Actions(**values["actions"])
        return Hello(**{**values, "shape": tuple(values["shape"]), "actions": actions})

    @property
    def doors(self) -> tuple[str, str]:
        """The address for agents of this machine, and that for other machines."""
        return self._place["near"], self._place["far"]

    @property
    def agents(self) -> list[str]:
        """The identities of the service's own agents."""
        return list(self._place["agents"])

    def peer(self, identity: bytes, far: bool = False) -> zmq.Socket:
        """A connection of somebody who knows the run's token, or has a key that is allowed."""
        socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, identity)
        socket.setsockopt(zmq.SNDTIMEO, SEND_MS)
        socket.setsockopt(zmq.LINGER, 0)
        if far:
            pair = own(self._directory / "atlas")
            service = own(self._directory / "service").public
            socket.setsockopt_string(zmq.CURVE_SERVERKEY, service)
            socket.setsockopt_string(zmq.CURVE_PUBLICKEY, pair.public)
            socket.setsockopt_string(zmq.CURVE_SECRETKEY, pair.secret)
        else:
            socket.setsockopt(zmq.PLAIN_USERNAME, b"agent")
            socket.setsockopt(zmq.PLAIN_PASSWORD, self.hello.token.encode())
        socket.connect(self.doors[far])
        return socket

    def guest(self, identity: str) -> zmq.Socket:
        """A connection of one who is expected and has said hello."""
        socket = self.peer(identity.encode())
        socket.send_multipart(encode_hello(self.hello))
        return socket

    def held(self) -> Belongings:
        """What the service holds now."""
        found = belongings(self._process.pid)
        if found is None:
            raise RuntimeError(f"the service has ended: {self.said()}")
        return found

    def check(self) -> None:
        """Raises RuntimeError if the service has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the service has ended: {self.said()}")

    def said(self) -> str:
        """The last lines of its errors."""
        return " | ".join(self._errors.read_text(errors="replace").splitlines()[-5:])

    def pps(self, start_s: float, end_s: float) -> float:
        """Steps a second of the service's own agents between two moments."""
        inside = [each for each in self.counts if start_s <= each.at_s <= end_s]
        if len(inside) < 2:
            return 0.0
        steps = inside[-1].values["agents_steps"] - inside[0].values["agents_steps"]
        return float(steps / (inside[-1].at_s - inside[0].at_s))

    def end(self) -> int:
        """Let the service end. Returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(END_S)

    def left(self) -> list[str]:
        """Processes and temporary files that are left after the end."""
        processes = [f"process {each.pid}" for each in marked(self._mark)]
        return processes + [str(path) for path in self._temporary.glob(f"{PREFIX}*")]
