"""`ga3c benchmark tuning`: GA3C's Figure 2 on this machine, with counts tuned from 1/1/1.

For each game there are three runs, one after another: our annealing, the paper's random walk, and
fixed counts for comparison. The machine's speed drifts during that time, so the counts that the
first two runs end with are then measured in turn with the fixed counts in one service. The cost of
trying other counts is measured against the rate of the kept counts in the same run. Complete runs
in `out_dir` are not repeated. A run's directory is named for a digest of its settings, versions and
revision, which are in its arguments.json.
"""

import hashlib
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.in_turn import ga3c_options, measure_in_turn, of_turn, with_room
from benchmarks.kept import Memo, keep_all, origin
from benchmarks.points import said_by
from ga3c.measuring.options import check_window
from ga3c.measuring.parts import prepare
from ga3c.measuring.reporting import spread, with_range
from ga3c.reports.console import show
from ga3c.reports.plots import legend_below
from ga3c.runs.durable import rewrite_whole
from ga3c.runs.finding import JOURNAL, METRICS
from ga3c.service.scheduler import replay
from ga3c.settings.checks import WrongInput
from ga3c.settings.machine import CORES
from ga3c.settings.scheduler import Counts

START = Counts(1, 1, 1)
START_S = 60.0
ARGUMENTS = "arguments.json"
COLOURS = {"anneal": "C0", "random": "C1", "fixed": "C2"}
HEADINGS = (
    "",
    "first third",
    "last third",
    "of its kept counts",
    "counts kept",
    "in turn with the fixed ones",
)
NAMES = {"anneal": "ours", "random": "the paper's walk", "fixed": "fixed counts"}


@dataclass(frozen=True)
class Config:
    """Train with worker counts tuned from 1/1/1, by annealing and by the paper's random walk."""

    out_dir: Path
    """Directory for the runs, the table and the plot; created if it is missing."""
    games: tuple[str, ...] = ("Pong", "Boxing")
    """Games to play, as in the paper."""
    seconds: float = 600.0
    """Seconds per run."""
    fixed: tuple[int, int, int] = (CORES, 1, 1)
    """Fixed numbers of agents, predictors and trainers to compare with, such as the best of a
    sweep."""
    turns: int = 6
    """Number of turns in which the final counts and the fixed counts are measured."""
    turn_seconds: float = 15.0
    """Seconds per measurement in these turns, after another third of that to settle."""
    json: bool = False
    """Print the result as one JSON object on the last line."""

    def __post_init__(self) -> None:
        check_window("seconds", self.seconds, windows=3)  # the first and the last third are shown
        check_window("turn_seconds", self.turn_seconds)
        if self.turns < 1:
            raise ValueError(f"turns {self.turns}: must be at least 1, or nothing is compared")
        if min(self.fixed) < 1:
            raise ValueError(f"fixed {self.fixed}: must be numbers of at least 1")


def run(config: Config) -> None:
    """Make the missing runs; print, plot and save all. Raises RuntimeError on a failure."""
    config.out_dir.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for game in config.games:
        runs = {how: _train(config, game, how) for how in COLOURS}
        rates = _in_turn(config, game, [summary["kept"] for summary in runs.values()])
        for summary, in_turn in zip(runs.values(), rates, strict=True):
            summary["in_turn"] = in_turn
        results[game] = runs
    _print(results)
    _draw(results, config.out_dir / "tuning.png")
    keep_all("tuning", {"games": results}, config, config.json)


