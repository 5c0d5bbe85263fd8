"""Follows the orders of a service on another machine.

Every STATE_S the host tells the service its capacity and which agents have ended. The service
replies with everything the host should do. Both messages are complete each time, so losing one does
no harm: the host starts ordered agents that are not running yet, and ends running agents that are
not ordered. Agents connect to the service themselves.
"""

import contextlib
import math
import os
import time
from dataclasses import replace
from itertools import islice
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from agents import link
from agents.games import check
from agents.headers import MAX_REASON, Kind, MessageError, decode_header
from agents.launchers import LocalLauncher
from agents.link import Curve
from agents.notes import decode_note, encode_note
from agents.versions import differences
from agents.worker import Task

STATE_S = 2.0
SILENT_S = 30.0  # with no word from the service for this long, agents are ended
AGAIN_S = 10.0  # without a connection for this long, a new one is begun: libzmq gives up if refused
KILLED_AFTER_S = 3.0  # after an agent was told to end
STOP_S = 2.0
MOST_EXITS = 16  # in one report; the service takes a report of at most 256 KiB
MOST_WORDS = 1000  # the last characters of each; one takes up to 12 bytes
REFUSALS: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "it does not allow this key (its --allow)",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "its key differs from --service, or it is not a service",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "its key differs from --service, or it has gone",
}


class Host:
    """Obeys the service. Owned by one thread."""

    def __init__(
        self, *, connect: str, curve: Curve, agents: int, name: str, modules: tuple[str, ...]
    ) -> None:
        """Args: as in `agents.host.Config`."""
        self._address, self._curve = connect, curve
        self._agents, self._name, self._modules = agents, name, modules
        self._launcher = LocalLauncher()
        self._context = zmq.Context()
        self._identity = f"host-{os.urandom(8).hex()}"
        self._connect()
        self._playing: set[str] = set()
        self._ending: dict[str, float] = {}  # when to kill each, if it has not ended
        self._exits: dict[str, tuple[int, str]] = {}  # kept until the service no longer orders them
        self._refuses = ""
        self._counted = 0
        self._heard_s = 0.0  # 0: not since the last silence was reported
        self._told_s = 0.0
        self._said = ""
        self._stopped = False  # not an Event: a signal may arrive while its lock is held

    def _connect(self) -> None:
        """Begin a connection to the service."""
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | sum(REFUSALS)
        to = (self._address, self._identity, "", self._curve, events)
        self._socket = link.connect(self._context, *to)
        self._events = self._socket.get_monitor_socket()
        self._lost_s = time.monotonic()  # math.inf while there is a connection
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._events, zmq.POLLIN)

    def _connect_again(self) -> None:
        self._socket.disable_monitor()
        self._socket.close(linger=0)
        self._connect()

    def obey(self) -> None:
        """Follow orders until `stop` is called."""
        while not self._stopped:
            ready = dict(self._poller.poll(100))
            if self._events in ready:
                self._tell_of(recv_monitor_message(self._events)["event"])
            if self._socket in ready:
                self._follow(link.received(self._socket))
            self._tend()

    def _tell_of(self, event: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._say(f"connected to {self._address}")
            self._told_s = 0.0  # report to the service at once
            self._heard_s = time.monotonic()
            self._lost_s = math.inf
            self._refuses = ""  # it may be a different service now
        elif event == zmq.EVENT_DISCONNECTED:
            self._lost_s = time.monotonic()
        else:
            self._say(f"the service at {self._address} cannot be reached: {REFUSALS[event]}")

    def _say(self, line: str) -> None:
        if line != self._said:  # refusals repeat
            print(f"ga3c: {line}", flush=True)
        self._said = line

    def _follow(self, parts: list[bytes]) -> None:
        """Carry out an order from the service.

        An order names the `game`, the service's `versions`, and all `tasks` by identity, each
        with the retired agent that takes it, if any, as `after`.
        """
        try:
            if decode_header(parts[0]).kind != Kind.ORDER:
                raise MessageError("kind")
            order = decode_note(parts)
            ordered: dict[str, dict[str, Any]] = dict(order["tasks"])
            self._refuses = self._why_not(dict(order["versions"]), str(order["game"]))
            tasks = {n: self._task(v) for n, v in ordered.items() if not self._refuses}
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            self._refuses = f"an order was refused: {error!r}"
            self._say(self._refuses)
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
            if rests in self._playing and rests not in self._ending:
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
        """Why `game` cannot be played here, or empty. Args: there: the service's versions."""
        if others := differences(there):
            return others
        module, _, _ = game.rpartition(":")
        if module and module not in self._modules:
            return f"{game} is from a module that --modules does not name"
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
        if now_s - self._lost_s > AGAIN_S:
            if not self._said:
                self._say(f"no service has answered at {self._address} so far")
            self._connect_again()
        if self._heard_s and now_s - self._heard_s > SILENT_S:
            self._heard_s = 0.0  # until the service is heard again
            also = ", so its agents are stopped" if self._playing else ""
            self._say(
                f"nothing was heard from the service for {SILENT_S:g} s{also}: it has ended, "
                "cannot be reached, or runs another version of ga3c"
            )
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
                state = encode_note(Kind.HOST, self._state())
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
        """Make `obey` return. Also a signal handler."""
        self._stopped = True

    def close(self) -> None:
        """End all agents."""
        self._launcher.stop(STOP_S)
        self._socket.disable_monitor()
        self._context.destroy(linger=0)
