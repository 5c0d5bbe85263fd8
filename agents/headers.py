"""The header of a message: the first 24 bytes of everything on the wire."""

import struct
from enum import IntEnum
from typing import NamedTuple

PROTOCOL = 7
MAGIC = b"GA3C"
LONGEST_S = 1e7  # four months; times are summed, and one unbounded value would swamp all others
# Limits on a host, enforced by the service: agents, and characters in its name and in its reason
# for not playing.
MOST_AGENTS, MAX_NAME, MAX_REASON = 4096, 253, 1000
MAX_COUNT = 0xFFFF  # groups per agent, and environments per group: 16 bits
_HEADER = struct.Struct("<4sHHHHIff")
HEADER_BYTES = _HEADER.size


class Kind(IntEnum):
    """The kind of a message."""

    HELLO = 1
    STEP = 2
    ACTIONS = 3
    RETIRE = 4
    FAILURE = 5
    HOST = 6
    ORDER = 7
    PACKED = 8


class Header(NamedTuple):
    """The beginning of every message."""

    kind: Kind
    group: int = 0
    envs: int = 0  # environments in the group
    sequence: int = 0  # number of the group's step; actions carry that of the step that they answer
    waited_s: float = 0.0  # time an agent waited for actions since its last message
    stepped_s: float = 0.0  # time it stepped environments since its last message


class MessageError(ValueError):
    """A message is refused. `reason` is a short key under which refusals are counted."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


def encode_header(header: Header) -> bytes:
    """The bytes of `header`."""
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
    """The header in `part`. Raises MessageError if a field is out of range."""
    if len(part) != _HEADER.size:
        raise MessageError("header size", f"{len(part)} bytes, not {_HEADER.size}")
    magic, protocol, kind, group, envs, sequence, waited_s, stepped_s = _HEADER.unpack(part)
    if magic != MAGIC:
        raise MessageError("magic")
    if protocol != PROTOCOL:
        raise MessageError("protocol", f"version {protocol}, not {PROTOCOL}")
    if kind not in Kind._value2member_map_:
        raise MessageError("kind", str(kind))
    if not (0 <= waited_s <= LONGEST_S and 0 <= stepped_s <= LONGEST_S):
        raise MessageError("times")
    return Header(Kind(kind), group, envs, sequence, waited_s, stepped_s)


def check_counts(groups: int, envs_per_group: int) -> None:
    """Raises ValueError if an agent's counts are too large for a message to number them."""
    if max(groups, envs_per_group) > MAX_COUNT:
        raise ValueError(
            f"{groups} groups of {envs_per_group} environments: must be at most {MAX_COUNT} each, "
            "or a message could not number them"
        )
