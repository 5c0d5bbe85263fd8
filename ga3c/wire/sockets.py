"""Makes the frontend's sockets, and a pipe by which other threads wake its thread."""

import contextlib
import math
import os
from pathlib import Path

import numpy as np
import zmq

from agents.keys import Pair
from agents.link import SERVICE_OPTIONS, watch_connections
from agents.messages import OUTCOME, Hello
from ga3c.wire.authenticator import Authenticator

MAX_SOCKET_PATH = 107
LEAST_PART_LIMIT_BYTES = 1 << 20  # libzmq disconnects the sender of a larger part
CURVE_BYTES = 64  # more than encryption adds to a part, which libzmq counts
SPARE_MESSAGES = 64  # in libzmq's queue for a peer, in addition to one for each group


def endpoint_in(directory: Path, transport: str) -> str:
    """Where a frontend binds: a Unix socket in `directory`, or a loopback TCP port.

    Raises ValueError if the socket's path would be too long.
    """
    if transport == "tcp":
        return "tcp://127.0.0.1:*"
    path = directory / "agents"
    if (length := len(os.fsencode(path))) > MAX_SOCKET_PATH:
        raise ValueError(
            f"socket path {path} has {length} bytes > {MAX_SOCKET_PATH}: agents "
            "could not connect; set TMPDIR to a shorter path, or --transport tcp"
        )
    return f"ipc://{path}"


def bound_router(
    context: zmq.Context, endpoint: str, hello: Hello, keys: Pair | None = None
) -> zmq.Socket:
    """A bound ROUTER socket. Its limit on message parts fits a group's step.

    Args: keys: the service's own, if peers have keys; None: they have the password.
    """
    frame_bytes = math.prod(hello.shape) * np.dtype(hello.dtype).itemsize
    step_bytes = hello.envs_per_group * max(frame_bytes, OUTCOME.itemsize, 4 * hello.infos)
    socket = context.socket(zmq.ROUTER)
    Authenticator.guard(socket, keys)
    for option, value in (
        (zmq.ROUTER_MANDATORY, 1),
        # An agent may reconnect while its old connection still seems alive: a router dropped it, or
        # this process was stopped for a while. No stranger can take its place: none knows its
        # identity. By ipc, a connection ends only with a process.
        (zmq.ROUTER_HANDOVER, int(endpoint.startswith("tcp:"))),
        (zmq.LINGER, 0),
        (zmq.MAXMSGSIZE, max(step_bytes, LEAST_PART_LIMIT_BYTES) + CURVE_BYTES),
        (zmq.RCVHWM, hello.groups + SPARE_MESSAGES),
        (zmq.SNDHWM, hello.groups + SPARE_MESSAGES),  # the rest is dropped: the peer is not reading
    ):
        socket.setsockopt(option, value)
    watch_connections(socket, endpoint, SERVICE_OPTIONS)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError:
        socket.close()  # or ending its context would block for ever
        raise
    return socket


def address_of(socket: zmq.Socket) -> str:
    """The endpoint of a bound socket, with the actual port."""
    return socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")


class Waker:
    """A pipe that a poller watches. Any thread may write to it; the poller's thread reads it."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)
        self._closed = False

    def wake(self) -> None:
        """Wake the poller's thread."""
        if self._closed:
            return
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes the poller anyway
            os.write(self._write_fd, b"w")

    def drain(self) -> None:
        """Discard the wake-ups so far."""
        os.read(self.fd, 4096)

    def close(self) -> None:
        """Close both ends, after the poller's thread has ended."""
        self._closed = True
        os.close(self._write_fd)
        os.close(self.fd)
