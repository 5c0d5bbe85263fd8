"""Measures several settings ("points"), each by `ga3c benchmark throughput` in its own process.

A point is kept in `points.jsonl` as soon as it is measured. If a study is interrupted, the same
command continues with the points that are missing.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.kept import Memo, keep_all
from ga3c.measuring.options import check_window
from ga3c.reports.processes import end

POINT_TIMEOUT_S = 600.0
QUICK_S = 5.0
Figures = dict[str, Any]


@dataclass(frozen=True)
class PointsConfig:
    """Settings of all benchmarks that measure several points."""

    out_dir: Path
    """Directory for the measured points, the table and the plot; created if it is missing."""
    game: str = "Pong"
    """Game to play."""
    quick: bool = False
    """Measure fewer and shorter points: a few minutes in all."""
    seconds: float = 20.0
    """Seconds for which each point is measured."""
    json: bool = False
    """Print the result as one JSON object on the last line."""

    def __post_init__(self) -> None:
        check_window("seconds", self.seconds)

    @property
    def window_s(self) -> float:
        """Seconds for which a point is measured."""
        return min(self.seconds, QUICK_S) if self.quick else self.seconds

    def reduced(self, name: str, quick: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of a setting: `quick` with --quick, unless other values are asked for."""
        asked: tuple[Any, ...] = getattr(self, name)
        return quick if self.quick and asked == getattr(type(self), name) else asked


GA3C = {"algorithm": "a3c"}
"""Options for the points of GA3C studies, whatever the game's default algorithm."""


class Point(NamedTuple):
    """Settings to measure, as command-line options without dashes.

    A switch has the value "". `part` is the part of the study that the point belongs to.
    """

    part: str
    options: dict[str, str]

    @property
    def arguments(self) -> list[str]:
        """The options as command-line arguments."""
        words = ((f"--{name}", value) for name, value in self.options.items())
        return [word for pair in words for word in pair if word]

    @property
    def value(self) -> str:
        """The value of the first option, which is the one that the part varies."""
        return next(iter(self.options.values()))


def measure(
    points: Sequence[Point],
    game: str,
    seconds: float,
    directory: Path,
    around: Callable[[Point], AbstractContextManager[object]] = contextlib.nullcontext,
) -> list[tuple[Point, Figures]]:
    """The figures of all points; points that `directory` keeps are not measured again.

    Points of another revision, version, device or machine may be kept there too, but are not
    reused.

    Args: around: gives the context in which a point is measured.

    Raises RuntimeError, with the output of its process, if a point cannot be measured.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "points.jsonl"
    kept = Memo(file, "figures")
    keys = [kept.key(point, game, seconds) for point in points]
    missing = sum(key not in kept for key in keys)
    print(f"{len(points)} points, {missing} to be measured; kept in {file}", flush=True)
    for number, (key, point) in enumerate(zip(keys, points, strict=True), 1):
        if key in kept:
            continue
        with around(point):
            figures = _measure(point, game, seconds)
        kept.keep(key, figures)
        line = f"{number} of {len(points)}: {' '.join(point.arguments)}: {figures['pps']:,.0f} PPS"
        print(line, flush=True)
    return [(point, kept[key]) for key, point in zip(keys, points, strict=True)]


def said_by(command: list[str], timeout_s: float) -> str:
    """The standard output of a command, which gets time to end cleanly.

    Child processes that it leaves behind are killed: one that uses a GPU would keep its memory.

    Raises RuntimeError, with its standard error, if it fails; also if it takes too long.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{' '.join(command)}: not done after {timeout_s:g} s") from error
    finally:
        end(process)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {err.strip()}")
    return out


def json_of(command: list[str], timeout_s: float) -> Figures:
    """What a command prints as JSON in its last line. Raises RuntimeError as `said_by` does."""
    figures: Figures = json.loads(said_by(command, timeout_s).splitlines()[-1])
    return figures


def conclude(name: str, measured: list[tuple[Point, Figures]], config: PointsConfig) -> None:
    """Write NAME.json, with machines and settings, to `config.out_dir`; print it with --json."""
    points = [{**point._asdict(), "figures": figures} for point, figures in measured]
    dates = sorted({figures["machine"]["date"] for _, figures in measured})
    if len(dates) > 1:
        print(f"the points were measured on several days: {', '.join(dates)}")
    keep_all(name, {"points": points}, config, config.json)


def _measure(point: Point, game: str, seconds: float) -> Figures:
    command = [sys.executable, "-m", "ga3c", "benchmark", "throughput", "--game", game]
    limits = ["--seconds", str(seconds), "--repeats", "1", "--warm-up-seconds", str(seconds / 2)]
    part_s = min(0.5, seconds / 10)
    command += [*limits, "--part-seconds", str(part_s), "--json", *point.arguments]
    figures = json_of(command, POINT_TIMEOUT_S + 2 * seconds)
    return {name: value for name, value in figures.items() if name != "settings"}
