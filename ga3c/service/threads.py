"""Threads of one role, a gate that pauses them for a checkpoint, and a deadline for ending them."""

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterator

SLICE_S = 0.1  # interruptible waits are made of slices of this length
HURRIED_S = 0.5  # time that threads have to finish their work in a hurried stop
REMEDIES = (  # when numbers are no longer finite
    "a smaller --learning-rate, a --clip-norm or a --reward-clip may help, from the last "
    "checkpoint or from scratch"
)
Body = Callable[[threading.Event], Callable[[], None]]
"""Makes the body of a thread. The body returns once the event is set."""


class RunFailed(RuntimeError):
    """The run cannot continue; the message says why, with a traceback where code has failed."""


class Deadline:
    """A moment on the monotonic clock. Once `hurry` says so, it is at most HURRIED_S away."""

    def __init__(self, timeout_s: float, hurry: Callable[[], bool]) -> None:
        self._at_s = time.monotonic() + timeout_s
        self._hurry = hurry
        self._hurried = False

    def left_s(self) -> float:
        """Seconds until the deadline, at least 0."""
        now_s = time.monotonic()
        if not self._hurried and self._hurry():
            self._hurried, self._at_s = True, min(self._at_s, now_s + HURRIED_S)
        return max(0.0, self._at_s - now_s)

    def joins(self, thread: threading.Thread) -> bool:
        """Wait until the thread has ended; False if it has not by the deadline."""
        while thread.is_alive() and (left_s := self.left_s()) > 0:
            thread.join(min(SLICE_S, left_s))
        return not thread.is_alive()


class Workers:
    """Threads of one role, whose number can change while they run.

    If a thread fails, `failure` says how, and the run ends with it.
    """

    def __init__(self, role: str, body: Body) -> None:
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
        return all([deadline.joins(thread) for thread in self._leaving])

    def _guard(self, body: Callable[[], None]) -> None:
        try:
            body()
        except RunFailed as error:
            self.failure = str(error)
        except Exception:
            self.failure = f"a service thread failed\n{traceback.format_exc()}"


class Gate:
    """Predictors and trainers change experience and weights only inside `passing`.

    While the main thread is inside `held`, no thread is inside `passing`, so weights, counters,
    books and rings belong to the same moment. Thread-safe.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards _inside and _holds
        self._inside = 0  # threads in `passing`
        self._holds = 0  # calls of `held` that are waiting or holding

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Change experience or weights. Waits while the gate is held.

        Code inside must not wait for another thread that needs `passing`.
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
    def held(self, deadline: Deadline) -> Iterator[bool]:
        """Keep all threads out. Yields False if one is still inside at the deadline."""
        with self._changed:
            self._holds += 1
            while self._inside and (left_s := deadline.left_s()) > 0:
                self._changed.wait(min(left_s, SLICE_S))
            empty = not self._inside
        try:
            yield empty
        finally:
            with self._changed:
                self._holds -= 1
                self._changed.notify_all()
