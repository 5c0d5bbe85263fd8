"""What benchmarks share: settings, windows, medians, a JSON file with the machine's description."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ga3c.settings.checks import check_file
from ga3c.settings.machine import machine
from ga3c.settings.run import CheckpointConfig, EvaluationConfig, RunConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.train import TrainConfig

SHORTEST_WINDOW_S = 1.0
SHORTEST_PART_S = 0.1


def names(*kinds: Any) -> frozenset[str]:
    """The names of the settings in these sections."""
    return frozenset(each.name for kind in kinds for each in fields(kind))


OF_RUNS = names(RunConfig, SchedulerConfig, CheckpointConfig, EvaluationConfig)
OF_RUNS = OF_RUNS - {"seconds", "seed", "json"} | {"save_replay"}
"""Settings of a training run that have no effect on a measurement."""


def check_window(name: str, seconds: float, windows: int = 1) -> None:
    """Raises ValueError if the service could not be measured in `seconds`, or `windows` of them."""
    if seconds < windows * SHORTEST_WINDOW_S:
        raise ValueError(
            f"{name} {seconds:g}: must be at least {windows * SHORTEST_WINDOW_S:g}, as the service "
            "is looked at every 0.1 s and the kernel counts CPU time in steps of 0.01 s: the rates "
            "of a shorter window would mean nothing"
        )


@dataclass(frozen=True)
class BenchmarkConfig:
    """How a benchmark measures, and where it writes its result."""

    repeats: int = 3
    """How often everything is measured; the median and the range are printed."""
    part_seconds: float = 2.0
    """Seconds for which each part is measured alone."""
    out: Path | None = None
    """File for the result as JSON, with machine, versions and settings."""

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ValueError(f"repeats {self.repeats}: must be at least 1, or nothing is measured")
        if self.part_seconds < SHORTEST_PART_S:
            raise ValueError(
                f"part_seconds {self.part_seconds:g}: must be at least {SHORTEST_PART_S:g}, or "
                "only a call or two of each part would be timed, which says little of its rate"
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.run.seconds is not None:
            check_window("seconds", self.run.seconds)


class Spread(NamedTuple):
    """Repeated measurements of one thing."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return with_range(*self)


def with_range(value: float, low: float, high: float, form: str = ",.0f") -> str:
    """The value and its range, or the value alone if the range would only repeat it."""
    middle, least, most = (format(number, form) for number in (value, low, high))
    return middle if least == most else f"{middle} ({least} to {most})"


def spread(values: Sequence[float]) -> Spread:
    """The median and the range."""
    return Spread(statistics.median(values), min(values), max(values))


def keep(result: dict[str, Any], config: Any, benchmark: BenchmarkConfig, print_it: bool) -> None:
    """Write the JSON file if --out names one; print the same as the last line with --json."""
    whole = {**plain(result), "machine": machine(), "settings": plain(asdict(config))}
    if benchmark.out is not None:
        benchmark.out.write_text(json.dumps(whole, indent=2) + "\n")
    if print_it:
        print(json.dumps(whole), flush=True)


def plain(value: Any) -> Any:
    """`value` with types that JSON has: spreads become objects, paths become text."""
    if isinstance(value, Spread):
        return value._asdict()
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value
