"""Keeps the end of what processes write to standard output and error, and drops the rest."""

import os
import selectors
import threading

READ_BYTES = 1 << 16  # the size of a pipe's buffer
LAST_READS = 16  # reads from a pipe that is being closed: a grandchild may write to it for ever
STOP_TIMEOUT_S = 5.0
WAIT_S = 0.2  # between two checks of the thread whether it should end


class Tails:
    """Pipes that a thread drains, so that no writer has to wait and no disk fills up.

    `open`, `close` and `stop` are called by one thread.
    """

    def __init__(self, tail_bytes: int) -> None:
        """Keep the last `tail_bytes` of each pipe."""
        self._tail_bytes = tail_bytes
        self._tails: dict[int, bytes] = {}  # by the pipe's read end
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()  # guards _tails; held while a pipe is read or closed
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

    def close(self, read: int) -> bytes:
        """Close a pipe's read end. Returns the end of what was written to it."""
        with self._lock:
            for _ in range(LAST_READS):
                if not self._read(read):
                    break
            if read in self._selector.get_map():
                self._selector.unregister(read)
            os.close(read)
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
        self._tails[read] = (self._tails[read] + data)[-self._tail_bytes :]
        return True
