"""What is on the wire between an agent process and the service.

Every message is a ZeroMQ multipart of raw bytes; nothing is pickled. The first part is always
a `Header`. Then

    hello    a JSON object: protocol, token, shapes and counts (`Hello`)
    step     outcomes `OUTCOME[n]`, newest frames `dtype[n, *shape]`   (one per group and step)
    actions  `int32[n]`, one per environment of the group
    retire   nothing: the agent is to rest; it repeats this as its last message
    failure  a traceback as UTF-8 text: the agent has ended

Frames are never stacked here: the service keeps the older ones.
"""

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from typing import NamedTuple

import numpy as np

PROTOCOL = 1
MAGIC = b"GA3C"
MAX_HELLO_BYTES = 4096
MAX_FAILURE_BYTES = 65536
MAX_COUNT = 0xFFFF  # groups of an agent and environments of a group: a header's 16 bits
MAX_ACTIONS = 1 << 16  # of an environment: lockstep records an action as 16 bits
MAX_PART_BYTES = 1 << 28  # of a group's newest frames or outcomes

OUTCOME = np.dtype(
    [
        ("reward", "<f4"),  # unclipped, for the action before this frame
        ("episode_return", "<f4"),  # unclipped sum over the whole episode, where `finished`
        ("episode_length", "<i4"),  # in steps (not frames), where `finished`
        ("terminated", "u1"),  # no value beyond this frame (game over, or a life lost if asked)
        ("truncated", "u1"),  # cut short: bootstrap from this frame
        ("first", "u1"),  # a reset's frame: its reward and the action before it are void
        ("finished", "u1"),  # the whole episode is over; the next frame is a reset's
    ]
)
_FLAGS = ("terminated", "truncated", "first", "finished")
_HEADER = struct.Struct("<4sHHHHIff")
_DTYPES = ("uint8", "float32")


class Kind(IntEnum):
    """What a message is."""

    HELLO = 1
    STEP = 2
    ACTIONS = 3
    RETIRE = 4
    FAILURE = 5


class Step(NamedTuple):
    """What n environments answered to n actions."""

    frames: np.ndarray  # [n, *shape] uint8 or float32, the newest observation only
    outcomes: np.ndarray  # [n] OUTCOME


class Header(NamedTuple):
    """The first part of every message."""

    kind: Kind
    group: int = 0
    envs: int = 0  # environments in the group
    sequence: int = 0  # steps of the group so far; actions repeat that of their step
    waited_s: float = 0.0  # agent: waiting for actions since its last message
    stepped_s: float = 0.0  # agent: stepping environments since its last message


class MessageError(ValueError):
    """A message that must not be used. `reason` is a short key to count by."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass(frozen=True)
class Hello:
    """What an agent offers, and the token that shows it was started by this service."""

    token: str
    shape: tuple[int, ...]  # of one newest observation
    dtype: str  # uint8 or float32
    num_actions: int
    groups: int
    envs_per_group: int
    protocol: int = PROTOCOL


def check_sizes(
    shape: tuple[int, ...], dtype: str, num_actions: int, groups: int, envs_per_group: int
) -> None:
    """Raises ValueError if an agent's counts, all above 0, are larger than messages can carry."""
    if max(groups, envs_per_group) > MAX_COUNT:
        raise ValueError(
            f"{groups} groups of {envs_per_group} environments: must be at most {MAX_COUNT} each, "
            "or no message could name them"
        )
    if num_actions > MAX_ACTIONS:
        raise ValueError(
            f"{num_actions} actions: must be at most {MAX_ACTIONS}, as one is recorded in 16 bits"
        )
    largest = max(math.prod(shape) * np.dtype(dtype).itemsize, OUTCOME.itemsize)
    if envs_per_group * largest > MAX_PART_BYTES:
        raise ValueError(
            f"observations {shape} {dtype} of {envs_per_group} environments a group take "
            f"{envs_per_group * largest} bytes: must be at most {MAX_PART_BYTES}, or no message "
            "could carry them; smaller groups take less"
        )


def encode_header(header: Header) -> bytes:
    """The 24 bytes of `header`."""
    return _HEADER.pack(
        MAGIC,
        PROTOCOL,
        header.kind,
        header.group,
        header.envs,
        header.sequence,
        header.waited_s,
        header.stepped_s,
    )


def decode_header(part: bytes | memoryview) -> Header:
    """The header in `part`. Raises MessageError unless every field is in its range."""
    if len(part) != _HEADER.size:
        raise MessageError("header size", f"{len(part)} bytes, not {_HEADER.size}")
    magic, protocol, kind, group, envs, sequence, waited_s, stepped_s = _HEADER.unpack(part)
    if magic != MAGIC:
        raise MessageError("magic")
    if protocol != PROTOCOL:
        raise MessageError("protocol", f"version {protocol}, not {PROTOCOL}")
    if kind not in Kind._value2member_map_:
        raise MessageError("kind", str(kind))
    if not (0 <= waited_s < math.inf and 0 <= stepped_s < math.inf):
        raise MessageError("times")
    return Header(Kind(kind), group, envs, sequence, waited_s, stepped_s)


def encode_hello(hello: Hello) -> list[bytes]:
    """The parts of a hello."""
    return [encode_header(Header(Kind.HELLO)), json.dumps(asdict(hello)).encode()]


