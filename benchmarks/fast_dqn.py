"""`ga3c benchmark fast-dqn`: Concurrent Training and Synchronized Execution, each on and off.

This is the speed test of Daley and Amato 2021: 1, 2, 4 and 8 samplers, epsilon 0.1, no evaluation.
Times are percentages of standard DQN's time with one sampler. The table also shows the share of the
machine's limit: the work of a step on all cores, without waiting and without the service.
If interrupted, the same command continues (benchmarks/points.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.figure import Figure

from benchmarks.points import Figures, Point, PointsConfig, conclude, measure
from ga3c.reports.console import show
from ga3c.reports.plots import legend_below
from ga3c.reports.published_figures import published_rows
from ga3c.settings.checks import check_count, check_threads
from ga3c.settings.machine import CORES

VARIANTS = ("standard", "concurrent", "synchronized", "both")
Percent = dict[tuple[str, int], float]  # by variant and samplers


@dataclass(frozen=True)
class Config(PointsConfig):
    """Measure the 14 variants of fast-dqn's speed test. One sampler has nothing to synchronize
    with."""

    samplers: tuple[int, ...] = (1, 2, 4, 8)
    """Numbers of agent processes, with one environment each."""
    period_steps: int = 1000
    """Steps per target period: fewer than the published 10,000, so that a window has many."""
    intra_op_threads: int = CORES
    """Threads of the tensor framework within one operation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.samplers, default=0) != 1:
            raise ValueError(
                f"samplers {self.samplers}: must be at least 1 and include 1: all times are "
                "percentages of standard's with one sampler"
            )
        check_count(self, "period_steps")
        check_threads(self.intra_op_threads)


def run(config: Config) -> None:
    """Measure the missing points; print, plot and save all. Raises RuntimeError on a failure."""
    points = list(_points(config))
    measured = measure(points, config.game, config.window_s, config.out_dir)
    first = next(figures["pps"] for point, figures in measured if _key(point) == ("standard", 1))
    times = {_key(point): 100 * first / figures["pps"] for point, figures in measured}
    _print(times, measured, _published())
    _draw(times, _published(), config)
    conclude("fast-dqn", measured, config)


def _points(config: Config) -> Iterator[Point]:
    for variant in VARIANTS:
        for samplers in config.samplers:
            if samplers == 1 and variant in ("synchronized", "both"):
                continue
            synchronized = variant in ("synchronized", "both")
            pacing = {"pacing": "ratio", "slack-steps": str(samplers + 3)}
            if variant in ("concurrent", "both"):
                pacing = {"pacing": "target-period", "period-steps": str(config.period_steps)}
            yield Point(
                variant,
                {
                    "agents": str(samplers),
                    "max-agents": str(samplers),
                    "preset": "fast-dqn",
                    "synchronized" if synchronized else "no-synchronized": "",
                    **pacing,
                    "intra-op-threads": str(config.intra_op_threads),
                    "epsilon-start": "0.1",
                    "replay-steps": "50000",
                    "replay-min-steps": "200",
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


def _print(times: Percent, measured: list[tuple[Point, Figures]], published: Percent) -> None:
    rows = []
    for point, figures in measured:
        key = _key(point)
        rows.append(
            (
                f"{key[0]}, {key[1]}",
                f"{figures['pps']:,.0f}",
                f"{times[key]:.0f}%",
                f"{published[key]:.0f}%" if key in published else "",
                f"{figures['share_of_limit']:.0%}",
                f"{figures['trainers_waiting_share']:.0%}",
            )
        )
    headings = ("variant, samplers", "steps/s", "time", "published", "of limit", "trainer waits")
    show(f"fast-dqn's speed test on {CORES} cores", headings, rows)


def _draw(times: Percent, published: Percent, config: Config) -> None:
    figure = Figure(figsize=(10, 4), layout="constrained")
    plots = figure.subplots(1, 2, sharey=True)
    titles = (f"here: {CORES} cores", "published: Daley and Amato 2021")
    for axes, title, table in zip(plots, titles, (times, published), strict=True):
        for number, variant in enumerate(VARIANTS):
            counts = sorted(n for v, n in table if v == variant)
            percents = [table[variant, n] for n in counts]
            axes.plot(counts, percents, "o-", color=f"C{number}", label=variant)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("samplers")
        axes.set_xscale("log", base=2)
        axes.set_xticks(config.samplers, [str(n) for n in config.samplers])
        axes.grid(alpha=0.3)
    plots[0].set_ylabel("time, percent of standard with one sampler")
    plots[0].set_ylim(bottom=0)
    legend_below(plots[1])
    figure.savefig(config.out_dir / "fast-dqn.png", dpi=110)
