"""`ga3c table`: score tables of runs, one for each protocol, beside what was published.

In the form of GA3C's Table 3 and of the 57-game tables: raw and human-normalised scores, and over
all games the median, the mean and the interquartile mean with stratified bootstrap intervals
(Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice").
"""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import numpy as np
import tyro
from matplotlib import pyplot
from matplotlib.figure import Figure

from ga3c.reports import history
from ga3c.reports.figures import published_rows
from ga3c.reports.history import History
from ga3c.reports.plots import load
from ga3c.settings.checks import WrongInput, check_file

RESAMPLES = 10_000
INTERVAL = (2.5, 97.5)  # percentiles
Scores = Sequence[np.ndarray]  # of each game: one score a seed


class Source(NamedTuple):
    """Published scores of one protocol, or of one that is near it."""

    heading: str
    file: str
    column: str


REFERENCES = {  # random play and a human's, which normalise; and what was published
    "paper": (
        "ga3c_scores.csv",
        [
            Source("GA3C, 1 day", "ga3c_scores.csv", "ga3c_gpu_1_day"),
            Source("A3C, 4 days (human starts)", "ga3c_scores.csv", "a3c_cpu_4_days"),
        ],
    ),
    "nature": (
        "atari57_random_human.csv",
        [
            Source("DQN, 200M frames", "fast_dqn_scores.csv", "dqn_mean"),
            Source("fast-dqn, 200M frames", "fast_dqn_scores.csv", "fast_dqn_mean"),
            Source("Ape-X, 22.8G frames (no-op starts)", "apex_scores.csv", "apex_dqn_noop_starts"),
        ],
    ),
}
OTHER: tuple[str, list[Source]] = ("atari57_random_human.csv", [])


@dataclass(frozen=True)
class Config:
    """Tabulate the evaluations of runs, raw and human-normalised, beside published scores."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Runs: directories, or names in runs/; seeds of a game are put together."""
    out: Path | None = None
    """File for the table: .md, .csv, or .png for a picture of the normalised scores."""

    def __post_init__(self) -> None:
        check_file("out", self.out)
        if self.out is not None and self.out.suffix not in (".md", ".csv", ".png"):
            raise ValueError(f"out {self.out}: must end in .md, .csv or .png")


class Row(NamedTuple):
    """The scores of a game's seeds by one protocol."""

    game: str  # with what sets these runs apart, if there are others of the game
    scores: np.ndarray  # [seeds] mean of each run's evaluation
    games: int  # evaluated, of each run at least
    steps: int  # trained, of each run at least
    random: float | None
    human: float | None
    published: tuple[float | None, ...]

    @property
    def normalized(self) -> np.ndarray | None:
        """(score - random) / (human - random), of each seed; None where those are not known."""
        if self.random is None or self.human is None:
            return None
        return (self.scores - self.random) / (self.human - self.random)


class Evaluated(NamedTuple):
    """Runs of one group that were evaluated by one protocol."""

    game: str
    entries: list[dict]  # of evaluations.jsonl, one for each seed


class ScoreTable(NamedTuple):
    """All games of one protocol."""

    protocol: str
    settings: str
    sources: list[Source]
    rows: list[Row]


def tables(found: Sequence[History]) -> list[ScoreTable]:
    """A table for each protocol, from the newest evaluation of each run by it."""
    by_protocol: dict[str, dict[str, Evaluated]] = {}
    for group in history.groups(found):
        for each in group.runs:
            newest = {json.dumps(entry["protocol"]): entry for entry in each.evaluations}
            for protocol, entry in newest.items():
                rows = by_protocol.setdefault(protocol, {})
                rows.setdefault(group.name, Evaluated(group.game, [])).entries.append(entry)
    return [_table(json.loads(protocol), rows) for protocol, rows in by_protocol.items()]


def _table(protocol: dict, groups: dict[str, Evaluated]) -> ScoreTable:
    name = protocol.pop("name")
    settings = ", ".join(f"{setting} {value}" for setting, value in protocol.items())
    normal, sources = REFERENCES.get(name, OTHER)
    reference = {**_published(OTHER[0]), **_published(normal)}
    published = [(source, _published(source.file)) for source in sources]
    rows = []
    for shown, (game, entries) in sorted(groups.items()):
        known = reference.get(game, {})
        rows.append(
            Row(
                shown,
                np.array([entry["mean"] for entry in entries]),
                min(entry["episodes"] for entry in entries),
                min(entry["steps"] for entry in entries),
                known.get("random"),
                known.get("human"),
                tuple(scores.get(game, {}).get(source.column) for source, scores in published),
            )
        )
    return ScoreTable(name, settings, list(sources), rows)


def _published(file: str) -> dict[str, dict[str, float]]:
    return {
        row["game"]: {k: float(v) for k, v in row.items() if k != "game" and v}
        for row in published_rows(file)
    }


def median(scores: Scores) -> float:
    """The median over games of the mean over seeds."""
    return float(np.median([each.mean() for each in scores]))


def mean(scores: Scores) -> float:
    """The mean over games of the mean over seeds."""
    return float(np.mean([each.mean() for each in scores]))


def interquartile_mean(scores: Scores) -> float:
    """The mean of all games' seeds without the lowest and the highest quarter of them."""
    every = np.sort(np.concatenate(list(scores)))
    cut = len(every) // 4
    return float(every[cut : len(every) - cut].mean())


