"""What a measurement depends on besides the settings: machine, versions, revision, command."""

import os
import platform
import subprocess
import sys
import time
from glob import glob
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents.machine import available_cores

CORES = available_cores()
GPU = "/dev/nvidia[0-9]*"


def machine() -> dict[str, Any]:
    """Machine, versions, git revision, command; of all environment variables only KERAS_BACKEND."""
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


def sees_gpu() -> bool:
    """Whether there is a visible NVIDIA GPU, found without loading a framework."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return bool(glob(GPU)) and not hidden and os.environ.get("JAX_PLATFORMS") != "cpu"


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
    """The answer of `nvidia-smi`, one line per GPU; None without a GPU or an answer.

    Args: which: the number or UUID of a single GPU to ask about; empty: all of them.
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
