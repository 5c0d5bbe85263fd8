"""Parses a command's arguments, and turns its errors into one line and an exit code."""

import contextlib
import io
import re
from collections.abc import Callable
from typing import Any

from ga3c.command import streams


class WrongUse(Exception):
    """The arguments are wrong; the message says why in one line."""


def done(work: Callable[[], int | None]) -> int:
    """Do `work` and return its exit code. An expected failure is reported in one line.

    Raises WrongUse if `work` raises WrongInput.
    """
    from ga3c.settings.checks import WrongInput

    try:
        return work() or 0
    except WrongInput as error:
        raise WrongUse(str(error)) from error
    except (RuntimeError, OSError) as error:  # a process, the service or the disk has failed
        return complained(str(error), 1)
    except MemoryError as error:
        return complained(f"out of memory: {error}", 1)


def parsed(arguments: list[str], kind: type[Any], command: str, base: Any = None) -> Any:
    """The configuration of type `kind` that `arguments` ask for.

    Raises WrongUse if they are wrong, or SystemExit after --help.
    """
    from ga3c.settings.checks import check_finite
    from ga3c.settings.parse import parse

    said = io.StringIO()
    helps = bool({"-h", "--help"} & set(arguments))
    try:
        with contextlib.nullcontext() if helps else contextlib.redirect_stderr(said):
            config = parse(arguments, kind, command, base)
        check_finite(config)
        return config
    except ValueError as error:
        raise WrongUse(str(error)) from error
    except SystemExit as stop:
        if stop.code:
            raise WrongUse(_one_line(said.getvalue())) from stop
        raise


def _one_line(box: str) -> str:
    """The text of an error box that tyro prints, as one line without the box's title."""
    said = (line for line in box.splitlines() if not line.startswith("╭"))
    lines = (re.sub(r"[╰╯│─━]+", " ", line).strip() for line in said)
    text = " ".join(line for line in lines if line)
    return re.sub(r"\s+", " ", text)


def complained(message: str, code: int) -> int:
    """Print `message` as one line on standard error. Returns `code`, the exit code."""
    streams.complain(message)
    return code
