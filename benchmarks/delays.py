"""A relay between two TCP ports that delays everything, like a network between two machines.

It can also go silent for a while, like a network whose cable is cut.
"""

import asyncio
import contextlib
import threading

CHUNK_BYTES = 1 << 18
START_S = 10.0


class Delay:
    """Forwards every byte, in both directions, after a delay. As a context, it gives its port."""

    def __init__(self, target: tuple[str, int], delay_s: float) -> None:
        self._target, self._delay_s = target, delay_s
        self._loop = asyncio.new_event_loop()
        self._port = 0
        self._listens = threading.Event()
        self._flows = asyncio.Event()  # belongs to the relay's thread, like all of asyncio
        self._flows.set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> int:
        self._thread.start()
        if not self._listens.wait(START_S):
            raise RuntimeError("the relay did not start listening")
        return self._port

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def freeze(self) -> None:
        """Forward nothing until `mend`, though every connection still looks intact."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def mend(self) -> None:
        """Forward what has arrived, and whatever arrives from now on."""
        self._loop.call_soon_threadsafe(self._flows.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        self._listens.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:  # nothing listens there yet
            writer.close()
            return
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(self._hand_on(reader, back), self._hand_on(there, writer))

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Write everything `delay_s` after it was read, the end of the stream included."""
        while data := await reader.read(CHUNK_BYTES):
            await self._flows.wait()
            self._later(writer, data)
        self._loop.call_later(self._delay_s, writer.close)

    def _later(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self._delay_s:
            self._loop.call_later(self._delay_s, writer.write, data)
        else:
            writer.write(data)
