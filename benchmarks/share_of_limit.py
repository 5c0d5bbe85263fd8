"""How much of this machine's limit does the service reach?

The limit is cores / (seconds of one environment step + one prediction + one trained sample),
each measured alone on one core, right before and right after the service's own run: a machine's
speed wanders. Predictions and training are measured without the ring, the queues and the wire, so
those count against the service.

    python -m benchmarks.share_of_limit [--seconds 60] [--json FILE] [-- options of ga3c train]
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from agents.environments import Environments, Spaces, spaces
from ga3c import backend
from ga3c.algorithms.a3c import A3C, Segments
from ga3c.config import CORES, TrainConfig, parse
from ga3c.experience import RingShape
from ga3c.metrics import Window
from ga3c.model import Model
from ga3c.runs import machine
from ga3c.service import Service

PART_S = 4.0
WARM_UP_S = 15.0
PREDICTION_BATCH = 64


def rate(work: Callable[[], int], seconds: float = PART_S) -> float:
    """Units of `work` a second; each call returns how many it did."""
    for _ in range(3):
        work()
    started_s, done = time.monotonic(), 0
    while time.monotonic() < started_s + seconds:
        done += work()
    return done / (time.monotonic() - started_s)


def environment_only(config: TrainConfig, found: Spaces) -> float:
    """Steps a second of one group of environments in one process with one thread."""
    n = config.service.envs_per_agent // config.service.groups
    environments = Environments(config.environment, n)
    environments.reset(config.run.seed)
    actions = np.random.default_rng(0).integers(0, found.num_actions, (256, n), np.int32)
    turn = iter(range(sys.maxsize))
    steps = rate(lambda: len(environments.step(actions[next(turn) % 256]).outcomes))
    environments.close()
    return steps


def model_only(config: TrainConfig, found: Spaces) -> tuple[float, float]:
    """Predictions a second at batch 64 and trained samples a second at the largest batch."""
    t_max, ring = config.a3c.t_max, RingShape(1, 1, found.shape, found.dtype, found.stack)
    model = Model(
        A3C(config.a3c, found.num_actions), config.network, config.optimizer, found, ring, False, 0
    )
    batch = max(config.service.training_batch_max // t_max, 1)
    random = np.random.default_rng(0)
    shape = ring.observation_shape

    def observations(n: int) -> np.ndarray:
        return random.integers(0, 255, (n, *shape)).astype(found.dtype)

    waiting = observations(PREDICTION_BATCH)
    steps = np.zeros((batch, t_max), np.float32)
    segments = Segments(
        observations(batch * (t_max + 1)), steps.astype(np.int32), steps, steps, steps, steps
    )

    def predict() -> int:
        model.decide(waiting, np.zeros(2, np.int32))
        return PREDICTION_BATCH

    def train() -> int:
        model.update(segments, 0.0)
        return batch * t_max

    return rate(predict), rate(train)


def service_rate(config: TrainConfig, found: Spaces, seconds: float) -> dict[str, float]:
    """Figures of the whole service after its warm-up."""
    service = Service(config, found)
    try:
        service.start()
        _tend(service, WARM_UP_S)
        start = service.metrics.snapshot()
        _tend(service, seconds)
        window = Window(start, service.metrics.snapshot())
    finally:
        service.stop(8.0)
    return {
        "pps": window.rate("steps"),
        "trained_samples_per_s": window.rate("trained_samples"),
        "policy_lag_mean": window.mean("lag_updates", "trained_samples"),
        "prediction_batch": window.mean("steps", "prediction_batches"),
    }


def _tend(service: Service, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        service.tend()
        time.sleep(0.1)


def parts(config: TrainConfig, found: Spaces) -> dict[str, float]:
    """The three rates of one core, and the limit that they set for all cores."""
    steps = environment_only(config, found)
    predictions, samples = model_only(config, found)
    return {
        "environment_only": steps,
        "predict_only": predictions,
        "train_only": samples,
        "limit_pps": CORES / (1 / steps + 1 / predictions + 1 / samples),
    }


def main() -> None:
    """Measure and print."""
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of the service's window")
    parser.add_argument("--json", type=Path, help="file to write")
    options = parser.parse_args(sys.argv[1:split])
    config = parse(sys.argv[split + 1 :])
    found = spaces(config.environment)
    backend.configure(config.service.intra_op_threads, config.run.seed)
    before = parts(config, found)
    whole = service_rate(config, found, options.seconds)
    after = parts(config, found)
    limit = (before["limit_pps"] + after["limit_pps"]) / 2
    result: dict[str, Any] = {
        "share_of_limit": whole["pps"] / limit,
        "limit_pps": limit,
        **whole,
        "parts_before": before,
        "parts_after": after,
        "machine": machine(),
    }
    for name in before:
        print(f"{name:24} {before[name]:10,.0f} {after[name]:10,.0f}  a second, before and after")
    for name, value in whole.items():
        print(f"{name:24} {value:10,.1f}")
    print(f"{'share of limit':24} {result['share_of_limit']:10.1%}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
