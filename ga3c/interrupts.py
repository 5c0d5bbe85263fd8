"""The signals that stop a run."""

import signal
import threading
import time
from types import FrameType

SAME_REQUEST_S = 0.5


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP: the first stops the run, a later one cuts the clean stop short.

    A signal that comes within `SAME_REQUEST_S` of the first is the same request: make passes on a
    signal that the terminal has already sent to the whole process group.
    """

    def __init__(self) -> None:
        self.first = threading.Event()
        self.second = threading.Event()
        self._first_s = 0.0

    def listen(self) -> None:
        """Handle the signals from now on. Called on the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup ignores SIGHUP, and that stays so.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.first.is_set():
            self._first_s = time.monotonic()
            self.first.set()
        elif time.monotonic() > self._first_s + SAME_REQUEST_S:
            self.second.set()
