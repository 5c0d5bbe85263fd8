"""Peers who know the run's token and send what no agent would."""

import time
from collections.abc import Iterator
from itertools import count

import zmq

from agents import messages
from agents.link import received
from benchmarks.faults.siege import Siege
from tests.damage import HEADER_LAYOUT, Damaged, damaged_messages, numbered

PAUSE_S = 0.02  # sending may run ahead of its pace by this much
PARTS, BOMB_BYTES = 20_000, 8 << 20  # of a bomb of many parts, and of one with a large part
BOMBS_EVERY_S = 1.0  # each takes the service 20 ms of CPU to receive


class Vandals:
    """A stranger, one whose identity is not text, one with an allowed key, and an expected peer."""

    def __init__(self, siege: Siege) -> None:
        self._hello = siege.hello
        self._expected = siege.guest("vandal")
        near = (siege.peer(b"a stranger"), siege.peer(b"\x80 no text"))
        self._sockets = (self._expected, *near, self._expected, siege.peer(b"of atlas", far=True))
        self._next = [0] * self._hello.groups

    def send(self, total: int, per_s: float) -> int:
        """Send `total` damaged messages, from each in turn, at a given pace. Returns how many."""
        began_s = time.monotonic()
        for number, damaged in zip(range(total), self._messages(), strict=False):
            self._sockets[number % len(self._sockets)].send_multipart(damaged.parts or [b""])
            if (ahead_s := began_s + number / per_s - time.monotonic()) > PAUSE_S:
                self._hear()
                time.sleep(ahead_s)
        return total

    def _messages(self) -> Iterator[Damaged]:
        """Endless; steps have the number that the service expects, so that all checks are run."""
        for seed in count():
            for how, parts in damaged_messages(seed, self._hello):
                is_step = how.startswith("step: ") and "sequence" not in how and bool(parts)
                if is_step and len(parts[0]) == HEADER_LAYOUT.size:
                    parts = numbered(parts, self._next[1])
                yield Damaged(how, parts)

    def _hear(self) -> None:
        """Read the answers to what the service accepted as steps."""
        while self._expected.poll(0):
            header = messages.decode_header(received(self._expected)[0])
            if header.group < len(self._next):
                self._next[header.group] = header.sequence + 1


def bombs(siege: Siege, count: int) -> int:
    """Messages of very many parts, and of parts that are too large. Returns how many were sent."""
    header = messages.encode_retire()[0]
    for number in range(count):
        known = number % 2 == 0
        socket = siege.guest("vandal") if known else siege.peer(b"stranger %d" % number)
        socket.send_multipart([header, *([b"x"] * PARTS)])
        socket.send_multipart([header, bytes(BOMB_BYTES)], copy=False)
        _wait_for_cut(socket)
        socket.close(linger=0)
        siege.check()
        time.sleep(BOMBS_EVERY_S)
    return 2 * count


def _wait_for_cut(socket: zmq.Socket) -> None:
    """Wait until the service has cut the connection, as it does after a part that is too large."""
    monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    monitor.poll(2000)
    socket.disable_monitor()


def thieves(siege: Siege, count: int) -> int:
    """Peers who use the identities of the service's own agents. Returns how many there were."""
    step = messages.encode_failure("not the agent's words")
    for number in range(count):
        socket = siege.peer(siege.identities[number % len(siege.identities)].encode())
        for parts in (messages.encode_hello(siege.hello), step, messages.encode_retire()):
            socket.send_multipart(parts)
        time.sleep(0.05)
        socket.close(linger=0)
    return count
