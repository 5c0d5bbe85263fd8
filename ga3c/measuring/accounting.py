"""Where every core-second of a running service goes, read from the kernel (Linux).

CPU time is counted by thread. In an agent, the main thread runs Python, ZeroMQ's threads the wire,
and all others the emulator, as do the processes that its environments start. In the service, the
frontend's and ZeroMQ's threads run the wire, other Python threads run Python (and call the tensor
framework: `*_cpu_s` of the metrics), and all others the tensor framework.
"""

import itertools
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from ga3c.runs.metrics import cores_time, families
from ga3c.settings.machine import CORES

ACTIVITIES = ("environment", "agents_python", "wire", "tensors", "service_python")
ZEROMQ = ("ZMQbg", "Reaper")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """CPU seconds since some fixed moment in the past."""

    by_thread: dict[int, tuple[str, float]]  # by thread id: one of ACTIVITIES, and its seconds
    busy: float  # of all cores that this process may use; time stolen by the host counts
    idle: float  # of the same cores
    at_s: float

    def since(self, before: "Usage") -> dict[str, float]:
        """CPU seconds since `before`: of each activity, of other processes, and idle.

        Those of a thread that has ended in between count as other processes'.
        """
        used = dict.fromkeys(ACTIVITIES, 0.0)
        for thread, (activity, seconds) in self.by_thread.items():
            used[activity] += seconds - before.by_thread.get(thread, ("", 0.0))[1]
        # GA3C_CORES may count fewer cores than these: what is left of those that count.
        left_s = max(CORES * (self.at_s - before.at_s) - sum(used.values()), 0.0)
        idle_s = min(max(self.idle - before.idle, 0.0), left_s)
        others_s = max(self.busy - before.busy - sum(used.values()), 0.0)
        return {**used, "other_processes": min(others_s, left_s - idle_s), "idle": idle_s}


def usage(agents: list[int]) -> Usage:
    """The CPU time of this process, the service, and of `agents`, given by process ids."""
    by_thread: dict[int, tuple[str, float]] = {}
    python = {thread.native_id: thread.name for thread in threading.enumerate()}
    for thread, name, used in _threads(os.getpid()):
        if name.startswith(ZEROMQ) or python.get(thread) == "frontend":
            by_thread[thread] = "wire", used
        else:
            by_thread[thread] = "service_python" if thread in python else "tensors", used
    for agent, pids in families(agents).items():
        for thread, name, used in itertools.chain(*map(_threads, pids)):
            if name.startswith(ZEROMQ):
                by_thread[thread] = "wire", used
            else:
                by_thread[thread] = "agents_python" if thread == agent else "environment", used
    return Usage(by_thread, *cores_time(), time.monotonic())


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
