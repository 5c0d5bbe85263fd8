"""Valid messages, thousands of ways to damage them, and checks that share no code with decoding.

The checks are written from the documented layouts in `agents.messages` and `agents.headers`. They
unpack with `struct`, one environment at a time.
"""

import json
import math
import random
import struct
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from agents.actions import Actions
from agents.headers import LONGEST_S
from agents.messages import (
    OUTCOME,
    Header,
    Hello,
    Kind,
    Step,
    encode_actions,
    encode_failure,
    encode_hello,
    encode_retire,
    encode_step,
)

SHAPE = (3, 2)
NUM_ACTIONS = 4
GROUPS = 2
ENVS = 3
HELLO = Hello("a token", SHAPE, "uint8", Actions(NUM_ACTIONS), GROUPS, ENVS)

HEADER_LAYOUT = struct.Struct("<4sHHHHIff")
OUTCOME_LAYOUT = struct.Struct("<ffif4B")
KIND_AT, GROUP_AT, ENVS_AT, SEQUENCE_AT, TIMES_AT = 6, 8, 10, 12, 16  # byte offsets in a header
NOT_FINITE = (math.nan, -math.nan, math.inf, -math.inf)
WRONG_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    4097,
    65536,
    65537,
    2**31,
    2**63,
    2**64,
    10**400,
    -(10**400),
    0.5,
    3.0,
    1e308,
    math.nan,
    -math.inf,
    "",
    "1",
    "uint8\0",
    "float64",
    "\ud800",
    "\U0001f3ae" * 20,
    [],
    [1],
    [0, 2],
    [3, -2],
    [3, 2.0],
    [3, True],
    ["3", "2"],
    [[3, 2]],
    [1] * 5,
    [4097],
    [2**28],
    [2**14, 2**14, 2],
    [10**300, 2],
    {},
    {"3": 2},
    {"count": 5},
    {"count": 5, "size": 1, "low": 0},
    {"count": -1, "size": 1},
    {"count": 5, "size": 0},
    {"count": 5.0, "size": 1},
    {"count": 5, "size": True},
    {"count": 65_537, "size": 1},
    {"count": 0, "size": 2**28},
)


class Damaged(NamedTuple):
    """A message and what was done to it. It may still be valid."""

    how: str
    parts: list[bytes]


def make_step(
    n: int = ENVS,
    shape: tuple[int, ...] = SHAPE,
    dtype: str = "uint8",
    seed: int = 0,
    finished: bool = False,
) -> Step:
    """A valid step of `n` environments, with random frames, all different."""
    rng = np.random.default_rng(seed)
    if dtype == "uint8":
        frames = rng.integers(0, 256, (n, *shape)).astype(np.uint8)
    else:
        frames = rng.normal(size=(n, *shape)).astype(np.float32)
    outcomes = np.zeros(n, OUTCOME)
    outcomes["reward"] = rng.normal(size=n)
    outcomes["episode_return"] = rng.normal(size=n)
    outcomes["episode_length"] = rng.integers(1, 10_000, n)
    outcomes["terminated"] = finished
    outcomes["finished"] = finished
    return Step(frames, outcomes)


def plain(parts: list[bytes | memoryview]) -> list[bytes]:
    """The parts, copied to bytes."""
    return [bytes(part) for part in parts]


def whole_messages(
    group: int = 1, sequence: int = 5, hello: Hello = HELLO
) -> dict[str, list[bytes]]:
    """A valid message of each of five kinds, between the service and an agent with this hello."""
    envs = hello.envs_per_group
    header = Header(Kind.STEP, group, envs, sequence, 0.25, 0.5)
    return {
        "hello": encode_hello(hello),
        "step": plain(encode_step(header, make_step(envs, hello.shape, hello.dtype))),
        "actions": encode_actions(group, sequence, np.arange(envs, dtype=np.int32)),
        "retire": encode_retire(),
        "failure": encode_failure("Traceback: \u2620"),
    }


def damaged_messages(seed: int = 0, hello: Hello = HELLO) -> Iterator[Damaged]:
    """A few thousand damaged messages. The same seed gives the same ones."""
    rng = random.Random(seed)
    whole = whole_messages(hello=hello)
    for name, parts in whole.items():
        for how, broken in _any_message(parts, rng):
            yield Damaged(f"{name}: {how}", broken)
    for how, broken in _steps(whole["step"], rng):
        yield Damaged(f"step: {how}", broken)
    for how, broken in _actions(whole["actions"]):
        yield Damaged(f"actions: {how}", broken)
    for how, body in _hello_bodies(hello, rng):
        yield Damaged(f"hello: {how}", [whole["hello"][0], body])
    for i in range(300):
        count = rng.randrange(1, 5)
        yield Damaged(f"random {i}", [rng.randbytes(rng.randrange(64)) for _ in range(count)])
        header = whole["step"][0][:KIND_AT] + rng.randbytes(18)
        tail = [rng.randbytes(rng.choice([0, 1, 18, 48])) for _ in range(count - 1)]
        yield Damaged(f"random after the magic {i}", [header, *tail])


