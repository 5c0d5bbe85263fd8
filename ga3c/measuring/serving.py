"""Runs the whole service for a while with fixed counts, and computes its figures."""

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from agents.environments import Spaces
from ga3c.learning.model import Model
from ga3c.measuring.accounting import Usage, usage
from ga3c.measuring.parts import (
    ModelAlone,
    bare_limit,
    environment_only,
    limit,
    samples_a_step,
)
from ga3c.measuring.reporting import spread
from ga3c.measuring.round_trips import way
from ga3c.runs.metrics import Snapshot, Window
from ga3c.service.service import STOP_TIMEOUT_S, Service
from ga3c.service.threads import RunFailed
from ga3c.service.wiring import build_service
from ga3c.settings.checks import WrongInput
from ga3c.settings.train import TrainConfig

TICK_S = 0.1
FIRST_UPDATE_S = 600.0  # long enough to fill a replay before the first update
PREDICTION_BATCH = 64


@dataclass(frozen=True)
class Measured:
    """One window of the service."""

    window: Window
    cpu_s: dict[str, float]
    prediction_queue: float  # mean size in observations
    training_queue: float  # mean size in samples


def measure_parts(config: TrainConfig, model: ModelAlone, seconds: float) -> dict[str, float]:
    """The three parts' rates on one core, each measured alone, and the limit for all cores.

    The prediction rate is that of the best batch size among those that the service may use.
    """
    service = config.service
    group = service.envs_per_group
    most = service.largest_prediction(config.max_lanes)
    sizes = {service.prediction_min, min(PREDICTION_BATCH, most), most}
    parts = {
        "environment_only": environment_only(config.environment, 1, group, seconds),
        "predict_only": max(model.predict_only(size, seconds) for size in sizes),
        "train_only": model.train_only(config.update_samples, seconds),
        "samples_a_step": samples_a_step(config),
    }
    return {**parts, "limit_pps": limit(parts)}


def measure_bare(
    config: TrainConfig, model: ModelAlone, seconds: float, parts: dict[str, float]
) -> dict[str, float]:
    """`parts` with the rates of the bare network, and the limit that follows from them."""
    most = max(PREDICTION_BATCH, config.service.largest_prediction(config.max_lanes))
    bare = {
        "bare_forward": model.bare_forward(most, seconds),
        "bare_train": model.bare_train(config.update_samples, seconds),
    }
    return {**parts, **bare, "bare_limit_pps": bare_limit({**parts, **bare})}


def measure_service(
    config: TrainConfig,
    spaces: Spaces,
    warm_up_s: float,
    windows: int,
    window_s: float,
    model: Model | None = None,
) -> list[Measured]:
    """Consecutive windows of one run. The counts stay as configured, and --steps is ignored.

    Raises WrongInput if the settings do not fit the game, and RunFailed if the service fails or
    makes no update within FIRST_UPDATE_S.
    """
    config = replace(config, scheduler=replace(config.scheduler, scheduler="off"))
    with learning(config, spaces, model) as service:
        tend(service, warm_up_s)
        return [measure_window(service, window_s) for _ in range(windows)]


@contextlib.contextmanager
def learning(config: TrainConfig, spaces: Spaces, model: Model | None = None) -> Iterator[Service]:
    """A service that has made its first update. It ignores --steps and is stopped at the end."""
    config = replace(config, run=replace(config.run, steps=None, trace=None))
    try:
        service = build_service(config, spaces, model)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    try:
        service.start()
        await_update(service)
        yield service
    finally:
        service.stop(STOP_TIMEOUT_S)


def await_update(service: Service) -> None:
    """Tend the service until it has learned once. Raises RunFailed if that takes too long."""
    until_s = time.monotonic() + FIRST_UPDATE_S
    while not service.plays() or not service.snapshot()["updates"]:
        if time.monotonic() > until_s:
            first = f"no update was made in the first {FIRST_UPDATE_S:g} s"
            raise RunFailed(f"{first}: {service.waits()}")
        tend(service, TICK_S)


def measure_window(service: Service, seconds: float) -> Measured:
    """Measure one window of a service, which is tended meanwhile."""
    sizes: list[tuple[int, int]] = []
    start, used = _now(service)
    tend(service, seconds, lambda: sizes.append((service.requests.size, service.segments.size)))
    end, used_then = _now(service)
    requests, samples = (statistics.mean(each) for each in zip(*sizes))
    return Measured(Window(start, end), used_then.since(used), requests, samples)


def _now(service: Service) -> tuple[Snapshot, Usage]:
    return service.metrics.snapshot(), usage(service.agents.pids())


def tend(service: Service, seconds: float, also: Callable[[], None] = lambda: None) -> None:
    """Tend the service for this many seconds, and call `also` after each time."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        for event in service.tend():
            print(f"ga3c: {event}", file=sys.stderr, flush=True)
        also()
        time.sleep(TICK_S)


def figures(measured: list[Measured], parts: dict[str, float]) -> dict[str, Any]:
    """The figures of all windows together, with the spread of PPS between windows."""
    pps = spread([each.window.rate("steps") for each in measured])
    whole = Window(measured[0].window.start, measured[-1].window.end)
    if not whole.count("steps"):
        raise RunFailed("no step was made while it was measured: give it more --seconds")
    return {
        "pps": pps.median,
        "pps_low": pps.low,
        "pps_high": pps.high,
        "limit_pps": parts["limit_pps"],
        "share_of_limit": pps.median / parts["limit_pps"],
        "updates_per_s": whole.rate("updates"),
        "trained_samples_per_s": whole.rate("trained_samples"),
        "agents_waiting_share": whole.share("agents", "waiting"),
        "predictors_waiting_share": whole.share("predictors", "waiting"),
        "predictors_blocked_share": whole.share("predictors", "blocked"),
        "trainers_waiting_share": whole.share("trainers", "waiting"),
        "prediction_batch": whole.mean("steps", "prediction_batches"),
        "training_batch": whole.mean("trained_samples", "updates"),
        "prediction_queue": statistics.mean(each.prediction_queue for each in measured),
        "training_queue": statistics.mean(each.training_queue for each in measured),
        "policy_lag_mean": whole.mean("lag_updates", "trained_samples"),
        **way(whole),
        "core_seconds_per_s": _account(measured, whole, parts),
    }


def _account(measured: list[Measured], whole: Window, parts: dict[str, float]) -> dict[str, float]:
    """Core-seconds a second by activity. They should add up to the number of cores.

    The tensor framework works in the calling threads and in its own threads. The time of its own
    threads is divided between predictions and training in proportion to their costs when alone.
    """
    seconds = sum(each.window.seconds for each in measured)
    names = measured[0].cpu_s
    used = {name: sum(each.cpu_s[name] for each in measured) / seconds for name in names}
    predicting = whole.rate("steps") / parts["predict_only"]
    training = whole.rate("trained_samples") / parts["train_only"]
    shared = used["tensors"] / (predicting + training)
    called = {role: whole.rate(f"{role}_cpu_s") for role in ("predictors", "trainers")}
    return {
        "environment": used["environment"],
        "wire": used["wire"],
        "prediction": shared * predicting + called["predictors"],
        "training": shared * training + called["trainers"],
        "service_python": max(used["service_python"] - sum(called.values()), 0.0),
        "agents_python": used["agents_python"],
        "other_processes": used["other_processes"],
        "idle": used["idle"],
    }
