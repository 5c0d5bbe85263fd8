"""Lets the main thread read a running service between two predictions and two updates."""

import contextlib
import threading
import time
from collections.abc import Iterator

WAIT_S = 0.2


class Gate:
    """Predictors and trainers change what was played and learned only inside `passing`.

    While the main thread is inside `held`, nobody else is: weights, counters, books and rings then
    belong to the same moment. Safe from every thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards _inside and _holds
        self._inside = 0  # threads in `passing`
        self._holds = 0  # calls of `held` that wait or hold

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Change what was played or learned. Waits while the gate is held.

        It must not wait inside for what another thread does in `passing`.
        """
        with self._changed:
            while self._holds:
                self._changed.wait(WAIT_S)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def held(self, timeout_s: float) -> Iterator[bool]:
        """Keep everybody out. Yields False if somebody is still inside after the timeout."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            self._holds += 1
            while self._inside and (left_s := deadline_s - time.monotonic()) > 0:
                self._changed.wait(min(left_s, WAIT_S))
            empty = not self._inside
        try:
            yield empty
        finally:
            with self._changed:
                self._holds -= 1
                self._changed.notify_all()
