"""What a command is asked for, and how it answers: its configuration, its one line, its code."""

import contextlib
import io
import re
from collections.abc import Callable
from typing import Any

from ga3c.command import streams


class WrongUse(Exception):
    """Arguments that cannot be followed."""


def done(work: Callable[[], int | None]) -> int:
    """The exit code of `work`, which may fail in ways that its user should hear of in one line."""
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
    """The configuration asked for. Raises WrongUse, or SystemExit after --help."""
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
    """What tyro says in a box, as one line: without its title."""
    said = (line for line in box.splitlines() if not line.startswith("╭"))
    lines = (re.sub(r"[╰╯│─━]+", " ", line).strip() for line in said)
    text = " ".join(line for line in lines if line)
    return re.sub(r"\s+", " ", text)


def complained(message: str, code: int) -> int:
    """Say what is wrong in one line on standard error. Returns the exit code."""
    streams.complain(message)
    return code
