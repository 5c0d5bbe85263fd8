"""Keeps the first lines and the tail of what processes print, and drops the rest."""

import os
import re
import selectors
import threading
import time

TAIL_BYTES = 4000  # kept of each pipe
READ_BYTES = 1 << 16  # the size of a pipe's buffer
LAST_READS = 16  # reads from a pipe being closed: a grandchild may write to it forever
STOP_TIMEOUT_S = 5.0
WAIT_S = 0.2  # how often the thread checks whether it should end
FIRST_LINES = 50  # of all pipes together
LINE_BYTES = 500
HELD_S = 2.0  # how long a line waits: the last ones before a pipe closes are in its tail anyway
NO_MORE = "(what agents print after this is not shown)"
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # and other sequences for a terminal


def shown(words: str) -> str:
    """The words without colours and characters that could control a terminal."""
    return "".join(sign for sign in _COLOURS.sub("", words) if sign.isprintable() or sign == "\n")


class Tails:
    """Pipes that a thread drains, so that no writer blocks and no disk fills up.

    `open`, `close` and `stop` must be called by one thread.
    """

    def __init__(self) -> None:
        self._tails: dict[int, bytes] = {}  # by the pipe's read end
        self._unended: dict[int, bytes] = {}  # each pipe's incomplete last line
        self._first: list[tuple[float, int, str]] = []  # time, the pipe's read end, line
        self._lines_left = FIRST_LINES
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()  # guards all the above; held while a pipe is read or closed
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self) -> tuple[int, int]:
        """A new pipe: its read end, which `close` takes, and its write end."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        with self._lock:
            self._tails[read] = b""
            self._selector.register(read, selectors.EVENT_READ)
        if self._thread is None:
            self._thread = threading.Thread(target=self._drain, name="agents' output", daemon=True)
            self._thread.start()
        return read, write

    def lines(self) -> list[tuple[int, str]]:
        """The first lines of all pipes, each with its pipe's read end; each is given once."""
        until_s = time.monotonic() - HELD_S
        with self._lock:
            due = [(read, line) for at_s, read, line in self._first if at_s <= until_s]
            self._first = self._first[len(due) :]
        return due

    def close(self, read: int) -> bytes:
        """Close a pipe's read end. Returns the end of what was written to it."""
        with self._lock:
            for _ in range(LAST_READS):
                if not self._read(read):
                    break
            if read in self._selector.get_map():
                self._selector.unregister(read)
            os.close(read)
            self._first = [each for each in self._first if each[1] != read]
            self._unended.pop(read, None)
            return self._tails.pop(read)

    def stop(self) -> None:
        """End the thread; all pipes must have been closed."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
        self._selector.close()

    def _drain(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select(WAIT_S):
                with self._lock:
                    if key.fd in self._tails:  # otherwise the pipe has just been closed
                        self._read(key.fd)

    def _read(self, read: int) -> bool:
        """Read once; False if the pipe is empty or has ended."""
        try:
            data = os.read(read, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            if read in self._selector.get_map():
                self._selector.unregister(read)
            return False
        self._tails[read] = (self._tails[read] + data)[-TAIL_BYTES:]
        if self._lines_left:
            *lines, unended = (self._unended.get(read, b"") + data).split(b"\n")
            self._unended[read] = unended[:LINE_BYTES]
            texts = (line[:LINE_BYTES].decode(errors="replace").expandtabs() for line in lines)
            plain = (shown(text).rstrip() for text in texts)
            kept = [line for line in plain if line][: self._lines_left]
            self._lines_left -= len(kept)
            kept += [] if self._lines_left else [NO_MORE]
            self._first += [(time.monotonic(), read, line) for line in kept]
        return True
