"""`ga3c plot`: curves of runs; several seeds of a game as their mean and range."""

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

GRID = 200  # points of a mean
ROLES = {"agents": "C0", "predictors": "C1", "trainers": "C2"}  # the same everywhere
PANELS = ("score", "throughput", "queues", "lag", "waiting", "counts")
SCALES = {
    "steps": (1e-6, "environment steps, millions"),
    "seconds": (1 / 60, "minutes"),
}


@dataclass(frozen=True)
class Config:
    """Draw the curves of runs: score, throughput, queues, lag, who waits, counts."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Runs, or kept results: directories, or names in runs/."""
    out: Path = Path("plot.png")
    """Picture to write: .png, .svg or .pdf."""
    panels: tuple[str, ...] = PANELS
    """What to draw, a row each: by steps at the left, by time at the right."""

    def __post_init__(self) -> None:
        check_file("out", self.out)
        if self.out.suffix not in (".png", ".svg", ".pdf"):
            raise ValueError(f"out {self.out}: must end in .png, .svg or .pdf")
        if unknown := set(self.panels) - set(PANELS):
            known = ", ".join(PANELS)
            raise ValueError(f"panels {', '.join(sorted(unknown))}: must be among {known}")


def load(runs: Sequence[Path]) -> list[History]:
    """The courses of runs. Raises WrongInput if one is none."""
    if not runs:
        raise WrongInput("no run is given: name directories, or runs in runs/")
    try:
        paths = dict.fromkeys(find_run(run) for run in runs)  # runs/* has `latest` as well
        return [history.read(path) for path in paths]
    except ValueError as error:
        raise WrongInput(str(error)) from error


def run(config: Config) -> None:
    """Draw. Raises WrongInput."""
    found = load(config.runs)
    panels = [
        panel for panel in config.panels if panel == "score" or any(each.figures for each in found)
    ]
    if not panels:
        raise WrongInput(
            f"none of the runs has figures for {', '.join(config.panels) or 'no panel'}"
        )
    figure = draw(found, panels)
    figure.savefig(config.out, dpi=110)
    pyplot.close(figure)
    print(f"drew {len(found)} runs in {config.out}")


def draw(found: Sequence[History], panels: Sequence[str]) -> Figure:
    """A row of two for each panel; of scores, one for each game."""
    drawn: list[tuple[str, Sequence[History]]] = []
    for panel in panels:
        games = {each.game: None for each in found} if panel == "score" else {}
        parts = [[each for each in found if each.game == game] for game in games]
        parts = parts or [list(found)]
        drawn += [(panel, runs) for runs in parts]
    figure, rows = pyplot.subplots(
        len(drawn), 2, figsize=(11, 3.3 * len(drawn)), squeeze=False, constrained_layout=True
    )
    for (panel, runs), row in zip(drawn, rows, strict=True):
        for by, axes in zip(SCALES, row, strict=True):
            PAINTERS[panel](axes, runs, by)
            axes.set_xlabel(SCALES[by][1])
            axes.grid(alpha=0.3)
            if axes.get_legend_handles_labels()[0]:
                # curves of scores leave no corner free: below them
                below = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.2)}
                axes.legend(frameon=False, fontsize="small", **(below if panel == "score" else {}))
    return figure


def mean_of(curves: Sequence[Curve], by: str) -> tuple[np.ndarray, np.ndarray]:
    """Where all curves are known: places [k], and scores [seeds, k] there."""
    starts = [getattr(curve, by)[0] for curve in curves]
    ends = [getattr(curve, by)[-1] for curve in curves]
    places = np.linspace(max(starts), max(min(ends), max(starts)), GRID)
    return places, np.array([np.interp(places, getattr(c, by), c.score) for c in curves])


def _score(axes: Axes, found: Sequence[History], by: str) -> None:
    """Of one game: each group of seeds in a colour."""
    scale = SCALES[by][0]
    for number, group in enumerate(history.groups(found)):
        curves = [each.curve for each in group.runs if len(each.curve.score)]
        several, colour = len(curves) > 1, f"C{number}"
        thin: dict[str, Any] = {"alpha": 0.4, "linewidth": 0.8} if several else {}
        label = None if several else group.differs or None
        for curve in curves:
            axes.plot(getattr(curve, by) * scale, curve.score, color=colour, label=label, **thin)
        if several:
            places, scores = mean_of(curves, by)
            label = f"{group.differs} mean and range of {len(curves)} seeds".strip()
            axes.plot(places * scale, scores.mean(axis=0), color=colour, label=label)
            low, high = scores.min(axis=0), scores.max(axis=0)
            axes.fill_between(places * scale, low, high, color=colour, alpha=0.15)
    axes.set_title(found[0].config.environment.game, fontsize="medium")
    axes.set_ylabel("score, mean of 100 episodes")


def _lines(
    axes: Axes, found: Sequence[History], by: str, names: dict[str, tuple[str, str]]
) -> None:
    """Figures of metrics.jsonl: what each is called, and its colour; one run after another."""
    for number, each in enumerate(found):
        places = [line[by] * SCALES[by][0] for line in each.figures]
        for name, (label, colour) in names.items():
            values = [line.get(name, float("nan")) for line in each.figures]
            shown = label if number == 0 else None
            axes.plot(places, values, color=colour, label=shown, linewidth=0.9, alpha=0.8)
    axes.set_ylim(bottom=0)


def _throughput(axes: Axes, found: Sequence[History], by: str) -> None:
    rates = {"pps": ("predictions (PPS)", "C1"), "tps": ("trained samples (TPS)", "C2")}
    _lines(axes, found, by, rates)
    axes.set_ylabel("a second")


def _queues(axes: Axes, found: Sequence[History], by: str) -> None:
    queues = {"prediction": "C1", "training": "C2"}
    _lines(axes, found, by, {f"{n}_queue": (f"{n} queue", c) for n, c in queues.items()})
    axes.set_ylabel("waiting, observations")


def _lag(axes: Axes, found: Sequence[History], by: str) -> None:
    _lines(axes, found, by, {"policy_lag": ("", "C3")})
    axes.set_ylabel("policy lag, updates")


def _waiting(axes: Axes, found: Sequence[History], by: str) -> None:
    _lines(axes, found, by, {f"{role}_waiting": (role, ROLES[role]) for role in ROLES})
    axes.set_ylabel("share of time that waits")
    axes.set_ylim(0, 1)


def _counts(axes: Axes, found: Sequence[History], by: str) -> None:
    _lines(axes, found, by, {role: (role, ROLES[role]) for role in ROLES})
    axes.set_ylabel("how many of each")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


PAINTERS: dict[str, Callable[[Axes, Sequence[History], str], None]] = {
    "score": _score,
    "throughput": _throughput,
    "queues": _queues,
    "lag": _lag,
    "waiting": _waiting,
    "counts": _counts,
}
