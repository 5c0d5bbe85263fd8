"""The signals that end a run."""

import signal
import threading
import time
from types import FrameType
from typing import Any

SAME_WISH_S = 0.5


class Interrupts:
    """SIGINT, SIGTERM, SIGHUP: the first ends the run, a later one cuts its clean stop short.

    One that comes within a moment is the same wish: make hands on what its whole group was sent.
    """

    def __init__(self) -> None:
        self.first = threading.Event()
        self.second = threading.Event()
        self.number = 0
        """Of the first signal; 0 before it."""
        self._first_s = 0.0
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Take the signals from now on. In another thread than the main one none can be taken."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Hand the signals back to whom they were for before."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.first.is_set():
            self._first_s = time.monotonic()
            self.number = number
            self.first.set()
        elif time.monotonic() > self._first_s + SAME_WISH_S:
            self.second.set()
