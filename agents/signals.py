"""The signals that end what this process does."""

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1  # of prctl


def end_with_parent(number: int) -> None:
    """Let the kernel send this process a signal when the thread that started it ends.

    A killed parent cannot do so itself. Does nothing on systems other than Linux.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def ending() -> list[int]:
    """SIGINT and SIGTERM, and SIGHUP unless it is ignored, as by nohup."""
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers
