"""The cores and memory that a process may use, within any container limits."""

import contextlib
import math
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

ROOT = Path("/")
COUNTED = "GA3C_CORES"
"""The environment variable that caps the number of cores."""
Reader = Callable[[Path], float]
"""Reads a value from a control group's folder. Raises OSError or ValueError if it has none."""


def available_cores(root: Path = ROOT) -> int:
    """The cores in our CPU affinity, or fewer if COUNTED or a control group says so; at least 1.

    Args:
        root: where `proc` and `sys` are mounted.

    Raises ValueError if COUNTED is not a positive whole number.
    """
    counted = os.environ.get(COUNTED, "")
    if counted and not (counted.isdecimal() and int(counted)):
        raise ValueError(f"{COUNTED} {counted}: must be a whole number of cores above 0")
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    most = float(counted or cores)
    return max(1, math.floor(min([cores, most, *of_groups(root, _quota_v2, _quota_v1)])))


def free_ram_bytes(root: Path = ROOT) -> int:
    """Free RAM in bytes, or less if a control group allows less.

    A group's inactive page cache counts as free, because the kernel reclaims it first.

    Args:
        root: where `proc` and `sys` are mounted.
    """
    left = of_groups(root, _left_v2, _left_v1, controller="memory")
    return max(0, int(min([psutil.virtual_memory().available, *left])))


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit on open file descriptors to the hard limit.

    Each agent takes three, and each connection takes one, even an unauthenticated peer's until it
    is disconnected. libzmq aborts the process if there is none left for an ipc connection.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def of_groups(root: Path, v2: Reader, v1: Reader, controller: str = "cpu") -> Iterator[float]:
    """What `v2` or `v1`, by cgroup version, reads from our control group and each one above it.

    Groups without the value are skipped.

    Args:
        root: where `proc` and `sys` are mounted.
        controller: the v1 controller whose groups are read.
    """
    with contextlib.suppress(OSError):  # this machine has no control groups
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _upwards(root / "sys/fs/cgroup", path, v2)
            elif controller in controllers.split(","):
                yield from _upwards(root / "sys/fs/cgroup" / controller, path, v1)


def _upwards(mount: Path, path: str, read: Reader) -> Iterator[float]:
    """The values of a group and of all groups above it.

    In a container the mount may be the group itself.
    """
    group = mount / path.lstrip("/")
    for each in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # this group has none
            yield read(each)
        if each == mount:
            return


def _quota_v2(group: Path) -> float:
    """The CPU time limit, in cores."""
    quota, period = (group / "cpu.max").read_text().split()
    return math.inf if quota == "max" else int(quota) / int(period)


def _quota_v1(group: Path) -> float:
    quota = int((group / "cpu.cfs_quota_us").read_text())
    return math.inf if quota < 0 else quota / int((group / "cpu.cfs_period_us").read_text())


def _left_v2(group: Path) -> float:
    """The bytes that the group may still allocate."""
    limit = int((group / "memory.max").read_text())  # "max", if unlimited: ValueError
    used = int((group / "memory.current").read_text())
    return limit - used + stated(group / "memory.stat").get("inactive_file", 0)


def _left_v1(group: Path) -> float:
    limit = int((group / "memory.limit_in_bytes").read_text())  # near 2**63 if unlimited
    used = int((group / "memory.usage_in_bytes").read_text())
    return limit - used + stated(group / "memory.stat").get("total_inactive_file", 0)


def stated(file: Path) -> dict[str, int]:
    """The values in a control group's file that has a name and a value on each line."""
    pairs = (line.split() for line in file.read_text().splitlines())
    return {name: int(figure) for name, figure in pairs}
