"""Decodes and checks what a host reports about itself (`agents.orders`)."""

from typing import Annotated

import msgspec
from msgspec import Meta

from agents.headers import MAX_NAME, MAX_REASON, MOST_AGENTS
from agents.messages import MessageError

MOST_BYTES = 1 << 18  # of a report: decoding a larger one would delay other agents
SHOWN = r"^[^\x00-\x1f\x7f-\x9f]*\Z"  # no control characters: it is shown on a terminal


class Report(msgspec.Struct):
    """What a host offers and what it is doing."""

    name: Annotated[str, Meta(max_length=MAX_NAME, pattern=SHOWN)]
    agents: Annotated[int, Meta(ge=1, le=MOST_AGENTS)]  # how many it has room for
    playing: Annotated[int, Meta(ge=0, le=MOST_AGENTS)]
    refuses: Annotated[str, Meta(max_length=MAX_REASON, pattern=SHOWN)]  # why it plays nothing
    exits: dict[str, tuple[int, str]]  # code and last output of agents that have ended


def decode_report(parts: list[bytes]) -> Report:
    """The report in the parts of a message. Raises MessageError if it is malformed."""
    if len(parts) != 2 or len(parts[1]) > MOST_BYTES:
        raise MessageError("host size")
    try:
        return msgspec.json.decode(parts[1], type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError("host fields", str(error)) from error
