"""Where every core-second of a running service goes, read from the kernel (Linux).

CPU time is counted by thread. In an agent, the main thread runs Python, ZeroMQ's threads the wire,
and all others the emulator. In the service, the frontend's and ZeroMQ's threads run the wire, other
Python threads run Python (and call the tensor framework: `*_cpu_s` of the metrics), and all others
the tensor framework.
"""

import os
import threading
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from ga3c.runs.metrics import cores_time

ZEROMQ = ("ZMQbg", "Reaper")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """CPU seconds since some fixed moment in the past."""

    by_activity: dict[str, float]  # environment, agents_python, wire, tensors, service_python
    busy: float  # of all cores that this process may use; time stolen by the host counts
    idle: float  # of the same cores

    def since(self, before: "Usage") -> dict[str, float]:
        """CPU seconds since `before`: of each activity, of other processes, and idle."""
        used = {name: s - before.by_activity[name] for name, s in self.by_activity.items()}
        others = self.busy - before.busy - sum(used.values())
        return {**used, "other_processes": max(others, 0.0), "idle": self.idle - before.idle}


def usage(agents: list[int]) -> Usage:
    """The CPU time of this process, the service, and of `agents`, given by process ids."""
    elsewhere = {"environment": 0.0, "agents_python": 0.0}  # if all agents play on other machines
    seconds: defaultdict[str, float] = defaultdict(float, elsewhere)
    python = {thread.native_id: thread.name for thread in threading.enumerate()}
    for thread, name, used in _threads(os.getpid()):
        if name.startswith(ZEROMQ) or python.get(thread) == "frontend":
            seconds["wire"] += used
        else:
            seconds["service_python" if thread in python else "tensors"] += used
    for agent in agents:
        for thread, name, used in _threads(agent):
            if name.startswith(ZEROMQ):
                seconds["wire"] += used
            else:
                seconds["agents_python" if thread == agent else "environment"] += used
    return Usage(seconds, *cores_time())


def _threads(process: int) -> list[tuple[int, str, float]]:
    """Id, name and CPU seconds of every thread of a process."""
    threads = []
    for directory in Path(f"/proc/{process}/task").glob("*"):
        try:
            stat = (directory / "stat").read_text()
        except OSError:  # the thread has just ended
            continue
        name, rest = stat[stat.index("(") + 1 :].rsplit(")", 1)
        user, system = rest.split()[11:13]
        threads.append((int(directory.name), name, (int(user) + int(system)) / TICKS_A_SECOND))
    return threads
