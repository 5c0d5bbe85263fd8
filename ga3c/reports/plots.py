"""`ga3c plot`: draws the curves of runs; several seeds of a game as their mean and range."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
import tyro
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ga3c.reports import history
from ga3c.reports.history import Curve, History
from ga3c.runs.finding import find_run
from ga3c.settings.checks import WrongInput, check_file

GRID = 200  # points of a mean curve
ROLES = {"agents": "C0", "predictors": "C1", "trainers": "C2"}  # colours, the same in all plots
PANELS = ("score", "epsilon", "throughput", "queues", "lag", "waiting", "counts")
SCORES = ("score", "epsilon")  # panels that are drawn several times, for some of the runs
SCALES = {
    "steps": (1e-6, "environment steps, millions"),
    "seconds": (1 / 60, "minutes"),
}


@dataclass(frozen=True)
class Config:
    """Draw curves of runs: score, also by epsilon, throughput, queues, lag, who waits, counts."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Runs, or kept results: directories, or names in runs/."""
    out: Path = Path("plot.png")
    """Picture to write: .png, .svg or .pdf."""
    panels: tuple[str, ...] = PANELS
    """Panels to draw, one row each: by steps at the left, by time at the right."""

    def __post_init__(self) -> None:
        check_file("out", self.out)
        if self.out.suffix not in (".png", ".svg", ".pdf"):
            raise ValueError(f"out {self.out}: must end in .png, .svg or .pdf")
        if unknown := set(self.panels) - set(PANELS):
            names = ", ".join(PANELS)
            raise ValueError(f"panels {', '.join(sorted(unknown))}: must be among {names}")


def load(runs: Sequence[Path]) -> list[History]:
    """The histories of runs. Raises WrongInput if one cannot be read."""
    if not runs:
        raise WrongInput("no run is given: name directories, or runs in runs/")
    try:
        paths = dict.fromkeys(find_run(run) for run in runs)  # runs/* also has `latest`
        return [history.read(path) for path in paths]
    except ValueError as error:
        raise WrongInput(str(error)) from error


def run(config: Config) -> None:
    """Draw. Raises WrongInput."""
    runs = load(config.runs)
    if not any(_parts(panel, runs) for panel in config.panels):
        raise WrongInput(
            f"none of the runs has figures for {', '.join(config.panels) or 'no panel'}"
        )
    figure = draw(runs, config.panels)
    figure.savefig(config.out, dpi=110)
    pyplot.close(figure)
    print(f"drew {len(runs)} runs in {config.out}")


def draw(runs: Sequence[History], panels: Sequence[str]) -> Figure:
    """Two plots, by steps and by time, for each panel that the runs have something for.

    The panel score is drawn for each game, epsilon for each run.
    """
    drawn = [(panel, part) for panel in panels for part in _parts(panel, runs)]
    figure, rows = pyplot.subplots(
        len(drawn), 2, figsize=(11, 3.3 * len(drawn)), squeeze=False, constrained_layout=True
    )
    for (panel, part), row in zip(drawn, rows, strict=True):
        for by, axes in zip(SCALES, row, strict=True):
            PAINTERS[panel](axes, part, by)
            axes.set_xlabel(SCALES[by][1])
            axes.grid(alpha=0.3)
        if row[0].get_legend_handles_labels()[0]:
            # Score curves leave no corner free, so their legend is below the plot.
            below = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.2)}
            row[0].legend(frameon=False, fontsize="small", **(below if panel in SCORES else {}))
    return figure


def _parts(panel: str, runs: Sequence[History]) -> list[list[History]]:
    """The runs of each drawing of a panel."""
    if panel == "score":
        games = dict.fromkeys(run.game for run in runs)
        return [[run for run in runs if run.game == game] for game in games]
    if panel == "epsilon":
        return [[run] for run in runs if run.by_epsilon]
    return [list(runs)] if any(run.figures for run in runs) else []


def mean_of(curves: Sequence[Curve], by: str) -> tuple[np.ndarray, np.ndarray]:
    """Places [k] in the range that all curves cover, and the scores [seeds, k] at these places."""
    starts = [getattr(curve, by)[0] for curve in curves]
    ends = [getattr(curve, by)[-1] for curve in curves]
    places = np.linspace(max(starts), max(min(ends), max(starts)), GRID)
    return places, np.array([np.interp(places, getattr(c, by), c.score) for c in curves])


