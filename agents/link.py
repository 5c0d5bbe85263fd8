"""An agent's connection to the service, which may be lost and made again.

What was under way when a connection is lost is gone. After a reconnection the agent therefore
repeats its hello and every step to which no answer has come. The service takes each step once,
and repeats its answer if it had given one: so each step is played and learned from exactly once.
"""

import contextlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple, Self

import zmq

from agents import messages
from agents.headers import Header, Kind
from agents.messages import Hello, Step

POLL_MS = 1000
LINGER_MS = 500
Parts = list[bytes | memoryview]
# A dead connection by tcp is found by heartbeats, which only agents send. Each says how long the
# service may wait for the next message, but libzmq (4.3.5) forgets that with the next message, so
# that of the agents that are gone the service's end finds only those that had rested. It sends no
# heartbeats itself: libzmq would end the process at the first one to a peer that sent more than was
# taken from it and went away (https://github.com/zeromq/libzmq/issues/4364, seen with 4.3.5). What
# it still holds of an agent that is gone, the kernel gives up after KEEPALIVE_S and six more
# questions, and of one that is stopped, when it goes on or is killed.
HEARTBEAT_MS = 2000
SERVICE_PATIENCE_MS = 6000
KEEPALIVE_S = 60
HANDSHAKE_MS = 5000  # who has not said by then who it is, is cut off
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
    """Set the options that find dead connections, before the socket is bound or connected."""
    if endpoint.startswith("tcp:"):
        for option, value in options:
            socket.setsockopt(option, value)


class Curve(NamedTuple):
    """The keys of an encrypted connection, in their text form (`agents.keys`)."""

    service: str  # public
    public: str
    secret: str


def connect(
    context: zmq.Context, endpoint: str, identity: str, token: str, curve: Curve | None = None
) -> zmq.Socket:
    """A DEALER socket to the service, whose connection is not made yet.

    Args: curve: for a service on another machine; without it the token is the password.
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
    socket.connect(endpoint)
    return socket


class _Sent(NamedTuple):
    """A group's last step, which awaits its answer."""

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
        self._socket = connect(context, endpoint, identity, token, curve)
        self._events = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._events, zmq.POLLIN)
        self._is_first = True  # whether no connection was made yet
        self._hello: Parts = []
        self._sent: dict[int, _Sent] = {}  # by group

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.disable_monitor()
        self._socket.close()

    def greet(self, hello: Hello) -> None:
        """Say hello. Waits for a connection, as everything that is sent does."""
        self._hello = [*messages.encode_hello(hello)]
        self._socket.send_multipart(self._hello)

    def send(self, header: Header, step: Step) -> None:
        """Send a step of a group. Its arrays must not change until its answer has come."""
        parts = self._encode(header, step)
        self._sent[header.group] = _Sent(header.sequence, parts)
        self._socket.send_multipart(parts, copy=False)

    def receive(self) -> tuple[Header, list[bytes]]:
        """Wait for the actions that answer a group's last step, or for the order to rest."""
        while True:
            ready = dict(self._poller.poll(POLL_MS))
            if self._events in ready:
                self._events.recv_multipart()  # it can only be the one event that is asked for
                self._connected()
            elif self._socket in ready:
                parts = self._socket.recv_multipart()
                header = messages.decode_header(parts[0])
                if header.kind == Kind.RETIRE:
                    return header, parts
                sent = self._sent.get(header.group)
                if sent is not None and sent.sequence == header.sequence:
                    del self._sent[header.group]
                    return header, parts

    def _connected(self) -> None:
        """Send again what the last connection may not have carried."""
        if not self._is_first:
            self._socket.send_multipart(self._hello)
            for sent in self._sent.values():
                self._socket.send_multipart(sent.parts)
        self._is_first = False

    def rest(self) -> None:
        """Confirm the order to rest."""
        self._socket.send_multipart(messages.encode_retire())

    def fail(self, words: str) -> None:
        """Send the traceback that ends the agent, if a service listens.

        Before the hello it would refuse the message; what the agent prints is reported anyway.
        """
        if not self._hello:
            return
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart(messages.encode_failure(words), zmq.DONTWAIT)
