"""The signals that stop a run."""

import time
from types import FrameType
from typing import Any

from agents.signals import ending, handled, is_same_request, restore

SLICE_S = 0.05


class Flag:
    """A flag that a signal handler sets and that the interrupted thread waits for.

    A `threading.Event` would not be safe: the interrupted code may hold its lock, and the handler,
    which runs in the same thread, would then deadlock.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Set it, for good."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set or the timeout has passed. Returns whether it is set."""
        until_s = time.monotonic() + timeout_s
        while not self._is_set and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, SLICE_S))
        return self._is_set


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP: the first stops the run, a later one cuts the clean stop short.

    One that follows the first immediately is part of the same request (`is_same_request`).
    """

    def __init__(self) -> None:
        self.first, self.second = Flag(), Flag()
        self.number = 0
        """The number of the first signal; 0 until it arrives."""
        self._first_s = 0.0
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Start handling the signals, if this is the main thread: no other thread can."""
        self._before |= handled(ending(), self._handle)

    def restore(self) -> None:
        """Restore the handlers that the signals had before `listen`."""
        restore(self._before)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.first.is_set():
            self._first_s = time.monotonic()
            self.number = number
            self.first.set()
        elif not is_same_request(self._first_s):
            self.second.set()
