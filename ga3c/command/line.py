"""Parses a command's arguments, and turns its errors into one line and an exit code."""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from ga3c.command import streams
from ga3c.command.arguments import HELP, check_paths, near, unknown, with_whole_numbers

LISTED = {"--preset": "preset"}
"""Options with too many values to list in one line, and what `ga3c list` calls a value."""


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
        return complained(streams.in_words(error), 1)
    except MemoryError as error:
        return complained(f"out of memory: {error}", 1)


def parsed(arguments: list[str], kind: type[Any], command: str, base: Any = None) -> Any:
    """The configuration of type `kind` that `arguments` ask for.

    Raises WrongUse if they are wrong, or SystemExit after help.
    """
    from ga3c.command import help as levels
    from ga3c.command.parse import parse
    from ga3c.settings.checks import check_finite

    said = io.StringIO()
    try:
        # tyro would mistake "--algorithm a3c", the value of --train, for an option.
        arguments = [f" {each}" if re.match("-[^=]* ", each) else each for each in arguments]
        if HELP & set(arguments):
            with _environment(**({"TERM": "dumb"} if os.environ.get("NO_COLOR") else {})):
                levels.show(arguments, kind, command, base)
        lists_all = levels.all_options(kind, command)
        levels.check_effect(arguments, levels.ignored(kind), command, lists_all)
        check_paths(arguments, kind)
        arguments = with_whole_numbers(arguments, kind)
        # On a wide terminal, tyro does not break its messages into lines.
        with contextlib.redirect_stderr(said), _environment(COLUMNS="10000"):
            config = parse(arguments, kind, command, base)
        check_finite(config)
        return config
    except ValueError as error:
        raise WrongUse(str(error)) from error
    except SystemExit as stop:
        if stop.code:
            raise WrongUse(_plain(_one_line(said.getvalue()), kind, command)) from stop
        raise


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables within the context."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _plain(text: str, kind: type[Any], command: str) -> str:
    """tyro's message about wrong arguments, without its names for our classes, with suggestions."""
    from ga3c.command.help import all_options, effective

    text = re.sub(r"For full helptext, (see|run) .*$", "", text).strip()
    strange = re.match(r"Unrecognized options: (.*?)( Perhaps you meant.*)?$", text)
    if strange:
        return unknown(strange[1].split(", "), effective(kind), all_options(kind, command))
    chosen = re.match(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*)\)", text)
    if chosen:
        names = chosen[3].replace("'", "").split(", ")
        if "None" in names:  # tyro's order then varies
            names = sorted(set(names) - {"None"})
        known = f"must be one of {', '.join(names)}"
        if chosen[2] in LISTED:
            known = f"no such {LISTED[chosen[2]]}; ga3c list {LISTED[chosen[2]]}s shows them"
        return f"{chosen[2]} {chosen[1]}: {near(chosen[1], names)}{known}"
    required = re.match(r"Missing from (.*?): ([A-Z]+|--\S+|\{.*?\})", text)
    if required:
        of = required[1].removeprefix("ga3c ")  # which every message begins with
        what = required[2].strip("{}").replace(",", ", ")
        return f"{of}: {f'one of {what}' if required[2][0] == '{' else what} is missing"
    missing = re.match(r"Missing value for argument '(.*?)'", text)
    if missing:
        return f"{missing[1]}: its value is missing"
    number = re.match(r"Error parsing (--\S+): .*\b(int|float)\b.*?: '(.*?)'", text)
    if number:
        rule = "a whole number" if number[2] == "int" else "a number"
        word = re.search(r"does not match choices \('(?!None)(\w+)',\)", text)
        return f"{number[1]} {number[3]}: must be {rule}{f' or {word[1]}' if word else ''}"
    several = re.match(r"Error parsing (--\S+): Could not parse arguments \[(.*?)\] into", text)
    if several:
        values = several[2].replace("'", "").replace(",", "")
        return f"{several[1]} {values}: must be numbers, and whole ones where its help says INT"
    return re.sub(r"^Error parsing \w+: ", "", text).rstrip(".")


def _one_line(box: str) -> str:
    """The text of an error box that tyro prints, as one line without title and colours."""
    box = re.sub(r"\x1b\[[0-9;]*m", "", box)  # present if standard output is a terminal
    _, *said = [line for line in box.splitlines() if line.strip()] or [""]  # the title comes first
    lines = (re.sub(r"[╰╯│─━]+|-{3,}", " ", line).strip() for line in said)
    text = " ".join(line for line in lines if line)
    return re.sub(r"\s+", " ", text)


def complained(message: str, code: int) -> int:
    """Print `message` as one line on standard error. Returns `code`, the exit code."""
    streams.complain(message)
    return code
