"""The signals that end a run."""

import signal
import threading
import time
from types import FrameType

SAME_WISH_S = 0.5


class Interrupts:
    """SIGINT, SIGTERM, SIGHUP: the first ends the run, a later one cuts its clean stop short.

    One that comes within a moment is the same wish: make hands on what its whole group was sent.
    """

    def __init__(self) -> None:
        self.first = threading.Event()
        self.second = threading.Event()
        self._first_s = 0.0

    def listen(self) -> None:
        """Take the signals from now on. For the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.first.is_set():
            self._first_s = time.monotonic()
            self.first.set()
        elif time.monotonic() > self._first_s + SAME_WISH_S:
            self.second.set()
