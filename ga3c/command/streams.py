"""Keeps a command running if its standard output or standard error cannot be written.

A closed pipe, a full disk, a closed terminal or a character that the terminal cannot show does not
end a run, because its results are in files. Nor does a reader that stops reading hold it up.
"""

import contextlib
import io
import logging
import os
import select
import sys
from collections.abc import Iterator
from typing import IO, Any, cast

UNWRITTEN = (OSError, ValueError)  # ValueError: the stream is closed
UNWRITABLE = "standard output cannot be written"
READER_S = 1.0  # how long a run waits for a reader that has stopped
MOST_CHARACTERS = 1024  # of one write: a pipe that is ready takes 4,096 bytes


class Tolerant:
    """A text stream that drops text that cannot be written."""

    def __init__(
        self,
        stream: IO[str],
        ignored: tuple[type[Exception], ...],
        reports_error: bool,
        patience_s: float | None = None,
    ) -> None:
        """Args:
        reports_error: whether the first error is reported on standard error.
        patience_s: how long to wait for a reader that has stopped; None: until it goes on.
        """
        self._stream, self._ignored = stream, ignored
        self._reports_error = reports_error
        self._patience_s, self._is_unread = patience_s, False

    def write(self, text: str) -> int:
        """Write if possible."""
        try:
            if self._patience_s is None:
                return self._stream.write(text)
            for start in range(0, len(text), MOST_CHARACTERS):
                self._await_reader()
                self._stream.write(text[start : start + MOST_CHARACTERS])
                self._stream.flush()  # nothing may be left, or the next write would be longer
        except self._ignored as error:
            self._report(error)
        return len(text)

    def flush(self) -> None:
        """Flush if possible."""
        try:
            self._await_reader()
            self._stream.flush()
        except self._ignored as error:
            self._report(error)

    def _await_reader(self) -> None:
        """Wait until the stream takes MOST_CHARACTERS without a pause. Raises TimeoutError.

        Once a reader has stopped, nobody waits for it any more. Without a limit, writing waits.
        """
        if self._patience_s is None:
            return
        try:
            ready = select.poll()
            ready.register(self._stream.fileno(), select.POLLOUT)
        except (OSError, ValueError, AttributeError):  # it is not a file
            return
        self._is_unread = not ready.poll(0 if self._is_unread else 1e3 * self._patience_s)
        if self._is_unread:
            raise TimeoutError("its reader has stopped")

    def _report(self, error: Exception) -> None:
        if self._reports_error:
            self._reports_error = False
            complain(f"{UNWRITABLE}: {in_words(error)}: the command goes on without it")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prepare() -> None:
    """Open the null device for each standard stream that is closed, as in `ga3c train >&-`.

    Otherwise the next file that is opened would get the stream's number, and prints would go there.
    What an open stream cannot encode is printed as `?`. Matplotlib does not say that it cannot keep
    its cache where the home directory is not writable.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
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
    """From here on, ignore errors when printing, and readers that stop; report the first one."""
    sys.stdout = cast(Any, Tolerant(sys.stdout, UNWRITTEN, True, READER_S))
    sys.stderr = cast(Any, Tolerant(sys.stderr, UNWRITTEN, False, READER_S))


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


def in_words(error: BaseException) -> str:
    """What went wrong, without the system's number for it."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


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
            complain(f"{UNWRITABLE}: {in_words(error)}")
        code = code or 1
    with contextlib.suppress(*UNWRITTEN):
        sys.stderr.flush()
    return code
