"""Hostile peers that a service must withstand, each in its own process.

    python -m benchmarks.hostile KIND ADDRESS SERVICE_KEY KEY SECONDS CONNECTIONS

It attacks the service at ADDRESS (tcp://HOST:PORT) for SECONDS, prints how often it did, and ends.
SERVICE_KEY and KEY are files of `ga3c keys`. Like agents, it imports no tensor framework.
"""

import contextlib
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import zmq
from backports import zstd
from zmq.utils.monitor import recv_monitor_message

from agents import keys, messages
from agents.actions import Actions
from agents.headers import Header, Kind
from agents.link import Curve, connect, received
from agents.messages import OUTCOME, Hello
from agents.notes import decode_note, encode_note

PARTS, PART_BYTES = 10_000, 1_000
OVERSIZED_BYTES = 1 << 24
BOMB_BYTES = 1 << 30
PAUSE_S = 0.02
ANSWER_MS = 5000


class Target(NamedTuple):
    """What is attacked, for how long, and with which keys."""

    address: str
    curve: Curve
    seconds: float
    connections: int

    def while_it_lasts(self) -> Iterator[None]:
        """Yield until the seconds are up."""
        until_s = time.monotonic() + self.seconds
        while time.monotonic() < until_s:
            yield


@contextlib.contextmanager
def _peer(target: Target) -> Iterator[zmq.Socket]:
    """A socket with an identity that nobody else has."""
    context = zmq.Context()
    try:
        name = f"hostile-{os.urandom(4).hex()}"
        peer = connect(context, target.address, name, "", target.curve)
        peer.setsockopt(zmq.SNDTIMEO, ANSWER_MS)
        yield peer
    finally:
        context.destroy(linger=0)


def _refused(target: Target, pair: keys.Pair, service: str) -> bool:
    """Whether a peer with this key pair, which expects this service key, is refused."""
    failures = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    failures |= zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    context = zmq.Context()
    try:
        peer = connect(context, target.address, "stranger", "", Curve(service, *pair))
        events = peer.get_monitor_socket(failures | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        if not events.poll(ANSWER_MS):
            return False
        refused = recv_monitor_message(events)["event"] != zmq.EVENT_HANDSHAKE_SUCCEEDED
        peer.disable_monitor()
        return refused
    finally:
        context.destroy(linger=0)


def unknown_key(target: Target) -> int:
    """One peer after another with a key that is not allowed. Counts the refused ones."""
    return sum(_refused(target, keys.new(), target.curve.service) for _ in target.while_it_lasts())


def wrong_service(target: Target) -> int:
    """One peer after another that expects another service's key. Counts the refused ones."""
    own = keys.Pair(target.curve.public, target.curve.secret)
    return sum(_refused(target, own, keys.new().public) for _ in target.while_it_lasts())


def idle(target: Target) -> int:
    """Connections that send nothing, or only the start of a greeting. Counts them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    host, _, port = target.address.removeprefix("tcp://").rpartition(":")
    until_s = time.monotonic() + target.seconds
    with contextlib.ExitStack() as stack:
        for number in range(target.connections):
            stranger = stack.enter_context(socket.create_connection((host, int(port)), 20.0))
            stranger.sendall(b"\xff\0\0\0\0\0\0\0\x01\x7f"[: 10 * (number % 2)])
        time.sleep(max(until_s - time.monotonic(), 0.0))
    return target.connections


def oversized(target: Target) -> int:
    """Parts that are larger than any part of a step; each ends its connection."""
    sent = 0
    for _ in target.while_it_lasts():
        with _peer(target) as peer, contextlib.suppress(zmq.Again):
            peer.send_multipart([messages.encode_retire()[0], bytes(OVERSIZED_BYTES)])
            sent += 1
            time.sleep(PAUSE_S)
    return sent


def many_parts(target: Target) -> int:
    """Messages with far more parts than any real message."""
    sent, parts = 0, [bytes(PART_BYTES)] * PARTS
    with _peer(target) as peer:
        for _ in target.while_it_lasts():
            with contextlib.suppress(zmq.Again):
                peer.send_multipart([messages.encode_retire()[0], *parts])
                sent += 1
            time.sleep(0.2)
    return sent


def _state(refuses: str = "") -> list[bytes]:
    state = {"name": "hostile", "agents": 1, "playing": 0, "exits": {}, "refuses": refuses}
    return encode_note(Kind.HOST, state)


def never_reads(target: Target) -> int:
    """A host that reports endlessly and reads no orders, until heartbeats cut it off."""
    sent = 0
    with _peer(target) as peer:
        for _ in target.while_it_lasts():
            with contextlib.suppress(zmq.Again):  # cut off; it reconnects
                peer.send_multipart(_state("it never reads"))
                sent += 1
    return sent


def bomb(target: Target) -> int:
    """A host that is given agents, whose first steps would unpack to 1 GiB each."""
    sent: set[str] = set()
    with _peer(target) as host:
        for _ in target.while_it_lasts():
            with contextlib.suppress(zmq.Again):  # still connecting
                host.send_multipart(_state())
            if not host.poll(ANSWER_MS):
                continue
            for identity, task in decode_note(received(host))["tasks"].items():
                if identity not in sent:
                    sent.add(identity)
                    _send_bomb(target, identity, task)
            time.sleep(PAUSE_S)
    return len(sent)


def _send_bomb(target: Target, identity: str, task: dict[str, Any]) -> None:
    """Say hello as this agent of the paced ledger, and send its first step."""
    groups, envs = task["groups"], task["envs_per_group"]
    hello = Hello(task["token"], (4,), "float32", Actions(3), groups, envs)
    compressor = zstd.ZstdCompressor(1)
    chunk = bytes(1 << 20)
    frames = b"".join(compressor.compress(chunk) for _ in range(BOMB_BYTES // len(chunk)))
    outcomes = bytes(envs * OUTCOME.itemsize)
    context = zmq.Context()
    try:
        agent = connect(context, target.address, identity, task["token"], target.curve)
        agent.setsockopt(zmq.SNDTIMEO, ANSWER_MS)
        agent.send_multipart(messages.encode_hello(hello))
        header = messages.encode_header(Header(Kind.PACKED, 0, envs))
        agent.send_multipart([header, outcomes, frames + compressor.flush()])
        time.sleep(0.5)  # to let it arrive
    finally:
        context.destroy(linger=0)


ATTACKS: dict[str, Callable[[Target], int]] = {
    each.__name__: each
    for each in (unknown_key, wrong_service, idle, oversized, many_parts, never_reads, bomb)
}


def main() -> None:
    """Attack, and print how often."""
    kind, address, service, key, seconds, connections = sys.argv[1:]
    (public,) = keys.public([Path(service)])
    curve = Curve(public, *keys.own(Path(key)))
    print(json.dumps(ATTACKS[kind](Target(address, curve, float(seconds), int(connections)))))


if __name__ == "__main__":
    main()
