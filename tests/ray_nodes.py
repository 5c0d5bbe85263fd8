"""A Ray cluster on this machine, in a process of its own.

    python -m tests.ray_nodes   prints the head's address; then, for each line of input,
        add NAME                starts a node of one core, and prints "done"
        remove NAME             kills it, and prints "done"

It ends with its input. RAY_TMPDIR names the directory of all that Ray writes.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.commands import BEGIN_S, ROOT


class Nodes:
    """A Ray cluster whose head has no cores, and nodes of one core each."""

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
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": directory},
        )
        self.address = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def do(self, order: str) -> None:
        """add NAME, or remove NAME."""
        assert self._process.stdin is not None
        print(order, file=self._process.stdin, flush=True)
        assert self._line() == "done"

    def agents(self) -> list[psutil.Process]:
        """The agent processes on all nodes."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_agent = any(word.endswith("agents/start.py") for word in process.cmdline())
                if is_agent and process.environ().get("RAY_TMPDIR") == self._directory:
                    found.append(process)
        return found

    def close(self) -> None:
        """End all nodes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(BEGIN_S)
        self._process.stdout.close()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory:
        cluster = Nodes(directory)
        try:
            yield cluster
        finally:
            cluster.close()


def main() -> None:
    """Obey until the input ends."""
    from ray.cluster_utils import Cluster

    Path(os.environ["RAY_TMPDIR"], "ray").mkdir()
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    print(cluster.address, flush=True)
    nodes = {}
    try:
        for line in sys.stdin:
            order, name = line.split()
            if order == "add":
                nodes[name] = cluster.add_node(num_cpus=1, node_name=name)
            else:
                cluster.remove_node(nodes.pop(name), allow_graceful=False)
            print("done", flush=True)
    finally:
        for node in (*nodes.values(), cluster.head_node):
            node.kill_all_processes(check_alive=False, allow_graceful=False)


if __name__ == "__main__":
    main()
