"""Faults in a Ray cluster whose nodes play: a node's launcher is killed, or a whole node."""

import importlib.util
from collections.abc import Callable
from functools import partial

from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.far import LEDGER, check_ledger, counts
from benchmarks.faults.watched import Watched
from benchmarks.ray_nodes import Nodes, nodes
from ga3c.wire.hosts import LOST_S

NODES = 2  # with one core, and so one agent, each
WAIT_S = 120.0
LAUNCHER_S, NODE_S = 30.0, 20.0


def _kill_launcher(run: Watched, cluster: Nodes) -> int:
    """Kill a launcher, and wait until its node has another one with an agent."""
    launchers = cluster.launchers()
    for each in launchers[:1]:
        each.kill()
    ended = "the host of Ray node"
    run.until(lambda: ended in run.log and len(cluster.agents()) == NODES, WAIT_S)
    return len(launchers[:1])


def _kill_node(run: Watched, cluster: Nodes) -> int:
    """Kill a node's processes; once it is declared lost, another node joins."""
    cluster.do("remove node0")
    run.until(lambda: "host node0 is lost" in run.log, LOST_S + WAIT_S)
    cluster.do("add late")
    run.until(lambda: "host late has come" in run.log, WAIT_S)
    return 1


def _broken(bench: Bench, inject: Callable[[Watched, Nodes], int], recover_s: float) -> Seen:
    seen = Seen()
    if importlib.util.find_spec("ray") is None:
        seen.problems.append("Ray is not installed")
        return seen
    with nodes() as cluster, bench.watched() as run:
        for number in range(NODES):
            cluster.do(f"add node{number}")
        given = ["--launcher", "ray", "--ray-address", cluster.address, "--agents-here", "0"]
        run.train(*LEDGER, *counts(NODES), *given)
        run.until(lambda: len(cluster.agents()) == NODES, WAIT_S)
        run.begun(0)
        times = bench.scaled(20.0, 4.0), bench.scaled(10.0, 3.0)
        bench.disturb(run, seen, partial(inject, run, cluster), *times, recover_s)
        bench.finish(run, seen)
        check_ledger(run, seen)
        agents = cluster.agents()
        seen.expect(not agents, f"{len(agents)} agents are left on the cluster")
    return seen


def launcher_killed(bench: Bench) -> Seen:
    """`kill -9` of the launcher actor of a node."""
    return _broken(bench, _kill_launcher, LAUNCHER_S)


def node_killed(bench: Bench) -> Seen:
    """All processes of a node are killed; another one joins."""
    return _broken(bench, _kill_node, NODE_S)


CASES = (
    Case(
        "machines/Ray launcher killed",
        f"the launcher of a Ray node is killed: another is placed, back to speed within "
        f"{LAUNCHER_S:g} s, each step stored once",
        launcher_killed,
        is_long=True,
    ),
    Case(
        "machines/Ray node killed",
        f"a Ray node is killed and another one joins: back to speed within {NODE_S:g} s of that, "
        "each step stored once",
        node_killed,
        is_long=True,
    ),
)
