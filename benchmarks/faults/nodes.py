"""Nodes with addresses of their own on this machine: Linux network namespaces.

A learner and its nodes each have a namespace, joined by a virtual cable that can be cut. Their
addresses exist nowhere else. Without the right to create namespaces, `Relayed` is the next best:
the nodes reach the learner over loopback, through relays that can be stopped.
"""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from typing import Protocol, Self

from benchmarks.delays import Delay

PORT = 5555
LOCAL = "127.0.0.1"
CALL_S = 20.0
FAR_END = "cable"  # the cable's name on the node


class NoNamespaces(RuntimeError):
    """Namespaces cannot be created here."""


class Network(Protocol):
    """A learner and the nodes that reach it. Use it as a context."""

    learner: tuple[str, ...]  # prefix of a command on the learner
    listen: str  # the address at which the learner listens
    words: str  # what the network is made of

    def __enter__(self) -> Self:
        """Set it up."""

    def __exit__(self, *_: object) -> None:
        """Remove all of it."""

    def node(self, number: int) -> tuple[str, ...]:
        """The prefix of a command on a node."""

    def connect(self, number: int) -> str:
        """The learner's address, as seen from a node."""

    def cut(self, number: int) -> None:
        """Let nothing pass between learner and node until `mend`, without telling either."""

    def mend(self, number: int) -> None:
        """Undo `cut`."""


class Namespaces:
    """A learner and its nodes, each in a network namespace. Needs root."""

    words = "network namespaces"

    def __init__(self, nodes: int) -> None:
        self._name = f"ga3c-{os.getpid():x}-{os.urandom(3).hex()}"
        self._nodes = nodes
        self._made: list[str] = []
        self.learner = self._within(self._space("learner"))
        self.listen = f"tcp://0.0.0.0:{PORT}"

    def __enter__(self) -> Self:
        try:
            self._make("learner")
            for number in range(self._nodes):
                self._make(f"{number}")
                self._join(number)
        except (OSError, subprocess.SubprocessError) as error:
            self.__exit__()
            said = getattr(error, "stderr", b"") or str(error).encode()
            raise NoNamespaces(
                f"network namespaces cannot be created here: {said.decode().strip()}"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        for space in self._made:  # deleting an end deletes the cable
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                _ip("netns", "delete", space)
        self._made.clear()

    def node(self, number: int) -> tuple[str, ...]:
        """The prefix of a command on a node."""
        return self._within(self._space(f"{number}"))

    def connect(self, number: int) -> str:
        """The learner's address, as seen from a node."""
        return f"tcp://{_address(number, 1)}:{PORT}"

    def cut(self, number: int) -> None:
        """Pull the cable."""
        _ip("-n", self._space("learner"), "link", "set", f"to-{number}", "down")

    def mend(self, number: int) -> None:
        """Put the cable back."""
        _ip("-n", self._space("learner"), "link", "set", f"to-{number}", "up")

    def _space(self, of: str) -> str:
        return f"{self._name}-{of}"

    @staticmethod
    def _within(space: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", space)

    def _make(self, of: str) -> None:
        _ip("netns", "add", self._space(of))
        self._made.append(self._space(of))
        _ip("-n", self._space(of), "link", "set", "lo", "up")

    def _join(self, number: int) -> None:
        """Connect the learner and a node by a cable, and give both ends addresses."""
        one, other = self._space("learner"), self._space(f"{number}")
        ends = ("type", "veth", "peer", "name", FAR_END, "netns", other)
        _ip("-n", one, "link", "add", f"to-{number}", *ends)
        for space, cable, host in ((one, f"to-{number}", 1), (other, FAR_END, 2)):
            _ip("-n", space, "address", "add", f"{_address(number, host)}/24", "dev", cable)
            _ip("-n", space, "link", "set", cable, "up")


class Relayed:
    """Nodes on loopback, each behind a relay."""

    words = "relays on loopback"
    learner: tuple[str, ...] = ()

    def __init__(self, nodes: int) -> None:
        with socket.create_server((LOCAL, 0)) as free:
            self._port = free.getsockname()[1]
        self.listen = f"tcp://{LOCAL}:{self._port}"
        self._relays = [Delay((LOCAL, self._port), 0.0) for _ in range(nodes)]
        self._ports: list[int] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._ports = [self._stack.enter_context(relay) for relay in self._relays]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def node(self, number: int) -> tuple[str, ...]:
        """No prefix: the node is this machine."""
        return ()

    def connect(self, number: int) -> str:
        """The relay's address."""
        return f"tcp://{LOCAL}:{self._ports[number]}"

    def cut(self, number: int) -> None:
        """Stop the relay."""
        self._relays[number].freeze()

    def mend(self, number: int) -> None:
        """Let the relay resume."""
        self._relays[number].mend()


@contextlib.contextmanager
def network(nodes: int) -> Iterator[Network]:
    """Namespaces, or relays where namespaces cannot be created."""
    with contextlib.ExitStack() as stack:
        try:
            made: Network = stack.enter_context(Namespaces(nodes))
        except NoNamespaces:
            made = stack.enter_context(Relayed(nodes))
        yield made


def _address(number: int, host: int) -> str:
    """An address in the range reserved for benchmarks of networks (RFC 2544)."""
    return f"198.18.{number}.{host}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=CALL_S)
