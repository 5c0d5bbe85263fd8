"""Standard output and standard error of a command whose work goes on where they cannot be written.

A pipe whose reader has gone, a full disk, a terminal that was closed, a character that the terminal
cannot show: none of these ends a run, whose results are in files.
"""

import contextlib
import os
import sys
from typing import IO, Any, cast


class Forgiving:
    """A text stream that drops what cannot be written."""

    def __init__(self, stream: IO[str], forgiven: tuple[type[Exception], ...], is_told: bool):
        """Args: is_told: whether the first failure is said on standard error."""
        self._stream, self._forgiven = stream, forgiven
        self._is_told = is_told

    def write(self, text: str) -> int:
        """Write if possible."""
        try:
            return self._stream.write(text)
        except self._forgiven as error:
            self._tell(error)
            return len(text)

    def flush(self) -> None:
        """Flush if possible."""
        try:
            self._stream.flush()
        except self._forgiven as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if self._is_told:
            self._is_told = False
            complain(f"standard output cannot be written: {error}: all else goes on without it")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


UNWRITTEN = (OSError, ValueError)  # ValueError: of a closed stream, or one of another encoding


def open_missing() -> None:
    """Have something to write to where a standard stream was closed: `ga3c train >&-`.

    The next file that is opened would take its place, and what is printed would go there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def go_on_without() -> None:
    """From here on, nothing that cannot be printed ends the command; the first failure is said."""
    sys.stdout = cast(Any, Forgiving(sys.stdout, UNWRITTEN, is_told=True))
    sys.stderr = cast(Any, Forgiving(sys.stderr, UNWRITTEN, is_told=False))


def end_quietly_unread() -> None:
    """For a command that only prints: a reader that has seen enough (`| head`) is no failure."""
    sys.stdout = cast(Any, Forgiving(sys.stdout, (BrokenPipeError,), is_told=False))


def complain(message: str) -> None:
    """Print one line on standard error, if that can be written."""
    with contextlib.suppress(*UNWRITTEN):
        print(f"ga3c: {message.strip()}", file=sys.stderr, flush=True)


def flushed(code: int) -> int:
    """The exit code, once all that was printed has gone out: 1 in place of 0 if it cannot."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on: `ga3c --help | head -2`
        pass
    except UNWRITTEN as error:
        if not code:
            complain(f"standard output cannot be written: {error}")
        code = code or 1
    with contextlib.suppress(*UNWRITTEN):
        sys.stderr.flush()
    return code
