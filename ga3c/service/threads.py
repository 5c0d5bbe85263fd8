"""Threads of a role, whose number can change while they run; a gate that halts them; their end."""

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterator

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
                self._changed.wait(SLICE_S)
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
                self._changed.wait(min(left_s, SLICE_S))
            empty = not self._inside
        try:
            yield empty
        finally:
            with self._changed:
                self._holds -= 1
                self._changed.notify_all()
