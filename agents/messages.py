"""The messages between an agent process and the service.

Every message is a ZeroMQ multipart message of raw bytes; nothing is pickled. The first part is
always a `Header`; what the service sends is joined to one part (`agents.link.joined`). The other
parts are

    hello    a JSON object: token, shapes and counts (`Hello`)
    step     outcomes `OUTCOME[n]`, newest frames `dtype[n, *shape]`, and with k info_keys a part
             `float32[n, k]`; one message per group and step
    packed   a step whose frames are compressed (`agents.packing`)
    actions  `int32[n]` or `float32[n, d]`, one action per environment of the group
    retire   none; the service orders the agent to retire, and the agent echoes it to confirm
    failure  a traceback as UTF-8 text; the agent ends
    host     a JSON object: what a remote machine offers and is doing (`agents.orders`)
    order    a JSON object: what the service wants that machine to do

Frames are never stacked on the wire: the service keeps the older ones.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple

import numpy as np

from agents import packing
from agents.actions import Actions
from agents.config import MAX_INFOS
from agents.headers import (
    Header,
    Kind,
    MessageError,
    check_counts,
    decode_header,
    encode_header,
)

MAX_HELLO_BYTES = 4096
MAX_FAILURE_BYTES = 65536
MAX_ACTIONS = 1 << 16  # per environment: lockstep records an action in 16 bits
MAX_PART_BYTES = 1 << 28  # of a group's newest frames or outcomes
NOT_SAID = -1.0  # the `success` of an episode if its environment does not report one

OUTCOME = np.dtype(
    [
        ("reward", "<f4"),  # unclipped, for the action before this frame
        ("episode_return", "<f4"),  # unclipped sum over the whole episode; set where `finished`
        ("episode_length", "<i4"),  # in steps (not frames); set where `finished`
        ("success", "<f4"),  # of the episode, 1 or 0, where `finished`; or NOT_SAID
        ("terminated", "u1"),  # game over, or a lost life if configured: no value beyond this frame
        ("truncated", "u1"),  # episode cut short: bootstrap from this frame
        ("first", "u1"),  # a reset's frame: its reward and the action before it are meaningless
        ("finished", "u1"),  # the whole episode is over: the next frame is that of a reset
    ]
)
_FLAGS = ("terminated", "truncated", "first", "finished")
_DTYPES = ("uint8", "float32")


class Step(NamedTuple):
    """What n environments returned for n actions."""

    frames: np.ndarray  # [n, *shape] uint8 or float32, the newest only
    outcomes: np.ndarray  # [n] OUTCOME
    infos: np.ndarray | None = None  # [n, info_keys] float32, nan where none; None: no keys

    @property
    def firsts(self) -> np.ndarray:
        """Which frames come from a reset, bool [n]."""
        return self.outcomes["first"] == 1


@dataclass(frozen=True)
class Hello:
    """The shapes and counts of an agent, and the token that proves who started it."""

    token: str
    shape: tuple[int, ...]  # of one newest observation
    dtype: str  # uint8 or float32
    actions: Actions
    groups: int
    envs_per_group: int
    infos: int = 0  # numbers of an episode's info that each step has


def check_sizes(
    shape: tuple[int, ...], dtype: str, actions: Actions, groups: int, envs_per_group: int
) -> None:
    """Raises ValueError if an agent's counts, all above 0, are too large for a message."""
    check_counts(groups, envs_per_group)
    if actions.count > MAX_ACTIONS:
        raise ValueError(
            f"{actions.count} actions: must be at most {MAX_ACTIONS}: each is recorded in 16 bits"
        )
    largest = max(math.prod(shape) * np.dtype(dtype).itemsize, OUTCOME.itemsize, 4 * actions.size)
    if envs_per_group * largest > MAX_PART_BYTES:
        raise ValueError(
            f"observations {shape} {dtype}, or actions, of {envs_per_group} environments per group "
            f"take {envs_per_group * largest} bytes: must be at most {MAX_PART_BYTES}, or they "
            "would not fit a message; smaller groups take less"
        )


def encode_hello(hello: Hello) -> list[bytes]:
    """The parts of a hello."""
    return [encode_header(Header(Kind.HELLO)), json.dumps(asdict(hello)).encode()]


def decode_hello(parts: Sequence[bytes | memoryview]) -> Hello:
    """The hello in `parts`. Raises MessageError if a field has a wrong type or range."""
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
    if not isinstance(values["token"], str) or values["dtype"] not in _DTYPES:
        raise MessageError("hello fields")
    shape = values["shape"]
    actions, counts = values["actions"], [values["groups"], values["envs_per_group"]]
    if not isinstance(shape, list) or not 1 <= len(shape) <= 4:
        raise MessageError("hello fields")
    if not isinstance(actions, dict) or set(actions) != {f.name for f in fields(Actions)}:
        raise MessageError("hello fields")
    if not all(type(n) is int and n >= 1 for n in [*shape, actions["size"], *counts]):
        raise MessageError("hello counts")
    if type(actions["count"]) is not int or actions["count"] < 0:
        raise MessageError("hello counts")
    if type(values["infos"]) is not int or not 0 <= values["infos"] <= MAX_INFOS:
        raise MessageError("hello counts")
    values |= {"shape": tuple(shape), "actions": Actions(**actions)}
    hello = Hello(**values)
    try:
        check_sizes(hello.shape, hello.dtype, hello.actions, *counts)
    except ValueError as error:
        raise MessageError("hello counts", str(error)) from error
    return hello


