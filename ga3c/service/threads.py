"""Threads of a role, whose number can change while they run, and which end in order."""

import threading
import time
import traceback
from collections.abc import Callable

SLICE_S = 0.1  # of a wait that can be cut short
HURRIED_S = 0.5  # for all threads to end what they do, when the end is wanted at once


class RunFailed(RuntimeError):
    """The run cannot go on; the message says why, with the traceback of what failed."""


class Deadline:
    """A moment on the monotonic clock, which comes HURRIED_S after `hurry` was seen set."""

    def __init__(self, timeout_s: float, hurry: threading.Event) -> None:
        self._at_s = time.monotonic() + timeout_s
        self._hurry = hurry
        self._hurried = False

    def left_s(self) -> float:
        """Until then."""
        now_s = time.monotonic()
        if self._hurry.is_set() and not self._hurried:
            self._hurried, self._at_s = True, min(self._at_s, now_s + HURRIED_S)
        return max(0.0, self._at_s - now_s)


class Workers:
    """Threads of one role, whose number can change while they run.

    A thread that fails is kept in `failure`: the run ends with its traceback.
    """

    def __init__(self, role: str, body: Callable[[threading.Event], Callable[[], None]]) -> None:
        self._role = role
        self._body = body
        self._running: list[tuple[threading.Thread, threading.Event]] = []
        self._leaving: list[threading.Thread] = []
        self._started = 0
        self.failure = ""

    def __len__(self) -> int:
        return len(self._running)

    def resize(self, count: int) -> None:
        """Start or stop threads; one that stops finishes its batch first."""
        while len(self._running) < count:
            stop = threading.Event()
            name = f"{self._role}-{self._started}"
            thread = threading.Thread(
                target=self._guard, args=(self._body(stop),), name=name, daemon=True
            )
            self._started += 1
            thread.start()
            self._running.append((thread, stop))
        while len(self._running) > count:
            thread, stop = self._running.pop()
            stop.set()
            self._leaving.append(thread)
        self._leaving = [thread for thread in self._leaving if thread.is_alive()]

    def join(self, deadline: Deadline) -> bool:
        """Wait until all threads have ended; False if one has not by the deadline."""
        self.resize(0)
        for thread in self._leaving:
            while thread.is_alive() and deadline.left_s() > 0:
                thread.join(min(SLICE_S, deadline.left_s()))
        return not any(thread.is_alive() for thread in self._leaving)

    def _guard(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception:
            self.failure = traceback.format_exc()
