"""How many processors this process may use: by affinity, and by the quotas of its container."""

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path


def available_cores(root: Path = Path("/")) -> int:
    """The processors of our affinity, or fewer where a control group allows less time; at least 1.

    Args:
        root: where `proc` and `sys` are mounted.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, math.floor(min([cores, *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Processors' worth of time that each control group above us allows, where one is set."""
    with contextlib.suppress(OSError):  # there are no control groups here
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _limits(root / "sys/fs/cgroup", path, _quota_v2)
            elif "cpu" in controllers.split(","):
                yield from _limits(root / "sys/fs/cgroup/cpu", path, _quota_v1)


def _limits(mount: Path, path: str, quota: Callable[[Path], float]) -> Iterator[float]:
    """Of a group and of all above it. In a container the mount may be the group itself."""
    group = mount / path.lstrip("/")
    for each in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # no limit is set here
            yield quota(each)
        if each == mount:
            return


def _quota_v2(group: Path) -> float:
    quota, period = (group / "cpu.max").read_text().split()
    return math.inf if quota == "max" else int(quota) / int(period)


def _quota_v1(group: Path) -> float:
    quota = int((group / "cpu.cfs_quota_us").read_text())
    return math.inf if quota < 0 else quota / int((group / "cpu.cfs_period_us").read_text())
