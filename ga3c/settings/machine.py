"""What a measurement depends on besides the settings: machine, versions, revision, command."""

import contextlib
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

COUNTED = "GA3C_CORES"
"""The environment variable that says how many cores count where there are more."""


def available_cores(root: Path = Path("/")) -> int:
    """The cores of our CPU affinity, or fewer if COUNTED or a control group says so; at least 1.

    Args:
        root: where `proc` and `sys` are mounted.

    Raises ValueError if COUNTED is no number of cores.
    """
    counted = os.environ.get(COUNTED, "")
    if counted and not (counted.isdecimal() and int(counted)):
        raise ValueError(f"{COUNTED} {counted}: must be a whole number of cores above 0")
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    most = float(counted or cores)
    return max(1, math.floor(min([cores, most, *of_groups(root, _quota_v2, _quota_v1)])))


Reader = Callable[[Path], float]
"""Reads a figure in a control group's folder. Raises OSError or ValueError if it is not there."""


def of_groups(root: Path, v2: Reader, v1: Reader) -> Iterator[float]:
    """What `v2` or `v1`, by the groups' version, reads of our control group and each one above it.

    Groups without the figure are left out. Args: root: where `proc` and `sys` are mounted.
    """
    with contextlib.suppress(OSError):  # this machine has no control groups
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _upwards(root / "sys/fs/cgroup", path, v2)
            elif "cpu" in controllers.split(","):
                yield from _upwards(root / "sys/fs/cgroup/cpu", path, v1)


def _upwards(mount: Path, path: str, read: Reader) -> Iterator[float]:
    """The figures of a group and of all groups above it.

    In a container the mount may be the group itself.
    """
    group = mount / path.lstrip("/")
    for each in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # this group has none
            yield read(each)
        if each == mount:
            return


def _quota_v2(group: Path) -> float:
    """The limit of CPU time, in cores."""
    quota, period = (group / "cpu.max").read_text().split()
    return math.inf if quota == "max" else int(quota) / int(period)


def _quota_v1(group: Path) -> float:
    quota = int((group / "cpu.cfs_quota_us").read_text())
    return math.inf if quota < 0 else quota / int((group / "cpu.cfs_period_us").read_text())


CORES = available_cores()
ORIGIN = ("processor", "cores", "gpu", "backend", "git")
"""Two measurements are comparable only if these agree: machine, framework, revision."""


def machine() -> dict[str, Any]:
    """Machine, versions, git revision and command; of the environment only KERAS_BACKEND."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": CORES,
        "gpu": said_of_gpus("name,memory.total", "noheader"),  # whether or not one is used
        "python": platform.python_version(),
        "tensorflow": _version("tensorflow-cpu") or _version("tensorflow"),
        "jax": _version("jax"),
        "backend": os.environ.get("KERAS_BACKEND", "tensorflow"),
        **{name: _version(name) for name in ("ale-py", "gymnasium", "keras", "numpy", "pyzmq")},
        "git": _said_by("git", "describe", "--always", "--dirty"),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def origin() -> list[Any]:
    """The values of `ORIGIN` for this process."""
    known = machine()
    return [known[name] for name in ORIGIN]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except ModuleNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def said_of_gpus(what: str, form: str, which: str = "") -> str | None:
    """The answer of `nvidia-smi`, one line for each GPU; None without a GPU or an answer.

    Args: which: the number or UUID of the only one to ask for.
    """
    only = [f"--id={which}"] if which else []
    return _said_by("nvidia-smi", f"--query-gpu={what}", f"--format=csv,{form}", *only)


def _said_by(*command: str) -> str | None:
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None
