"""`ga3c benchmark a3c`: GA3C's Table 2 on this machine, the service compared with A3C on the CPU.

In A3C each agent process has its own replica, predicts one observation at a time, and updates the
parameters that all agents share every --a3c-t-max steps by RMSProp (benchmarks/replica.py). The
service has a3c's own --t-max and optimizer. For each network, A3C is measured first and then the
service.
"""

import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from agents.environments import Spaces
from benchmarks.published import published_pps
from benchmarks.replica import START_TIMEOUT_S, Shared, first_parameters, play
from ga3c.measuring.options import OF_RUNS, MeasuringConfig
from ga3c.measuring.parts import prepare, running
from ga3c.measuring.reporting import Spread, keep, spread
from ga3c.measuring.serving import measure_service
from ga3c.reports.console import show
from ga3c.settings.checks import WrongInput, check_count
from ga3c.settings.choices import NetworkName
from ga3c.settings.machine import CORES
from ga3c.settings.train import TrainConfig

DEFAULT_WINDOW_S = 10.0
WARM_UP_S = 5.0


@dataclass(frozen=True)
class Config(MeasuringConfig):
    """Measure A3C and the service in --repeats windows of --seconds each (10 if not given)."""

    ignored: ClassVar[frozenset[str]] = OF_RUNS | {"network", "part_seconds"}
    unless_named: ClassVar[str | None] = "a3c"
    networks: tuple[NetworkName, ...] = ("small", "large-4", "large-3", "large-2", "large-1")
    """Networks on which A3C and the service are compared."""
    a3c_agents: int = CORES
    """A3C agent processes; the published A3C had one per core."""
    a3c_t_max: int = 5
    """Steps that an A3C agent plays between its updates; --t-max is that of the service."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.algorithm != "a3c":
            raise ValueError(
                f"algorithm {self.algorithm}: must be a3c, which alone is comparable with A3C; "
                "give --algorithm a3c"
            )
        check_count(self, "a3c_agents", "a3c_t_max")


class Baseline:
    """A3C's agent processes, and the steps that they make.

    Raises WrongInput if the settings do not fit the game.
    """

    def __init__(self, config: TrainConfig, found: Spaces, agents: int) -> None:
        try:
            first = first_parameters(config, found)
        except ValueError as error:
            raise WrongInput(str(error)) from error
        self._config, self._agents = config, agents
        self.shared = Shared(
            multiprocessing.RawArray("f", first.tolist()),
            multiprocessing.RawArray("f", len(first)),
            multiprocessing.RawArray("q", agents),
            multiprocessing.RawArray("d", [float("nan")] * agents),
        )

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        """Run all agents within the context. Raises RuntimeError if one does not start."""
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(self._agents + 1)
        with contextlib.ExitStack() as processes:
            for index in range(self._agents):
                given = (self._config, index, self.shared, barrier)
                processes.enter_context(running(context.Process(target=play, args=given)))
            try:
                barrier.wait(START_TIMEOUT_S)
            except Exception as error:
                raise RuntimeError("an A3C agent did not start") from error
            yield

    def steps(self) -> np.ndarray:
        """Steps made so far by each agent, int64 [agents]."""
        return np.frombuffer(self.shared.steps, np.int64).copy()

    def rates(self, warm_up_s: float, windows: int, window_s: float) -> list[float]:
        """Steps per second of all agents together, in each window. Call within `playing`."""
        time.sleep(warm_up_s)
        made = []
        for _ in range(windows):
            before, started_s = self.steps(), time.monotonic()
            time.sleep(window_s)
            steps = self.steps() - before
            if not steps.all():
                raise RuntimeError("an A3C agent failed or made no step in a window")
            made.append(float(steps.sum()) / (time.monotonic() - started_s))
        return made


def run(config: Config) -> None:
    """Measure, print and save the result. Raises RuntimeError if an agent or the service fails."""
    found, _ = prepare(config)
    repeats, seconds = config.benchmark.repeats, config.run.seconds or DEFAULT_WINDOW_S
    rows = []
    for name in config.networks:
        service = replace(config, network=replace(config.network, network=name))
        alone = replace(service, service=replace(config.service, t_max=config.a3c_t_max))
        baseline = Baseline(_plain(alone), found, config.a3c_agents)
        with baseline.playing():
            a3c = spread(baseline.rates(WARM_UP_S, repeats, seconds))
        measured = measure_service(service, found, WARM_UP_S, repeats, seconds)
        ga3c = spread([each.window.rate("steps") for each in measured])
        rows.append(
            {"network": name, "a3c": a3c, "ga3c": ga3c, "speedup": ga3c.median / a3c.median}
        )
        print(f"{name}: A3C {a3c}, the service {ga3c} steps/s", flush=True)
    _print(rows)
    keep({"networks": rows}, config, config.benchmark, config.run.json)


def _plain(config: TrainConfig) -> TrainConfig:
    """The settings without the benchmark's own, which agent processes do not need."""
    return TrainConfig(**{name: getattr(config, name) for name in TrainConfig.__dataclass_fields__})


def _print(rows: list[dict[str, Any]]) -> None:
    published = published_pps()
    table = []
    for row in rows:
        a3c, ga3c = row["a3c"], row["ga3c"]
        assert isinstance(a3c, Spread) and isinstance(ga3c, Spread)
        theirs = ("", "", "")
        if known := published.get(row["network"]):
            slow, fast = known["a3c_pps"], known["ga3c_pps"]
            theirs = (f"{slow:,.0f}", f"{fast:,.0f}", f"{fast / slow:.1f}")
        table.append((row["network"], str(a3c), str(ga3c), f"{row['speedup']:.1f}", *theirs))
    here, there = ("A3C", "this service", "times"), ("A3C published", "GA3C published", "times")
    show("predictions/s; published: 16 cores, Titan X", ("network", *here, *there), table)
