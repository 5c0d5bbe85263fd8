"""`ga3c plot`: draws the curves of runs; several seeds of a game as their mean and range."""

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from ga3c.reports import history
from ga3c.reports.groups import Looks, grouped, looks_of
from ga3c.reports.history import History
from ga3c.reports.published_figures import control_scores
from ga3c.runs.finding import GivenRuns
from ga3c.settings.checks import WrongInput, check_picture

ROLES = {"agents": "C0", "predictors": "C1", "trainers": "C2"}  # colours, the same in all plots
FIGURES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    # For each panel: its axis label, and the labels and colours of its figures in metrics.jsonl.
    "reward": ("reward per step", {"reward_per_step": ("", "C0")}),
    "throughput": (
        "a second",
        {"pps": ("predictions (PPS)", "C1"), "tps": ("trained samples (TPS)", "C2")},
    ),
    "queues": (
        "queued observations",
        {"prediction_queue": ("predictions", "C1"), "training_queue": ("training", "C2")},
    ),
    "lag": ("policy lag, updates", {"policy_lag": ("", "C3")}),
    "waiting": (
        "share of time spent waiting",
        {f"{role}_waiting": (role, colour) for role, colour in ROLES.items()},
    ),
    "counts": ("number of each", {role: (role, colour) for role, colour in ROLES.items()}),
}
PANELS = ("score", "epsilon", *FIGURES)
DASHES = ("-", "--", ":")  # for the figures of a plot, if colours distinguish runs
LINE_INCHES = 0.17  # per line of a legend
LEGEND_WIDTH = 64  # characters; a wider one would leave its plot too narrow
FEW = 10  # entries of a legend, in one column
HANDLE_WIDTH = 8  # characters that the line beside a label takes, with the space around it
MOST_ROWS = 80  # few programs show a picture of more than 32,768 pixels, and it takes minutes
literal = rc_context({"text.parse_math": False})  # names may contain dollar signs
MARKERS = {"DDPG": "v", "TD3": "^", "SAC": "s"}  # of published scores
SCALES = {"steps": (1.0, "environment steps"), "seconds": (1 / 60, "minutes")}


@dataclass(frozen=True)
class Config:
    """Plot curves of runs: score, epsilon, reward, throughput, queues, lag, waiting, counts."""

    runs: GivenRuns
    """Runs, or stored results: directories, or names or numbers in --runs-dir."""
    runs_dir: Path = Path("runs")
    """Directory in which runs are looked up by name or number."""
    out: Path = Path("plot.png")
    """Image file to write: .png, .svg or .pdf."""
    panels: tuple[str, ...] = PANELS
    """Panels to draw, one row each: by steps on the left, by time on the right."""

    def __post_init__(self) -> None:
        check_picture("out", self.out)
        if not self.panels:
            raise ValueError(f"panels: must be some of {', '.join(PANELS)}, or nothing is drawn")
        if unknown := sorted(set(self.panels) - set(PANELS)):
            raise ValueError(f"panels {', '.join(unknown)}: must be among {', '.join(PANELS)}")


def run(config: Config) -> None:
    """Draw. Raises WrongInput."""
    runs = history.load(config.runs, config.runs_dir)
    if not can_draw(runs, config.panels):
        raise WrongInput(f"none of the runs has figures for {', '.join(config.panels)}")
    rows = sum(len(_parts(panel, runs)) for panel in config.panels)
    if rows > MOST_ROWS:
        games = len({run.game for run in runs})
        raise WrongInput(
            f"{games} games make {rows} rows of plots, and a picture has at most {MOST_ROWS}: "
            "plot fewer games at once, or fewer --panels"
        )
    draw(runs, config.panels).savefig(config.out, dpi=110)
    print(f"drew {len(runs)} run{'s' * (len(runs) != 1)} in {config.out}")


def can_draw(runs: Sequence[History], panels: Sequence[str]) -> bool:
    """Whether the runs have data for one of the panels."""
    return any(_parts(panel, runs) for panel in panels)


@literal
def draw(runs: Sequence[History], panels: Sequence[str]) -> Figure:
    """Two plots, by steps and by time, of each panel that the runs have data for. Score has one
    row per game, epsilon one per run."""
    drawn = [(panel, part) for panel in panels for part in _parts(panel, runs)]
    looks = looks_of(runs)
    figure = Figure(layout="constrained")
    rows = figure.subplots(len(drawn), 2, squeeze=False)
    for (panel, part), row in zip(drawn, rows, strict=True):
        for by, axes in zip(SCALES, row, strict=True):
            PAINTERS[panel](axes, part, by, looks)
            dress(axes, by)
    lines = sum(max(2, *map(_legend_lines, row)) for row in rows)
    figure.set_size_inches(11.0, 3.0 * len(drawn) + LINE_INCHES * lines)
    return figure


def dress(axes: Axes, by: str) -> None:
    """Format the axis of steps (20k, 1.5M) or of time, the grid, and the legend."""
    axes.set_xlabel(SCALES[by][1])
    axes.set_xlim(left=0)
    if by == "steps":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    legend_below(axes)


def legend_below(axes: Axes) -> None:
    """Name the curves below the plot: inside it, there may be curves in every corner."""
    if labels := axes.get_legend_handles_labels()[1]:
        inches = ScaledTranslation(0.0, -0.4, axes.figure.dpi_scale_trans)  # room for the axis
        below: dict[str, Any] = {"bbox_transform": axes.transAxes + inches, "loc": "upper left"}
        below["ncols"] = _legend_columns(labels)
        axes.legend(frameon=False, fontsize="small", bbox_to_anchor=(0.0, 0.0), **below)


