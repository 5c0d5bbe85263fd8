"""`ga3c benchmark gpu-check`: checks and measures a machine with a GPU, in under ten minutes.

Each part is a separate command with a time limit. If a part fails or takes too long, this is
reported, and the results of the other parts are kept. `make gpu-check` runs it on machines that
cannot download anything. It also runs without a GPU, and then says so.
"""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from benchmarks.points import json_of, said_by
from ga3c import backend
from ga3c.measuring.reporting import write_json
from ga3c.reports.console import show
from ga3c.runs import records
from ga3c.runs.scratch import ScratchDirectory
from ga3c.settings.machine import CORES, machine

Part = Literal["tables", "parity", "limits", "throughput", "lanes", "replay", "pong"]
Result = dict[str, Any]
ALL = "gpu-check.json"
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
LEAST_FACTOR = 0.5
TABLE_BYTES = 36e9  # more than 34 GB, beyond which 32-bit counts of 16-byte units overflow
WITHOUT_GPU = ("CUDA_VISIBLE_DEVICES=-1", "JAX_PLATFORMS=cpu")
DEVICE_PROGRAM = """
from ga3c import backend
backend.configure(1, 0)
print("GPU" if backend.has_gpu() else "no GPU: the processor")
"""
START_S = 120.0  # the longest that a framework takes to start, on a freshly booted machine
WHOLE_FLOATS = ("NVIDIA_TF32_OVERRIDE=0", "JAX_DEFAULT_MATMUL_PRECISION=highest")
PARITY_QUICK = ("a3c small", "a3c mlp", "dqn dueling")
FIGURES = ("pps", "limit_pps", "share_of_limit", "trained_samples_per_s", "policy_lag_mean")
NETWORKS = ("small", "large-4", "large-3", "large-2", "large-1", "nature")


@dataclass(frozen=True)
class Config:
    """Check and measure: large tables, parity, limits, throughput, lanes, replay, a run of Pong."""

    out_dir: Path
    """Directory for one JSON file per part, and gpu-check.json with all; created if missing. Parts
    that are not run keep their earlier results."""
    parts: tuple[Part, ...] = get_args(Part)
    """The parts to run, in this order."""
    quick: bool = False
    """Run each part for only a few seconds, to see that all of them work."""
    time_factor: float = 1.0
    """Factor on the time limit of each part; above 1 if compilation takes long."""

    def __post_init__(self) -> None:
        if self.time_factor < LEAST_FACTOR:
            raise ValueError(
                f"time_factor {self.time_factor}: must be at least {LEAST_FACTOR}, or parts would "
                "be stopped before they measure anything"
            )
        if not self.parts:
            raise ValueError(f"parts: must be some of {', '.join(get_args(Part))}")


def run(config: Config) -> int:
    """Run all parts. Returns the exit code: 1 if one of them failed."""
    config.out_dir.mkdir(parents=True, exist_ok=True)
    device = _device()
    print(f"{backend.FRAMEWORK}, {device}, {CORES} cores", flush=True)
    origin: Result = {"machine": machine(), "device": device}
    results = {**records.whole(config.out_dir / ALL), **origin}  # of parts that are not run, too
    for part in config.parts:
        started_s = time.monotonic()
        try:
            result = PARTS[part](config, LIMITS_S[part] * config.time_factor)
        except Exception as error:
            result = {"failed": f"{type(error).__name__}: {error}"[-2000:]}
        wall_s = round(time.monotonic() - started_s, 1)
        results[part] = {**origin, **result, "wall_s": wall_s}
        outcome = result.get("failed", "done")
        print(f"{part}: {outcome.splitlines()[-1]} after {wall_s} s", flush=True)
        write_json(config.out_dir / f"{part}.json", results[part])
        write_json(config.out_dir / ALL, results)
    rows = [(part, "failed" if "failed" in results[part] else "done") for part in config.parts]
    show(f"kept in {config.out_dir}", ("part", ""), rows)
    return int(any("failed" in results[part] for part in config.parts))


def _ga3c(limit_s: float, *arguments: str) -> Result:
    """The result of a command, which is JSON in its last line."""
    return json_of([sys.executable, "-m", "ga3c", *arguments], limit_s)


def _device() -> str:
    """The framework's device. A short process asks for it, as the framework may hold GPU memory."""
    return said_by([sys.executable, "-c", DEVICE_PROGRAM], START_S).splitlines()[-1]


def _tables(config: Config, limit_s: float) -> Result:
    """Check that a table of 36 GB keeps what is written to it; show the device of each column."""
    table_bytes = 1e8 if config.quick else TABLE_BYTES
    result = json_of([sys.executable, "-m", "benchmarks.tables", str(table_bytes)], limit_s)
    for model, devices in result["devices"].items():
        for device in sorted(set(devices.values())):
            names = ", ".join(name for name, at in devices.items() if at == device)
            print(f"  {model} on {device}: {names}", flush=True)
    print(f"  {result['rows']:,} rows, {result['bytes'] / 1e9:.1f} GB", flush=True)
    if result["wrong"]:
        raise RuntimeError(f"{len(result['wrong'])} faults: {'; '.join(result['wrong'][:10])}")
    return result


