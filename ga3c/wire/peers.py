"""The agents whose messages are accepted, their lanes, and when each was last heard from."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from agents.messages import Header, Hello, MessageError

STOPPED_S = 3.0  # messages are received several times a second: a longer pause is a stop
NO_HELLO = "no hello"  # why a message of an agent that has not said hello is refused
WAITED_S = 0.0005  # an agent that waited longer for an answer took it as soon as it came


class Stops:
    """How long this process could hear nobody, because it was stopped (Ctrl-Z). Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards both
        self._listened_s: float | None = None
        self._total_s = 0.0

    def listening(self) -> float:
        """Record that messages are received. Called several times a second, by one thread.

        Returns the clock's time.
        """
        with self._lock:
            self._total_s += self._silence_s()
            self._listened_s = self._clock()
            return self._listened_s

    def total_s(self) -> float:
        """Seconds of all stops so far, including one that is just over. It never decreases."""
        with self._lock:
            return self._total_s + self._silence_s()

    def _silence_s(self) -> float:
        """The time since messages were last received, if that is long enough to be a stop."""
        passed_s = 0.0 if self._listened_s is None else self._clock() - self._listened_s
        return passed_s if passed_s > STOPPED_S else 0.0


@dataclass
class Peer:
    """An agent whose messages are accepted."""

    lanes: np.ndarray  # [groups, n] int32
    sequences: list[int] = field(default_factory=list)  # next number expected of each group
    answers: dict[int, list[bytes]] = field(default_factory=dict)  # to each group's last step
    answered_s: dict[int, float] = field(default_factory=dict)  # when each was sent
    user: str = ""  # the owner of its key; empty on this machine
    played: int = 0  # recorded steps that each group replays before its first message
    patience_s: float = 0.0  # extra time allowed for a group's first message

    @property
    def slack_s(self) -> float:
        """Extra time that it may be silent, until every group has sent its first message."""
        return self.patience_s if min(self.sequences) == self.played else 0.0

    def travelled(self, header: Header, parts: list[bytes], came_s: float) -> dict[str, float]:
        """Counts for a step from another machine: its bytes, and the round-trip time if the agent
        was already waiting when its answer arrived.
        """
        counts = {"far_messages": 1.0, "far_bytes": float(sum(map(len, parts)))}
        if header.waited_s > WAITED_S and header.group in self.answered_s:
            trip_s = came_s - self.answered_s[header.group] - header.stepped_s
            counts |= {"trips": 1.0, "trips_s": max(trip_s, 0.0)}
        return counts

    def is_next(self, header: Header) -> bool:
        """Whether this is its group's next step; False if it is the last one, resent.

        Raises MessageError if it is neither.
        """
        if header.group >= len(self.lanes) or header.envs != self.lanes.shape[1]:
            raise MessageError("counts", f"group {header.group}, {header.envs} environments")
        ahead = header.sequence - self.sequences[header.group]
        if ahead not in (-1, 0):
            raise MessageError("sequence", f"{header.sequence}")
        return ahead == 0