def encode_step(header: Header, step: Step) -> list[bytes | memoryview]:
    """The parts of a step, without copying the frames."""
    frames = np.ascontiguousarray(step.frames).data.cast("B")
    infos = [] if step.infos is None else [step.infos.tobytes()]
    return [encode_header(header), step.outcomes.tobytes(), frames, *infos]


def encode_packed_step(header: Header, step: Step) -> list[bytes | memoryview]:
    """The parts of a step with compressed frames, or plain ones if these are no larger."""
    plain = encode_step(header, step)
    frames = packing.packed(memoryview(plain[2]))
    if len(frames) >= len(plain[2]):
        return plain
    return [encode_header(header._replace(kind=Kind.PACKED)), plain[1], frames, *plain[3:]]


def decode_step(
    parts: Sequence[bytes | memoryview], shape: tuple[int, ...], dtype: np.dtype, infos: int = 0
) -> Step:
    """The step in `parts` (header included), as views of their bytes.

    Args: shape, dtype, infos: as in the agent's hello.

    Raises MessageError if a size does not match the count in the header, or a value is impossible.
    """
    expected = 4 if infos else 3
    if len(parts) != expected:
        raise MessageError("part count", f"{len(parts)}, not {expected}")
    header, frames_part = decode_header(parts[0]), parts[2]
    n = header.envs
    if len(parts[1]) != n * OUTCOME.itemsize:
        raise MessageError("outcome size", f"{len(parts[1])} bytes for {n} environments")
    frames_bytes = n * math.prod(shape) * dtype.itemsize
    if header.kind == Kind.PACKED:
        frames_part = packing.unpacked(frames_part, frames_bytes)
    if len(frames_part) != frames_bytes:
        raise MessageError("frame size", f"{len(parts[2])} bytes for {n} of {shape} {dtype}")
    outcomes = np.frombuffer(parts[1], OUTCOME)
    for flag in _FLAGS:
        _check_all(outcomes[flag] <= 1, outcomes[flag], "flags")
    for name in ("reward", "episode_return"):
        _check_all(np.isfinite(outcomes[name]), outcomes[name], "reward")
    _check_all(outcomes["episode_length"] >= 0, outcomes["episode_length"], "episode length")
    _check_all(abs(outcomes["success"]) <= 1, outcomes["success"], "success")
    frames = np.frombuffer(frames_part, dtype).reshape(n, *shape)
    if dtype == np.float32:
        _check_all(np.isfinite(frames), frames, "frame values")
    return Step(frames, outcomes, _decode_infos(parts[3], n, infos) if infos else None)


def _decode_infos(part: bytes | memoryview, n: int, count: int) -> np.ndarray:
    """The numbers of the infos, [n, count]. Raises MessageError."""
    if len(part) != 4 * n * count:
        raise MessageError("info size", f"{len(part)} bytes for {count} of {n} environments")
    infos = np.frombuffer(part, np.float32).reshape(n, count)
    _check_all(~np.isinf(infos), infos, "info values")
    return infos


def _check_all(valid: np.ndarray, values: np.ndarray, reason: str) -> None:
    """Raises MessageError, naming the first invalid value, if not all are valid."""
    if not valid.all():
        where = tuple(int(i) for i in np.argwhere(~valid)[0])
        raise MessageError(reason, f"{values[where]} of environment {where[0]} of its group")


def encode_actions(group: int, sequence: int, actions: np.ndarray) -> list[bytes]:
    """The parts of an answer: an action, int32 or float32, for each environment of `group`."""
    header = Header(Kind.ACTIONS, group, len(actions), sequence)
    dtype = np.dtype("<f4" if actions.dtype.kind == "f" else "<i4")
    return [encode_header(header), actions.astype(dtype, copy=False).tobytes()]


def decode_actions(parts: Sequence[bytes | memoryview], expected: Actions) -> np.ndarray:
    """The actions in `parts`, [n, *shape]. Raises MessageError if one is not as expected."""
    if len(parts) != 2:
        raise MessageError("part count", f"{len(parts)}, not 2")
    n = decode_header(parts[0]).envs
    if len(parts[1]) != n * expected.size * expected.dtype.itemsize:
        raise MessageError("action size", f"{len(parts[1])} bytes for {n} environments")
    actions = np.frombuffer(parts[1], expected.dtype).reshape(n, *expected.shape)
    if not expected.are_valid(actions):
        raise MessageError("action range")
    return actions


def encode_retire() -> list[bytes]:
    """The order to retire, and also its confirmation."""
    return [encode_header(Header(Kind.RETIRE))]


def encode_failure(text: str) -> list[bytes]:
    """The parts of a failure. Only the end of a long traceback is sent."""
    return [
        encode_header(Header(Kind.FAILURE)),
        text.encode(errors="backslashreplace")[-MAX_FAILURE_BYTES:],
    ]


def decode_failure(parts: Sequence[bytes | memoryview]) -> str:
    """The traceback in `parts`. Raises MessageError if it is too long."""
    if len(parts) != 2 or len(parts[1]) > MAX_FAILURE_BYTES:
        raise MessageError("failure size")
    return bytes(parts[1]).decode(errors="replace")
