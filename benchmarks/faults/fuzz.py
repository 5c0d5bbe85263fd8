"""Bytes that are not ZeroMQ, or almost are, from peers who can merely reach the port."""

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable

from benchmarks.faults.siege import Siege

GREETING = b"\xff" + bytes(8) + b"\x7f"  # of ZMTP 3 (RFC 23)
TIMEOUT_S = 0.05
PAUSE_S = 0.004  # between two connections
MOST_OPEN = 50  # connections that are left open but silent

Draw = random.Random


def _greeting(rng: Draw) -> bytes:
    mechanism = rng.choice([b"NULL", b"PLAIN", b"CURVE", b"GSSAPI", rng.randbytes(20)])
    version = rng.choice([b"\x03\x00", b"\x03\x01", rng.randbytes(2)])
    return GREETING + version + mechanism.ljust(20, b"\0") + rng.choice([b"\0", b"\1"]) + bytes(31)


def _frame(rng: Draw, body: bytes) -> bytes:
    """A frame, perhaps of a command, perhaps with a wrong length."""
    size = rng.choice([len(body)] * 4 + [0, 255, 2**31, 2**62, 2**63, 2**64 - 1])
    flags = rng.choice([0, 1, 2, 3, 4, 6, rng.randrange(256)])
    if flags & 2 or size > 255:
        return bytes([flags | 2]) + struct.pack(">Q", size) + body
    return bytes([flags, size]) + body


def _command(rng: Draw, name: bytes, body: bytes) -> bytes:
    return bytes([4, 1 + len(name) + len(body) & 255, len(name)]) + name + body


def _noise(rng: Draw) -> bytes:
    return rng.randbytes(rng.choice([1, 9, 10, 63, 64, 65, 1000, 70_000]))


def _half_a_greeting(rng: Draw) -> bytes:
    whole = _greeting(rng)
    return whole[: rng.randrange(len(whole))]


def _password(rng: Draw) -> bytes:
    words = [rng.randbytes(rng.choice([0, 1, 32, 255])) for _ in range(2)]
    body = b"".join(bytes([len(word)]) + word for word in words)
    greeting = GREETING + b"\x03\x00" + b"PLAIN".ljust(20, b"\0") + bytes(32)
    return greeting + _command(rng, b"HELLO", body) + _frame(rng, rng.randbytes(40))


def _key(rng: Draw) -> bytes:
    body = rng.randbytes(rng.choice([0, 10, 193, 194, 195, 250]))
    greeting = GREETING + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
    return greeting + _command(rng, b"HELLO", body) + _frame(rng, rng.randbytes(100))


def _frames(rng: Draw) -> bytes:
    frames = [_frame(rng, rng.randbytes(rng.choice([0, 1, 24, 200]))) for _ in range(50)]
    return _greeting(rng) + b"".join(frames)


def _ready(rng: Draw) -> bytes:
    """As if the handshake were over."""
    names = (b"READY", b"INITIATE", b"WELCOME", b"ERROR", b"PING", b"SUBSCRIBE", b"CANCEL")
    return _greeting(rng) + _command(rng, rng.choice(names), rng.randbytes(rng.randrange(200)))


def _other_protocols(rng: Draw) -> bytes:
    return rng.choice(
        [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(500),
            b"SSH-2.0-x\r\n",
            b"\x01\x00",  # of ZMTP 1
        ]
    )


def _mutated(rng: Draw) -> bytes:
    whole = bytearray(rng.choice((_password, _key, _ready))(rng))
    for _ in range(rng.randrange(1, 6)):
        whole[rng.randrange(len(whole))] = rng.randrange(256)
    return bytes(whole)


KINDS: tuple[Callable[[Draw], bytes], ...] = (
    *(_noise, _half_a_greeting, _password, _key, _frames, _ready, _other_protocols, _mutated),
)


def connections(siege: Siege, seconds: float, seed: int) -> int:
    """Connect to both ports, again and again. Returns how many connections were made."""
    rng, made = random.Random(seed), 0
    left_open: list[socket.socket] = []
    doors = [door.removeprefix("tcp://").rpartition(":") for door in siege.doors]
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        host, _, port = doors[made % len(doors)]
        stays = _talk(host, int(port), rng.choice(KINDS)(rng), rng)
        made += 1
        left_open.append(stays)
        while len(left_open) > MOST_OPEN:
            left_open.pop(0).close()
        siege.check()
        time.sleep(PAUSE_S)
    for each in left_open:
        each.close()
    return made


def _talk(host: str, port: int, data: bytes, rng: Draw) -> socket.socket:
    """Send the bytes, in one piece or two. The connection may be left open."""
    peer = socket.create_connection((host, port), timeout=10.0)
    peer.settimeout(TIMEOUT_S)
    with contextlib.suppress(OSError):  # cut off in the middle
        half = rng.randrange(len(data) + 1)
        for part in (data[:half], data[half:]) if rng.random() < 0.5 else (data,):
            peer.sendall(part)
    if rng.random() < 0.7:
        if rng.random() < 0.5:  # as after a crash: a reset, which the other side sees at once
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    return peer
