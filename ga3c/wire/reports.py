"""What another machine says of itself (`agents.host`), checked."""

from typing import Annotated

import msgspec
from msgspec import Meta

from agents.messages import MessageError, decode_note

MOST_AGENTS = 4096


class Report(msgspec.Struct):
    """What a host has and does."""

    name: Annotated[str, Meta(max_length=253)]
    agents: Annotated[int, Meta(ge=1, le=MOST_AGENTS)]  # for which it has room
    playing: Annotated[int, Meta(ge=0, le=MOST_AGENTS)]
    refuses: str  # why it plays nothing; empty if it plays
    exits: dict[str, tuple[int, str]]  # codes and last words of agents that have ended


def decode_report(parts: list[bytes]) -> Report:
    """The report in the parts of a message. Raises MessageError if it is malformed."""
    try:
        return msgspec.convert(decode_note(parts), Report)
    except msgspec.ValidationError as error:
        raise MessageError("host fields", str(error)) from error
