"""The only thread that owns sockets: checks every message, queues requests, sends actions."""

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

import numpy as np
import zmq

from agents import messages
from agents.environments import Spaces
from agents.messages import Header, Hello, Kind, MessageError
from agents.tails import shown
from ga3c.runs.metrics import Metrics
from ga3c.wire.doors import Doors, Listening
from ga3c.wire.peers import NO_HELLO, Peer, Peers
from ga3c.wire.queues import BatchQueue, Closed
from ga3c.wire.requests import Message, Reply, Request

POLL_MS, MESSAGES_A_TURN, REST_S = 100, 64, 0.002
REFUSING_S = 0.001  # most time that a turn spends on refused messages before a pause
log = logging.getLogger(__name__)


class Frontend:
    """The doors to all agents, served by one thread.

    Only a peer with the token or an allowed key can connect: libzmq closes every other connection
    before it accepts a message. An agent's messages are accepted only after `peers.expect` has
    assigned lanes to its identity, and each group's steps must come in order, one at a time. A
    resent step is not queued twice. Any other message is dropped and counted by reason. A
    successor's steps are parked until the last request for the same lanes is answered, so that two
    predictors never hold the same lane.
    """

    def __init__(
        self,
        endpoint: str,
        token: str,
        spaces: Spaces,
        groups: int,
        envs_per_group: int,
        requests: BatchQueue[Request],
        metrics: Metrics,
        on_step: Callable[[str, Header, float], None] | None = None,
        listening: Listening | None = None,
    ) -> None:
        """Args: on_step: called for each step with the agent's name, the header and the time."""
        self._on_step = on_step
        seen = spaces.shape, spaces.dtype, spaces.actions
        self._hello = Hello(token, *seen, groups, envs_per_group, len(spaces.info_keys))
        self._dtype = np.dtype(spaces.dtype)
        self._requests, self._metrics = requests, metrics
        self.peers = Peers(self._hello)
        """The agents whose messages are accepted, and when each was last heard from."""
        self._unanswered: dict[int, Request] = {}  # by first lane
        self._parked: dict[int, Request] = {}  # by first lane: requests of successors
        self._outbox: deque[Reply | Message] = deque()
        self.failure = ""  # traceback of the exception that ended the thread
        self.on_host: Callable[[str, str, list[bytes]], None] | None = None
        """Called with a host's identity, the owner of its key, and its report."""
        self._doors = Doors(endpoint, token, self._hello, listening)
        self.authenticator = self._doors.authenticator
        self.endpoint, self.listening = self._doors.endpoint, self._doors.listening
        self._stop, self._stopped = threading.Event(), False
        self._thread = threading.Thread(target=self._serve, name="frontend", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End the thread and close its socket; False if it did not end in time."""
        if self._stopped:
            return True
        self._stop.set()
        if self._thread.ident is None:  # never started, so the caller still owns the socket
            self._doors.close()
        else:
            self._doors.wake()
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        self._stopped = True
        self._doors.close_waker()
        return True

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    @property
    def unanswered(self) -> int:
        """Observations awaiting actions; approximate, as the frontend's thread changes them."""
        return sum(len(request.lanes) for request in list(self._unanswered.values()))

    def reply(self, replies: list[Reply]) -> None:
        """Send actions to agents. Called by predictors."""
        self._outbox.extend(replies)
        self._doors.wake()

    def retire(self, identity: str) -> None:
        """Tell an agent to rest, now or when it says hello. It is forgotten once it confirms."""
        self.peers.retire(identity)
        self.send(identity, messages.encode_retire())

    def send(self, identity: str, parts: list[bytes]) -> None:
        """Send a message to an agent or a host, if it is connected. Called by any thread."""
        self._outbox.append(Message(identity, parts))
        self._doors.wake()

    def silent(self, longer_than_s: float) -> list[str]:
        """Agents whose hello, step or confirmation of rest has been due for `longer_than_s`."""
        waiting = [*list(self._unanswered.values()), *list(self._parked.values())]
        return self.peers.silent(longer_than_s, {request.identity for request in waiting})

    def _serve(self) -> None:
        try:
            while not self._stop.is_set():
                began_s = self.peers.stops.listening()
                ready = self._doors.wait(POLL_MS)
                self._metrics.add(frontend_waiting_s=time.monotonic() - began_s)
                self._send_all()
                for door in ready:
                    self._receive_some(door)
        except Closed:
            pass
        except Exception:
            self.failure = traceback.format_exc()
        finally:
            self._doors.close()

    def _receive_some(self, door: zmq.Socket) -> None:
        """Receive waiting messages, up to a limit, and send replies between them."""
        refusing_s = 0.0
        for _ in range(MESSAGES_A_TURN):
            began_s = time.monotonic()
            try:
                user, parts = self._doors.receive(door)
            except zmq.Again:
                return
            try:
                self._receive(user, parts)
            except MessageError as error:
                self._refuse(parts[0], error)
                refusing_s += time.monotonic() - began_s
            self._send_all()
            if refusing_s > REFUSING_S:  # a pause throttles a flooding peer: others get turns
                time.sleep(REST_S)
                return

    def _refuse(self, sender: bytes, error: MessageError) -> None:
        """Count a dropped message, and record it as a fault if an agent of this run sent it."""
        log.debug("dropped a message: %s", error)
        self._metrics.reject(error.reason)
        self.peers.refuse(sender.decode("ascii", errors="replace"), error)

    def _receive(self, user: str, parts: list[bytes]) -> None:
        if len(parts) < 2:
            raise MessageError("part count", str(len(parts)))
        try:
            identity = parts[0].decode("ascii")
        except UnicodeDecodeError as error:
            raise MessageError("identity") from error
        header = messages.decode_header(parts[1])
        if header.kind == Kind.HOST and self.on_host and user:
            self.on_host(identity, user, parts[1:])
            return
        if self.peers.is_retired(identity):
            if header.kind == Kind.HELLO:
                self._send(identity, messages.encode_retire())
            elif header.kind == Kind.RETIRE:
                self.peers.forget(identity)
            return
        if header.kind == Kind.HELLO:
            self.peers.welcome(identity, messages.decode_hello(parts[1:]), user)
            return
        if (peer := self.peers.welcomed(identity)) is None:
            raise MessageError(NO_HELLO, identity)
        if header.kind == Kind.FAILURE:
            self.peers.failed(identity, shown(messages.decode_failure(parts[1:])))
        elif header.kind in (Kind.STEP, Kind.PACKED):
            self._step(identity, peer, header, parts[1:])
        else:
            raise MessageError("kind", header.kind.name)

    def _step(self, identity: str, peer: Peer, header: Header, parts: list[bytes]) -> None:
        if not peer.is_next(header):
            self._repeat(identity, peer, header.group)
            return
        lanes = peer.lanes[header.group]
        waiting = self._unanswered.get(int(lanes[0])), self._parked.get(int(lanes[0]))
        if any(request is not None and request.identity == identity for request in waiting):
            raise MessageError("sequence", "a step before the answer to the last one")
        step = messages.decode_step(parts, self._hello.shape, self._dtype, self._hello.infos)
        peer.sequences[header.group] += 1
        peer.answers.pop(header.group, None)
        self.peers.heard(identity)
        self._metrics.add(
            agents_waiting_s=header.waited_s, agents_busy_s=header.stepped_s, messages=1
        )
        came_s = time.monotonic()
        if peer.user:
            self._metrics.add(**peer.travelled(header, parts, came_s))
        request = Request(identity, header.group, header.sequence, lanes, step, came_s, peer.user)
        if self._on_step:
            self._on_step(request.agent, header, came_s)
        if waiting[0] is not None:
            self._parked[int(lanes[0])] = request
        else:
            self._queue(request)

    def _repeat(self, identity: str, peer: Peer, group: int) -> None:
        """Handle a step resent after a reconnection: the agent may have missed the answer."""
        self._metrics.add(repeated_steps=1)
        self.peers.heard(identity)
        if group in peer.answers:
            self._send(identity, peer.answers[group])

    def _queue(self, request: Request) -> None:
        """Queue a request. This never blocks: the queue has room for one request of each lane."""
        self._unanswered[int(request.lanes[0])] = request
        self._requests.put([request], [len(request.lanes)], timeout_s=0.0)

    def _send_all(self) -> None:
        while self._outbox:
            entry = self._outbox.popleft()
            if isinstance(entry, Message):
                self._send(entry.identity, entry.parts)
                continue
            request = entry.request
            self.peers.heard(request.identity)  # first, as it owes a step from the next line on
            self._unanswered.pop(int(request.lanes[0]), None)
            if peer := self.peers.welcomed(request.identity):
                answer = messages.encode_actions(request.group, request.sequence, entry.actions)
                peer.answers[request.group] = answer
                peer.answered_s[request.group] = time.monotonic()
                self._send(request.identity, answer)
            if parked := self._parked.pop(int(request.lanes[0]), None):
                self._queue(parked)

    def _send(self, identity: str, parts: list[bytes]) -> None:
        try:
            self._doors.send(identity.encode(), parts, self.peers.is_here(identity))
        except zmq.ZMQError as error:  # the agent has died; the launcher reports it
            log.debug("no message to %s: %s", identity, error)
