"""`ga3c table`: score tables of runs, one for each protocol, beside published scores.

The form is that of GA3C's Table 3 and of the 57-game tables: raw and human-normalised scores, and
the median, the mean and the interquartile mean over all games, with intervals.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ga3c.reports.comparison import AGGREGATES, ScoreTable, interval, tables
from ga3c.reports.history import load
from ga3c.reports.plots import legend_below, literal
from ga3c.runs.finding import GivenRuns
from ga3c.runs.tally import short_score
from ga3c.settings.checks import WrongInput, check_file

FEWEST_SEEDS = 3  # of a game, for an interval: in a simulation of 9 games, 3 covered 86%, 2 80%


@dataclass(frozen=True)
class Config:
    """Tabulate the evaluations of runs, raw and human-normalised, beside published scores."""

    runs: GivenRuns
    """Runs: directories, or names or numbers in --runs-dir. Seeds of one game share a row."""
    runs_dir: Path = Path("runs")
    """Directory in which runs are looked up by name or number."""
    out: Path | None = None
    """File for the table: .md, .csv, or .png for a plot of the normalised scores."""

    def __post_init__(self) -> None:
        check_file("out", self.out)
        if self.out is not None and self.out.suffix not in (".md", ".csv", ".png"):
            raise ValueError(f"out {self.out}: must end in .md, .csv or .png")


def run(config: Config) -> None:
    """Print every table, and write the file. Raises WrongInput."""
    runs = load(config.runs, config.runs_dir)
    score_tables = tables(runs)
    if not score_tables:
        raise WrongInput("none of the runs has been evaluated: run ga3c evaluate RUN first")
    if missing := ", ".join(str(run.path) for run in runs if not run.evaluations):
        why = f"not evaluated: {missing}; run ga3c evaluate RUN first"
        print(f"ga3c: not in the table, {why}", file=sys.stderr)
    print("\n".join(map(markdown, score_tables)))
    if config.out is not None:
        write(score_tables, config.out)
        print(f"wrote {config.out}")


def cells(table: ScoreTable) -> tuple[list[str], list[list[str]]]:
    """Headings and rows, without columns that are empty in each row."""
    headings = ["game", "seeds", "games", "steps", "random", "human"]
    headings += [f"published: {source.heading}" for source in table.sources]
    headings += ["ours", "ours, human-normalised"]
    rows = []
    for row in table.rows:
        spread = f" ± {short_score(row.scores.std(ddof=1))}" if len(row.scores) > 1 else ""
        normalized = "" if row.normalized is None else f"{row.normalized.mean():.0%}"
        rows.append(
            [
                row.name,
                str(len(row.scores)),
                str(row.games),
                " to ".join(dict.fromkeys(map(_steps, row.steps))),
                *(_number(value) for value in (row.random, row.human, *row.published)),
                f"{short_score(row.scores.mean())}{spread}",
                normalized,
            ]
        )
    filled = [any(column) for column in zip(*rows, strict=True)]
    return list(compress(headings, filled)), [list(compress(row, filled)) for row in rows]


def numbers(table: ScoreTable) -> Iterator[dict[str, str | int | float | None]]:
    """The rows for programs: one number per cell, None if it is not known."""
    for row in table.rows:
        normalized = row.normalized
        published = zip(table.sources, row.published, strict=True)
        yield {
            "protocol": table.protocol,
            "settings": table.settings,
            "game": row.name,
            "seeds": len(row.scores),
            "games": row.games,
            "steps_min": row.steps[0],
            "steps_max": row.steps[1],
            "score_mean": round(float(row.scores.mean()), 3),
            "score_sd": round(float(row.scores.std(ddof=1)), 3) if len(row.scores) > 1 else None,
            "human_normalised": None if normalized is None else round(float(normalized.mean()), 5),
            "random": row.random,
            "human": row.human,
            **{f"published_{source.column}": score for source, score in published},
        }


def summary(table: ScoreTable) -> str:
    """Aggregates over all games that can be normalised; "" if there is none."""
    scores = [row.normalized for row in table.rows if row.normalized is not None]
    if not scores:
        return ""
    games = [row.game for row in table.rows]
    if several := sorted({game for game in games if games.count(game) > 1}):
        return f"No mean over games: {', '.join(several)} appears with several settings."
    fewest = min(map(len, scores))
    aggregates = []
    for name, aggregate in AGGREGATES.items():
        text = f"{name} {aggregate(scores):.0%}"
        if fewest >= FEWEST_SEEDS:
            low, high = interval(aggregate, scores)
            text += f" (95% interval {low:.0%} to {high:.0%})"
        aggregates.append(text)
    seeds = "1 seed" if fewest == 1 else f"{fewest} seeds"
    few = f"; no interval, as a game has only {seeds}, and fewer than {FEWEST_SEEDS} say too little"
    note = few if fewest < FEWEST_SEEDS else ""
    over = f"over {len(scores)} of {len(games)} games"
    uneven = len(set(map(len, scores))) > 1
    weighs = " In the interquartile mean, a game with more seeds weighs more." if uneven else ""
    return f"Human-normalised, {over}: {'; '.join(aggregates)}{note}.{weighs}"


def notes(table: ScoreTable) -> list[str]:
    """Sentences below the table."""
    several = any(len(row.scores) > 1 for row in table.rows)
    spread = "± is the standard deviation over seeds of each seed's mean score." if several else ""
    repeated = [
        f"{row.name}: several runs have seed {seed}, and each of them counts as a seed."
        for row in table.rows
        for seed in dict.fromkeys(row.seeds)
        if row.seeds.count(seed) > 1
    ]
    lacking = ", ".join(table.by_atari57)
    other = "Normalised by the 57-game table, as the protocol's own published table lacks them:"
    basis = f"{other} {lacking}." if lacking else ""
    return [text for text in (spread, *repeated, basis, summary(table)) if text]


def markdown(table: ScoreTable) -> str:
    """The table in Markdown."""
    headings, rows = cells(table)
    lines = [
        f"Protocol {table.protocol}: {_escaped(table.settings)}.",
        "",
        f"| {' | '.join(headings)} |",
        f"| --- |{' ---: |' * (len(headings) - 1)}",
        *(f"| {' | '.join(map(_escaped, row))} |" for row in rows),
        "",
    ]
    lines += [text for note in notes(table) for text in (_escaped(note), "")]
    return "\n".join(lines)


@literal
def draw(score_tables: Sequence[ScoreTable]) -> Figure:
    """Human-normalised scores of each game, ours beside the published ones, table below table.

    Raises WrongInput if no score can be normalised.
    """
    drawn = [t for t in score_tables if any(row.normalized is not None for row in t.rows)]
    if not drawn:
        raise WrongInput("no game has known random and human scores: there is nothing to draw")
    heights = [1.4 + 0.22 * len(t.rows) * (len(t.sources) + 2) for t in drawn]
    figure = Figure(figsize=(8, sum(heights)), layout="constrained")
    axes = figure.subplots(len(drawn), 1, squeeze=False, height_ratios=heights)
    for table, (below,) in zip(drawn, axes, strict=True):
        _bars(table, below)
    return figure


def _bars(table: ScoreTable, axes: Axes) -> None:
    pairs = [(row.normalized.mean(), row) for row in table.rows if row.normalized is not None]
    pairs.sort(key=lambda pair: pair[0], reverse=True)
    rows = [row for _, row in pairs]
    series = [("ours", [float(score) for score, _ in pairs])]
    for number, source in enumerate(table.sources):
        series.append((source.heading, [row.published_normalized(number) for row in rows]))
    thickness = 0.8 / len(series)
    for number, (name, values) in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * thickness
        places = [index + shift for index in range(len(rows))]
        axes.barh(places, [100 * value for value in values], thickness * 0.9, label=name)
    axes.set_yticks(range(len(rows)), [row.name.replace("_", " ") for row in rows])
    axes.invert_yaxis()
    axes.axvline(100, color="grey", linewidth=0.8, linestyle="--")
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_xlabel("human-normalised score, % (0 is random play, 100 a human)")
    title = f"ours by protocol {table.protocol}; published scores by their own protocols"
    axes.set_title(title, fontsize="medium")
    legend_below(axes)
    axes.grid(axis="x", alpha=0.3)


def _number(value: float | None) -> str:
    return "" if value is None else short_score(value)


def _steps(steps: int) -> str:
    return f"{steps:,}" if steps < 100_000 else f"{steps / 1e6:.2f}M"


def _escaped(text: str) -> str:
    """Text for Markdown that is neither markup nor the end of a cell."""
    return text.replace("|", r"\|").replace("<", "&lt;")


def write(score_tables: Sequence[ScoreTable], out: Path) -> None:
    """Write tables as Markdown or CSV, or a picture of them. Raises WrongInput."""
    if out.suffix == ".md":
        out.write_text("\n".join(map(markdown, score_tables)), encoding="utf-8")
    elif out.suffix == ".csv":
        lines = [line for table in score_tables for line in numbers(table)]
        headings = dict.fromkeys(name for line in lines for name in line)
        with open(out, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, headings, restval="")
            writer.writeheader()
            writer.writerows(lines)
    else:
        draw(score_tables).savefig(out, dpi=110)