def decode_hello(parts: Sequence[bytes | memoryview]) -> Hello:
    """The hello in `parts`. Raises MessageError unless every field has its type and range."""
    if len(parts) != 2:
        raise MessageError("part count", f"{len(parts)}, not 2")
    if len(parts[1]) > MAX_HELLO_BYTES:
        raise MessageError("hello size", f"{len(parts[1])} bytes")
    try:
        values = json.loads(bytes(parts[1]))
    except (ValueError, RecursionError) as error:
        raise MessageError("hello json") from error
    if not isinstance(values, dict) or set(values) != {f.name for f in fields(Hello)}:
        raise MessageError("hello fields")
    if type(values["protocol"]) is not int or values["protocol"] != PROTOCOL:
        raise MessageError("protocol", f"version {values['protocol']!r}, not {PROTOCOL}")
    if not isinstance(values["token"], str) or values["dtype"] not in _DTYPES:
        raise MessageError("hello fields")
    shape = values["shape"]
    counts = [values["num_actions"], values["groups"], values["envs_per_group"]]
    if not isinstance(shape, list) or not 1 <= len(shape) <= 4:
        raise MessageError("hello fields")
    if not all(type(n) is int and n >= 1 for n in [*shape, *counts]):
        raise MessageError("hello counts")
    try:
        check_sizes(tuple(shape), values["dtype"], *counts)
    except ValueError as error:
        raise MessageError("hello counts", str(error)) from error
    return Hello(**{**values, "shape": tuple(shape)})


def encode_step(header: Header, step: Step) -> list[bytes | memoryview]:
    """The parts of a step, without copying the frames."""
    return [
        encode_header(header),
        step.outcomes.tobytes(),
        np.ascontiguousarray(step.frames).data.cast("B"),
    ]


def decode_step(
    parts: Sequence[bytes | memoryview], shape: tuple[int, ...], dtype: np.dtype
) -> Step:
    """The step in `parts` (header included), as views of their bytes.

    Raises MessageError unless sizes fit the header's count and every outcome is a possible one.
    """
    if len(parts) != 3:
        raise MessageError("part count", f"{len(parts)}, not 3")
    n = decode_header(parts[0]).envs
    if len(parts[1]) != n * OUTCOME.itemsize:
        raise MessageError("outcome size", f"{len(parts[1])} bytes for {n} environments")
    if len(parts[2]) != n * math.prod(shape) * dtype.itemsize:
        raise MessageError("frame size", f"{len(parts[2])} bytes for {n} of {shape} {dtype}")
    outcomes = np.frombuffer(parts[1], OUTCOME)
    for flag in _FLAGS:
        _check_all(outcomes[flag] <= 1, outcomes[flag], "flags")
    for name in ("reward", "episode_return"):
        _check_all(np.isfinite(outcomes[name]), outcomes[name], "reward")
    _check_all(outcomes["episode_length"] >= 0, outcomes["episode_length"], "episode length")
    frames = np.frombuffer(parts[2], dtype).reshape(n, *shape)
    if dtype == np.float32:
        _check_all(np.isfinite(frames), frames, "frame values")
    return Step(frames, outcomes)


def _check_all(valid: np.ndarray, values: np.ndarray, reason: str) -> None:
    """Raises MessageError, with the first value that is not valid, unless all of them are."""
    if not valid.all():
        where = tuple(int(i) for i in np.argwhere(~valid)[0])
        raise MessageError(reason, f"{values[where]} of environment {where[0]} of its group")


def encode_actions(group: int, sequence: int, actions: np.ndarray) -> list[bytes]:
    """The parts of an answer: one int32 for each environment of `group`."""
    header = Header(Kind.ACTIONS, group, len(actions), sequence)
    return [encode_header(header), actions.astype(np.int32, copy=False).tobytes()]


def decode_actions(parts: Sequence[bytes | memoryview], num_actions: int) -> np.ndarray:
    """The actions in `parts`, int32 [n]. Raises MessageError if any is not below `num_actions`."""
    if len(parts) != 2:
        raise MessageError("part count", f"{len(parts)}, not 2")
    n = decode_header(parts[0]).envs
    if len(parts[1]) != 4 * n:
        raise MessageError("action size", f"{len(parts[1])} bytes for {n} environments")
    actions = np.frombuffer(parts[1], np.int32)
    if ((actions < 0) | (actions >= num_actions)).any():
        raise MessageError("action range")
    return actions


def encode_retire() -> list[bytes]:
    """An order to rest, and the answer that it is done."""
    return [encode_header(Header(Kind.RETIRE))]


def encode_failure(text: str) -> list[bytes]:
    """The parts of an agent's last words; the end of a long `text` is kept."""
    return [
        encode_header(Header(Kind.FAILURE)),
        text.encode(errors="backslashreplace")[-MAX_FAILURE_BYTES:],
    ]


def decode_failure(parts: Sequence[bytes | memoryview]) -> str:
    """An agent's last words. Raises MessageError if they are too long."""
    if len(parts) != 2 or len(parts[1]) > MAX_FAILURE_BYTES:
        raise MessageError("failure size")
    return bytes(parts[1]).decode(errors="replace")
