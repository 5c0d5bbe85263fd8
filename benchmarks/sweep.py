"""`ga3c benchmark sweep`: GA3C's Figures 3, 4 and 7 and its Table 2, on this machine.

Each point is a run of `ga3c benchmark throughput` in a process of its own, kept in `points.jsonl`
as soon as it is measured: a sweep that is cut short goes on where it was when it is run again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.reporting import plain, published_pps, show
from ga3c.config import CORES
from ga3c.runs import machine

POINT_TIMEOUT_S = 600.0
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Config:
    """Measure the service over counts, networks and minimum training batches."""

    out_dir: Path
    """Directory of the points, the table and the picture; made if need be, and gone on with."""
    game: str = "Pong"
    """Game to play."""
    quick: bool = False
    """Fewer and shorter points: a few minutes in all."""
    seconds: float = 20.0
    """Seconds for which a point is measured."""
    agent_counts: Sizes = tuple(sorted({1, CORES, 2 * CORES}))
    """Agent processes (N_A)."""
    predictor_counts: Sizes = (1, 2, 4)
    """Predictor threads (N_P)."""
    trainer_counts: Sizes = (1, 2, 4)
    """Trainer threads (N_T)."""
    networks: tuple[str, ...] = tuple(published_pps())
    """Networks, at the default counts."""
    minimum_batches: Sizes = (0, 20, 40, 80, 160)
    """Samples that a trainer waits for, at the default counts, with batches of up to 160."""
    json: bool = False
    """Print the result as one JSON object in the last line."""

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"seconds {self.seconds}: must be above 0, or nothing is measured")
        for name in ("agent_counts", "predictor_counts", "trainer_counts"):
            if min(getattr(self, name), default=1) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be numbers of at least 1")
        unknown = set(self.networks) - set(published_pps())
        if unknown:
            known = ", ".join(published_pps())
            raise ValueError(f"networks {', '.join(sorted(unknown))}: must be among {known}")
        if not all(0 <= batch <= 160 for batch in self.minimum_batches):
            raise ValueError(f"minimum_batches {self.minimum_batches}: must be in [0, 160]")


class Point(NamedTuple):
    """Settings to measure: `part` is counts, networks or minimum batches."""

    part: str
    options: dict[str, str]

    @property
    def arguments(self) -> list[str]:
        """As options of the command line."""
        return [word for name, value in self.options.items() for word in (f"--{name}", value)]


def run(config: Config) -> None:
    """Measure what is missing, then print, draw and keep all. Raises RuntimeError for a failure."""
    config.out_dir.mkdir(parents=True, exist_ok=True)
    kept = config.out_dir / "points.jsonl"
    known = {line["key"]: line for line in map(json.loads, _lines(kept))}
    points = list(_points(config))
    keys = [json.dumps([point, config.game, _seconds(config)]) for point in points]
    missing = sum(key not in known for key in keys)
    print(f"{len(points)} points, {missing} to be measured; kept in {kept}", flush=True)
    for number, (key, point) in enumerate(zip(keys, points), 1):
        if key in known:
            continue
        figures = _measure(point, config)
        known[key] = {"key": key, "figures": figures}
        with open(kept, "a") as file:
            file.write(json.dumps(known[key]) + "\n")
        print(f"{number} of {len(points)}: {' '.join(point.arguments)}: {figures['pps']:,.0f} PPS")
        sys.stdout.flush()
    measured = [(point, known[key]["figures"]) for key, point in zip(keys, points)]
    _print(measured)
    _draw(measured, config.out_dir / "sweep.png")
    result = {
        "points": [{**point._asdict(), "figures": figures} for point, figures in measured],
        "machine": machine(),
        "settings": plain(asdict(config)),
    }
    (config.out_dir / "sweep.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"kept sweep.json and sweep.png in {config.out_dir}")
    if config.json:
        print(json.dumps(result), flush=True)


def _lines(file: Path) -> list[str]:
    """The lines of a file; a last one that was cut short is cut off."""
    text = file.read_text() if file.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        os.truncate(file, len(whole.encode()))
    return whole.splitlines()


def _seconds(config: Config) -> float:
    return min(config.seconds, 5.0) if config.quick else config.seconds


def _points(config: Config) -> Iterator[Point]:
    counts = list(product(config.agent_counts, config.predictor_counts, config.trainer_counts))
    networks, batches = config.networks, config.minimum_batches
    if config.quick:
        counts = [each for each in counts if max(each[1:]) <= 2 and each[0] <= CORES]
        networks, batches = networks[:2], batches[::2]
    for agents, predictors, trainers in counts:
        given = {"agents": agents, "predictors": predictors, "trainers": trainers}
        yield Point("counts", {name: str(count) for name, count in given.items()})
    for network in networks:
        yield Point("networks", {"network": network})
    for batch in batches:
        queue = {"training-batch-max": "160", "training-queue": "640"}
        yield Point("minimum batches", {"training-batch-min": str(batch), **queue})


def _measure(point: Point, config: Config) -> dict[str, Any]:
    """The figures of one point. Raises RuntimeError with what its process said."""
    seconds = _seconds(config)
    command = [sys.executable, "-m", "ga3c", "benchmark", "throughput", "--game", config.game]
    limits = ["--seconds", str(seconds), "--repeats", "1", "--warm-up-seconds", str(seconds / 2)]
    done = subprocess.run(
        [*command, *limits, "--part-seconds", "0.5", "--json", *point.arguments],
        capture_output=True,
        text=True,
        timeout=POINT_TIMEOUT_S + 2 * seconds,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(point.arguments)}: {done.stderr.strip()}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {name: value for name, value in figures.items() if name not in ("machine", "settings")}


def _print(measured: list[tuple[Point, dict[str, Any]]]) -> None:
    published = published_pps()
    for part in ("counts", "networks", "minimum batches"):
        rows = [
            (
                " ".join(point.options.values() if part == "counts" else [_value(point)]),
                f"{figures['pps']:,.0f}",
                f"{figures['tps']:,.1f}",
                f"{figures['share_of_limit']:.0%}",
                f"{figures['agents_waiting_share']:.0%}",
                f"{figures['policy_lag_mean']:.1f}",
                f"{published[_value(point)]['ga3c_pps']:,.0f}" if part == "networks" else "",
            )
            for point, figures in measured
            if point.part == part
        ]
        first = {"counts": "agents predictors trainers", "networks": "network"}.get(part, part)
        names = ("PPS", "updates/s", "of the limit", "agents wait", "lag", "published PPS")
        show(part, (first, *names), rows)


def _value(point: Point) -> str:
    """Of the setting that a part is about."""
    return next(iter(point.options.values()))


def _draw(measured: list[tuple[Point, dict[str, Any]]], output: Path) -> None:
    figure, (counts, networks, batches) = pyplot.subplots(
        1, 3, figsize=(14, 4), constrained_layout=True
    )
    by_threads: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for point, figures in measured:
        if point.part == "counts":
            agents, predictors, trainers = point.options.values()
            line = by_threads.setdefault((predictors, trainers), [])
            line.append((int(agents), figures["pps"]))
    for (predictors, trainers), line in by_threads.items():
        counts.plot(*zip(*sorted(line)), "o-", label=f"$N_P$ {predictors} $N_T$ {trainers}")
    counts.set_xlabel("agent processes $N_A$")
    counts.set_title("counts (GA3C, Figures 3 and 4)")
    counts.legend(frameon=False, fontsize="small")
    names = [_value(point) for point, _ in measured if point.part == "networks"]
    ours = [figures["pps"] for point, figures in measured if point.part == "networks"]
    places = range(len(names))
    networks.bar([place - 0.2 for place in places], ours, 0.4, label="here")
    theirs = [published_pps()[name]["ga3c_pps"] for name in names]
    networks.bar(
        [place + 0.2 for place in places], theirs, 0.4, label="published: Titan X, 16 cores"
    )
    networks.set_xticks(places, names)
    networks.set_title("networks (GA3C, Table 2)")
    networks.legend(frameon=False, fontsize="small")
    chosen = [(int(_value(p)), f) for p, f in measured if p.part == "minimum batches"]
    batches.plot([batch for batch, _ in chosen], [f["pps"] for _, f in chosen], "o-")
    batches.set_xlabel("minimum training batch, samples")
    batches.set_title("minimum training batch (GA3C, Figure 7)")
    for axes in (counts, networks, batches):
        _finish(axes)
    figure.savefig(output, dpi=110)
    pyplot.close(figure)


def _finish(axes: Axes) -> None:
    axes.set_ylabel("PPS, predictions/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