def _parity(config: Config, limit_s: float) -> Result:
    """The largest relative difference between GPU and CPU, with the same framework.

    Both compute in full float32. TF32, the default on a GPU, has a mantissa of only ten bits.
    """
    with ScratchDirectory() as directory:
        outputs: list[dict[str, np.ndarray]] = []  # on the GPU, on the CPU
        for environment in ((), WITHOUT_GPU):
            file = directory / f"{len(outputs)}.npz"
            program = [sys.executable, "-m", "benchmarks.parity", str(file)]
            program += PARITY_QUICK if config.quick else ()
            said_by(["env", *WHOLE_FLOATS, *environment, *program], limit_s / 2)
            outputs.append(dict(np.load(file)))
    return compared(*outputs)


def compared(on_gpu: Mapping[str, np.ndarray], on_cpu: Mapping[str, np.ndarray]) -> Result:
    """The largest relative difference. Raises RuntimeError if it is above TOLERANCE, or NaN."""
    differences = {
        name: float(np.abs(on_cpu[name] - values).max() / max(np.abs(values).max(), 1e-3))
        for name, values in on_gpu.items()
    }
    worst = max(differences, key=lambda name: np.nan_to_num(differences[name], nan=np.inf))
    if not differences[worst] <= TOLERANCE:
        raise RuntimeError(f"{worst} differs by {differences[worst]:.2g} > {TOLERANCE}")
    return {"compared": len(differences), "largest": differences[worst], "of": worst}


def _limits(config: Config, limit_s: float) -> Result:
    options = ["--algorithm", "a3c", "--repeats", "1", "--json"]
    options += ["--part-seconds", "0.2" if config.quick else "1"]
    if config.quick:
        options += ["--agent-counts", str(CORES), "--env-counts", "16"]
    return _ga3c(limit_s, "benchmark", "limits", *options)


def _throughput(config: Config, limit_s: float) -> Result:
    """Several numbers of agents with the small network, then each network with CORES agents."""
    counts = sorted({max(CORES // 4, 1), max(CORES // 2, 1), CORES})
    points = [(agents, "small") for agents in counts]
    points += [(CORES, network) for network in NETWORKS[1:]]
    points = points[-1:] if config.quick else points
    seconds = "1" if config.quick else "4"
    measured: list[Result] = []
    until_s = time.monotonic() + limit_s
    for agents, network in points:
        point: Result = {"agents": agents, "network": network}
        options = ["--algorithm", "a3c", "--network", network]
        options += ["--agents", str(agents), "--max-agents", str(agents)]
        options += ["--training-batch-min", "320", "--training-batch-max", "320"]
        options += ["--training-queue", "1280", "--prediction-batch-max", "512"]
        options += ["--seconds", seconds, "--repeats", "1", "--warm-up-seconds", "4"]
        options += ["--part-seconds", "0.5", "--json"]
        try:
            figures = _ga3c(until_s - time.monotonic(), "benchmark", "throughput", *options)
        except RuntimeError as error:  # this point failed, or no time is left
            measured.append({**point, "failed": str(error)[-500:]})
            print(f"  {agents} agents, {network}: {str(error).splitlines()[-1]}", flush=True)
            continue
        measured.append({**point, **{name: figures[name] for name in FIGURES}})
        print(f"  {agents} agents, {network}: {figures['pps']:,.0f} steps/s", flush=True)
    failed = sum("failed" in point for point in measured)
    said = {"failed": f"{failed} of {len(measured)} points failed"} if failed else {}
    return {"points": measured, **said}


def _lanes(config: Config, limit_s: float) -> Result:
    """The cost of a step with 64 to 4,096 lanes, without emulators."""
    lanes, seconds = (["64", "128"], "2") if config.quick else (["64", "256", "1024", "4096"], "4")
    options = ["--lanes", *lanes, "--seconds", seconds, "--repeats", "1", "--json"]
    return _ga3c(limit_s, "benchmark", "lanes", "--thinks", *options)


def _replay(config: Config, limit_s: float) -> Result:
    options = ["--repeats", "1", "--part-seconds", "0.4", "--json"]
    if config.quick:
        options += ["--batches", "16", "--vector-steps", "20000", "--picture-steps", "10000"]
        options += ["--sizes", "20000", "--update-sizes", "250", "--fanouts", "64"]
    else:
        options += ["--batches", "16", "32", "64", "128", "256", "512"]
    return _ga3c(limit_s, "benchmark", "replay", *options)


def _pong(config: Config, limit_s: float) -> Result:
    """A run of Pong until a mean score of 18, or until the time is up."""
    seconds = "5" if config.quick else str(limit_s - 20)
    with ScratchDirectory() as runs:
        options = ["--score", "18", "--seconds", seconds, "--runs-dir", str(runs), "--json"]
        return _ga3c(limit_s, "train", "--game", "Pong", *options)


PARTS: dict[Part, Callable[[Config, float], Result]] = {
    "tables": _tables,
    "parity": _parity,
    "limits": _limits,
    "throughput": _throughput,
    "lanes": _lanes,
    "replay": _replay,
    "pong": _pong,
}
