"""A Ray cluster on this machine, in a process of its own.

    python -m tests.ray_nodes   prints the head's address; then, for each line of input,
        add NAME                starts a node of one core, and prints "done"
        remove NAME             kills it, and prints "done"

It ends with its input. RAY_TMPDIR names the directory of all that Ray writes.
"""

import os
import sys
from pathlib import Path

from ray.cluster_utils import Cluster


def main() -> None:
    """Obey until the input ends."""
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
