"""The signals that stop a run."""

import signal
import threading
import time
from types import FrameType
from typing import Any

SAME_REQUEST_S = 0.5


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP: the first stops the run, a later one cuts the clean stop short.

    A signal within `SAME_REQUEST_S` of the first counts as the same request, because `make` passes
    on a signal that the terminal has already sent to the whole process group.
    """

    def __init__(self) -> None:
        self.first = threading.Event()
        self.second = threading.Event()
        self.number = 0
        """The number of the first signal; 0 until it arrives."""
        self._first_s = 0.0
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Handle the signals from now on, if this is the main thread: no other thread can."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Restore the handlers that the signals had before `listen`."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.first.is_set():
            self._first_s = time.monotonic()
            self.number = number
            self.first.set()
        elif time.monotonic() > self._first_s + SAME_REQUEST_S:
            self.second.set()
