"""`ga3c benchmark apex`: the studies of the Ape-X paper on this machine, next to its findings.

Scores are plotted over updates, because all variants of a study have the same learner rate.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from matplotlib.figure import Figure

from agents.games import check
from benchmarks import fresh
from benchmarks.apex_studies import STUDIES, Study, StudyName, Variant
from benchmarks.kept import keep_all
from benchmarks.learning import mean_and_range, say_revisions
from ga3c.reports import history
from ga3c.reports.console import show
from ga3c.reports.history import Curve
from ga3c.reports.job import Job
from ga3c.reports.jobs import complete
from ga3c.reports.plots import legend_below
from ga3c.settings.checks import above_zero

MARKS = (0.25, 0.5, 1.0)  # shares of a run at which the table gives the score
QUICK_UPDATES, QUICK_SEEDS = 2_000, 3
FRESH_STEPS, QUICK_FRESH_STEPS = 400_000, 60_000
FRESH_PAPER = (
    "earlier simulation: largest first priority 63%, priority from acting 94%, at 658 steps per "
    "update; 2% and 3% at 14.6"
)


@dataclass(frozen=True)
class Config:
    """Run Ape-X's studies on vectors: actors, priorities, recency, epsilons, replay and draws."""

    out_dir: Path
    """Directory for the runs, the table and the plots; created if it is missing."""
    studies: tuple[StudyName, ...] = get_args(StudyName)
    """Studies to run."""
    game: str = "MountainCar-v0"
    """Game to learn; its observations must be vectors."""
    seeds: int = 5
    """Runs per variant, with seeds 0, 1, ..."""
    updates: int = 20_000
    """Updates per run."""
    quick: bool = False
    """At most 3 seeds and 2,000 updates: a few minutes per study."""
    json: bool = False
    """Print the result as one JSON object on the last line."""

    def __post_init__(self) -> None:
        above_zero(self, "seeds", "updates")
        if check(self.game).is_atari:
            raise ValueError(f"game {self.game}: must have vector observations")

    @property
    def size(self) -> tuple[int, int]:
        """Seeds and updates."""
        if self.quick:
            return min(self.seeds, QUICK_SEEDS), min(self.updates, QUICK_UPDATES)
        return self.seeds, self.updates


class Learned(NamedTuple):
    """What one variant of a study learned."""

    variant: Variant
    curves: list[Curve]  # of each seed

    def by_updates(self, updates: int, count: int = 101) -> tuple[np.ndarray, np.ndarray]:
        """Positions [count], in updates, and the scores there, [seeds, count]."""
        places = np.linspace(0, updates, count)
        scores = [
            np.interp(places, [self.variant.updates(steps) for steps in curve.steps], curve.score)
            for curve in self.curves
            if len(curve.score)
        ]
        return places, np.array(scores).reshape(-1, count)


def run(config: Config) -> None:
    """Make the missing runs; print, plot and save each study. Raises RuntimeError if one fails."""
    config.out_dir.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for name in config.studies:
        results[name] = _fresh(config) if name == "fresh" else _study(config, name, STUDIES[name])
        keep_all(name, {"results": results[name]}, config, print_it=False)
    if config.json:
        print(json.dumps({"results": results}), flush=True)


def _fresh(config: Config) -> list[dict[str, Any]]:
    steps = QUICK_FRESH_STEPS if config.quick else FRESH_STEPS
    rows = fresh.shares(config.game, steps, seed=0)
    shown = [
        (f"{row['steps_per_update']:g}", *(f"{row[name]:.0%}" for name in fresh.PRIORITIES))
        for row in rows
    ]
    headings = ("steps an update", "first the largest", "first from acting")
    show("share of draws that are fresh (never drawn before)", headings, shown)
    print(FRESH_PAPER)
    return rows


def _study(config: Config, name: str, study: Study) -> list[dict[str, Any]]:
    seeds, updates = config.size
    made = {variant: _jobs(config, name, variant) for variant in study.variants}
    complete([job for jobs in made.values() for job in jobs])
    say_revisions([job.path for jobs in made.values() for job in jobs])
    learned = [
        Learned(variant, [history.read(job.path).curve for job in jobs])
        for variant, jobs in made.items()
    ]
    rows = []
    for each in learned:
        places, scores = each.by_updates(updates)
        at = [scores[:, int(mark * (len(places) - 1))] for mark in MARKS]
        rows.append(
            (each.variant.name, *(mean_and_range(part) if len(part) else "-" for part in at))
        )
    marks = [f"after {mark * updates:,.0f} updates" for mark in MARKS]
    title = f"{study.question}: {config.game}, {seeds} seeds"
    show(title, ("variant", *marks), rows)
    print(f"the paper: {study.paper}")
    _draw(title, study.paper, learned, updates, config.out_dir / f"{name}.png")
    return [dict(zip(("variant", *marks), row, strict=True)) for row in rows]


def _jobs(config: Config, name: str, variant: Variant) -> list[Job]:
    seeds, updates = config.size
    words = variant.name.replace(" ", "-").replace(",", "")
    return [
        Job(
            config.out_dir / "runs" / f"{name}-{words}-{variant.steps(updates)}-{seed}",
            config.game,
            seed,
            variant.steps(updates),
            None,
            variant.train,
        )
        for seed in range(seeds)
    ]


def _draw(title: str, paper: str, learned: Sequence[Learned], updates: int, file: Path) -> None:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for each in learned:
        places, scores = each.by_updates(updates)
        if len(scores):
            (line,) = axes.plot(places, scores.mean(axis=0), label=each.variant.name)
            low, high = scores.min(axis=0), scores.max(axis=0)
            axes.fill_between(places, low, high, color=line.get_color(), alpha=0.15)
    axes.set(xlabel="updates", ylabel="score of the greediest third, mean of 100 episodes")
    axes.set_title(f"{title}\nthe paper: {paper}", fontsize="small", loc="left", wrap=True)
    axes.grid(alpha=0.3)
    legend_below(axes)
    figure.savefig(file, dpi=110)
