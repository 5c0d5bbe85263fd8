"""`ga3c benchmark sweep`: GA3C's Figures 3, 4 and 7 and its Table 2, on this machine.

All counts are measured one after another in one service, several times over. With a service for
each, the machine's speed would drift by more than the counts differ.
If interrupted, the same command continues (benchmarks/points.py).
"""

import statistics
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.in_turn import measure_in_turn, of_turn, with_room
from benchmarks.kept import Memo
from benchmarks.points import GA3C, Figures, Point, PointsConfig, conclude, measure
from benchmarks.published import published_pps
from ga3c.measuring.parts import prepare
from ga3c.measuring.serving import figures, measure_parts
from ga3c.reports.console import show
from ga3c.reports.plots import legend_below
from ga3c.settings.machine import CORES, machine
from ga3c.settings.scheduler import Counts

PART_S = 0.5
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Config(PointsConfig):
    """Measure the service over worker counts, networks and minimum training batches."""

    agent_counts: Sizes = tuple(sorted({1, CORES, 2 * CORES}))
    """Numbers of agent processes (N_A)."""
    predictor_counts: Sizes = (1, 2, 4)
    """Numbers of predictor threads (N_P)."""
    trainer_counts: Sizes = (1, 2, 4)
    """Numbers of trainer threads (N_T)."""
    turns: int = 3
    """Number of turns in which all counts are measured (with --quick, one)."""
    networks: tuple[str, ...] = tuple(published_pps())
    """Networks to measure at the default counts."""
    minimum_batches: Sizes = (0, 20, 40, 80, 160)
    """Minimum training batches to measure at the default counts, in samples; the maximum is 160."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("agent_counts", "predictor_counts", "trainer_counts"):
            if min(getattr(self, name), default=1) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be numbers of at least 1")
        if self.turns < 1:
            raise ValueError(f"turns {self.turns}: must be at least 1, or no counts are measured")
        unknown = set(self.networks) - set(published_pps())
        if unknown:
            names = ", ".join(published_pps())
            raise ValueError(f"networks {', '.join(sorted(unknown))}: must be among {names}")
        if not all(0 <= batch <= 160 for batch in self.minimum_batches):
            raise ValueError(f"minimum_batches {self.minimum_batches}: must be in [0, 160]")


def run(config: Config) -> None:
    """Measure the missing points; print, plot and save all. Raises RuntimeError on a failure."""
    config.out_dir.mkdir(parents=True, exist_ok=True)
    measured = _measure_counts(config)
    measured += measure(_other_points(config), config.game, config.window_s, config.out_dir)
    _print(measured)
    _draw(measured, config.out_dir / "sweep.png")
    conclude("sweep", measured, config)


def _measure_counts(config: Config) -> list[tuple[Point, Figures]]:
    """The figures of all counts, each the median over the turns."""
    numbers = (config.agent_counts, config.predictor_counts, config.trainer_counts)
    settings = [Counts(*setting) for setting in product(*numbers)]
    if config.quick:
        settings = [c for c in settings if c.agents <= CORES and c.predictors == c.trainers <= 2]
    if not settings:
        return []
    most = Counts(*map(max, zip(*settings, strict=True)))
    turns = 1 if config.quick else config.turns
    kept = Memo(config.out_dir / "points.jsonl", "figures")

    def key(counts: Counts, turn: int) -> str:
        return kept.key(counts, most, turn, config.game, config.window_s)

    train = with_room(config.game, most)
    for turn in range(turns):
        missing = [counts for counts in settings if key(counts, turn) not in kept]
        print(f"counts, turn {turn + 1} of {turns}: {len(missing)} to be measured", flush=True)
        if not missing:
            continue
        spaces, model = prepare(train)
        parts = measure_parts(train, model, PART_S)
        order, here = of_turn(missing, turn), machine()  # not asked for while the service runs
        for counts, measured in measure_in_turn(train, spaces, order, config.window_s):
            result = {**figures([measured], parts), "machine": here}
            kept.keep(key(counts, turn), result)
            print(f"{'/'.join(map(str, counts))}: {result['pps']:,.0f} PPS", flush=True)
    return [
        (
            Point("counts", {name: str(n) for name, n in counts._asdict().items()}),
            _median([kept[key(counts, turn)] for turn in range(turns)]),
        )
        for counts in settings
    ]


def _median(turns: list[Figures]) -> Figures:
    """The median of each figure, the lowest and highest PPS, and the machine of the last turn."""
    medians: Figures = {}
    for name, value in turns[0].items():
        values: list[Any] = [figures[name] for figures in turns]
        nested = isinstance(value, dict)
        if name == "machine":
            medians[name] = values[-1]
        else:
            medians[name] = _median(values) if nested else statistics.median(values)
    if "pps" in medians:
        rates = [figures["pps"] for figures in turns]
        medians |= {"pps_low": min(rates), "pps_high": max(rates)}
    return medians


def _other_points(config: Config) -> list[Point]:
    networks, batches = config.networks, config.minimum_batches
    if config.quick:
        networks, batches = networks[:2], batches[::4]
    queue = {"training-batch-max": "160", "training-queue": "640"}
    return [
        *(Point("networks", {"network": network, **GA3C}) for network in networks),
        *(
            Point("minimum batches", {"training-batch-min": str(batch), **queue, **GA3C})
            for batch in batches
        ),
    ]


def _counts(point: Point) -> list[str]:
    return [point.options[name] for name in Counts._fields]


def _print(measured: list[tuple[Point, Figures]]) -> None:
    published = published_pps()
    for part in ("counts", "networks", "minimum batches"):
        rows = [
            (
                " ".join(_counts(point) if part == "counts" else [point.value]),
                f"{figures['pps']:,.0f}",
                f"{figures['updates_per_s']:,.1f}",
                f"{figures['share_of_limit']:.0%}",
                f"{figures['agents_waiting_share']:.0%}",
                f"{figures['policy_lag_mean']:.1f}",
                f"{published[point.value]['ga3c_pps']:,.0f}" if part == "networks" else "",
            )
            for point, figures in measured
            if point.part == part
        ]
        first = {"counts": "agents predictors trainers", "networks": "network"}.get(part, part)
        names = ("PPS", "updates/s", "of the limit", "agents wait", "lag", "published PPS")
        show(part, (first, *names), rows)


def _draw(measured: list[tuple[Point, Figures]], output: Path) -> None:
    figure = Figure(figsize=(14, 4), layout="constrained")
    counts, networks, batches = figure.subplots(1, 3)
    by_threads: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for point, point_figures in measured:
        if point.part == "counts":
            agents, predictors, trainers = _counts(point)
            line = by_threads.setdefault((predictors, trainers), [])
            line.append((int(agents), point_figures["pps"]))
    for (predictors, trainers), line in by_threads.items():
        counts.plot(*zip(*sorted(line)), "o-", label=f"$N_P$ {predictors} $N_T$ {trainers}")
    counts.set_xlabel("agent processes $N_A$")
    counts.set_xticks(sorted({int(p.options["agents"]) for p, _ in measured if p.part == "counts"}))
    counts.set_title("counts (GA3C, Figures 3 and 4)")
    legend_below(counts)
    names = [point.value for point, _ in measured if point.part == "networks"]
    ours = [figures["pps"] for point, figures in measured if point.part == "networks"]
    places = range(len(names))
    networks.bar([place - 0.2 for place in places], ours, 0.4, label="here")
    published = [published_pps()[name]["ga3c_pps"] for name in names]
    networks.bar(
        [place + 0.2 for place in places], published, 0.4, label="published: Titan X, 16 cores"
    )
    networks.set_xticks(places, names)
    networks.set_title("networks (GA3C, Table 2)")
    legend_below(networks)
    by_batch = [(int(p.value), f) for p, f in measured if p.part == "minimum batches"]
    batches.plot([batch for batch, _ in by_batch], [f["pps"] for _, f in by_batch], "o-")
    batches.set_xlabel("minimum training batch, samples")
    batches.set_title("minimum training batch (GA3C, Figure 7)")
    for axes in (counts, networks, batches):
        _finish(axes)
    figure.savefig(output, dpi=110)


def _finish(axes: Axes) -> None:
    axes.set_ylabel("PPS, predictions/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
