"""A Ray cluster on this machine, in a process of its own.

    python -m benchmarks.ray_nodes   prints the head's address; then, for each line of input,
        add NAME                starts a node of one core, and prints "done"
        remove NAME             kills it, and prints "done"

It ends when its input ends. RAY_TMPDIR names the directory for everything that Ray writes.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
END_S = 120.0
LAUNCHER = "ray::NodeHost"  # how Ray names the process of a launcher
# Ray starts its processes at nice 15: next to other work on this machine, agents would hardly play.
NOT_NICE = {"RAY_worker_niceness": "0"}


class Nodes:
    """A Ray cluster whose head has no cores, and nodes of one core each."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": directory, **NOT_NICE}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ray_nodes"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, **own},
        )
        self.address = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def do(self, order: str) -> None:
        """Give the order `add NAME` or `remove NAME`, and wait until it is done."""
        assert self._process.stdin is not None
        print(order, file=self._process.stdin, flush=True)
        if self._line() != "done":
            raise RuntimeError(f"the Ray cluster did not {order}")

    def agents(self) -> list[psutil.Process]:
        """The agent processes on all nodes."""
        return self._found(lambda words: any(word.endswith("agents/start.py") for word in words))

    def launchers(self) -> list[psutil.Process]:
        """The launcher processes."""
        return self._found(lambda words: bool(words) and words[0].startswith(LAUNCHER))

    def _found(self, is_wanted: Callable[[list[str]], bool]) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_ours = process.environ().get("RAY_TMPDIR") == self._directory
                if is_ours and is_wanted(process.cmdline()):
                    found.append(process)
        return found

    def close(self) -> None:
        """End all nodes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(END_S)
        self._process.stdout.close()


@contextlib.contextmanager
def nodes() -> Iterator[Nodes]:
    """A cluster in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory:
        cluster = Nodes(directory)  # its sockets need short paths
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
