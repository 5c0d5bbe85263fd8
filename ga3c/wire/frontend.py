"""The only thread that owns sockets: checks every message, queues requests, sends actions."""

import contextlib
import logging
import math
import os
import secrets
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zmq

from agents import messages
from agents.environments import Spaces
from agents.messages import OUTCOME, Hello, Kind, MessageError, Step
from ga3c.runs.metrics import Metrics
from ga3c.wire.authenticator import Authenticator
from ga3c.wire.queues import BatchQueue, Closed

MAX_SOCKET_PATH = 107
POLL_MS = 100
MESSAGES_A_TURN = 64
LEAST_PART_LIMIT_BYTES = 1 << 20  # so that parts of a wrong size are counted, not cut off
SPARE_MESSAGES = 64  # of a peer in libzmq's queue, beyond one for each of its groups
log = logging.getLogger(__name__)


def endpoint_in(directory: Path, transport: str) -> str:
    """Where a frontend binds: a socket in `directory`, or a port of this machine.

    Raises ValueError if the socket's path would be too long.
    """
    if transport == "tcp":
        return "tcp://127.0.0.1:*"
    path = directory / "agents"
    if len(str(path)) > MAX_SOCKET_PATH:
        raise ValueError(
            f"socket path {path} has {len(str(path))} characters > {MAX_SOCKET_PATH}: agents "
            "could not connect; set TMPDIR to a shorter path, or --transport tcp"
        )
    return f"ipc://{path}"


def new_identity(name: str) -> str:
    """An identity on the wire that nobody can guess, for an agent with this readable name."""
    return f"{name}#{secrets.token_hex(8)}"


def name_of(identity: str) -> str:
    """The readable name of the agent with this identity."""
    return identity.partition("#")[0]


class Request(NamedTuple):
    """A group's step, which awaits its actions."""

    identity: str
    group: int
    sequence: int
    lanes: np.ndarray  # [n] int32
    step: Step
    came_s: float

    @property
    def agent(self) -> str:
        """The agent's readable name."""
        return name_of(self.identity)


class Reply(NamedTuple):
    """The actions for a request."""

    request: Request
    actions: np.ndarray  # [n] int32


@dataclass
class _Peer:
    """An agent that has said hello."""

    lanes: np.ndarray  # [groups, n] int32
    sequences: list[int] = field(default_factory=list)  # next expected of each group


