"""Keeps a host on each node of a Ray cluster for one service, which starts this process.

    python -m agents.nodes      reads `Orders` as a line of JSON, then each public key that the
                                service has allowed, until its standard input closes;
                                writes a line of JSON for each `Word`

It is a separate process because Ray ends one that loses its cluster, while the service keeps
learning with its remaining agents. Ray only starts and watches hosts: game data goes directly
between agents and service. Each node makes its own key pair, and shares only the public key.
"""

import json
import logging
import os
import select
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from agents import keys
from agents.link import Curve
from agents.orders import Host
from agents.tails import shown

POLL_S = 0.5
RETRY_S = 5.0  # before a node whose host has ended gets another
PATIENCE_S = 20.0  # a host not placed by then is waiting for cores
MAX_NODE_NAME = 200
EVERYWHERE = ("tcp://0.0.0.0:", "tcp://[::]:")


class Orders(NamedTuple):
    """Which service to play for, and on which cluster."""

    address: str  # of Ray: HOST:PORT
    connect: str  # the service: tcp://HOST:PORT
    service: str  # its public key
    modules: list[str]  # of the user's own environments


@dataclass(frozen=True)
class Word:
    """A line for the service: news to pass on, or a public key to allow."""

    news: str = ""
    key: str = ""
    name: str = ""  # of the key's node


class NodeHost:
    """A Ray actor: the host of one node, with its own keys."""

    def __init__(self) -> None:
        self._pair = keys.new()

    def public_key(self) -> str:
        """The key that the service must allow."""
        return self._pair.public

    def play(self, orders: Orders, name: str, agents: int) -> None:
        """Play until the actor is killed, which closes its agents' stdin and so ends them."""
        host = Host(
            connect=orders.connect,
            curve=Curve(orders.service, *self._pair),
            agents=agents,
            name=name,
            modules=tuple(orders.modules),
        )
        try:
            host.obey()
        finally:
            host.close()


@dataclass
class _Placed:
    """The host of a node, and what it was last asked for: first its key, then to play."""

    name: str
    agents: int
    actor: Any
    asked: Any  # Ray's future for the answer; None until the service allows the key
    since_s: float
    key: str = ""
    waits: bool = False  # whether we have reported that Ray has no cores for it


class NodeHosts:
    """One host on each live node that has cores, except this process's own node."""

    def __init__(
        self,
        ray: Any,
        orders: Orders,
        say: Callable[[Word], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: ray: the module, connected to the cluster."""
        self._ray, self._say, self._clock = ray, say, clock
        here = ray.util.get_node_ip_address()
        here = f"[{here}]" if ":" in here else here
        for everywhere in EVERYWHERE:
            connect = orders.connect.replace(everywhere, f"tcp://{here}:")
            orders = orders._replace(connect=connect)
        self._orders = orders
        self._own = ray.get_runtime_context().get_node_id()
        self._placed: dict[str, _Placed] = {}
        self._due_s: dict[str, float] = {}  # when a node whose host has ended gets another

    def tend(self) -> None:
        """Place hosts on nodes that have none, and report those that have come or gone."""
        nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        for gone in self._placed.keys() - nodes.keys():
            placed = self._placed.pop(gone)
            self._ray.kill(placed.actor)
            self._say(Word(news=f"Ray node {placed.name} has left the cluster"))
        for identity, node in nodes.items():
            cores, due_s = int(node["Resources"].get("CPU", 0)), self._due_s.get(identity, 0.0)
            waits = identity in self._placed or self._clock() < due_s
            if cores > 0 and identity != self._own and not waits:
                self._place(identity, node["NodeName"][:MAX_NODE_NAME], cores)
        for identity in list(self._placed):
            self._follow(identity)

    def _place(self, identity: str, name: str, cores: int) -> None:
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        options = {"num_cpus": cores, "scheduling_strategy": strategy(identity, soft=False)}
        actor = self._ray.remote(NodeHost).options(**options).remote()
        asked = actor.public_key.remote()
        self._placed[identity] = _Placed(name, cores, actor, asked, self._clock())

    def _follow(self, identity: str) -> None:
        placed = self._placed[identity]
        if placed.asked is None:
            return
        if not self._ray.wait([placed.asked], timeout=0)[0]:
            self._say_if_it_waits(placed)
            return
        try:
            answer = self._ray.get(placed.asked)
        except self._ray.exceptions.RayError as error:
            del self._placed[identity]
            self._due_s[identity] = self._clock() + RETRY_S
            lines = shown(str(error)).strip().splitlines() or [type(error).__name__]
            has_traceback = any('File "' in line for line in lines)
            why = lines[-1 if has_traceback else 0]  # a traceback ends with the reason
            self._say(Word(news=f"the host of Ray node {placed.name} has ended: {why}"))
            return
        placed.asked, placed.key = None, answer
        self._say(Word(key=answer, name=f"Ray node {placed.name}"))

    def _say_if_it_waits(self, placed: _Placed) -> None:
        if placed.key or placed.waits or self._clock() - placed.since_s < PATIENCE_S:
            return
        placed.waits = True
        self._say(
            Word(
                news=f"Ray node {placed.name} waits: its {placed.agents} cores are not free; "
                "another job may hold them (ray status)"
            )
        )

    def allowed(self, key: str) -> None:
        """Let the host with this key play, now that the service accepts it."""
        for placed in self._placed.values():
            if placed.key == key:
                placed.asked = placed.actor.play.remote(self._orders, placed.name, placed.agents)

    def stop(self) -> None:
        """End all hosts."""
        for placed in self._placed.values():
            self._ray.kill(placed.actor)


def main() -> int:
    """Tend the cluster until standard input closes. Returns the exit code."""
    given = os.fdopen(0, "rb", buffering=0)  # unbuffered: `select` cannot see a buffer
    written = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray's own prints go to stderr

    def say(word: Word) -> None:
        print(json.dumps(asdict(word)), file=written, flush=True)

    orders = Orders(**json.loads(given.readline()))
    import ray
    import ray.util.scheduling_strategies

    try:
        ray.init(orders.address, namespace="ga3c", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        say(Word(news=f"Ray at {orders.address} cannot be used: {error}"))
        return 1
    hosts = NodeHosts(ray, orders, say)
    try:
        while True:
            if select.select([given], [], [], POLL_S)[0]:
                if not (line := given.readline()):
                    break
                hosts.allowed(line.decode().strip())
            hosts.tend()
    finally:
        hosts.stop()
    return 0


if __name__ == "__main__":
    from agents import nodes  # not __main__: nodes import `NodeHost` by its module's name

    sys.exit(nodes.main())
