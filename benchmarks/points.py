"""Settings to measure one after another, each by `ga3c benchmark throughput` in its own process.

Every point is kept in `points.jsonl` as soon as it is measured: what is cut short goes on where it
was when it is run again.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ga3c.measuring.reporting import plain
from ga3c.reports.processes import end
from ga3c.runs import records
from ga3c.settings.machine import machine, origin

POINT_TIMEOUT_S = 600.0
QUICK_S = 5.0
Figures = dict[str, Any]


@dataclass(frozen=True)
class PointsConfig:
    """What all benchmarks of several points are told."""

    out_dir: Path
    """Directory of the points, the table and the picture; made if need be, and gone on with."""
    game: str = "Pong"
    """Game to play."""
    quick: bool = False
    """Fewer and shorter points: a few minutes in all."""
    seconds: float = 20.0
    """Seconds for which a point is measured."""
    json: bool = False
    """Print the result as one JSON object in the last line."""

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"seconds {self.seconds}: must be above 0, or nothing is measured")

    @property
    def window_s(self) -> float:
        """Seconds of a point."""
        return min(self.seconds, QUICK_S) if self.quick else self.seconds


class Point(NamedTuple):
    """Settings to measure, as options of the command line without dashes: a `part` of the whole.

    A switch has the value "".
    """

    part: str
    options: dict[str, str]

    @property
    def arguments(self) -> list[str]:
        """As words of the command line."""
        words = ((f"--{name}", value) for name, value in self.options.items())
        return [word for pair in words for word in pair if word]

    @property
    def value(self) -> str:
        """Of the first option: the one that a part of one setting is about."""
        return next(iter(self.options.values()))


def measure(
    points: Sequence[Point], game: str, seconds: float, directory: Path
) -> list[tuple[Point, Figures]]:
    """The figures of all points; those that `directory` keeps are not measured again.

    Kept are also those of another revision, framework or machine; they are not taken for ours.

    Raises RuntimeError, with what its process said, if a point cannot be measured.
    """
    directory.mkdir(parents=True, exist_ok=True)
    kept = directory / "points.jsonl"
    known = {line["key"]: line["figures"] for line in records.read(kept)}
    place = origin()
    keys = [json.dumps([point, game, seconds, *place]) for point in points]
    missing = sum(key not in known for key in keys)
    print(f"{len(points)} points, {missing} to be measured; kept in {kept}", flush=True)
    for number, (key, point) in enumerate(zip(keys, points, strict=True), 1):
        if key in known:
            continue
        known[key] = figures = _measure(point, game, seconds)
        records.append(kept, {"key": key, "figures": figures})
        said = f"{number} of {len(points)}: {' '.join(point.arguments)}: {figures['pps']:,.0f} PPS"
        print(said, flush=True)
    return [(point, known[key]) for key, point in zip(keys, points, strict=True)]


def said_by(command: list[str], timeout_s: float) -> str:
    """The standard output of a command of ours, which is given time to end in order.

    Processes of its own that it leaves are killed: one that used a GPU would keep its memory.

    Raises RuntimeError with its last words if it fails or takes too long.
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


def conclude(name: str, measured: list[tuple[Point, Figures]], config: PointsConfig) -> None:
    """Keep NAME.json with machine and settings in `config.out_dir`; print it with --json."""
    points = [{**point._asdict(), "figures": figures} for point, figures in measured]
    keep_in(config.out_dir, name, {"points": points}, config, config.json)


def keep_in(directory: Path, name: str, found: Figures, config: Any, print_it: bool) -> None:
    """Keep what was found as NAME.json in `directory`, with machine and settings."""
    result = {**found, "machine": machine(), "settings": plain(asdict(config))}
    (directory / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"kept {name}.json and {name}.png in {directory}")
    if print_it:
        print(json.dumps(result), flush=True)


def _measure(point: Point, game: str, seconds: float) -> Figures:
    command = [sys.executable, "-m", "ga3c", "benchmark", "throughput", "--game", game]
    limits = ["--seconds", str(seconds), "--repeats", "1", "--warm-up-seconds", str(seconds / 2)]
    command += [*limits, "--part-seconds", "0.5", "--json", *point.arguments]
    said = said_by(command, POINT_TIMEOUT_S + 2 * seconds)
    figures: Figures = json.loads(said.splitlines()[-1])
    return {name: value for name, value in figures.items() if name not in ("machine", "settings")}
