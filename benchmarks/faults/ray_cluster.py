"""Faults of a Ray cluster whose nodes play: its launcher on a node is killed, and a whole node."""

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial

import psutil

from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.far import LEDGER, check_ledger, counts
from benchmarks.faults.watched import ROOT, Watched
from ga3c.wire.hosts import LOST_S

NODES = 2  # of one core, and so one agent, each
WAIT_S = 120.0
LAUNCHER = "ray::NodeHost"  # how Ray names the process of a launcher
# Ray runs what it starts at nice 15: beside other work of this machine, agents would hardly play.
NOT_NICE = {"RAY_worker_niceness": "0"}
LAUNCHER_S, NODE_S = 30.0, 20.0


class Cluster:
    """The cluster of `tests.ray_nodes`, in a process of its own. Use it as a context."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ray_nodes"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, **NOT_NICE, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": directory},
        )
        self.address = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def do(self, order: str) -> None:
        """add NAME, or remove NAME."""
        assert self._process.stdin is not None
        print(order, file=self._process.stdin, flush=True)
        if self._line() != "done":
            raise RuntimeError(f"the Ray cluster did not {order}")

    def _found(self, is_wanted: Callable[[list[str]], bool]) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_ours = process.environ().get("RAY_TMPDIR") == self._directory
                if is_ours and is_wanted(process.cmdline()):
                    found.append(process)
        return found

    def agents(self) -> list[psutil.Process]:
        """The agents on all nodes."""
        return self._found(lambda words: any(word.endswith("agents/start.py") for word in words))

    def launchers(self) -> list[psutil.Process]:
        """The processes of the launchers."""
        return self._found(lambda words: bool(words) and words[0].startswith(LAUNCHER))

    def close(self) -> None:
        """End all nodes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._process.stdout.close()


@contextlib.contextmanager
def _cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory:
        cluster = Cluster(directory)  # its sockets need short paths
        try:
            yield cluster
        finally:
            cluster.close()


def _kill_launcher(run: Watched, cluster: Cluster) -> int:
    """Kill one, and wait until its node has another one with an agent."""
    launchers = cluster.launchers()
    for each in launchers[:1]:
        each.kill()
    ended = "the host of Ray node"
    run.until(lambda: ended in run.log and len(cluster.agents()) == NODES, WAIT_S)
    return len(launchers[:1])


def _kill_node(run: Watched, cluster: Cluster) -> int:
    """Kill a node's processes; when its agent is given up, another node joins."""
    cluster.do("remove node0")
    run.until(lambda: "host node0 is lost" in run.log, LOST_S + WAIT_S)
    cluster.do("add late")
    run.until(lambda: "host late has come" in run.log, WAIT_S)
    return 1


def _broken(bench: Bench, inject: Callable[[Watched, Cluster], int], recover_s: float) -> Seen:
    seen = Seen()
    if importlib.util.find_spec("ray") is None:
        seen.problems.append("Ray is not installed")
        return seen
    with _cluster() as cluster, bench.watched() as run:
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
        f"the launcher of a Ray node is killed: another is placed, as fast within {LAUNCHER_S:g} "
        "s, each step once",
        launcher_killed,
        is_long=True,
    ),
    Case(
        "machines/Ray node killed",
        f"a Ray node is killed and another one joins: as fast within {NODE_S:g} s of that, each "
        "step once",
        node_killed,
        is_long=True,
    ),
)
