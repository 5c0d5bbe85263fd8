"""A condition that tells when somebody waits on it."""

import threading
from typing import Any


class SeenWaiting(threading.Condition):
    """Releases `waits` for each wait, with the lock held: nobody can notify before it has begun."""

    def __init__(self, lock: Any = None) -> None:
        super().__init__(lock)
        self.waits = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.release()
        return super().wait(timeout)
