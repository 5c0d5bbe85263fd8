"""Messages between the service and remote machines: a machine's state, and orders to it."""

import json
from collections.abc import Sequence
from typing import Any

from agents.headers import MOST_AGENTS, Header, Kind, MessageError, encode_header

MAX_NOTE_BYTES = MOST_AGENTS << 10  # an order has a task of some 600 bytes for each agent


def encode_note(kind: Kind, values: dict[str, Any]) -> list[bytes]:
    """The parts of a host's state, or of an order to a host."""
    return [encode_header(Header(kind)), json.dumps(values).encode()]


def decode_note(parts: Sequence[bytes | memoryview]) -> dict[str, Any]:
    """The JSON object in `parts`, with its fields unchecked. Raises MessageError."""
    if len(parts) != 2 or len(parts[1]) > MAX_NOTE_BYTES:
        raise MessageError("note size")
    try:
        values = json.loads(bytes(parts[1]))
    except (ValueError, RecursionError) as error:
        raise MessageError("note json") from error
    if not isinstance(values, dict):
        raise MessageError("note json")
    return values