AGGREGATES: dict[str, Callable[[Scores], float]] = {
    "median": median,
    "mean": mean,
    "interquartile mean": interquartile_mean,
}


def interval(
    aggregate: Callable[[Scores], float], scores: Scores, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """The 95% interval of `aggregate`, by resampling the seeds of each game by itself."""
    random = np.random.default_rng(seed)
    values = [
        aggregate([each[random.integers(len(each), size=len(each))] for each in scores])
        for _ in range(resamples)
    ]
    low, high = np.percentile(values, INTERVAL)
    return float(low), float(high)


def cells(table: ScoreTable) -> tuple[list[str], list[list[str]]]:
    """Headings and rows."""
    headings = ["game", "seeds", "games", "steps", "random", "human"]
    headings += [f"published: {source.heading}" for source in table.sources]
    headings += ["ours", "ours, human-normalised"]
    rows = []
    for row in table.rows:
        spread = f" ± {row.scores.std(ddof=1):,.1f}" if len(row.scores) > 1 else ""
        normalized = "" if row.normalized is None else f"{row.normalized.mean():.0%}"
        rows.append(
            [
                row.game,
                str(len(row.scores)),
                str(row.games),
                f"{row.steps / 1e6:.2f}M",
                *(_number(value) for value in (row.random, row.human, *row.published)),
                f"{row.scores.mean():,.1f}{spread}",
                normalized,
            ]
        )
    return headings, rows


def summary(table: ScoreTable) -> str:
    """Over all games that can be normalised: each aggregate with its interval; "" if none can."""
    scores = [row.normalized for row in table.rows if row.normalized is not None]
    if not scores:
        return ""
    lines = []
    for name, aggregate in AGGREGATES.items():
        line = f"{name} {aggregate(scores):.0%}"
        if min(map(len, scores)) > 1:
            low, high = interval(aggregate, scores)
            line += f" (95% interval {low:.0%} to {high:.0%})"
        lines.append(line)
    whole = f"over {len(scores)} of {len(table.rows)} games"
    doubt = "" if min(map(len, scores)) > 1 else "; with a game of one seed there is no interval"
    return f"Human-normalised, {whole}: {'; '.join(lines)}{doubt}."


def markdown(table: ScoreTable) -> str:
    """The table in Markdown."""
    headings, rows = cells(table)
    lines = [
        f"Protocol {table.protocol}: {table.settings}.",
        "",
        f"| {' | '.join(headings)} |",
        f"| --- |{' ---: |' * (len(headings) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]
    if found := summary(table):
        lines += [found, ""]
    return "\n".join(lines)


def draw(table: ScoreTable) -> Figure:
    """Human-normalised scores of each game, ours beside the published."""
    known = [(row.normalized.mean(), row) for row in table.rows if row.normalized is not None]
    known.sort(key=lambda pair: pair[0], reverse=True)
    rows = [row for _, row in known]
    series = [("ours", [float(score) for score, _ in known])]
    for number, source in enumerate(table.sources):
        series.append((source.heading, [_normalized(row, number) for row in rows]))
    figure, axes = pyplot.subplots(
        figsize=(8, 1.4 + 0.22 * len(rows) * (len(series) + 1)), constrained_layout=True
    )
    thick = 0.8 / len(series)
    for number, (name, values) in enumerate(series):
        places = [index + (number - (len(series) - 1) / 2) * thick for index in range(len(rows))]
        axes.barh(places, [100 * value for value in values], thick * 0.9, label=name)
    axes.set_yticks(range(len(rows)), [row.game.replace("_", " ") for row in rows])
    axes.invert_yaxis()
    axes.axvline(100, color="grey", linewidth=0.8, linestyle="--")
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_xlabel("human-normalised score, % (0 is random play, 100 a human)")
    axes.set_title(f"protocol {table.protocol}; published ones are their own", fontsize="medium")
    axes.legend(frameon=False, fontsize="small")
    axes.grid(axis="x", alpha=0.3)
    return figure


def _normalized(row: Row, source: int) -> float:
    value = row.published[source]
    if value is None or row.random is None or row.human is None:
        return float("nan")
    return (value - row.random) / (row.human - row.random)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}".removesuffix(".0")


def write(found: Sequence[ScoreTable], out: Path) -> None:
    """Write tables as Markdown or CSV, or a picture of the first. Raises WrongInput."""
    if out.suffix == ".md":
        out.write_text("\n".join(map(markdown, found)))
    elif out.suffix == ".csv":
        with open(out, "w", newline="") as file:
            writer = csv.writer(file)
            for table in found:
                headings, rows = cells(table)
                writer.writerow(["protocol", *headings])
                writer.writerows([table.protocol, *row] for row in rows)
    elif all(row.normalized is None for row in found[0].rows):
        raise WrongInput("no game's random and human scores are known: nothing to draw")
    else:
        figure = draw(found[0])
        figure.savefig(out, dpi=110)
        pyplot.close(figure)


def run(config: Config) -> None:
    """Print every table, and write the file. Raises WrongInput."""
    found = tables(load(config.runs))
    if not found:
        raise WrongInput("none of the runs has been evaluated: ga3c evaluate RUN comes first")
    print("\n".join(map(markdown, found)))
    if config.out is not None:
        write(found, config.out)
        print(f"wrote {config.out}")
