"""`ga3c benchmark watching`: the cost of showing, logging and saving a run while it runs.

Windows of one service are measured in turn, without and with what `ga3c train` adds: live view or
progress lines, files, TensorBoard events. Each watched window includes a checkpoint, which is far
more often than by default.
"""

import statistics
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from agents.environments import Spaces
from ga3c.measuring.options import BenchmarkConfig, MeasuringConfig, names
from ga3c.measuring.parts import prepare
from ga3c.measuring.reporting import keep, spread
from ga3c.measuring.serving import await_update
from ga3c.reports.console import show
from ga3c.runs.directory import RunDirectory
from ga3c.runs.metrics import Window
from ga3c.runs.scratch import ScratchDirectory
from ga3c.service.service import STOP_TIMEOUT_S, Service
from ga3c.service.wiring import build_service
from ga3c.settings.checks import WrongInput
from ga3c.settings.run import CheckpointConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.training.interrupts import Interrupts
from ga3c.training.run import TICK_S, Run

DEFAULT_WINDOW_S = 10.0
NOT_WATCHED = names(SchedulerConfig, CheckpointConfig)
NOT_WATCHED |= {"steps", "score", "trace", "resume", "runs_dir", "name", "part_seconds", "track"}
NOT_WATCHED |= {"initial_weights"}


@dataclass(frozen=True)
class Config(MeasuringConfig):
    """Measure --repeats pairs of windows, bare and watched, of --seconds each (10 if not given)."""

    benchmark: BenchmarkConfig = field(default_factory=lambda: BenchmarkConfig(repeats=10))
    ignored: ClassVar[frozenset[str]] = NOT_WATCHED
    warm_up_seconds: float = 10.0
    """Seconds of warm-up between the first update and the first window."""


def run(config: Config) -> None:
    """Measure, print and save the result. Raises RunFailed if the service fails."""
    spaces, _ = prepare(config)
    seconds = config.run.seconds or DEFAULT_WINDOW_S
    with ScratchDirectory() as directory:
        bare, watched = _pairs(config, spaces, seconds, directory / "run")
    costs = [1 - with_it / without for without, with_it in zip(bare, watched, strict=True)]
    error = statistics.stdev(costs) / len(costs) ** 0.5 if len(costs) > 1 else None
    result = {
        "bare_pps": spread(bare),
        "watched_pps": spread(watched),
        "cost_mean": statistics.mean(costs),
        "cost_standard_error": error,
        "costs": costs,
        "checkpoint_every_s": seconds,
    }
    rows = [("bare", str(result["bare_pps"])), ("watched", str(result["watched_pps"]))]
    cost = f"{result['cost_mean']:.2%}" + ("" if error is None else f" +- {error:.2%}")
    rows += [("cost, mean of the pairs", cost)]
    show(f"{len(costs)} pairs of {seconds:g} s", ("", "PPS, median (range)"), rows)
    keep(result, config, config.benchmark, config.run.json)


def _pairs(
    config: Config, spaces: Spaces, seconds: float, path: Path
) -> tuple[list[float], list[float]]:
    """PPS of the windows without watching, and with it.

    Raises RunFailed if the service makes no update for too long.
    """
    often = CheckpointConfig(checkpoint_every_s=seconds)
    train = replace(config, run=replace(config.run, seconds=None), checkpoints=often)
    try:
        service = build_service(train, spaces)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    run = Run(train, spaces, service, RunDirectory(train, path), Interrupts())
    bare: list[float] = []
    watched: list[float] = []
    try:
        run.prepare()
        service.start()
        await_update(service)
        _window(service, config.warm_up_seconds, None)
        kinds = [(bare, None), (watched, run)]
        for _ in range(config.benchmark.repeats):
            for rates, watch in kinds:
                rates.append(_window(service, seconds, watch))
            kinds.reverse()  # or a drift in the machine's speed would favour one of them
    finally:
        service.stop(STOP_TIMEOUT_S)
        run.close()
    return bare, watched


def _window(service: Service, seconds: float, run: Run | None) -> float:
    """PPS of one window."""
    start, until_s = service.snapshot(), time.monotonic() + seconds
    while time.monotonic() < until_s:
        if run:
            run.tick()
        else:
            service.tend()
        time.sleep(TICK_S)
    return Window(start, service.snapshot()).rate("steps")