def _score(axes: Axes, runs: Sequence[History], by: str) -> None:
    """Score curves of one game; each group of seeds has a colour."""
    scale = SCALES[by][0]
    for number, group in enumerate(history.groups(runs)):
        curves = [run.curve for run in group.runs if len(run.curve.score)]
        several, colour = len(curves) > 1, f"C{number}"
        thin: dict[str, Any] = {"alpha": 0.4, "linewidth": 0.8} if several else {}
        label = None if several else group.differs or None
        for curve in curves:
            axes.plot(getattr(curve, by) * scale, curve.score, color=colour, label=label, **thin)
        if several:
            places, scores = mean_of(curves, by)
            label = f"{group.differs}: mean and range of {len(curves)} seeds".removeprefix(": ")
            axes.plot(places * scale, scores.mean(axis=0), color=colour, label=label)
            low, high = scores.min(axis=0), scores.max(axis=0)
            axes.fill_between(places * scale, low, high, color=colour, alpha=0.15)
    axes.set_title(runs[0].config.environment.game, fontsize="medium")
    axes.set_ylabel("score, mean of 100 episodes")


def _epsilon(axes: Axes, runs: Sequence[History], by: str) -> None:
    """Score curves of one run with a ladder: one for each band of epsilons."""
    scale, curves = SCALES[by][0], runs[0].by_epsilon
    colours = pyplot.get_cmap("viridis")(np.linspace(0, 0.9, len(curves)))
    for (name, curve), colour in zip(curves.items(), colours, strict=True):
        label = f"epsilon {name}"
        axes.plot(getattr(curve, by) * scale, curve.score, color=colour, label=label)
    axes.set_title(f"{runs[0].game}, {runs[0].path.name}, by epsilon", fontsize="medium")
    axes.set_ylabel("score, mean of 100 episodes")


def _lines(axes: Axes, runs: Sequence[History], by: str, names: dict[str, tuple[str, str]]) -> None:
    """Figures of metrics.jsonl. Args: names: label and colour of each figure, by its name."""
    for number, run in enumerate(runs):
        places = [line[by] * SCALES[by][0] for line in run.figures]
        for name, (label, colour) in names.items():
            values = [line.get(name, float("nan")) for line in run.figures]
            shown = label if number == 0 else None
            axes.plot(places, values, color=colour, label=shown, linewidth=0.9, alpha=0.8)
    axes.set_ylim(bottom=0)


def _throughput(axes: Axes, runs: Sequence[History], by: str) -> None:
    rates = {"pps": ("predictions (PPS)", "C1"), "tps": ("trained samples (TPS)", "C2")}
    _lines(axes, runs, by, rates)
    axes.set_ylabel("a second")


def _queues(axes: Axes, runs: Sequence[History], by: str) -> None:
    queues = {"prediction": "C1", "training": "C2"}
    _lines(axes, runs, by, {f"{n}_queue": (f"{n} queue", c) for n, c in queues.items()})
    axes.set_ylabel("waiting, observations")


def _lag(axes: Axes, runs: Sequence[History], by: str) -> None:
    _lines(axes, runs, by, {"policy_lag": ("", "C3")})
    axes.set_ylabel("policy lag, updates")


def _waiting(axes: Axes, runs: Sequence[History], by: str) -> None:
    _lines(axes, runs, by, {f"{role}_waiting": (role, ROLES[role]) for role in ROLES})
    axes.set_ylabel("share of time spent waiting")
    axes.set_ylim(0, 1)


def _counts(axes: Axes, runs: Sequence[History], by: str) -> None:
    _lines(axes, runs, by, {role: (role, ROLES[role]) for role in ROLES})
    axes.set_ylabel("how many of each")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


PAINTERS: dict[str, Callable[[Axes, Sequence[History], str], None]] = {
    "score": _score,
    "epsilon": _epsilon,
    "throughput": _throughput,
    "queues": _queues,
    "lag": _lag,
    "waiting": _waiting,
    "counts": _counts,
}
