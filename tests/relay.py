"""A TCP proxy whose connections a test can cut, freeze or forget, as a network may."""

import contextlib
import select
import selectors
import socket
import threading
from typing import Self

STEP_S = 0.01
CHUNK_BYTES = 1 << 16
MOST_WAITING_BYTES = 1 << 20


class Relay:
    """Forwards all bytes between its own port and `target`, in both directions."""

    def __init__(self, target: str) -> None:
        """Args: target: `tcp://HOST:PORT`."""
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        """How many connections were cut."""
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._waiting: dict[socket.socket, bytes] = {}  # bytes still to be sent to a socket
        self._callers: set[socket.socket] = set()
        self._forgotten: list[socket.socket] = []  # open to `target`; the callers' sides are gone
        self._ended: set[socket.socket] = set()  # sockets that will send nothing more
        self._lock = threading.Lock()  # guards the connections
        self._is_open = self._hands_on = True
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.cut()
        for one in self._forgotten:
            one.close()
        self._listener.close()

    def cut(self) -> None:
        """Break every connection, losing the bytes in transit, and refuse new ones until `mend`."""
        with self._lock:
            self._is_open = False
            for one in list(self._pairs):
                self._drop(one)

    def forget(self) -> None:
        """Break every connection on the caller's side only, like a router that lost its table.

        `target` is told nothing: to it, the old connections look intact.
        """
        with self._lock:
            for one, other in list(self._pairs.items()):
                if one in self._callers:
                    self._pairs.pop(one)
                    self._pairs.pop(other)
                    one.close()
                    self._forgotten.append(other)

    def freeze(self) -> None:
        """Forward nothing until `mend`, although every connection looks intact."""
        self._hands_on = False

    def is_called(self) -> bool:
        """Whether someone waits for a new connection, while frozen."""
        return bool(select.select([self._listener], [], [], 0)[0])

    def mend(self) -> None:
        """Accept connections and forward bytes again."""
        self._is_open = self._hands_on = True

    def _drop(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        if other is None:
            return
        self.cuts += 1
        for each in (one, other):
            self._pairs.pop(each, None)
            self._waiting.pop(each, None)
            self._ended.discard(each)
            each.close()

    def _serve(self) -> None:
        while not self._stop.wait(0.0 if self._hands_on else STEP_S):
            with self._lock:
                if self._hands_on:
                    self._turn()

    def _turn(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            for one, other in self._pairs.items():
                hears = one not in self._ended and len(self._waiting[other]) < MOST_WAITING_BYTES
                events = selectors.EVENT_READ if hears else 0
                events |= selectors.EVENT_WRITE if self._waiting[one] else 0
                if events:
                    selector.register(one, events)
            for key, events in selector.select(STEP_S):
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._listener:
                    self._accept()
                elif ready in self._pairs:
                    try:
                        self._move(ready, events)
                    except OSError:
                        self._drop(ready)

    def _accept(self) -> None:
        one, _ = self._listener.accept()
        if not self._is_open:
            one.close()
            return
        try:
            other = socket.create_connection(self._target)
        except OSError:
            one.close()
            return
        self._callers.add(one)
        for each, partner in ((one, other), (other, one)):
            each.setblocking(False)
            self._pairs[each] = partner
            self._waiting[each] = b""

    def _move(self, ready: socket.socket, events: int) -> None:
        if events & selectors.EVENT_READ:
            data = ready.recv(CHUNK_BYTES)
            self._waiting[self._pairs[ready]] += data
            if not data:
                self._ended.add(ready)
        if events & selectors.EVENT_WRITE:
            with contextlib.suppress(BlockingIOError):
                sent = ready.send(self._waiting[ready])
                self._waiting[ready] = self._waiting[ready][sent:]
        for one in (ready, self._pairs[ready]):
            if one in self._ended and not self._waiting[self._pairs[one]]:
                self._drop(one)
                return
