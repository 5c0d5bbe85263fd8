"""`ga3c benchmark sweep`: GA3C's Figures 3, 4 and 7 and its Table 2, on this machine.

Resumable, as benchmarks/points.py says.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.points import Figures, Point, PointsConfig, conclude, measure
from benchmarks.reporting import published_pps, show
from ga3c.config import CORES
from ga3c.scheduler import NAMES

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Config(PointsConfig):
    """Measure the service over counts, networks and minimum training batches."""

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

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("agent_counts", "predictor_counts", "trainer_counts"):
            if min(getattr(self, name), default=1) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: must be numbers of at least 1")
        unknown = set(self.networks) - set(published_pps())
        if unknown:
            known = ", ".join(published_pps())
            raise ValueError(f"networks {', '.join(sorted(unknown))}: must be among {known}")
        if not all(0 <= batch <= 160 for batch in self.minimum_batches):
            raise ValueError(f"minimum_batches {self.minimum_batches}: must be in [0, 160]")


def run(config: Config) -> None:
    """Measure what is missing, then print, draw and keep all. Raises RuntimeError for a failure."""
    measured = measure(list(_points(config)), config.game, config.window_s, config.out_dir)
    _print(measured)
    _draw(measured, config.out_dir / "sweep.png")
    conclude("sweep", measured, config)


def _points(config: Config) -> Iterator[Point]:
    counts = list(product(config.agent_counts, config.predictor_counts, config.trainer_counts))
    networks, batches = config.networks, config.minimum_batches
    if config.quick:
        counts = [(a, p, t) for a, p, t in counts if a <= CORES and p == t <= 2]
        networks, batches = networks[:2], batches[::4]
    for each in counts:
        given = dict(zip(NAMES, map(str, each), strict=True))
        yield Point("counts", {**given, **{f"max-{name}": most for name, most in given.items()}})
    for network in networks:
        yield Point("networks", {"network": network})
    for batch in batches:
        queue = {"training-batch-max": "160", "training-queue": "640"}
        yield Point("minimum batches", {"training-batch-min": str(batch), **queue})


def _counts(point: Point) -> list[str]:
    return [point.options[name] for name in NAMES]


def _print(measured: list[tuple[Point, Figures]]) -> None:
    published = published_pps()
    for part in ("counts", "networks", "minimum batches"):
        rows = [
            (
                " ".join(_counts(point) if part == "counts" else [point.value]),
                f"{figures['pps']:,.0f}",
                f"{figures['tps']:,.1f}",
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
    figure, (counts, networks, batches) = pyplot.subplots(
        1, 3, figsize=(14, 4), constrained_layout=True
    )
    by_threads: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for point, figures in measured:
        if point.part == "counts":
            agents, predictors, trainers = _counts(point)
            line = by_threads.setdefault((predictors, trainers), [])
            line.append((int(agents), figures["pps"]))
    for (predictors, trainers), line in by_threads.items():
        counts.plot(*zip(*sorted(line)), "o-", label=f"$N_P$ {predictors} $N_T$ {trainers}")
    counts.set_xlabel("agent processes $N_A$")
    counts.set_xticks(sorted({int(p.options["agents"]) for p, _ in measured if p.part == "counts"}))
    counts.set_title("counts (GA3C, Figures 3 and 4)")
    counts.legend(frameon=False, fontsize="small")
    names = [point.value for point, _ in measured if point.part == "networks"]
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
    chosen = [(int(p.value), f) for p, f in measured if p.part == "minimum batches"]
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
