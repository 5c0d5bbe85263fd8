"""The signals that end this process's work."""

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

PR_SET_PDEATHSIG = 1  # an option of prctl
SAME_REQUEST_S = 0.5
"""A signal this soon after another is the same request: `make` forwards what the terminal has
already sent to the whole process group."""


def is_same_request(first_s: float) -> bool:
    """Whether a signal now is the same request as one at `first_s` on the monotonic clock."""
    return time.monotonic() <= first_s + SAME_REQUEST_S


def end_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends.

    A killed parent cannot send one itself. Does nothing on systems other than Linux.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def ending() -> list[int]:
    """SIGINT and SIGTERM, and SIGHUP unless it is ignored, as under nohup."""
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def handled(
    numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]
) -> dict[int, Any]:
    """Install `handler` for these signals, if this is the main thread: no other thread can.

    Returns the previous handlers, for `restore`.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number in numbers}


def restore(before: Mapping[int, Any]) -> None:
    """Restore the handlers that signals had before `handled`."""
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
