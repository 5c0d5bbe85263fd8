"""`ga3c agents`: lets a service on another machine play on this one.

Every STATE_S the host tells the service what it has and which agents have ended. The service
answers with all that the host is to do. Both are complete each time, so that a message that is lost
costs nothing: the host starts the agents that are ordered and do not run yet, and ends those that
run and are not ordered. Agents connect to the service themselves.
"""

import contextlib
import os
import re
import signal
import socket
import sys
import time
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from agents import keys, link, messages
from agents.games import check
from agents.headers import MAX_NAME, MAX_REASON, MOST_AGENTS, Kind, MessageError, decode_header
from agents.launchers import LocalLauncher
from agents.link import Curve
from agents.machine import available_cores
from agents.signals import ending
from agents.versions import differences
from agents.worker import Task

STATE_S = 2.0
ORPHANED_S = 30.0  # without a word from the service, agents are ended
KILLED_AFTER_S = 3.0  # an agent that was to end
STOP_S = 2.0
MOST_EXITS = 16  # in one report; the service takes a report of at most 256 KiB
MOST_WORDS = 1000  # of each, its last ones; a sign takes up to 12 bytes
REFUSALS: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "it does not allow this key (its --allow)",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "it has another key than --service says, or is no service",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "it has another key than --service says, or has gone",
}