class Peers:
    """The agents of a run, by identity. Thread-safe.

    The main thread says which agents to expect, retire and forget. The frontend's thread records
    what it receives, and forgets agents that confirm that they rest. It alone changes a peer's
    sequences, answers and answer times.
    """

    def __init__(self, hello: Hello, clock: Callable[[], float] = time.monotonic) -> None:
        """`hello`: what every agent of this run must send first."""
        self._hello = hello
        self.stops = Stops(clock)
        """For how long nobody could be heard."""
        self._lock = threading.Lock()
        """Guards all attributes below."""
        self._expected: dict[str, Peer] = {}
        self._welcomed: dict[str, Peer] = {}
        self._retired: set[str] = set()
        self._heard_s: dict[str, float] = {}
        self._failures: dict[str, str] = {}
        self._faults: dict[str, str] = {}

    def expect(
        self, identity: str, lanes: np.ndarray, played: int = 0, patience_s: float = 0.0
    ) -> None:
        """Accept messages of an agent with this identity for `lanes` int32 [groups, n].

        Args:
            played: recorded steps that each group replays before its first message.
            patience_s: extra time for a group's first message: to make and replay it.
        """
        sequences = [played] * len(lanes)
        with self._lock:
            self._expected[identity] = Peer(lanes, sequences, played=played, patience_s=patience_s)
            self._heard_s[identity] = time.monotonic()

    def forget(self, identity: str) -> str:
        """Forget an agent that has ended. Returns its failure message, or an empty string."""
        with self._lock:
            self._expected.pop(identity, None)
            self._retired.discard(identity)
            self._heard_s.pop(identity, None)
            self._welcomed.pop(identity, None)
            self._faults.pop(identity, None)
            return self._failures.pop(identity, "")

    def expect_of(self, identity: str, user: str) -> None:
        """Require an expected agent to come with a key of `user`."""
        with self._lock:
            if peer := self._expected.get(identity):
                peer.user = user

    def welcome(self, identity: str, hello: Hello, user: str = "") -> None:
        """Admit an agent that has said hello, for the first time or after a reconnection.

        Args: user: the owner of its key; empty on this machine.

        Raises MessageError if it is not acceptable.
        """
        with self._lock:
            peer = self._expected.get(identity)
            if peer is None or peer.user != user or hello.token != self._hello.token:
                raise MessageError("stranger", identity)
            if hello != self._hello:
                given, wanted = (replace(each, token="") for each in (hello, self._hello))
                raise MessageError("hello fields", f"{given}, not {wanted}")
            self._welcomed[identity] = peer

    def welcomed(self, identity: str) -> Peer | None:
        """The agent with this identity; None if it has not said hello."""
        with self._lock:
            return self._welcomed.get(identity)

    def knows(self, identity: str) -> bool:
        """Whether the agent is expected; a retired one is until it confirms that it rests."""
        with self._lock:
            return identity in self._expected

    def has_played(self, identity: str) -> bool:
        """Whether the agent has sent a step after its first reset."""
        peer = self.welcomed(identity)
        return peer is not None and max(peer.sequences) > peer.played + 1

    def is_here(self, identity: str) -> bool:
        """Whether this is an expected agent on this machine."""
        with self._lock:
            peer = self._expected.get(identity)
            return peer is not None and not peer.user

    def retire(self, identity: str) -> None:
        """Mark an agent to rest. It is forgotten once it confirms that it rests."""
        with self._lock:
            self._retired.add(identity)
            if identity in self._heard_s:  # it has as long to confirm as for a step
                self._heard_s[identity] = time.monotonic()

    def is_retired(self, identity: str) -> bool:
        """Whether the agent was told to rest, or will be when it says hello."""
        with self._lock:
            return identity in self._retired

    def heard(self, identity: str) -> None:
        """Record that a message came from the agent or was sent to it."""
        with self._lock:
            if identity in self._heard_s:
                self._heard_s[identity] = time.monotonic()

    def excuse(self, seconds: float) -> None:
        """Count no agent as silent for the `seconds` that this process was stopped."""
        now_s = time.monotonic()  # an agent may have been heard since
        with self._lock:
            self._heard_s = {n: min(at_s + seconds, now_s) for n, at_s in self._heard_s.items()}

    def silent(self, longer_than_s: float, waiting: set[str]) -> list[str]:
        """Agents whose hello, step or confirmation of rest has been due for `longer_than_s`.

        Until every group has sent its first step, an agent has its `patience_s` on top.

        Args: waiting: agents that owe no step, because one of theirs awaits its answer.
        """
        limit_s = time.monotonic() - longer_than_s
        with self._lock:
            return [
                identity
                for identity, heard_s in self._heard_s.items()
                if heard_s + self._expected[identity].slack_s < limit_s
                and (identity in self._retired or identity not in waiting)
            ]

    def failed(self, identity: str, words: str) -> None:
        """Store the agent's message that says why it ends."""
        with self._lock:
            self._failures[identity] = words

    def refuse(self, identity: str, error: MessageError) -> None:
        """Record a refused message as a fault, if an agent of this run sent it.

        A hello that was lost with a connection is no fault: the agent resends it and its steps.
        """
        with self._lock:
            if identity in self._expected and error.reason != NO_HELLO:
                self._faults.setdefault(identity, str(error))

    def faults(self) -> dict[str, str]:
        """Agents that sent a refused message, with the reason of the first refusal."""
        with self._lock:
            return dict(self._faults)
