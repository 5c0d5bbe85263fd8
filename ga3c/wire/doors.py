"""The frontend's sockets: one for this machine's agents, and one for other machines.

Local agents know the run's token. Other machines connect by CURVE with an allowed key, and their
messages arrive with the name of the key's owner.
"""

from typing import NamedTuple

import zmq

from agents import keys
from agents.keys import Pair
from agents.link import joined
from agents.messages import Hello
from ga3c.settings.service import HostsConfig
from ga3c.wire.authenticator import Authenticator
from ga3c.wire.sockets import Waker, address_of, bound_router

MOST_PARTS = 5  # of a valid message: the sender's identity, header, outcomes, frames, infos
Parts = list[bytes]


class Listening(NamedTuple):
    """How other machines may connect."""

    endpoint: str  # tcp://ADDRESS:PORT
    keys: Pair  # of the service
    allowed: dict[str, str]  # owners' names by public key


def listening(hosts: HostsConfig) -> Listening | None:
    """How other machines may connect, if at all. Raises ValueError if a key cannot be read."""
    if not hosts.others_may_play:
        return None
    own = keys.own(hosts.key) if hosts.key else keys.new()
    allowed = keys.public(hosts.allow) if hosts.allow else {}
    return Listening(hosts.listen or "tcp://0.0.0.0:*", own, allowed)


class Doors:
    """Sends to and receives from all agents. Owned by the frontend's thread."""

    def __init__(
        self, endpoint: str, token: str, hello: Hello, listening: Listening | None = None
    ) -> None:
        """Raises ValueError if an address cannot be used."""
        allowed = listening.allowed if listening else {}
        self._context = zmq.Context()
        self.authenticator = Authenticator(self._context, token, allowed)
        self._far: zmq.Socket | None = None
        self._waker = Waker()
        self._poller = zmq.Poller()
        address = endpoint
        try:
            self._near = bound_router(self._context, address, hello)
            if listening is not None:
                address = listening.endpoint
                self._far = bound_router(self._context, address, hello, listening.keys)
        except zmq.ZMQError as error:
            self.close()
            self.close_waker()
            name = "agents' socket" if address == endpoint else "listen"
            raise ValueError(f"{name} {address}: {error}") from None
        for place in (self._near, self._far, self.authenticator.socket, self._waker.fd):
            if place is not None:
                self._poller.register(place, zmq.POLLIN)
        self.endpoint = address_of(self._near)
        self.listening: Listening | None = None
        """How other machines may connect, with the actual port; None if they may not."""
        if listening and self._far:
            self.listening = listening._replace(endpoint=address_of(self._far))

    def wake(self) -> None:
        """End the current `wait`. Called by any thread."""
        self._waker.wake()

    def wait(self, timeout_ms: int) -> list[zmq.Socket]:
        """Wait for an event or the timeout. Returns the sockets that have messages."""
        ready = dict(self._poller.poll(timeout_ms))
        if self._waker.fd in ready:
            self._waker.drain()
        if self.authenticator.socket in ready:
            self.authenticator.answer()
        return [door for door in (self._near, self._far) if door is not None and door in ready]

    def receive(self, door: zmq.Socket) -> tuple[str, Parts]:
        """The owner of the sender's key (empty on this machine), and the next message.

        If a message from another machine has too many parts, the first MOST_PARTS + 1 are kept.

        Raises zmq.Again if there is none.
        """
        if door is self._near:
            return "", door.recv_multipart(zmq.DONTWAIT)
        frames = [frame := door.recv(zmq.DONTWAIT, copy=False)]
        while frame.more:
            frame = door.recv(zmq.DONTWAIT, copy=False)
            if len(frames) <= MOST_PARTS:
                frames.append(frame)
        parts = [frame.bytes for frame in frames]
        return str(frames[-1].get("User-Id")), parts

    def send(self, identity: bytes, parts: Parts, is_here: bool) -> None:
        """Send to an agent or a host. Raises zmq.ZMQError if it has gone."""
        door = self._near if is_here or self._far is None else self._far
        door.send_multipart([identity, joined(parts)], zmq.DONTWAIT)

    def close(self) -> None:
        """Close the sockets; `wake` may still be called."""
        self._context.destroy(linger=0)

    def close_waker(self) -> None:
        """Close the waker. Call it after the last `wake`."""
        self._waker.close()