def _train(config: Config, game: str, how: str) -> dict[str, Any]:
    """Make a run, unless it is complete. Returns its rates, final counts and progress lines.

    Raises WrongInput if its directory has something else.
    """
    counts = config.fixed if how == "fixed" else START
    arguments = ga3c_options(game, counts, _most(config))
    arguments += ["--scheduler", "off" if how == "fixed" else how]
    arguments += ["--seconds", str(config.seconds)]
    arguments += ["--progress-every-s", str(min(5.0, config.seconds / 8))]
    identity = json.dumps([*arguments, *origin()])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    directory = config.out_dir / f"{game}-{how}-{digest}".replace("/", "_")
    if not _is_complete(directory, identity):
        unfinished = directory.with_name(f"{directory.name}-unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        print(f"{directory.name}: {config.seconds:g} s", flush=True)
        place = ["--name", unfinished.name, "--runs-dir", str(config.out_dir)]
        command = [sys.executable, "-m", "ga3c", "train", *arguments, *place]
        said_by(command, config.seconds + START_S)
        shutil.rmtree(unfinished / "checkpoints")
        rewrite_whole(unfinished / ARGUMENTS, identity)
        unfinished.rename(directory)
    names = ("seconds", "tps", "agents", "predictors", "trainers")
    figures = map(json.loads, (directory / METRICS).read_text().splitlines())
    lines = [{name: line[name] for name in names} for line in figures]
    if not lines:
        raise RuntimeError(f"{directory} has no progress line: use more --seconds")
    return _summary(lines, directory / JOURNAL)


def _most(config: Config) -> Counts:
    """The largest counts that a run may reach or that are compared."""
    return Counts(*map(max, zip(config.fixed, (CORES, 4, 4), strict=True)))


def _is_complete(directory: Path, identity: str) -> bool:
    """Whether `directory` has a complete run. Raises WrongInput if it has something else."""
    file = directory / ARGUMENTS
    if directory.exists() and not (file.is_file() and file.read_bytes() == identity.encode()):
        raise WrongInput(
            f"{directory} has no {ARGUMENTS} of this run, which would replace it: move it away, or "
            "choose another --out-dir"
        )
    return directory.exists()


def _summary(lines: list[dict[str, float]], journal: Path) -> dict[str, Any]:
    """Rates in trained samples per second, and the counts that were kept at the end.

    `kept_last_third` is the mean rate of those windows of the last third in which the kept counts
    were measured; None if no other counts were tried in that third.
    """
    third = max(len(lines) // 3, 1)
    first, last = ([line["tps"] for line in part] for part in (lines[:third], lines[-third:]))
    tuned = journal.exists()
    decisions = replay(journal) if tuned else []
    late = [d.figures_kept.rate for d in decisions if d.seconds >= lines[-third]["seconds"]]
    kept = START if tuned else Counts(*(int(lines[-1][name]) for name in Counts._fields))
    for decision in decisions[-1:]:
        kept = decision.tried if decision.accepted else decision.kept
    return {
        "first_third": mean(first),
        "last_third": mean(last),
        "kept_last_third": mean(late) if late else None,
        "kept": list(kept),
        "lines": lines,
    }


def _in_turn(config: Config, game: str, ended: list[list[int]]) -> list[list[float]]:
    """Trained samples/s of the final counts of each run, in each turn: [runs, turns]."""
    kept = Memo(config.out_dir / "in-turn.jsonl", "in_turn")
    key = kept.key(game, config.turns, config.turn_seconds, *ended)
    if key in kept:
        return list(kept[key]["rates"])
    print(f"{game}, in turn: {config.turns} turns", flush=True)
    train = with_room(game, _most(config))
    spaces, _ = prepare(train)
    rates: dict[Counts, list[float]] = {Counts(*final): [] for final in ended}
    turns = [counts for turn in range(config.turns) for counts in of_turn(list(rates), turn)]
    for counts, measured in measure_in_turn(train, spaces, turns, config.turn_seconds):
        rates[counts].append(measured.window.rate("trained_samples"))
    by_run = [rates[Counts(*final)] for final in ended]
    kept.keep(key, {"rates": by_run})
    return by_run


def _print(results: dict[str, dict[str, Any]]) -> None:
    rows = []
    for game, result in results.items():
        fixed = result["fixed"]["in_turn"]
        for how, name in NAMES.items():
            summary = result[how]
            last, kept = summary["last_third"], summary["kept_last_third"]
            share = spread([a / b for a, b in zip(summary["in_turn"], fixed, strict=True)])
            rates = (
                f"{summary['first_third']:,.0f}",
                f"{last:,.0f}",
                f"{last / kept:.0%}" if kept else "",
            )
            kept_counts = "/".join(map(str, summary["kept"]))
            rows.append((f"{game}: {name}", *rates, kept_counts, with_range(*share, ".1%")))
    show("trained samples/s from 1/1/1", HEADINGS, rows)


def _draw(results: dict[str, dict[str, Any]], output: Path) -> None:
    figure = Figure(figsize=(5.5 * len(results), 5.5), layout="constrained")
    rows = figure.subplots(2, len(results), squeeze=False, sharex=True, height_ratios=(2, 1))
    for column, (game, result) in enumerate(results.items()):
        rate, counts = rows[0][column], rows[1][column]
        for how, name in NAMES.items():
            lines = result[how]["lines"]
            minutes = [line["seconds"] / 60 for line in lines]
            rate.plot(minutes, [line["tps"] for line in lines], color=COLOURS[how], label=name)
            total = [line["agents"] + line["predictors"] + line["trainers"] for line in lines]
            counts.step(minutes, total, color=COLOURS[how], where="post")
        rate.set_title(f"{game} (GA3C, Figure 2)")
        rate.set_ylim(bottom=0)
        legend_below(rate)
        _label(rate, "trained samples/s", "")
        _label(counts, "$N_A + N_P + N_T$", "minutes")
    figure.savefig(output, dpi=110)


def _label(axes: Axes, y: str, x: str) -> None:
    axes.set_ylabel(y)
    axes.set_xlabel(x)
    axes.grid(alpha=0.3)