def _any_message(parts: list[bytes], rng: random.Random) -> Iterator[tuple[str, list[bytes]]]:
    yield from _wrong_sizes(parts, rng)
    yield from _wrong_headers(parts)
    yield "no parts", []
    for i in range(len(parts)):
        yield f"part {i} missing", parts[:i] + parts[i + 1 :]
        yield f"part {i} twice", parts[: i + 1] + parts[i:]
        yield f"an empty part before {i}", [*parts[:i], b"", *parts[i:]]
    yield "parts reversed", parts[::-1]
    yield "many parts", parts * 50


def _wrong_sizes(parts: list[bytes], rng: random.Random) -> Iterator[tuple[str, list[bytes]]]:
    for i, part in enumerate(parts):
        for length in range(len(part)):
            yield f"part {i} cut to {length}", _with(parts, i, part[:length])
            yield f"part {i} from {length + 1}", _with(parts, i, part[length + 1 :])
        for extra in (1, 2, 4, 16, 24, 4096, 100_000):
            yield f"part {i} and {extra} more", _with(parts, i, part + rng.randbytes(extra))


def _wrong_headers(parts: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    header = parts[0]
    for bit in range(8 * len(header)):
        yield f"header bit {bit} flipped", _with(parts, 0, flip(header, bit))
    for kind in (*range(10), 255, 256, 0xFFFF):
        yield f"kind {kind}", _with(parts, 0, _put(header, KIND_AT, "<H", kind))
    for count in (0, 1, 2, 4, 0xFF, 4095, 4096, 4097, 0xFFFF):
        yield f"group {count}", _with(parts, 0, _put(header, GROUP_AT, "<H", count))
        yield f"{count} environments", _with(parts, 0, _put(header, ENVS_AT, "<H", count))
    for sequence in (0, 4, 6, 2**31, 2**32 - 1):
        yield f"sequence {sequence}", _with(parts, 0, _put(header, SEQUENCE_AT, "<I", sequence))
    for value in NOT_FINITE:
        for at in (TIMES_AT, TIMES_AT + 4):
            yield f"time {value}", _with(parts, 0, _put(header, at, "<f", value))


def _steps(parts: list[bytes], rng: random.Random) -> Iterator[tuple[str, list[bytes]]]:
    outcomes = parts[1]
    for bit in range(8 * len(outcomes)):
        yield f"outcome bit {bit} flipped", _with(parts, 1, flip(outcomes, bit))
    for env in range(len(outcomes) // OUTCOME_LAYOUT.size):
        start = env * OUTCOME_LAYOUT.size
        for at in (0, 4):
            for value in (*NOT_FINITE, 3e38, -3e38, 1e-45):
                broken = _put(outcomes, start + at, "<f", value)
                yield f"reward or return {value}", _with(parts, 1, broken)
        for value in (*NOT_FINITE, -2.0, 1.5, -1.0):
            yield f"success {value}", _with(parts, 1, _put(outcomes, start + 12, "<f", value))
        for flag in range(16, 20):
            for value in (2, 3, 128, 255):
                broken = _put(outcomes, start + flag, "<B", value)
                yield f"flag {value}", _with(parts, 1, broken)
    for i in range(100):
        yield f"random outcomes {i}", _with(parts, 1, rng.randbytes(len(outcomes)))


def _actions(parts: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    for bit in range(8 * len(parts[1])):
        yield f"action bit {bit} flipped", _with(parts, 1, flip(parts[1], bit))
    for value in (-1, -(2**31), NUM_ACTIONS, 2**31 - 1):
        yield f"action {value}", _with(parts, 1, _put(parts[1], 4, "<i", value))


def _hello_bodies(hello: Hello, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    good = asdict(hello)
    text = json.dumps(good)
    for name in good:
        for value in WRONG_VALUES:
            yield f"{name} is {str(value)[:30]!r}", json.dumps({**good, name: value}).encode()
        yield f"no {name}", json.dumps({k: v for k, v in good.items() if k != name}).encode()
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            for depth in (1, 50, 300, 640):
                nested = opening * depth + "1" + closing * depth
                body = json.dumps({**good, name: "@"}).replace('"@"', nested)
                yield f"{name} nested {depth} deep", body.encode()
    for value in WRONG_VALUES:
        yield f"all of it is {str(value)[:30]!r}", json.dumps(value).encode()
    for depth in (1, 10, 500, 900, 1100, 2000, 4000, 100_000):
        yield f"{depth} brackets", b"[" * depth
        yield f"{depth} braces", b'{"a":' * depth
    for encoding in ("utf-16", "utf-32", "utf-16-le", "utf-8-sig", "utf-7"):
        yield f"in {encoding}", text.encode(encoding)
    yield "one field more", json.dumps({**good, "\u00e9": 1}).encode()
    yield "a field twice", text[:-1].encode() + b', "groups": "2"}'
    yield "not unicode", text.replace(hello.token, "\udcff").encode(errors="surrogateescape")
    yield "an endless number", text.replace(json.dumps(hello.shape), "9" * 4000).encode()
    yield "an endless token", json.dumps({**good, "token": "x" * 100_000}).encode()
    yield "the words of Python", repr(good).encode()
    for i in range(100):
        broken = bytearray(text.encode())
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        yield f"random bytes in it {i}", bytes(broken)


def flip(part: bytes, bit: int) -> bytes:
    """`part` with one bit flipped."""
    return part[: bit // 8] + bytes([part[bit // 8] ^ 1 << bit % 8]) + part[bit // 8 + 1 :]


def _with(parts: list[bytes], index: int, part: bytes) -> list[bytes]:
    return [*parts[:index], part, *parts[index + 1 :]]


def numbered(parts: list[bytes], sequence: int) -> list[bytes]:
    """The message with another sequence number in its header."""
    return _with(parts, 0, _put(parts[0], SEQUENCE_AT, "<I", sequence))


def _put(part: bytes, at: int, layout: str, value: float) -> bytes:
    packed = struct.pack(layout, value)
    return part[:at] + packed + part[at + len(packed) :]


def header_flaw(part: bytes) -> str:
    """Why `part` is not a valid header; empty if it is."""
    if len(part) != HEADER_LAYOUT.size:
        return "size"
    magic, protocol, kind, _group, _envs, _sequence, *times = HEADER_LAYOUT.unpack(part)
    if magic != b"GA3C" or protocol != 7:
        return "not ours"
    if not 1 <= kind <= 8:
        return "kind"
    return "" if all(0 <= time <= LONGEST_S for time in times) else "times"


def step_flaw(parts: list[bytes], shape: tuple[int, ...] = SHAPE) -> str:
    """Why `parts` are not a valid step with uint8 frames; empty if they are."""
    if len(parts) != 3:
        return "parts"
    if flaw := header_flaw(parts[0]):
        return flaw
    if parts[0][KIND_AT] == 8:
        return "said to be compressed, which no frames are by chance"
    (n,) = struct.unpack_from("<H", parts[0], ENVS_AT)
    if len(parts[1]) != 20 * n or len(parts[2]) != n * math.prod(shape):
        return "size"
    for reward, episode_return, length, success, *flags in OUTCOME_LAYOUT.iter_unpack(parts[1]):
        if not (math.isfinite(reward) and math.isfinite(episode_return)):
            return "not finite"
        if not -1 <= success <= 1:
            return "success"
        if max(flags) > 1 or length < 0:
            return "outcome"
    return ""


def actions_flaw(parts: list[bytes], num_actions: int = NUM_ACTIONS) -> str:
    """Why `parts` are not valid actions of a finite set; empty if they are."""
    if len(parts) != 2:
        return "parts"
    if flaw := header_flaw(parts[0]):
        return flaw
    (n,) = struct.unpack_from("<H", parts[0], ENVS_AT)
    if len(parts[1]) != 4 * n:
        return "size"
    actions = [action for (action,) in struct.iter_unpack("<i", parts[1])]
    return "" if all(0 <= action < num_actions for action in actions) else "range"


def numbers_flaw(parts: list[bytes], size: int) -> str:
    """Why `parts` are not valid actions of `size` numbers each; empty if they are."""
    if len(parts) != 2:
        return "parts"
    if flaw := header_flaw(parts[0]):
        return flaw
    (n,) = struct.unpack_from("<H", parts[0], ENVS_AT)
    if len(parts[1]) != 4 * n * size:
        return "size"
    numbers = [number for (number,) in struct.iter_unpack("<f", parts[1])]
    return "" if all(-1 <= number <= 1 for number in numbers) else "range"


def hello_flaw(hello: Hello) -> str:
    """What is wrong with a decoded hello; empty if nothing is."""
    if type(hello.actions) is not Actions or type(hello.actions.count) is not int:
        return "actions"
    counts = [*hello.shape, hello.actions.size, hello.groups, hello.envs_per_group]
    if type(hello.token) is not str or type(hello.dtype) is not str:
        return "text"
    if type(hello.shape) is not tuple or not 1 <= len(hello.shape) <= 4:
        return "shape"
    if hello.dtype not in {"uint8", "float32"}:
        return "values"
    if not all(type(count) is int and count >= 1 for count in counts):
        return "counts"
    if max(hello.groups, hello.envs_per_group) > 65535:
        return "counts"
    if not 0 <= hello.actions.count <= 65536:
        return "counts"
    if type(hello.infos) is not int or not 0 <= hello.infos <= 64:
        return "counts"
    frame_bytes = math.prod(hello.shape) * {"uint8": 1, "float32": 4}[hello.dtype]
    if max(frame_bytes, 16, 4 * hello.actions.size) * hello.envs_per_group > 256 * 2**20:
        return "bytes"
    return ""
