"""Places agents on this machine and on hosts, other machines that run `agents.orders`."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agents.cluster import Cluster
from agents.launchers import PLACES, Exit, LocalLauncher
from agents.messages import MessageError
from agents.tails import shown
from agents.versions import versions
from agents.worker import Task
from ga3c.wire.peers import Peers
from ga3c.wire.reports import decode_report
from ga3c.wire.settled import Settled

LEAST_PAUSE_S = 0.05  # between two reports of a host; each is complete, so one can be dropped
LOST_S = 15.0  # a host silent for longer is lost, and its agents are started elsewhere
TELL_AGAIN_S = 5.0  # between two log lines about why a host plays nothing
DISMISSED_S = 1.5
MAX_WORDS = 4000  # characters kept of the output of an agent that has ended
LOST = -9  # exit code of a kill from outside, which does not count as the agent's failure


@dataclass
class _Host:
    """Another machine, as it last described itself."""

    user: str  # owner of its key
    name: str
    room: int  # how many agents it can run
    heard_s: float
    playing: int = 0  # agents
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)  # ordered, by identity
    refuses: str = ""
    told: str = ""  # last logged reason why it plays nothing
    told_s: float = -2 * TELL_AGAIN_S


class Hosts:
    """Launches agents here and on other machines. Used by the main and frontend threads.

    If there is no room for an agent anywhere, it waits until there is.
    """

    def __init__(
        self,
        *,
        local: LocalLauncher,
        game: str,
        room_here: int,
        order: Callable[[str, dict[str, Any]], None],
        peers: Peers,
        refused: Callable[[], Mapping[str, int]],
        clock: Callable[[], float] = time.monotonic,
        cluster: Cluster | None = None,
        pack: bool = False,
    ) -> None:
        """Args:
        local: starts the agents that play on this machine, at most `room_here`.
        game: named to each host, which reports whether it can play it.
        order: sends the host with this identity its complete orders.
        peers: told whose key an agent must have; agents that wait for a place never time out.
        refused: how often each address was refused for its key.
        cluster: starts the hosts, unless they connect on their own.
        pack: whether other machines compress the frames that they send.
        """
        self._local, self._room_here = local, room_here
        self._asked = {"game": game, "versions": versions()}
        self._order, self._peers = order, peers
        self._refused, self._clock = refused, clock
        self._cluster, self._pack = cluster, pack
        self._lock = threading.Lock()  # guards all attributes below
        self._hosts: dict[str, _Host] = {}
        self._here: set[str] = set()
        self.waiting: dict[str, Task] = {}  # agents without a place
        self._exits: list[Exit] = []
        self._news: list[str] = []
        self._told_of: set[str] = set()  # refused addresses
        self._where, self._stops_s = Settled(clock), peers.stops.total_s()

    def report(self, identity: str, user: str, parts: list[bytes]) -> None:
        """Record a host's report, and send it its orders. Called by the frontend's thread.

        Raises MessageError if the report is malformed or comes too soon after the last one.
        """
        with self._lock:
            host = self._hosts.get(identity)
            if host is not None and self._clock() - host.heard_s < LEAST_PAUSE_S:
                raise MessageError("host reports", "too many")
            report = decode_report(parts)
            if host is None:
                host = _Host(user, report.name, report.agents, self._clock())
                self._hosts[identity] = host
                words = f"host {host.name} has come (key {user}): up to {host.room} agents"
                self._news.append(words)
            if host.user != user:
                raise MessageError("host user")
            host.heard_s, host.playing = self._clock(), report.playing
            if report.refuses != host.told and self._clock() - host.told_s > TELL_AGAIN_S:
                host.told, host.told_s = report.refuses, self._clock()
                if host.told:
                    self._news.append(f"host {host.name} plays nothing: {host.told}")
            host.refuses = report.refuses
            if report.refuses:
                self._take_back(host)
            self._exits += [
                Exit(agent, code, shown(words[-MAX_WORDS:]))
                for agent, (code, words) in report.exits.items()
                if host.tasks.pop(agent, None)
            ]
            self._tell(identity)

    def _tell(self, identity: str) -> None:
        self._order(identity, {**self._asked, "tasks": self._hosts[identity].tasks})

    def _take_back(self, host: _Host) -> None:
        """Treat all agents of a host as ended."""
        self._exits += [Exit(each, LOST, f"{host.name} no longer plays") for each in host.tasks]
        host.tasks.clear()

    def pid(self, identity: str) -> int | None:
        """The process id of a running agent; None if it is not on this machine."""
        return self._local.pid(identity)

    def start(self, task: Task) -> None:
        """Start an agent where there is most room, or as soon as there is some."""
        with self._lock:
            self.waiting[task.identity] = task
            self._place()

    def _place(self) -> None:
        """End waiting agents that have been retired, and start others while there is room."""
        for identity in filter(self._peers.is_retired, list(self.waiting)):
            del self.waiting[identity]
            self._exits.append(Exit(identity, LOST, "it waited until it was retired"))
        for identity in list(self.waiting):
            free = {
                name: 1 - len(host.tasks) / host.room
                for name, host in self._hosts.items()
                if not host.refuses
            }
            if self._room_here:
                free[""] = 1 - len(self._here) / self._room_here
            if not free or max(free.values()) <= 0:
                return
            self._give(max(free, key=lambda name: free[name]), self.waiting.pop(identity))

    def _give(self, place: str, task: Task, after: str | None = None) -> None:
        if not place:
            self._here.add(task.identity)
            self._local.start(task)
            return
        host = self._hosts[place]
        self._peers.expect_of(task.identity, host.user)
        host.tasks[task.identity] = {**asdict(task), "after": after, "pack": self._pack}
        self._tell(place)

    def start_again(self, identity: str, task: Task) -> None:
        """Give a retired agent another task, which reuses its environments."""
        with self._lock:
            if identity in self._here:
                self._here.remove(identity)
                self._here.add(task.identity)
                self._local.start_again(identity, task)
                return
            for place, host in self._hosts.items():
                if host.tasks.pop(identity, None) is not None:
                    self._give(place, task, after=identity)
                    return
            self.waiting[task.identity] = task  # its host has been lost
            self._place()

    def end(self, identity: str) -> None:
        """End an agent; `reap` reports it."""
        self._end(identity, self._local.end)

    def kill(self, identity: str) -> None:
        """Kill an agent that does not answer; `reap` reports it."""
        self._end(identity, self._local.kill)

    def _end(self, identity: str, here: Callable[[str], None]) -> None:
        """End a local agent with `here`; a host ends an agent that is no longer in its orders."""
        with self._lock:
            if identity in self._here:
                here(identity)
                return
            self.waiting.pop(identity, None)
            self._exits.append(Exit(identity, LOST, "it was ended"))
            for place, host in self._hosts.items():
                if host.tasks.pop(identity, None):
                    self._tell(place)

    def reap(self) -> list[Exit]:
        """The agents that have ended since the last call."""
        with self._lock:
            now_s = self._clock()
            before_s, self._stops_s = self._stops_s, self._peers.stops.total_s()
            stopped_s = self._stops_s - before_s  # while this process could hear nobody
            for identity, host in list(self._hosts.items()):
                host.heard_s = min(host.heard_s + stopped_s, now_s)  # it may have been heard since
                if now_s - host.heard_s > LOST_S:
                    self._news.append(f"host {host.name} is lost: silent for {LOST_S:g} s")
                    self._take_back(self._hosts.pop(identity))
            ended, self._exits = [*self._exits, *self._local.reap()], []
            self._here -= {each.identity for each in ended}
            self._place()
            for identity in self.waiting:
                self._peers.heard(identity)
            return ended

    def news(self) -> list[str]:
        """New lines on hosts, refused addresses, what agents print, and where agents are."""
        nodes = self._cluster.news() if self._cluster else []
        with self._lock:
            news, self._news = [*nodes, *self._news], []
            strangers = self._refused().keys() - self._told_of
            self._told_of |= strangers
            news += [f"refused {each}: its key is not allowed" for each in sorted(strangers)]
            return news + self._local.news() + self._places()

    def _places(self) -> list[str]:
        """A line that says where agents are, once that has changed and settled."""
        places = [(f"on {host.name}", len(host.tasks)) for host in self._hosts.values()]
        places = [("here", len(self._here)), *places, ("waiting", len(self.waiting))]
        words = ", ".join(f"{count} {where}" for where, count in places if count)
        return self._where.news(f"{PLACES}{words}") if words else []

    def dismiss(self) -> None:
        """Order all agents on other machines to end, and wait up to DISMISSED_S for that."""
        with self._lock:
            for identity, host in self._hosts.items():
                host.playing = max(host.playing, len(host.tasks))
                host.tasks.clear()
                self._tell(identity)
        until_s = time.monotonic() + DISMISSED_S
        while self._play_elsewhere() and time.monotonic() < until_s:
            time.sleep(0.01)

    def _play_elsewhere(self) -> bool:
        with self._lock:
            return any(host.playing for host in self._hosts.values())

    def stop(self, timeout_s: float) -> None:
        """End all agents on this machine, and the hosts that were started for this run."""
        if self._cluster:
            self._cluster.stop()
        self._local.stop(timeout_s)
