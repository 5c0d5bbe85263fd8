"""An agent's connection to the service, which may be lost and reestablished.

Messages in flight are lost with the connection. After reconnecting, the agent therefore resends its
hello and every unanswered step. The service accepts each step once, and resends its answer if it
had already given one, so each step is played and learned from exactly once.
"""

import contextlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple, Self

import zmq

from agents import messages
from agents.headers import HEADER_BYTES, Header, Kind
from agents.messages import Hello, Step

POLL_MS = 1000
LINGER_MS = 500
Parts = list[bytes | memoryview]
# Heartbeats, which only agents send, detect dead TCP connections. Each tells the service how long
# to wait for the next message, but libzmq (4.3.5) forgets this once that message arrives, so the
# service's end notices only dead agents that had been idle. The service sends no heartbeats:
# libzmq would abort its process on the first one to a peer that vanished with messages still unread
# (https://github.com/zeromq/libzmq/issues/4364, seen with 4.3.5). The kernel drops a dead agent's
# connection after KEEPALIVE_S and six more probes, and a suspended agent's (SIGSTOP) only when it
# resumes or is killed.
HEARTBEAT_MS = 2000
SERVICE_PATIENCE_MS = 6000
KEEPALIVE_S = 60
HANDSHAKE_MS = 5000  # a peer that has not authenticated by then is disconnected
AGENT_OPTIONS = (
    (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
    (zmq.HEARTBEAT_TTL, SERVICE_PATIENCE_MS),
    (zmq.HEARTBEAT_TIMEOUT, SERVICE_PATIENCE_MS + HEARTBEAT_MS),
    (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
    (zmq.RECONNECT_IVL, 200),
    (zmq.RECONNECT_IVL_MAX, 5000),
)
SERVICE_OPTIONS = (
    (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
    (zmq.BACKLOG, 1024),
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S),
    (zmq.TCP_KEEPALIVE_INTVL, 10),
    (zmq.TCP_KEEPALIVE_CNT, 6),
)


def watch_connections(socket: zmq.Socket, endpoint: str, options: Sequence[tuple]) -> None:
    """Set the options that detect dead connections. Call this before bind or connect.

    A numeric address of IPv6 also needs one: libzmq knows only IPv4 otherwise.
    """
    if endpoint.startswith("tcp:"):
        socket.setsockopt(zmq.IPV6, int("[" in endpoint))
        for option, value in options:
            socket.setsockopt(option, value)


class Curve(NamedTuple):
    """The keys of an encrypted connection, in their text form (`agents.keys`)."""

    service: str  # public
    public: str
    secret: str


def connect(
    context: zmq.Context,
    endpoint: str,
    identity: str,
    token: str,
    curve: Curve | None = None,
    events: int = 0,
) -> zmq.Socket:
    """A DEALER socket to the service, which connects in the background.

    Args:
        curve: for a service on another machine; without it the token is the password.
        events: what `get_monitor_socket` of the socket will tell, from the first connection on.
    """
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity.encode())
    if curve is not None:
        socket.setsockopt_string(zmq.CURVE_SERVERKEY, curve.service)
        socket.setsockopt_string(zmq.CURVE_PUBLICKEY, curve.public)
        socket.setsockopt_string(zmq.CURVE_SECRETKEY, curve.secret)
    else:
        socket.setsockopt(zmq.PLAIN_USERNAME, b"agent")
        socket.setsockopt(zmq.PLAIN_PASSWORD, token.encode())
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    watch_connections(socket, endpoint, AGENT_OPTIONS)
    if events:
        socket.get_monitor_socket(events)
    socket.connect(endpoint)
    return socket


def joined(parts: Sequence[bytes]) -> bytes:
    """A message of the service, header and body, as the only part in which it is sent.

    A connection may break between two parts of a message that its receiver has begun to read.
    libzmq (4.3.5) then aborts a process that has set IMMEDIATE ("!_more", src/fq.cpp:80).
    """
    return b"".join(parts)


def received(socket: zmq.Socket) -> list[bytes]:
    """The next message of the service: its header, and its body if it has one."""
    message = socket.recv()
    body = message[HEADER_BYTES:]
    return [message[:HEADER_BYTES], body] if body else [message]


class _Sent(NamedTuple):
    """A group's last step, while it is unanswered."""

    sequence: int
    parts: Parts


def new_identity(name: str) -> str:
    """An unguessable identity on the wire for an agent with this readable name."""
    return f"{name}#{secrets.token_hex(8)}"


def name_of(identity: str) -> str:
    """The readable name of the agent with this identity."""
    return identity.partition("#")[0]


class Link:
    """The connection of one agent. Owned by one thread."""

    def __init__(
        self,
        context: zmq.Context,
        endpoint: str,
        identity: str,
        token: str,
        curve: Curve | None = None,
        pack: bool = False,
    ) -> None:
        """Args: pack: whether frames are sent compressed."""
        self._encode = messages.encode_packed_step if pack else messages.encode_step
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED
        self._socket = connect(context, endpoint, identity, token, curve, events)
        self._events = self._socket.get_monitor_socket()
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._events, zmq.POLLIN)
        self._is_first = True  # whether no connection has been made yet
        self._hello: Parts = []
        self._sent: dict[int, _Sent] = {}  # by group

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.disable_monitor()
        self._socket.close()

    def greet(self, hello: Hello) -> None:
        """Say hello. Like every send, this waits for a connection."""
        self._hello = [*messages.encode_hello(hello)]
        self._socket.send_multipart(self._hello)

    def send(self, header: Header, step: Step) -> None:
        """Send a group's step. Its arrays must not change until the answer has arrived."""
        parts = self._encode(header, step)
        self._sent[header.group] = _Sent(header.sequence, parts)
        self._socket.send_multipart(parts, copy=False)

    def receive(self) -> tuple[Header, list[bytes]]:
        """Wait for the actions that answer a group's last step, or for the order to retire."""
        while True:
            ready = dict(self._poller.poll(POLL_MS))
            if self._events in ready:
                self._events.recv_multipart()  # only one event type is subscribed
                self._connected()
            elif self._socket in ready:
                parts = received(self._socket)
                header = messages.decode_header(parts[0])
                if header.kind == Kind.RETIRE:
                    return header, parts
                sent = self._sent.get(header.group)
                if sent is not None and sent.sequence == header.sequence:
                    del self._sent[header.group]
                    return header, parts

    def _connected(self) -> None:
        """Resend what may have been lost with the last connection."""
        if not self._is_first:
            self._socket.send_multipart(self._hello)
            for sent in self._sent.values():
                self._socket.send_multipart(sent.parts)
        self._is_first = False

    def rest(self) -> None:
        """Confirm the order to retire."""
        self._socket.send_multipart(messages.encode_retire())

    def fail(self, words: str) -> None:
        """Send the traceback of the error that ends the agent, if a service is listening.

        Before the hello it would refuse the message; the agent's output is reported anyway.
        """
        if not self._hello:
            return
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart(messages.encode_failure(words), zmq.DONTWAIT)
