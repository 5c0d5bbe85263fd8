"""`ga3c benchmark fast-dqn`: Concurrent Training and Synchronized Execution, each on and off.

The speed test of Daley and Amato 2021: 1, 2, 4 and 8 samplers, epsilon 0.1, no evaluation; time as
a share of that of standard DQN with one sampler. What a machine's cores allow is told beside it:
all of the work of a step on all cores, without a wait and without the machinery. Resumable, as
benchmarks/points.py says.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from benchmarks.points import Figures, Point, PointsConfig, conclude, measure
from ga3c.reports.console import show
from ga3c.reports.figures import published_rows
from ga3c.settings.machine import CORES

VARIANTS = ("standard", "concurrent", "synchronized", "both")
Percent = dict[tuple[str, int], float]  # by variant and samplers


@dataclass(frozen=True)
class Config(PointsConfig):
    """Measure the 14 variants of fast-dqn's speed test: with one sampler, nothing can be
    synchronized."""

    samplers: tuple[int, ...] = (1, 2, 4, 8)
    """Agent processes, of one environment each."""
    period_steps: int = 1000
    """Steps between two meetings: less than the published 10,000, so that a window has many."""
    intra_op_threads: int = CORES
    """Threads of the tensor framework within one operation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.samplers or min(self.samplers) < 1:
            raise ValueError(f"samplers {self.samplers}: must be numbers of at least 1")


def run(config: Config) -> None:
    """Measure what is missing, then print, draw and keep all. Raises RuntimeError for a failure."""
    points = list(_points(config))
    measured = measure(points, config.game, config.window_s, config.out_dir)
    first = measured[0][1]["pps"]
    found = {_key(point): 100 * first / figures["pps"] for point, figures in measured}
    _print(found, measured, _published())
    _draw(found, _published(), config)
    conclude("fast-dqn", measured, config)


def _points(config: Config) -> Iterator[Point]:
    for variant in VARIANTS:
        for samplers in config.samplers:
            if samplers == 1 and variant in ("synchronized", "both"):
                continue
            synchronized = variant in ("synchronized", "both")
            concurrent = variant in ("concurrent", "both")
            yield Point(
                variant,
                {
                    "agents": str(samplers),
                    "max-agents": str(samplers),
                    "preset": "fast-dqn",
                    "synchronized" if synchronized else "no-synchronized": "",
                    "pacing": "target-period" if concurrent else "ratio",
                    "period-steps": str(config.period_steps),
                    "slack-steps": str(samplers + 3),
                    "intra-op-threads": str(config.intra_op_threads),
                    "epsilon-start": "0.1",
                    "replay-steps": "50000",
                    "replay-min-steps": "1000",
                },
            )


def _key(point: Point) -> tuple[str, int]:
    return point.part, int(point.value)


def _published() -> Percent:
    return {
        (variant, int(row["threads"])): float(row[variant])
        for row in published_rows("fast_dqn_runtime_percent.csv")
        for variant in VARIANTS
        if row[variant]
    }


def _print(found: Percent, measured: list[tuple[Point, Figures]], published: Percent) -> None:
    rows = []
    for point, figures in measured:
        key = _key(point)
        rows.append(
            (
                f"{key[0]}, {key[1]}",
                f"{figures['pps']:,.0f}",
                f"{found[key]:.0f}%",
                f"{published[key]:.0f}%" if key in published else "",
                f"{figures['share_of_limit']:.0%}",
                f"{figures['trainers_waiting_share']:.0%}",
            )
        )
    headings = ("variant, samplers", "steps/s", "time", "published", "of limit", "trainer waits")
    show(f"fast-dqn's speed test on {CORES} cores", headings, rows)


def _draw(found: Percent, published: Percent, config: Config) -> None:
    figure, both = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, constrained_layout=True)
    titles = (f"here: {CORES} cores", "published: Daley and Amato 2021")
    for axes, title, table in zip(both, titles, (found, published), strict=True):
        for number, variant in enumerate(VARIANTS):
            counts = sorted(n for v, n in table if v == variant)
            times = [table[variant, n] for n in counts]
            axes.plot(counts, times, "o-", color=f"C{number}", label=variant)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("samplers")
        axes.set_xscale("log", base=2)
        axes.set_xticks(config.samplers, [str(n) for n in config.samplers])
        axes.grid(alpha=0.3)
    both[0].set_ylabel("time, percent of standard with one sampler")
    both[0].set_ylim(bottom=0)
    both[1].legend()
    figure.savefig(config.out_dir / "fast-dqn.png", dpi=110)
    pyplot.close(figure)