def _legend_columns(labels: Sequence[str]) -> int:
    """As many columns as fit below a plot, if there are more than a few labels."""
    widest = max(len(line) for label in labels for line in label.split("\n"))
    return max(LEGEND_WIDTH // (widest + HANDLE_WIDTH), 1) if len(labels) > FEW else 1


def _legend_lines(axes: Axes) -> int:
    labels = axes.get_legend_handles_labels()[1]
    lines = sum(label.count("\n") + 1 for label in labels)
    return math.ceil(lines / _legend_columns(labels)) if labels else 0


def _parts(panel: str, runs: Sequence[History]) -> list[list[History]]:
    """The runs in each row of a panel."""
    if panel == "score":
        scored = [run for run in runs if len(run.curve.score)]
        games = dict.fromkeys(run.game for run in scored)
        return [[run for run in scored if run.game == game] for game in games]
    if panel == "epsilon":
        return [[run] for run in runs if run.by_epsilon]
    names = FIGURES[panel][1].keys()
    found = [run for run in runs if any(names & line.keys() for line in history.windows(run))]
    return [found] if found else []


def _score(axes: Axes, runs: Sequence[History], by: str, looks: Looks) -> None:
    """Score curves of one game, with the mean of each group of seeds."""
    scale, groups = SCALES[by][0], grouped(runs)
    for group in groups:
        found, several = group.runs, len(group.runs) > 1
        are_named = len(found) <= FEW if several and len(groups) == 1 else not several
        thin: dict[str, Any] = {"alpha": 0.6, "linewidth": 0.8} if several else {}
        for run in found:
            name = looks[run.path].label if len(groups) == 1 else group.differs
            axes.plot(
                getattr(run.curve, by) * scale,
                run.curve.score,
                "." if len(run.curve.score) == 1 else "-",
                color=looks[run.path].colour,
                label=_shown(name, by, len(runs) > 1 and are_named),
                **thin,
            )
        if several:
            colour = looks[found[0].path].colour if len(groups) > 1 else "black"
            places, scores = history.mean_of([run.curve for run in found], by)
            words = f"mean and range of {len(found)} seeds, as far as all of them go"
            if not len(places):
                words = f"no mean of {len(found)} seeds, as they have no {by} in common"
            words = ": ".join(filter(None, [group.differs, words]))
            axes.plot(places * scale, scores.mean(axis=0), color=colour, label=_shown(words, by))
            axes.fill_between(places * scale, scores.min(0), scores.max(0), color=colour, alpha=0.2)
    if by == "steps":
        furthest = 2 * max(run.curve.steps[-1] for run in runs)
        for name, known in control_scores(runs[0].game, furthest).items():
            label = f"{name}, published, without noise"
            axes.plot(list(known), list(known.values()), MARKERS[name], c="grey", label=label)
    axes.set_title(runs[0].config.environment.game, fontsize="medium")
    axes.set_ylabel("score, mean of 100 episodes")


def _shown(label: str, by: str, is_needed: bool = True) -> str | None:
    """The label for the legend, which only the plot on the left has; None for no entry."""
    return textwrap.fill(label, LEGEND_WIDTH) if is_needed and by == "steps" else None


def _epsilon(axes: Axes, runs: Sequence[History], by: str, looks: Looks) -> None:
    """Score curves of one run with a ladder: one for each band of epsilons."""
    scale, curves = SCALES[by][0], runs[0].by_epsilon
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(curves)))
    for (name, curve), colour in zip(curves.items(), colours, strict=True):
        label = _shown(f"epsilon {name}", by)
        axes.plot(getattr(curve, by) * scale, curve.score, color=colour, label=label)
    axes.set_title(f"{runs[0].game}, {runs[0].path.name}, by epsilon", fontsize="medium")
    axes.set_ylabel("score, mean of 100 recorded episodes")  # not all, if they were thinned


def _figures(axes: Axes, runs: Sequence[History], by: str, looks: Looks, panel: str) -> None:
    """Figures of metrics.jsonl. Of several runs, colours show the run and dashes the figure."""
    label_y, names = FIGURES[panel]
    several = len(looks) > 1
    for number, run in enumerate(runs):
        lines = list(history.windows(run))
        # Without a small distance, equal counts would hide a run.
        apart = 0.3 * number / max(len(runs), 10) if panel == "counts" else 0.0
        places = [line[by] * SCALES[by][0] for line in lines]
        for (name, (label, colour)), dash in zip(names.items(), DASHES, strict=False):
            axes.plot(
                places,
                [line.get(name, float("nan")) + apart for line in lines],
                color=looks[run.path].colour if several else colour,
                linestyle=dash if several else "-",
                label=None if several else _shown(label, by),
                linewidth=0.9,
                drawstyle="steps-post" if panel == "counts" else "default",
            )
        if several and by == "steps":
            axes.plot([], [], color=looks[run.path].colour, label=looks[run.path].label)
    if several and by == "seconds" and len(names) > 1:
        for (label, _), dash in zip(names.values(), DASHES, strict=False):
            axes.plot([], [], color="grey", linestyle=dash, label=label)
    axes.set_ylabel(label_y)
    if panel != "reward":  # which may be negative
        axes.set_ylim(0, 1.02 if panel == "waiting" else None)
    if panel == "counts":
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))


PAINTERS: dict[str, Callable[[Axes, Sequence[History], str, Looks], None]] = {
    "score": _score,
    "epsilon": _epsilon,
    **{panel: partial(_figures, panel=panel) for panel in FIGURES},
}
