"""A service's sockets: which addresses they may have, and how they survive misbehaving peers."""

import contextlib
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from agents import keys
from agents.actions import Actions
from agents.headers import Header, Kind
from agents.link import Curve, connect
from agents.messages import OUTCOME, Hello, Step, encode_step
from ga3c.wire.doors import MOST_PARTS, Doors, Listening
from ga3c.wire.sockets import endpoint_in
from tests import leaks

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a token"
MOST = 1_000_000  # messages: far more than are buffered while the service is busy
LIMIT_MS = 10_000
TWO_HEARTBEATS_S = 5  # the first finds that the peer has gone, the second would abort the service
SERVICE = f"""
import time
from agents.actions import Actions
from agents.messages import Hello
from ga3c.wire.doors import Doors

hello = Hello({TOKEN!r}, (4,), "float32", Actions(2), 1, 1)
doors = Doors("tcp://127.0.0.1:*", {TOKEN!r}, hello)
print(doors.endpoint, flush=True)
while not doors.wait(1000):  # answers who may come in
    pass
print("it has come in", flush=True)
input()  # busy with something else
time.sleep({TWO_HEARTBEATS_S})
print("it lives", flush=True)
"""


def test_a_peer_that_floods_a_busy_service_and_goes_away_does_not_end_it() -> None:
    """If the service sent heartbeats, an assertion in libzmq 4.3.5 would abort it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as service:
        assert service.stdout
        endpoint = service.stdout.readline().strip()
        context = zmq.Context()
        try:
            peer = connect(context, endpoint, "peer", TOKEN)
            peer.setsockopt(zmq.SNDTIMEO, 10_000)
            peer.send(b"hello")
            assert service.stdout.readline().strip() == "it has come in"
            peer.setsockopt(zmq.SNDTIMEO, 300)
            sent = 0
            with contextlib.suppress(zmq.Again):
                while sent < MOST:
                    peer.send(bytes(1000))
                    sent += 1
            assert sent < MOST, "the service never stopped to take messages"
        finally:
            context.destroy(linger=0)
        said, _ = service.communicate("\n", timeout=60)
    assert "it lives" in said, said
    assert service.returncode == 0


@contextlib.contextmanager
def doors_and_peer(
    tmp_path: Path, address: str = "tcp://127.0.0.1:*", size: int = 4
) -> Iterator[tuple[Doors, zmq.Socket]]:
    """Doors for other machines at `address`, and a peer of the name atlas that connects there."""
    service, peer_keys = keys.new(), keys.new()
    listening = Listening(address, service, {peer_keys.public: "atlas"})
    hello = Hello(TOKEN, (size,), "uint8", Actions(2), 1, 1)
    doors = Doors(f"ipc://{tmp_path}/wire", TOKEN, hello, listening)
    context = zmq.Context()
    try:
        assert doors.listening
        curve = Curve(service.public, *peer_keys)
        yield doors, connect(context, doors.listening.endpoint, "peer", "", curve)
    finally:
        context.destroy(linger=0)
        doors.close()
        doors.close_waker()


def came(doors: Doors, peer: zmq.Socket, sent: list[list[bytes]]) -> list[tuple[str, list[bytes]]]:
    """What the doors receive of the messages that the peer sends, in order."""
    sender = threading.Thread(target=lambda: [peer.send_multipart(parts) for parts in sent])
    sender.start()  # it blocks until the doors have admitted the peer
    found: list[tuple[str, list[bytes]]] = []
    while len(found) < len(sent):
        found += [doors.receive(door) for door in doors.wait(LIMIT_MS)]
    sender.join()
    return found


def test_a_message_of_too_many_parts_is_cut_and_the_next_one_is_complete(
    tmp_path: Path,
) -> None:
    sent = [[b"%d" % part for part in range(most)] for most in (3, 6, 10_000, 1)]
    kept = [[b"peer", *parts][: MOST_PARTS + 1] for parts in sent]
    with doors_and_peer(tmp_path) as (doors, peer):
        assert came(doors, peer, sent) == [("atlas", parts) for parts in kept]


def test_a_step_with_infos_has_the_most_parts_of_all() -> None:
    step = Step(np.zeros((1, 4)), np.zeros(1, OUTCOME), infos=np.zeros((1, 1), np.float32))
    parts = encode_step(Header(Kind.STEP, 0, 1, 0), step)
    assert len([b"identity", *parts]) == MOST_PARTS


def test_the_largest_part_of_a_step_comes_in_encrypted(tmp_path: Path) -> None:
    """libzmq counts what encryption adds to it."""
    size = 3 << 20
    with doors_and_peer(tmp_path, size=size) as (doors, peer):
        assert came(doors, peer, [[bytes(size)]]) == [("atlas", [b"peer", bytes(size)])]


def test_peers_may_come_by_ipv6(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with doors_and_peer(tmp_path, "tcp://[::1]:*") as (doors, peer):
        assert doors.listening and doors.listening.endpoint.startswith("tcp://[::1]:")
        assert came(doors, peer, [[b"hello"]]) == [("atlas", [b"peer", b"hello"])]


def test_a_port_for_the_agents_of_this_machine_is_open_to_no_other_machine(tmp_path: Path) -> None:
    hello = Hello(TOKEN, (4,), "float32", Actions(2), 1, 1)
    doors = Doors(endpoint_in(tmp_path, "tcp"), TOKEN, hello)
    try:
        assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", doors.endpoint)
    finally:
        doors.close()
        doors.close_waker()


def test_the_length_of_a_socket_path_is_counted_in_bytes() -> None:
    assert endpoint_in(Path("/tmp/" + 60 * "u"), "ipc")
    with pytest.raises(ValueError, match="has 132 bytes > 107"):
        endpoint_in(Path("/tmp/" + 60 * "\N{LATIN SMALL LETTER U WITH DIAERESIS}"), "ipc")


def test_an_address_that_cannot_be_used_leaves_nothing(tmp_path: Path) -> None:
    hello = Hello(TOKEN, (4,), "float32", Actions(2), 1, 1)
    taken = Doors("tcp://127.0.0.1:*", TOKEN, hello)
    listening = Listening(taken.endpoint, keys.new(), {})
    free = "tcp://127.0.0.1:*"
    for near, far, words in (
        (free, listening, "^listen tcp://"),
        (taken.endpoint, None, "^agents' socket tcp://"),
        (f"ipc://{tmp_path}/no/x", None, "^agents' socket ipc://"),
    ):
        before = leaks.descriptors()
        with pytest.raises(ValueError, match=words):
            Doors(near, TOKEN, hello, far)
        assert not leaks.descriptors() - before, words
    taken.close()
    taken.close_waker()
