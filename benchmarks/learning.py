"""`ga3c benchmark learning`: recipes side by side, by steps and by minutes.

Each recipe is a set of arguments for `ga3c train`. Every recipe learns every game with every seed,
one run after another. If interrupted, the same command continues. The name of a run's directory has
its steps, because schedules end with the run: a longer run is another experiment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agents.games import check
from benchmarks.kept import keep_all
from ga3c.measuring.reporting import with_range
from ga3c.reports import history, plots
from ga3c.reports.console import show
from ga3c.reports.history import Curve
from ga3c.reports.job import Job
from ga3c.reports.jobs import complete
from ga3c.reports.processes import check_arguments
from ga3c.reports.published_figures import published_rows
from ga3c.runs import records
from ga3c.runs.finding import newest_figures
from ga3c.runs.trust import META
from ga3c.settings.checks import above_zero
from ga3c.settings.machine import machine

PUBLISHED = "ten_million_steps.csv"
PUBLISHED_NAMES = {"ppo_sticky": "PPO, sticky actions", "ppo": "PPO", "a2c_nstep": "A2C, n-step"}
MARKS = (0.25, 0.5, 1.0)  # shares of a run at which the table gives the score
RECIPES = {
    "a3c": "--algorithm a3c",
    "a3c-without-layer-norm": "--algorithm a3c --no-layer-norm",
    "a3c-staggered": "--algorithm a3c --stagger-steps 2000",
    "a3c-normalised": "--algorithm a3c --normalize-advantages",
    "ppo": "--algorithm ppo",
    "ppo-without-layer-norm": "--algorithm ppo --no-layer-norm",
    "ppo-unstaggered": "--algorithm ppo --stagger-steps 0",
    "ppo-not-normalised": "--algorithm ppo --no-normalize-advantages",
    "ppo-one-pass": "--algorithm ppo --passes 1",
    "ppo-two-passes": "--algorithm ppo --passes 2",
    "ppo-uncorrected": "--algorithm ppo --correction none",
    "ppo-narrow-clip": "--algorithm ppo --clip-ratio 0.1",
    "ppo-entropy-annealed": "--algorithm ppo --entropy-weight-end 0.001",
}
"""Arguments of the named recipes: the two algorithms, and variants that show what each part brings.
"""


@dataclass(frozen=True)
class Config:
    """Train games with several recipes, one run after another; repeat the command to continue."""

    out_dir: Path
    """Directory for the runs, the table and the plot; created if it is missing."""
    games: tuple[str, ...] = ("Pong", "Breakout", "Boxing", "Qbert")
    """Games to learn."""
    recipes: tuple[str, ...] = ("a3c", "ppo")
    """Names of recipes (a wrong one lists them all), or your own as NAME=ARGUMENTS for train."""
    seeds: int = 2
    """Runs per recipe and game, with seeds 0, 1, ..."""
    steps: int = 2_000_000
    """Environment steps per run."""
    json: bool = False
    """Print the result as one JSON object on the last line."""

    def __post_init__(self) -> None:
        above_zero(self, "seeds", "steps")
        for recipe in self.recipes:
            name, has_arguments, given = recipe.partition("=")
            if not has_arguments and name not in RECIPES:
                known = ", ".join(RECIPES)
                raise ValueError(f"recipe {name}: must be among {known}, or NAME=ARGUMENTS")
            check_arguments("recipes", given, "benchmark learning")
        for game in self.games:
            check(game)

    @property
    def arguments(self) -> dict[str, str]:
        """The arguments of each recipe."""
        pairs = [recipe.partition("=") for recipe in self.recipes]
        return {name: given if named else RECIPES[name] for name, named, given in pairs}


class Result(NamedTuple):
    """What one recipe learned of one game."""

    game: str
    recipe: str
    scores: list[list[float]]  # [seeds][MARKS] mean of 100 episodes
    minutes: float  # of the whole run, mean of the seeds
    curves: list[Curve]


def run(config: Config) -> None:
    """Make the missing runs; print, plot and save all. Raises RuntimeError if a run fails."""
    made = {
        (game, recipe): [
            Job(
                config.out_dir
                / "runs"
                / f"{game}-{recipe}-{config.steps}-{seed}".replace("/", "-"),
                game,
                seed,
                config.steps,
                None,
                given,
            )
            for seed in range(config.seeds)
        ]
        for game in config.games
        for recipe, given in config.arguments.items()
    }
    complete([job for jobs in made.values() for job in jobs])
    say_revisions([job.path for jobs in made.values() for job in jobs])
    results = [_result(*which, jobs, config.steps) for which, jobs in made.items()]
    _print(results, config)
    _draw(results, config.out_dir / "learning.png")
    figures = [
        {name: value for name, value in each._asdict().items() if name != "curves"}
        for each in results
    ]
    keep_all("learning", {"results": figures}, config, config.json)


def say_revisions(runs: Sequence[Path]) -> None:
    """Say in one line which runs another revision has made, if any."""
    here = machine()["git"]
    made = {path.name: _revisions(path) - {here} for path in runs}
    if names := [name for name, others in made.items() if others]:
        others = ", ".join(sorted(map(str, set().union(*made.values()))))
        print(
            f"made by revision {others}, while this is {here}: {', '.join(names)}; another "
            "--out-dir makes all anew",
            flush=True,
        )


def _revisions(run: Path) -> set[str | None]:
    """The git revisions that began and resumed a run."""
    began = records.whole(run / META)
    return {each.get("git") for each in (began, *began.get("resumed", []))} if began else set()


def _result(game: str, recipe: str, jobs: Sequence[Job], steps: int) -> Result:
    curves = [history.read(job.path).curve for job in jobs]
    for job, curve in zip(jobs, curves, strict=True):
        if not len(curve.score):
            raise RuntimeError(f"{job.path}: no game ended within {steps} steps: give more --steps")
    scores = [
        np.interp([mark * steps for mark in MARKS], curve.steps, curve.score).round(2).tolist()
        for curve in curves
    ]
    minutes = float(np.mean([newest_figures(job.path)["seconds"] for job in jobs])) / 60
    return Result(game, recipe, scores, round(minutes, 1), curves)


def _print(results: Sequence[Result], config: Config) -> None:
    marks = [f"{mark * config.steps / 1e6:g}M steps" for mark in MARKS]
    for game in config.games:
        rows = []
        for each in results:
            if each.game == game:
                by_mark = [mean_and_range(scores) for scores in zip(*each.scores, strict=True)]
                rows.append((each.recipe, *by_mark, f"{each.minutes:g}"))
        show(f"{game}, mean of 100 episodes", ("recipe", *marks, "minutes"), rows)
        published = _published(game)
        if published:
            print("after 10M steps elsewhere: " + ", ".join(published))


def mean_and_range(scores: Sequence[float] | np.ndarray) -> str:
    """The mean of the seeds, and their range if they differ."""
    return with_range(float(np.mean(scores)), min(scores), max(scores), ",.1f")


def _published(game: str) -> list[str]:
    """The published scores of the game after ten million steps, in words."""
    rom = check(game).name
    for row in published_rows(PUBLISHED):
        if row["game"] == rom:
            names = PUBLISHED_NAMES.items()
            return [f"{words} {row[name]}" for name, words in names if row[name]]
    return []


def _draw(results: Sequence[Result], file: Path) -> None:
    games = list(dict.fromkeys(each.game for each in results))
    figure = Figure(figsize=(11, 3.3 * len(games)), layout="constrained")
    rows = figure.subplots(len(games), 2, squeeze=False)
    for game, row in zip(games, rows, strict=True):
        here = [each for each in results if each.game == game]
        for by, axes in zip(plots.SCALES, row, strict=True):
            for number, each in enumerate(here):
                _curves(axes, each, by, f"C{number}")
            axes.set(title=game, ylabel="mean of 100 episodes")
            plots.dress(axes, by)
    figure.savefig(file, dpi=110)


def _curves(axes: Axes, learned: Result, by: str, colour: str) -> None:
    """Each seed as a thin line, and their mean where there are several."""
    curves = [curve for curve in learned.curves if len(curve.score)]
    scale = plots.SCALES[by][0]
    for curve in curves:
        width = 0.7 if len(curves) > 1 else 1.5
        label = learned.recipe if len(curves) == 1 else None
        axes.plot(getattr(curve, by) * scale, curve.score, color=colour, lw=width, label=label)
    if len(curves) > 1:
        places, scores = history.mean_of(curves, by)
        axes.plot(places * scale, scores.mean(axis=0), color=colour, lw=2, label=learned.recipe)
