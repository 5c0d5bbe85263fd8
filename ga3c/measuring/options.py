"""The options of a measurement: its settings, how often, how long, and where to write it.

These are the options of doctor and of the benchmarks limits and throughput, and what all benchmarks
share. They are parsed before the tensor framework is loaded, so nothing here loads it.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from ga3c.settings.checks import check_file, not_negative
from ga3c.settings.machine import CORES
from ga3c.settings.run import CheckpointConfig, EvaluationConfig, RunConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import HostsConfig, ServiceConfig
from ga3c.settings.train import TrainConfig

Sizes = tuple[int, ...]
OF_PARTS = {"t_max", "passes", "intra_op_threads", "backend"}  # what a part depends on
OF_PARTS |= {"training_batch_min", "training_batch_max", "training_queue", "minibatch"}  # fit t_max
SHORTEST_WINDOW_S = 1.0
SHORTEST_PART_S = 0.1


def names(*kinds: Any) -> frozenset[str]:
    """The names of the settings in these sections."""
    return frozenset(each.name for kind in kinds for each in fields(kind))


OF_RUNS = names(RunConfig, SchedulerConfig, CheckpointConfig, EvaluationConfig)
OF_RUNS = OF_RUNS - {"seconds", "seed", "json"} | {"save_replay", "initial_weights"}
"""Settings of a training run that have no effect on a measurement."""


def check_window(name: str, seconds: float, windows: int = 1) -> None:
    """Raises ValueError if the service could not be measured in `seconds`, or `windows` of them."""
    if seconds < windows * SHORTEST_WINDOW_S:
        raise ValueError(
            f"{name} {seconds:g}: must be at least {windows * SHORTEST_WINDOW_S:g}, as the service "
            "is sampled every 0.1 s and the kernel counts CPU time in steps of 0.01 s: the rates "
            "of a shorter window would mean nothing"
        )


@dataclass(frozen=True)
class BenchmarkConfig:
    """How a benchmark measures, and where it writes its result."""

    repeats: int = 3
    """Number of times everything is measured; the median and the range are printed."""
    part_seconds: float = 2.0
    """Seconds for which each part is measured on its own."""
    out: Path | None = None
    """File for the result as JSON, with machine, versions and settings."""

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ValueError(f"repeats {self.repeats}: must be at least 1, or nothing is measured")
        if self.part_seconds < SHORTEST_PART_S:
            raise ValueError(
                f"part_seconds {self.part_seconds:g}: must be at least {SHORTEST_PART_S:g}, or "
                "only a call or two of each part would be timed, which says little about its rate"
            )
        check_file("out", self.out)


@dataclass(frozen=True)
class MeasuringConfig(TrainConfig):
    """Settings of a benchmark that measures the service, in windows of --seconds."""

    benchmark: BenchmarkConfig = field(default_factory=BenchmarkConfig)

    ignored: ClassVar[frozenset[str]] = OF_RUNS
    """Settings without an effect on the benchmark. The command refuses them."""
    fixed: ClassVar[dict[str, Any]] = {"scheduler": SchedulerConfig(scheduler="off")}
    """Sections that the benchmark sets itself: counts that change cannot be measured."""
    texts: ClassVar[dict[str, str]] = {
        "seconds": "Seconds of each window in which the service is measured. None: as said above."
    }
    """The help of settings that mean something else here than in training."""
    unless_named: ClassVar[str | None] = None
    """The algorithm if the arguments name neither it nor a preset; None: chosen by the game."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.run.seconds is not None:
            check_window("seconds", self.run.seconds)


@dataclass(frozen=True)
class DoctorConfig(MeasuringConfig):
    """Find what limits this game with these settings, and try the change that should help most.

    The service is measured in windows of --seconds each (6 if not given).
    """

    benchmark: BenchmarkConfig = field(
        default_factory=lambda: BenchmarkConfig(repeats=1, part_seconds=0.7)
    )


@dataclass(frozen=True)
class LimitsConfig(MeasuringConfig):
    """Measure environments, wire, predictions and training, each on its own, at several sizes."""

    ignored: ClassVar[frozenset[str]] = (
        OF_RUNS | {"seconds", "info_keys"} | names(HostsConfig) | names(ServiceConfig) - OF_PARTS
    )
    agent_counts: Sizes = tuple(sorted({1, CORES}))
    """Numbers of agent processes that step environments, or send messages, in parallel."""
    env_counts: Sizes = (4, 16, 64)
    """Numbers of environments that an agent steps together, or sends in one message."""
    prediction_batches: Sizes = (1, 8, 32, 64, 128)
    """Sizes of prediction batches, in observations."""
    training_batches: Sizes = (20, 40, 80, 160, 320)
    """Sizes of training batches, in samples; whole segments of t_max are used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("agent_counts", "env_counts", "prediction_batches", "training_batches"):
            sizes = getattr(self, name)
            if not sizes or min(sizes) < 1:
                raise ValueError(f"{name} {sizes}: must be numbers of at least 1")


@dataclass(frozen=True)
class ThroughputConfig(MeasuringConfig):
    """Measure the whole service in --repeats windows of --seconds each (20 if not given)."""

    warm_up_seconds: float = 10.0
    """Seconds of warm-up between the first update and the first window."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self, "warm_up_seconds")