class Frontend:
    """One ROUTER socket, served by one thread.

    Only a peer that knows the token can connect: libzmq closes every other connection before it
    takes a message from it. An agent may speak only after `expect` has given its identity its
    lanes, and only for steps in order, one at a time for each group. Whatever else arrives is
    counted by reason and dropped. When an agent is replaced, its successor's steps wait here until
    the last request for the same lanes has been answered, so that a lane is never with two
    predictors.
    """

    def __init__(
        self,
        endpoint: str,
        token: str,
        spaces: Spaces,
        groups: int,
        envs_per_group: int,
        requests: BatchQueue[Request],
        metrics: Metrics,
        on_step: Callable[[str, messages.Header, float], None] | None = None,
    ) -> None:
        """Args: on_step: told of each step: the agent's readable name, the header, when it came."""
        self._on_step = on_step
        self._hello = Hello(
            token, spaces.shape, spaces.dtype, spaces.num_actions, groups, envs_per_group
        )
        self._dtype = np.dtype(spaces.dtype)
        self._requests = requests
        self._metrics = metrics
        self._expected: dict[str, _Peer] = {}
        self._retired: set[str] = set()
        self._heard_s: dict[str, float] = {}
        self._peers: dict[str, _Peer] = {}
        self._unanswered: dict[int, Request] = {}  # by first lane
        self._parked: dict[int, Request] = {}  # by first lane
        self._failures: dict[str, str] = {}
        self._faults: dict[str, str] = {}
        self._outbox: deque[Reply | str] = deque()  # replies, and identities to retire
        self._lock = threading.Lock()
        """Of _expected, _retired, _heard_s, _peers, _failures and _faults."""
        self.failure = ""  # the traceback of what ended the thread
        self._woken_fd, self._wake_fd = os.pipe()
        os.set_blocking(self._woken_fd, False)
        os.set_blocking(self._wake_fd, False)
        self._context = zmq.Context()
        self._authenticator = Authenticator(self._context, token)
        self._socket = self._bind(endpoint)
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self._stop = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="frontend", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End the thread and close its socket; False if it did not end in time."""
        if self._stopped:
            return True
        self._stop.set()
        if self._thread.ident is None:  # never started: the socket is still the caller's
            self._close()
        else:
            self._wake()
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        self._stopped = True
        os.close(self._wake_fd)
        os.close(self._woken_fd)
        return True

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def expect(
        self, identity: str, lanes: np.ndarray, played: int = 0, patience_s: float = 0.0
    ) -> None:
        """Let an agent of this identity speak for `lanes` int32 [groups, n].

        Args:
            played: the steps that each group plays once more by itself, before its first message.
            patience_s: how long that may take.
        """
        with self._lock:
            self._expected[identity] = _Peer(lanes, [played] * len(lanes))
            self._heard_s[identity] = time.monotonic() + patience_s

    def forget(self, identity: str) -> str:
        """The agent has ended: hear it no longer. Returns its last words, if it had any."""
        with self._lock:
            self._expected.pop(identity, None)
            self._retired.discard(identity)
            self._heard_s.pop(identity, None)
            self._peers.pop(identity, None)
            self._faults.pop(identity, None)
            return self._failures.pop(identity, "")

    def faults(self) -> dict[str, str]:
        """Agents that have sent what was refused, and why their first such message was."""
        with self._lock:
            return dict(self._faults)

    def knows(self, identity: str) -> bool:
        """Whether it is to be heard, or has not yet said that it rests."""
        with self._lock:
            return identity in self._expected

    @property
    def unanswered(self) -> int:
        """Observations that await their actions, approximately: the frontend's thread goes on."""
        return sum(len(request.lanes) for request in list(self._unanswered.values()))

    def has_played(self, identity: str) -> bool:
        """Whether the agent has made a step, not only shown what a reset gave."""
        with self._lock:
            peer = self._peers.get(identity)
            return peer is not None and max(peer.sequences) > 1

    def reply(self, replies: list[Reply]) -> None:
        """Send actions; for predictors."""
        self._outbox.extend(replies)
        self._wake()

    def retire(self, identity: str) -> None:
        """Tell an agent to rest, now or when it says hello: forgotten when it says that it does."""
        with self._lock:
            self._retired.add(identity)
        self._outbox.append(identity)
        self._wake()

    def silent(self, longer_than_s: float) -> list[str]:
        """Agents that owe a hello, a step or their rest and have not been heard for so long."""
        limit_s = time.monotonic() - longer_than_s
        owed = [*list(self._unanswered.values()), *list(self._parked.values())]
        waiting = {request.identity for request in owed}
        with self._lock:
            return [
                identity
                for identity, heard_s in self._heard_s.items()
                if heard_s < limit_s and (identity in self._retired or identity not in waiting)
            ]

    def _bind(self, endpoint: str) -> zmq.Socket:
        hello = self._hello
        frame_bytes = math.prod(hello.shape) * self._dtype.itemsize
        step_bytes = hello.envs_per_group * max(frame_bytes, OUTCOME.itemsize)
        socket = self._context.socket(zmq.ROUTER)
        Authenticator.guard(socket)
        for option, value in (
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.ROUTER_HANDOVER, 0),
            (zmq.LINGER, 0),
            (zmq.MAXMSGSIZE, max(step_bytes, LEAST_PART_LIMIT_BYTES)),
            (zmq.RCVHWM, hello.groups + SPARE_MESSAGES),
            (zmq.SNDHWM, 0),  # never more than one answer for each request
        ):
            socket.setsockopt(option, value)
        socket.bind(endpoint)
        return socket

    def _wake(self) -> None:
        if self._stopped:
            return
        with contextlib.suppress(BlockingIOError):  # full of wake-ups: one more changes nothing
            os.write(self._wake_fd, b"w")

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._authenticator.socket, zmq.POLLIN)
        poller.register(self._woken_fd, zmq.POLLIN)
        try:
            while not self._stop.is_set():
                ready = dict(poller.poll(POLL_MS))
                if self._woken_fd in ready:
                    os.read(self._woken_fd, 4096)
                if self._authenticator.socket in ready:
                    self._authenticator.answer()
                self._send_all()
                if self._socket in ready:
                    self._receive_some()
        except Closed:
            pass
        except Exception:
            self.failure = traceback.format_exc()
        finally:
            self._close()

    def _close(self) -> None:
        self._socket.close(linger=0)
        self._authenticator.socket.close(linger=0)
        self._context.term()

    def _receive_some(self) -> None:
        """Receive what has come, but turn to the other duties now and then."""
        for _ in range(MESSAGES_A_TURN):
            try:
                parts = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                self._receive(parts)
            except MessageError as error:
                self._refuse(parts[0], error)
            self._send_all()

    def _refuse(self, sender: bytes, error: MessageError) -> None:
        """Count a message that is dropped; one from an agent of this run is that agent's fault."""
        log.debug("dropped a message: %s", error)
        self._metrics.reject(error.reason)
        identity = sender.decode("ascii", errors="replace")
        with self._lock:
            if identity in self._expected:
                self._faults.setdefault(identity, str(error))

    def _receive(self, parts: list[bytes]) -> None:
        if len(parts) < 2:
            raise MessageError("part count", str(len(parts)))
        try:
            identity = parts[0].decode("ascii")
        except UnicodeDecodeError as error:
            raise MessageError("identity") from error
        header = messages.decode_header(parts[1])
        if identity in self._retired:
            if header.kind == Kind.HELLO:
                self._send_retire(identity)
            elif header.kind == Kind.RETIRE:
                self.forget(identity)
            return
        if header.kind == Kind.HELLO:
            self._welcome(identity, messages.decode_hello(parts[1:]))
            return
        peer = self._peers.get(identity)
        if peer is None:
            raise MessageError("no hello", identity)
        if header.kind == Kind.FAILURE:
            with self._lock:
                self._failures[identity] = messages.decode_failure(parts[1:])
        elif header.kind == Kind.STEP:
            self._step(identity, peer, header, parts[1:])
        else:
            raise MessageError("kind", header.kind.name)

    def _welcome(self, identity: str, hello: Hello) -> None:
        with self._lock:
            peer = self._expected.get(identity)
            if peer is None or hello.token != self._hello.token:
                raise MessageError("stranger", identity)
            if hello != self._hello:
                given, wanted = (replace(each, token="") for each in (hello, self._hello))
                raise MessageError("hello fields", f"{given}, not {wanted}")
            if identity in self._peers:
                raise MessageError("second hello", identity)
            self._peers[identity] = peer

    def _step(
        self, identity: str, peer: _Peer, header: messages.Header, parts: list[bytes]
    ) -> None:
        hello = self._hello
        if header.group >= hello.groups or header.envs != hello.envs_per_group:
            raise MessageError("counts", f"group {header.group}, {header.envs} environments")
        if header.sequence != peer.sequences[header.group]:
            raise MessageError("sequence", f"{header.sequence}")
        lanes = peer.lanes[header.group]
        waiting = self._unanswered.get(int(lanes[0])), self._parked.get(int(lanes[0]))
        if any(request is not None and request.identity == identity for request in waiting):
            raise MessageError("sequence", "a step before the answer to the last one")
        step = messages.decode_step(parts, hello.shape, self._dtype)
        peer.sequences[header.group] += 1
        self._heard(identity)
        self._metrics.add(
            agents_waiting_s=header.waited_s, agents_busy_s=header.stepped_s, messages=1
        )
        came_s = time.monotonic()
        if self._on_step:
            self._on_step(name_of(identity), header, came_s)
        request = Request(identity, header.group, header.sequence, lanes, step, came_s)
        if waiting[0] is not None:
            self._parked[int(lanes[0])] = request
        else:
            self._queue(request)

    def _heard(self, identity: str) -> None:
        with self._lock:
            if identity in self._heard_s:
                self._heard_s[identity] = time.monotonic()

    def _queue(self, request: Request) -> None:
        """Queue a request. The queue has room for every lane's one request: it cannot block."""
        self._unanswered[int(request.lanes[0])] = request
        self._requests.put([request], [len(request.lanes)], timeout_s=0.0)

    def _send_all(self) -> None:
        while self._outbox:
            entry = self._outbox.popleft()
            if isinstance(entry, str):
                self._send_retire(entry)
                continue
            request = entry.request
            self._unanswered.pop(int(request.lanes[0]), None)
            if request.identity in self._peers:
                self._heard(request.identity)
                self._send(
                    request.identity,
                    messages.encode_actions(request.group, request.sequence, entry.actions),
                )
            parked = self._parked.pop(int(request.lanes[0]), None)
            if parked is not None:
                self._queue(parked)

    def _send_retire(self, identity: str) -> None:
        self._send(identity, messages.encode_retire())

    def _send(self, identity: str, parts: list[bytes]) -> None:
        try:
            self._socket.send_multipart([identity.encode(), *parts], zmq.DONTWAIT)
        except zmq.ZMQError as error:  # it has gone: the launcher will say so
            log.debug("no message to %s: %s", identity, error)
