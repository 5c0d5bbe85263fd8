"""What a figure depends on besides the settings: machine, versions, revision, command."""

import contextlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from ga3c.config import CORES

ORIGIN = ("processor", "cores", "gpu", "backend", "git")
"""What two measurements must have in common to be compared: machine, framework, revision."""
VERSIONS = ("ale-py", "gymnasium", "keras", "numpy", "pyzmq")


def machine() -> dict[str, Any]:
    """Machine, versions and git revision; nothing from the environment."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": CORES,
        "gpu": _gpu(),
        "python": platform.python_version(),
        "tensorflow": _version("tensorflow-cpu") or _version("tensorflow"),
        "jax": _version("jax"),
        "backend": os.environ.get("KERAS_BACKEND", "tensorflow"),
        **{name: _version(name) for name in VERSIONS},
        "git": _git_revision(),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def origin() -> list[Any]:
    """`ORIGIN` here and now."""
    known = machine()
    return [known[name] for name in ORIGIN]


class CoresTime(NamedTuple):
    """CPU seconds of all cores that this process may use, since the machine began."""

    busy: float  # with what a virtual machine's host took from them
    idle: float


def cores_time() -> CoresTime:
    """Until now."""
    cores = psutil.cpu_times(percpu=True)
    if hasattr(os, "sched_getaffinity"):
        cores = [cores[core] for core in os.sched_getaffinity(0)]
    idle = sum(core.idle + getattr(core, "iowait", 0.0) for core in cores)
    whole = sum(sum(core[:8]) for core in cores)  # guests' time is in the users' already
    return CoresTime(whole - idle, idle)


def cpu_s_of_others(pids: Iterable[int]) -> float:
    """CPU seconds that all processes but these have used of our cores: for differences."""
    ours = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):  # it has just ended
            used = psutil.Process(pid).cpu_times()
            ours += used.user + used.system
    return cores_time().busy - ours


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


def said_of_gpus(what: str, form: str) -> str | None:
    """What `nvidia-smi` answers: a line for each GPU; None where there is none, or no answer."""
    return _said_by("nvidia-smi", f"--query-gpu={what}", f"--format=csv,{form}")


def _gpu() -> str | None:
    """Name and memory of the GPUs that there are, whether or not the framework uses them."""
    return said_of_gpus("name,memory.total", "noheader")


def _git_revision() -> str | None:
    return _said_by("git", "describe", "--always", "--dirty")


def _said_by(*command: str) -> str | None:
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None
