"""The signals that end what this process does."""

import signal


def ending() -> list[int]:
    """SIGINT and SIGTERM, and SIGHUP unless it is ignored, as by nohup."""
    numbers: list[int] = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers
