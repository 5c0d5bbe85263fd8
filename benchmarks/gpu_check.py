"""`ga3c benchmark gpu-check`: what a machine with a GPU makes of all this, in under ten minutes.

Each part is a command of its own, with a limit of time; one that fails or takes too long is told
and leaves the others' results as they are. `make gpu-check` runs it where nothing can be
downloaded. It runs on a processor as well, where it says so.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from benchmarks.points import said_by
from ga3c import backend
from ga3c.reports.console import show
from ga3c.runs.scratch import ScratchDirectory
from ga3c.settings.machine import CORES, machine

Part = Literal["tables", "parity", "limits", "throughput", "lanes", "replay", "pong"]
Found = dict[str, Any]
TOLERANCE = 1e-4
LIMITS_S: dict[Part, float] = {
    "tables": 80,
    "parity": 110,
    "limits": 50,
    "throughput": 125,
    "lanes": 75,
    "replay": 80,
    "pong": 80,
}
TABLE_BYTES = 36e9  # beyond 34 GB, where 32-bit numbers of 16 bytes each end
WITHOUT_GPU = ("CUDA_VISIBLE_DEVICES=-1", "JAX_PLATFORMS=cpu")
DEVICE_PROGRAM = """
from ga3c import backend
backend.configure(1, 0)
print("GPU" if backend.has_gpu() else "no GPU: the processor")
"""
START_S = 120.0  # of a framework, on a machine that has just been started
WHOLE_FLOATS = ("NVIDIA_TF32_OVERRIDE=0", "JAX_DEFAULT_MATMUL_PRECISION=highest")
PARITY_QUICK = ("a3c small", "a3c mlp", "dqn dueling")
FIGURES = ("pps", "limit_pps", "share_of_limit", "trained_samples_per_s", "policy_lag_mean")
NETWORKS = ("small", "large-4", "large-3", "large-2", "large-1", "nature")


@dataclass(frozen=True)
class Config:
    """Check and measure: large tables, parity, limits, throughput, lanes, replay, a run of Pong."""

    out_dir: Path
    """Directory of one JSON file for each part, and of gpu-check.json with all; made if need be."""
    parts: tuple[Part, ...] = get_args(Part)
    """Which parts, in this order."""
    quick: bool = False
    """A few seconds for each part: to see that all of them work."""
    time_factor: float = 1.0
    """Factor on the seconds that each part may take: above 1 where compiling takes long."""

    def __post_init__(self) -> None:
        if not self.time_factor > 0:
            raise ValueError(f"time_factor {self.time_factor}: must be above 0")
        if not self.parts:
            raise ValueError(f"parts: must be some of {', '.join(get_args(Part))}")


def run(config: Config) -> int:
    """Run all parts. Returns the exit code: 1 if one of them failed."""
    config.out_dir.mkdir(parents=True, exist_ok=True)
    where = _device()
    print(f"{backend.FRAMEWORK}, {where}, {CORES} cores", flush=True)
    found: Found = {"machine": machine(), "device": where}
    for part in config.parts:
        started_s = time.monotonic()
        try:
            found[part] = PARTS[part](config, LIMITS_S[part] * config.time_factor)
        except Exception as error:
            found[part] = {"failed": f"{type(error).__name__}: {error}"[-2000:]}
        seconds = round(time.monotonic() - started_s, 1)
        found[part]["seconds"] = seconds
        said = found[part].get("failed", "done")
        print(f"{part}: {said.splitlines()[-1]} after {seconds} s", flush=True)
        (config.out_dir / f"{part}.json").write_text(json.dumps(found[part], indent=2) + "\n")
        (config.out_dir / "gpu-check.json").write_text(json.dumps(found, indent=2) + "\n")
    rows = [(part, "failed" if "failed" in found[part] else "done") for part in config.parts]
    show(f"kept in {config.out_dir}", ("part", ""), rows)
    return int(any("failed" in found[part] for part in config.parts))


def _ga3c(limit_s: float, *arguments: str) -> Found:
    """What a command's last line tells as JSON."""
    said = said_by([sys.executable, "-m", "ga3c", *arguments], limit_s)
    found: Found = json.loads(said.splitlines()[-1])
    return found


def _device() -> str:
    """Where the framework thinks. A process asks that ends at once: it may take a GPU's memory."""
    return said_by([sys.executable, "-c", DEVICE_PROGRAM], START_S).splitlines()[-1]


def _tables(config: Config, limit_s: float) -> Found:
    """Whether a table of 36 GB keeps what is written to it, and where each column lies."""
    most_bytes = 1e8 if config.quick else TABLE_BYTES
    program = [sys.executable, "-m", "benchmarks.tables", str(most_bytes)]
    found: Found = json.loads(said_by(program, limit_s).splitlines()[-1])
    for model, devices in found["devices"].items():
        for device in sorted(set(devices.values())):
            names = ", ".join(name for name, at in devices.items() if at == device)
            print(f"  {model} on {device}: {names}", flush=True)
    print(f"  {found['rows']:,} rows, {found['bytes'] / 1e9:.1f} GB", flush=True)
    if found["wrong"]:
        raise RuntimeError(f"{len(found['wrong'])} faults: {'; '.join(found['wrong'][:10])}")
    return found


def _parity(config: Config, limit_s: float) -> Found:
    """The largest relative difference between the GPU and the processor, the same framework.

    Both in float32 throughout: TF32, a GPU's default, has ten bits.
    """
    with ScratchDirectory() as directory:
        weights = directory / "weights.npz"
        made: list[dict[str, np.ndarray]] = []
        for hidden in ((), WITHOUT_GPU):
            file = directory / f"{len(made)}.npz"
            program = [sys.executable, "-m", "benchmarks.parity", str(weights), str(file)]
            program += PARITY_QUICK if config.quick else ()
            said_by(["env", *WHOLE_FLOATS, *hidden, *program], limit_s / 2)
            made.append(dict(np.load(file)))
    differences = {
        name: float(np.abs(made[1][name] - ours).max() / max(np.abs(ours).max(), 1e-3))
        for name, ours in made[0].items()
    }
    worst = max(differences, key=lambda name: differences[name])
    found = {"compared": len(differences), "largest": differences[worst], "of": worst}
    if differences[worst] > TOLERANCE:
        raise RuntimeError(f"{worst} differs by {differences[worst]:.2g} > {TOLERANCE}")
    return found


def _limits(config: Config, limit_s: float) -> Found:
    seconds = "0.2" if config.quick else "1"
    return _ga3c(
        limit_s, "benchmark", "limits", "--repeats", "1", "--part-seconds", seconds, "--json"
    )


def _throughput(config: Config, limit_s: float) -> Found:
    """Over agents with the small network, then over networks with as many agents as cores."""
    counts = sorted({max(CORES // 4, 1), max(CORES // 2, 1), CORES})
    points = [(agents, "small") for agents in counts]
    points += [(CORES, network) for network in NETWORKS[1:]]
    points = points[-1:] if config.quick else points
    seconds = "1" if config.quick else "4"
    found: list[Found] = []
    until_s = time.monotonic() + limit_s
    for agents, network in points:
        point: Found = {"agents": agents, "network": network}
        given = ["--agents", str(agents), "--max-agents", str(agents), "--network", network]
        given += ["--training-batch-min", "320", "--training-batch-max", "320"]
        given += ["--training-queue", "1280", "--prediction-batch-max", "512"]
        given += ["--seconds", seconds, "--repeats", "1", "--warm-up-seconds", "4"]
        given += ["--part-seconds", "0.5", "--json"]
        try:
            figures = _ga3c(until_s - time.monotonic(), "benchmark", "throughput", *given)
        except RuntimeError as error:  # of this point, or there is no time left
            found.append({**point, "failed": str(error)[-500:]})
            continue
        found.append({**point, **{name: figures[name] for name in FIGURES}})
        print(f"  {agents} agents, {network}: {figures['pps']:,.0f} steps/s", flush=True)
    if all("failed" in point for point in found):
        raise RuntimeError(found[0]["failed"])
    return {"points": found}


def _lanes(config: Config, limit_s: float) -> Found:
    """What a step costs from 64 lanes to 4,096, without emulators."""
    lanes, seconds = (["64", "128"], "2") if config.quick else (["64", "256", "1024", "4096"], "4")
    given = ["--lanes", *lanes, "--seconds", seconds, "--repeats", "1", "--json"]
    return _ga3c(limit_s, "benchmark", "lanes", "--thinks", *given)


def _replay(config: Config, limit_s: float) -> Found:
    given = ["--repeats", "1", "--part-seconds", "0.4", "--json"]
    if config.quick:
        given += ["--batches", "16", "--vector-steps", "20000", "--picture-steps", "10000"]
        given += ["--sizes", "20000", "--update-sizes", "250", "--fanouts", "64"]
    else:
        given += ["--batches", "16", "32", "64", "128", "256", "512"]
    return _ga3c(limit_s, "benchmark", "replay", *given)


def _pong(config: Config, limit_s: float) -> Found:
    """To a mean of 18, as far as the time goes."""
    seconds = "5" if config.quick else str(limit_s - 20)
    with ScratchDirectory() as runs:
        given = ["--score", "18", "--seconds", seconds, "--runs-dir", str(runs), "--json"]
        return _ga3c(limit_s, "train", "--game", "Pong", *given)


PARTS: dict[Part, Callable[[Config, float], Found]] = {
    "tables": _tables,
    "parity": _parity,
    "limits": _limits,
    "throughput": _throughput,
    "lanes": _lanes,
    "replay": _replay,
    "pong": _pong,
}
