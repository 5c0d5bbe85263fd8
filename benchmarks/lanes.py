"""`ga3c benchmark lanes`: the service's throughput when emulator and model cost nothing.

Thousands of lanes replay a recorded stream, and a model that computes nothing answers them. So only
messages, queues, lane bookkeeping and segments are measured. On a larger machine, emulators and
device can be this fast before the service becomes the limit. With `--thinks` the configured
model acts and learns, which gives the cost of a step on the device by the number of lanes.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from agents.environments import EnvironmentConfig, spaces
from benchmarks.replayed import SIZE
from ga3c import backend
from ga3c.experience.ring import Arrivals
from ga3c.learning.model import Learned, Model
from ga3c.measuring.options import OF_RUNS, MeasuringConfig, names
from ga3c.measuring.reporting import Spread, keep, spread
from ga3c.measuring.serving import measure_service
from ga3c.reports.console import show
from ga3c.settings.train import TrainConfig

DEFAULT_WINDOW_S = 10.0
WARM_UP_S = 3.0
GAME = "benchmarks.replayed:Replayed-v0"
OF_LANES = {"envs_per_agent", "groups", "max_agents", "synchronized", "lockstep"}
OF_LANES |= {"prediction_batch_min", "prediction_batch_max"}  # set by the number of lanes


@dataclass(frozen=True)
class Config(MeasuringConfig):
    """Measure the service alone in --repeats windows of --seconds each (10 if not given).

    The environments always replay a recorded stream.
    """

    unless_named: ClassVar[str | None] = "a3c"
    ignored: ClassVar[frozenset[str]] = (
        OF_RUNS | OF_LANES | names(EnvironmentConfig) - {"stack"} | {"part_seconds"}
    )
    lanes: tuple[int, ...] = (1000, 4000)
    """Environments over all agents, rounded up so that all agents have the same number."""
    thinks: bool = False
    """Let the configured model act and learn, instead of a model that computes nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lanes or min(self.lanes) < 1:
            raise ValueError(f"lanes {self.lanes}: must be numbers of at least 1")
        if self.learns_from_replay:
            raise ValueError(
                f"algorithm {self.algorithm}: must be a3c or ppo, which train each step that is "
                "played"
            )


class NullModel(Model):
    """Computes nothing. Its action is always 0."""

    def __init__(self) -> None:
        self._updates = self.refused_in_a_row = 0

    def exploration(self, lanes: np.ndarray, steps: float) -> np.ndarray:
        """Zeros, float32 [n]."""
        return np.zeros(len(lanes), np.float32)

    def act(self, arrivals: Arrivals) -> np.ndarray:
        """Zeros, int32 [n]."""
        return np.zeros(len(arrivals.lanes), np.int32)

    def learn(self, *inputs: np.ndarray, progress: float) -> Learned:
        """Count an update."""
        self._updates += 1
        return Learned(self._updates, {})


def run(config: Config) -> None:
    """Measure, print and save the result. Raises RunFailed if the service fails."""
    backend.configure(config.service.intra_op_threads, config.run.seed)
    rows = []
    for wanted in config.lanes:
        made = _with_lanes(config, wanted)
        lanes = made.max_lanes
        measured = measure_service(
            made,
            spaces(made.environment),
            WARM_UP_S,
            config.benchmark.repeats,
            config.run.seconds or DEFAULT_WINDOW_S,
            None if config.thinks else NullModel(),
        )
        pps = spread([each.window.rate("steps") for each in measured])
        cpu = {name: sum(each.cpu_s[name] for each in measured) for name in measured[0].cpu_s}
        seconds = sum(each.window.seconds for each in measured)
        trained = spread([each.window.rate("trained_samples") for each in measured])
        rows.append(
            {
                "lanes": lanes,
                "pps": pps,
                "microseconds_a_step": 1e6 / pps.median if pps.median else None,
                "trained_samples_per_s": trained,
                "mb_per_s": pps.median * SIZE * SIZE / 1e6,
                "core_seconds_per_s": {name: used / seconds for name, used in cpu.items()},
            }
        )
    _print(rows, config.thinks)
    keep({"lanes": rows}, config, config.benchmark, config.run.json)


def _with_lanes(config: Config, lanes: int) -> TrainConfig:
    """The settings with `lanes` environments, and with batches as large as a device would want."""
    of_agent = 2 * math.ceil(lanes / config.service.agents / 2)  # even, for two equal groups
    lanes = config.service.agents * of_agent
    training_batch = max(lanes, config.service.t_max)
    service = replace(
        config.service,
        envs_per_agent=of_agent,
        groups=2,
        max_agents=config.service.agents,
        prediction_batch_min=of_agent // 2,
        prediction_batch_max=lanes,
        training_batch_min=training_batch,
        training_batch_max=training_batch,
        training_queue=4 * training_batch,
        minibatch=None,
    )
    environment = replace(config.environment, game=GAME)
    return replace(config, service=service, environment=environment)


def _print(rows: list[dict[str, Any]], thinks: bool) -> None:
    table = []
    for row in rows:
        pps, used = row["pps"], row["core_seconds_per_s"]
        assert isinstance(pps, Spread)
        names = ("agents_python", "wire", "service_python", "idle")
        shares = [f"{used[name]:.2f}" for name in names]
        cost = f"{row['microseconds_a_step']:.1f}" if pps.median else "no step in time"
        table.append((f"{row['lanes']:,}", str(pps), cost, f"{row['mb_per_s']:,.0f}", *shares))
    cores = ("agents: cores", "wire: cores", "service: cores", "idle: cores")
    title = "without emulator" if thinks else "the machinery alone"
    show(title, ("lanes", "steps/s", "us a step", "MB/s", *cores), table)
