"""A service under attack by messages: how fast its own agents are, and what it learns."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

import zmq

from agents.actions import Actions
from agents.keys import own
from agents.messages import Hello, encode_hello
from benchmarks.faults.processes import END_S, Belongings, Marked, belongings
from benchmarks.faults.watched import BEGIN_S

SEND_MS = 10_000  # a service that takes no message for this long has failed
MOST_MORE_MB = 48.0  # resident memory may grow by this: a few arenas of the allocator


class Count(NamedTuple):
    """What the service had counted at a moment."""

    at_s: float
    values: dict[str, Any]


class Siege(Marked):
    """A service in a process of its own. Use it as a context."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "tmp")
        self._directory = directory
        self._errors = directory / "service.err"
        self.counts: list[Count] = []
        self.context = zmq.Context()
        with open(self._errors, "wb") as err:
            command = [sys.executable, "-m", "benchmarks.besieged", str(directory)]
            self.launch(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err)
        self._place: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)
        self.kill_all()
        self._thread.join(END_S)

    def _read(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        for line in self.process.stdout:
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
                raise RuntimeError(f"did not start: {self.said()}")
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
        """The address for agents on this machine, and the one for other machines."""
        return self._place["near"], self._place["far"]

    @property
    def identities(self) -> list[str]:
        """The identities of the service's own agents."""
        return list(self._place["agents"])

    def peer(self, identity: bytes, far: bool = False) -> zmq.Socket:
        """A connection from a peer that knows the run's token or, if `far`, has an allowed key."""
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
        """A connection from a peer that is expected and has said hello."""
        socket = self.peer(identity.encode())
        socket.send_multipart(encode_hello(self.hello))
        return socket

    def held(self) -> Belongings:
        """What the service holds now."""
        assert self.process is not None
        found = belongings(self.process.pid)
        if found is None:
            raise RuntimeError(f"the service has ended: {self.said()}")
        return found

    def check(self) -> None:
        """Raises RuntimeError if the service has ended."""
        if not self.runs:
            raise RuntimeError(f"the service has ended: {self.said()}")

    def said(self) -> str:
        """The last lines of its standard error."""
        return " | ".join(self._errors.read_text(errors="replace").splitlines()[-5:])

    def pps(self, start_s: float, end_s: float) -> float:
        """Steps per second of the service's own agents between two moments."""
        inside = [each for each in self.counts if start_s <= each.at_s <= end_s]
        if len(inside) < 2:
            return 0.0
        steps = inside[-1].values["agents_steps"] - inside[0].values["agents_steps"]
        return float(steps / (inside[-1].at_s - inside[0].at_s))

    def end(self) -> int:
        """Close the service's input, which ends it. Returns its exit code."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(END_S)
