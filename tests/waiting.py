"""A condition variable that tells when a thread waits on it."""

import threading
from typing import Any


class SeenWaiting(threading.Condition):
    """Releases `waits` at each wait, with the lock still held: nobody can notify too early."""

    def __init__(self, lock: Any = None) -> None:
        super().__init__(lock)
        self.waits = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.release()
        return super().wait(timeout)
