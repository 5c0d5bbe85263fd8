"""A bounded queue that hands out batches, used for requests and for segments."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Generic, NamedTuple, TypeVar

from ga3c.settings.checks import check_queue

T = TypeVar("T")


class Closed(Exception):
    """The queue is closed, so the thread that uses it should end."""


class _Entry(NamedTuple, Generic[T]):
    item: T
    size: int
    came_s: float


class BatchQueue(Generic[T]):
    """A FIFO queue of items with sizes, taken in batches of total size min_batch .. max_batch.

    A batch smaller than `min_batch` is handed out `max_wait_s` after its first item came. An item
    larger than `max_batch` is a batch of its own. Safe for many producers and consumers.

    Raises:
        ValueError: if a batch could never be gathered within `capacity`.
    """

    def __init__(self, capacity: int, min_batch: int, max_batch: int, max_wait_s: float) -> None:
        check_queue("queue", capacity, min_batch, max_batch)
        self._capacity = capacity
        self.min_batch = min_batch
        self.max_batch = max_batch
        self._max_wait_s = max_wait_s
        self._entries: deque[_Entry[T]] = deque()
        self._size = 0
        self._closed = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._space = threading.Condition(self._lock)

    @property
    def size(self) -> int:
        """Total size of the waiting items."""
        return self._size

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed

    def put(self, items: Sequence[T], sizes: Sequence[int], timeout_s: float) -> int:
        """Append as many of `items` as fit within `timeout_s`; return how many.

        Raises Closed.
        """
        deadline = time.monotonic() + timeout_s
        done = 0
        with self._lock:
            for item, size in zip(items, sizes, strict=True):
                while not self._closed and self._size and self._size + size > self._capacity:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0 or not self._space.wait(left_s):
                        return done
                if self._closed:
                    raise Closed
                self._entries.append(_Entry(item, size, time.monotonic()))
                self._size += size
                done += 1
                self._changed.notify()
        return done

    def fill(self, items: Sequence[T], sizes: Sequence[int]) -> None:
        """Append `items` regardless of the capacity, to restore the queue of a resumed run."""
        with self._lock:
            now_s = time.monotonic()
            self._entries.extend(map(_Entry, items, sizes, repeat(now_s)))
            self._size += sum(sizes)
            self._changed.notify_all()

    def get(self, timeout_s: float) -> list[T]:
        """The next batch, or an empty list if there is none within `timeout_s`. Raises Closed."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                due_s = self._entries[0].came_s + self._max_wait_s if self._entries else deadline
                if self._entries and (self._size >= self.min_batch or now >= due_s):
                    return self._take()
                left_s = min(deadline, due_s) - now
                if deadline <= now:
                    return []
                self._changed.wait(max(left_s, 0.0))
            raise Closed

    def close(self) -> None:
        """Raise Closed in all waiting threads. Items still queued are not handed out."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
            self._space.notify_all()

    def _take(self) -> list[T]:
        batch = [self._entries.popleft()]
        size = batch[0].size
        while self._entries and size + self._entries[0].size <= self.max_batch:
            batch.append(self._entries.popleft())
            size += batch[-1].size
        self._size -= size
        self._space.notify_all()
        if self._entries:
            self._changed.notify()
        return [entry.item for entry in batch]
