"""Keeps a command running if its standard output or standard error cannot be written.

A closed pipe, a full disk, a closed terminal or a character that the terminal cannot show does not
end a run, because its results are in files.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import IO, Any, cast


class Tolerant:
    """A text stream that drops text that cannot be written."""

    def __init__(self, stream: IO[str], ignored: tuple[type[Exception], ...], reports_error: bool):
        """Args: reports_error: whether the first error is reported on standard error."""
        self._stream, self._ignored = stream, ignored
        self._reports_error = reports_error

    def write(self, text: str) -> int:
        """Write if possible."""
        try:
            return self._stream.write(text)
        except self._ignored as error:
            self._report(error)
            return len(text)

    def flush(self) -> None:
        """Flush if possible."""
        try:
            self._stream.flush()
        except self._ignored as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        if self._reports_error:
            self._reports_error = False
            complain(f"standard output cannot be written: {error}: the command goes on without it")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


UNWRITTEN = (OSError, ValueError)  # ValueError: the stream is closed


def prepare() -> None:
    """Open the null device for each standard stream that is closed, as in `ga3c train >&-`.

    Otherwise the next file that is opened would get the stream's number, and prints would go there.
    What an open stream cannot encode is printed as `?`.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is `number`
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def go_on_without() -> None:
    """From here on, ignore errors when printing; report the first one."""
    sys.stdout = cast(Any, Tolerant(sys.stdout, UNWRITTEN, reports_error=True))
    sys.stderr = cast(Any, Tolerant(sys.stderr, UNWRITTEN, reports_error=False))


@contextlib.contextmanager
def tolerant() -> Iterator[None]:
    """`go_on_without`, within this context only."""
    before = sys.stdout, sys.stderr
    go_on_without()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def end_quietly_unread() -> None:
    """For a command that only prints: ignore a reader that stops reading (`| head`)."""
    sys.stdout = cast(Any, Tolerant(sys.stdout, (BrokenPipeError,), reports_error=False))


def complain(message: str) -> None:
    """Print one line on standard error, if possible."""
    with contextlib.suppress(*UNWRITTEN):
        print(f"ga3c: {message.strip()}", file=sys.stderr, flush=True)


def flushed(code: int) -> int:
    """Flush standard output. Returns the exit code: 1 instead of 0 if it cannot be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has stopped: `ga3c --help | head -2`
        pass
    except UNWRITTEN as error:
        if not code:
            complain(f"standard output cannot be written: {error}")
        code = code or 1
    with contextlib.suppress(*UNWRITTEN):
        sys.stderr.flush()
    return code
