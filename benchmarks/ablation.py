"""`ga3c benchmark ablation`: Multiverse RL's table (Chen and Deng 2017), one change after another.

It starts with GA3C's way of moving data and ends with the whole system. Each change is kept for
the points that follow:

- bytes instead of floats on the wire;
- a second predictor, which reads its batch while the first one computes (Multiverse's reader
  threads);
- several environments per agent process, which steps some while the others wait for actions;
- experience that stays on the device (Multiverse's "continuation", of the data only: the forward
  pass is computed again for training, so learning is the same).

If interrupted, the same command continues (benchmarks/points.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from agents.games import check
from benchmarks.points import GA3C, Figures, Point, PointsConfig, conclude, measure
from ga3c.reports.console import show
from ga3c.reports.published_figures import published_rows
from ga3c.settings.checks import check_count
from ga3c.settings.machine import CORES

QUICK_ENV_COUNTS = (4, 16)


@dataclass(frozen=True)
class Config(PointsConfig):
    """Measure the service with one change after another, starting from GA3C's way of moving data.

    Predictors take waiting requests as GA3C's do. The algorithm is a3c, with its default network.
    """

    agents: int = 4 * CORES
    """Agent processes at every point."""
    env_counts: tuple[int, ...] = (2, 4, 8, 16, 32)
    """Environments per agent process, for the points after those with one; if left out, --quick
    measures fewer of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not check(self.game).is_atari:
            raise ValueError(
                f"game {self.game}: must be an Atari game: the first point sends bytes as floats"
            )
        check_count(self, "agents")
        if not self.env_counts or any(count < 2 or count % 2 for count in self.env_counts):
            raise ValueError(f"env_counts {self.env_counts}: must be even numbers of at least 2")


def run(config: Config) -> None:
    """Measure the missing points; print, plot and save all. Raises RuntimeError on a failure."""
    measured = measure(list(_points(config)), config.game, config.window_s, config.out_dir)
    _print(measured)
    _draw(measured, config.out_dir / "ablation.png")
    conclude("ablation", measured, config)


def _points(config: Config) -> Iterator[Point]:
    agents = str(config.agents)
    options = {"agents": agents, "max-agents": agents, "envs-per-agent": "1", "groups": "1"}
    options |= {**GA3C, "experience": "host", "pixels": "float32", "prediction-batch-min": "1"}
    yield Point("GA3C's way: float32, resent from RAM", options)
    options = {**options, "pixels": "uint8"}
    yield Point("+ uint8 on the wire", options)
    options = {**options, "predictors": "2"}
    yield Point("+ overlapped reading", options)
    for count in config.reduced("env_counts", QUICK_ENV_COUNTS):
        options = {**options, "envs-per-agent": str(count), "groups": "2"}
        yield Point(f"+ {count} environments an agent", options)
    yield Point("+ experience on the device", {**options, "experience": "device"})


def _print(measured: list[tuple[Point, Figures]]) -> None:
    first = measured[0][1]["pps"]
    rows = [
        (
            point.part,
            f"{figures['pps']:,.0f}",
            f"{figures['pps'] / first:.2f}",
            f"{figures['agents_waiting_share']:.0%}",
            f"{figures['prediction_batch']:.1f}",
            f"{figures['policy_lag_mean']:.1f}",
        )
        for point, figures in measured
    ]
    show("here", ("change", "PPS", "times", "agents wait", "prediction batch", "lag"), rows)
    published = published_rows("multiverse_pps.csv")
    start = float(published[0]["pps"])
    table = [
        (
            row["configuration"],
            f"{float(row['pps']):,.0f}",
            f"{float(row['pps']) / start:.2f}",
            f"{float(row['process_waiting_percent']):.0f}%"
            if row["process_waiting_percent"]
            else "",
        )
        for row in published
    ]
    show("published by Multiverse RL", ("configuration", "PPS", "times", "agents wait"), table)


def _draw(measured: list[tuple[Point, Figures]], output: Path) -> None:
    names = [point.part for point, _ in measured]
    figure = Figure(figsize=(11, 0.4 * len(names) + 1.4), layout="constrained")
    speed, waiting = figure.subplots(1, 2, sharey=True)
    speed.barh(names, [figures["pps"] for _, figures in measured])
    speed.set_xlabel("PPS, predictions/s")
    waiting.barh(names, [100 * f["agents_waiting_share"] for _, f in measured], color="C1")
    waiting.set_xlabel("time that agents wait, percent")
    waiting.set_xlim(0, 100)
    speed.invert_yaxis()
    for axes in (speed, waiting):
        axes.grid(alpha=0.3, axis="x")
    figure.savefig(output, dpi=110)