@dataclass(frozen=True)
class Config:
    """Play for a service on another machine, which was started with --listen."""

    connect: str
    """The service: tcp://HOST:PORT."""
    key: Path
    """File with this machine's secret key (ga3c keys); the service must --allow its public one."""
    service: Path
    """File with the service's public key."""
    agents: int = field(default_factory=available_cores)
    """Most agent processes at once, by default one for each core that may be used."""
    name: str = socket.gethostname()
    """Name of this machine in the run's log."""
    modules: tuple[str, ...] = ()
    """Modules of your own environments (module:Id-v0) that the service may ask for."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"tcp://[^/\s*]+:\d{1,5}", self.connect):
            raise ValueError(f"connect {self.connect}: must be tcp://HOST:PORT")
        if not 1 <= self.agents <= MOST_AGENTS:
            raise ValueError(f"agents {self.agents}: must be 1 to {MOST_AGENTS}")
        if len(self.name) > MAX_NAME or not self.name.isprintable():
            raise ValueError(f"name {self.name!r}: must be at most {MAX_NAME} printable signs")
        self.curve  # noqa: B018  raises ValueError if a key cannot be read

    @property
    def curve(self) -> Curve:
        """The keys of the connection. Raises ValueError."""
        (service, *more) = keys.public([self.service])
        if more:
            raise ValueError(f"service {self.service}: must have one key, and has {1 + len(more)}")
        return Curve(service, *keys.own(self.key))


class Host:
    """Obeys the service. Owned by one thread."""

    def __init__(
        self, *, connect: str, curve: Curve, agents: int, name: str, modules: tuple[str, ...]
    ) -> None:
        """Args: as `Config` has them."""
        self._address, self._curve = connect, curve
        self._agents, self._name, self._modules = agents, name, modules
        self._launcher = LocalLauncher()
        self._context = zmq.Context()
        identity = f"host-{os.urandom(8).hex()}"
        self._socket = link.connect(self._context, connect, identity, "", curve)
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(REFUSALS)
        self._events = self._socket.get_monitor_socket(events)
        self._playing: set[str] = set()
        self._ending: dict[str, float] = {}  # when each is killed, if it has not ended
        self._exits: dict[str, tuple[int, str]] = {}  # until the service orders them no more
        self._refuses = ""
        self._counted = 0
        self._heard_s = self._told_s = 0.0
        self._said = ""
        self._stopped = False  # no Event: a signal may come while its lock is held

    def obey(self) -> None:
        """Until `stop` is called."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._events, zmq.POLLIN)
        while not self._stopped:
            ready = dict(poller.poll(100))
            if self._events in ready:
                self._tell_of(recv_monitor_message(self._events)["event"])
            if self._socket in ready:
                self._follow(self._socket.recv_multipart())
            self._tend()

    def _tell_of(self, event: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._say(f"connected to {self._address}")
            self._told_s = 0.0  # the service hears of this host at once
        else:
            self._say(f"the service at {self._address} is not reached: {REFUSALS[event]}")

    def _say(self, line: str) -> None:
        if line != self._said:  # a refusal comes again and again
            print(f"ga3c: {line}", flush=True)
        self._said = line

    def _follow(self, parts: list[bytes]) -> None:
        """Do what the service orders.

        An order names the `game`, the service's `versions`, and all `tasks` by identity, each
        `after` the resting agent that is to take it, or none.
        """
        try:
            if decode_header(parts[0]).kind != Kind.ORDER:
                raise MessageError("kind")
            order = messages.decode_note(parts)
            ordered: dict[str, dict[str, Any]] = dict(order["tasks"])
            self._refuses = self._why_not(dict(order["versions"]), str(order["game"]))
            tasks = {name: self._task(values) for name, values in ordered.items()}
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            self._say(f"an order was refused: {error!r}")
            return
        self._heard_s = time.monotonic()
        if any(task.environment.game != order["game"] for task in tasks.values()):
            self._refuses = "tasks of another game"
        if self._refuses:
            self._say(f"nothing is played: {self._refuses}")
            tasks = {}
        self._exits = {name: ended for name, ended in self._exits.items() if name in ordered}
        for name in [name for name in tasks if name not in self._playing | set(self._exits)]:
            rests = ordered[name].get("after")
            if rests in self._playing:
                self._playing.remove(rests)
                self._launcher.start_again(rests, tasks[name])
            else:
                self._launcher.start(tasks[name])
            self._playing.add(name)
        self._end(self._playing - set(tasks))
        if len(tasks) != self._counted:
            self._counted = len(tasks)
            self._say(f"plays with {len(tasks)} of {self._agents} agents")

    def _task(self, values: dict[str, Any]) -> Task:
        given = {name: value for name, value in values.items() if name != "after"}
        given |= {"registration": None, "played": None, "played_steps": 0, "curve": None}
        task = Task.of(given)
        return replace(task, endpoint=self._address, curve=self._curve)

    def _why_not(self, there: dict[str, str], game: str) -> str:
        """Why `game` is not played here; empty if it is. Args: there: the service's versions."""
        if others := differences(there):
            return others
        module, _, _ = game.rpartition(":")
        if module and module not in self._modules:
            return f"{game} is of a module that --modules does not name"
        try:
            check(game)
        except ValueError as error:
            return str(error)
        return ""

    def _end(self, names: set[str]) -> None:
        for name in names - self._ending.keys():
            self._ending[name] = time.monotonic() + KILLED_AFTER_S
            self._launcher.end(name)

    def _tend(self) -> None:
        now_s = time.monotonic()
        if self._playing and now_s - self._heard_s > ORPHANED_S:
            self._say(f"nothing was heard of the service for {ORPHANED_S:g} s: its agents end")
            self._end(set(self._playing))
        for name in [name for name, at_s in self._ending.items() if at_s <= now_s]:
            self._launcher.kill(name)
        ended = self._launcher.reap()
        for each in ended:
            self._playing.discard(each.identity)
            self._exits[each.identity] = each.code, each.log[-MOST_WORDS:]
            self._ending.pop(each.identity, None)
        if ended or now_s - self._told_s >= STATE_S:
            self._told_s = now_s
            with contextlib.suppress(zmq.Again):  # there is no connection now
                state = messages.encode_note(Kind.HOST, self._state())
                self._socket.send_multipart(state, zmq.DONTWAIT)

    def _state(self) -> dict[str, Any]:
        refuses = filter(str.isprintable, " ".join(self._refuses.split()))
        return {
            "name": self._name,
            "agents": self._agents,
            "playing": len(self._playing),
            "exits": dict(islice(self._exits.items(), MOST_EXITS)),
            "refuses": "".join(refuses)[:MAX_REASON],
        }

    def stop(self, *_: Any) -> None:
        """Let `obey` return. Handles signals."""
        self._stopped = True

    def close(self) -> None:
        """End all agents."""
        self._launcher.stop(STOP_S)
        self._socket.disable_monitor()
        self._context.destroy(linger=0)


def run(config: Config) -> int:
    """Play until a signal comes. Returns the exit code 130."""
    host = Host(
        connect=config.connect,
        curve=config.curve,
        agents=config.agents,
        name=config.name,
        modules=config.modules,
    )
    cores = f"up to {config.agents} agents" if config.agents > 1 else "one agent"
    print(
        f"ga3c: {config.name} plays with {cores} for {config.connect}; Ctrl-C ends it", flush=True
    )
    for number in ending():
        signal.signal(number, host.stop)
    try:
        host.obey()
    finally:
        host.close()
    print("ga3c: ended", file=sys.stderr)
    return 130
