"""`ga3c benchmark tuning`: GA3C's Figure 2 on this machine, the counts tuned from 1/1/1.

For each game three runs, one after another: our annealing, the paper's random walk, and fixed
counts, for comparison. A machine's speed wanders meanwhile: therefore the counts that the first two
ended with are then measured in turn with the fixed ones, and what trying others costs is told by
the rate that the kept ones made in the same run. What `out_dir` keeps whole is not made again.
"""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.points import keep_in, said_by
from ga3c.measuring.parts import prepare
from ga3c.measuring.reporting import spread
from ga3c.measuring.serving import count_options, measure_in_turn, of_turn, with_room
from ga3c.reports.console import show
from ga3c.service.scheduler import replay
from ga3c.settings.machine import CORES, origin
from ga3c.settings.scheduler import Counts

START = Counts(1, 1, 1)
START_S = 60.0
ARGUMENTS = "arguments.json"
COLOURS = {"anneal": "C0", "random": "C1", "fixed": "C2"}
HEADINGS = (
    "",
    "first third",
    "last third",
    "of its kept counts'",
    "counts kept",
    "in turn with the fixed ones",
)
NAMES = {"anneal": "ours", "random": "the paper's walk", "fixed": "fixed counts"}


@dataclass(frozen=True)
class Config:
    """Train with counts tuned from 1/1/1, by annealing and by the paper's walk."""

    out_dir: Path
    """Directory of the runs, the table and the picture; made if need be, and gone on with."""
    games: tuple[str, ...] = ("Pong", "Boxing")
    """Games to play, as in the paper."""
    seconds: float = 600.0
    """Seconds of each run."""
    fixed: tuple[int, int, int] = (CORES, 1, 1)
    """Fixed agents, predictors and trainers to compare with: best what a sweep found best."""
    turns: int = 6
    """Times that the counts at the end and the fixed ones are measured in turn."""
    turn_seconds: float = 15.0
    """Seconds of each such window, and a third of it before, to settle."""
    json: bool = False
    """Print the result as one JSON object in the last line."""

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"seconds {self.seconds}: must be above 0, or nothing is measured")
        if self.turns < 1 or self.turn_seconds <= 0:
            raise ValueError(
                f"turns {self.turns} of {self.turn_seconds} seconds: must be at least 1 of more "
                "than 0, or nothing is compared"
            )
        if min(self.fixed) < 1:
            raise ValueError(f"fixed {self.fixed}: must be numbers of at least 1")


def run(config: Config) -> None:
    """Make the runs that are missing, then print, draw and keep. Raises RuntimeError."""
    config.out_dir.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for game in config.games:
        made = {how: _train(config, game, how) for how in COLOURS}
        rates = _in_turn(config, game, [each["kept"] for each in made.values()])
        for each, in_turn in zip(made.values(), rates, strict=True):
            each["in_turn"] = in_turn
        results[game] = made
    _print(results)
    _draw(results, config.out_dir / "tuning.png")
    keep_in(config.out_dir, "tuning", {"games": results}, config, config.json)


def _train(config: Config, game: str, how: str) -> dict[str, Any]:
    """What a run made of it, and the counts that it kept at last; its lines of progress."""
    directory = config.out_dir / f"{game}-{how}".replace("/", "_")
    arguments = ["--game", game, "--scheduler", "off" if how == "fixed" else how]
    counts = config.fixed if how == "fixed" else START
    arguments += count_options(counts, _most(config))
    arguments += ["--seconds", str(config.seconds)]
    arguments += ["--progress-every-s", str(min(5.0, config.seconds / 8))]
    made = [*arguments, *origin()]
    if not _is_whole(directory, made):
        name = directory.name
        shutil.rmtree(directory, ignore_errors=True)
        print(f"{name}: {config.seconds:g} s", flush=True)
        kept = ["--name", name, "--runs-dir", str(config.out_dir)]
        command = [sys.executable, "-m", "ga3c", "train", *arguments, *kept]
        said_by(command, config.seconds + START_S)
        shutil.rmtree(directory / "checkpoints")
        (directory / ARGUMENTS).write_text(json.dumps(made))
    wanted = ("seconds", "tps", "agents", "predictors", "trainers")
    read = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    lines = [{key: line[key] for key in wanted} for line in read]
    if not lines:
        raise RuntimeError(f"{directory} has no progress: give it more --seconds")
    return _summary(lines, directory / "scheduler.jsonl")


def _most(config: Config) -> Counts:
    """What may be found and compared."""
    return Counts(*map(max, zip(config.fixed, (CORES, 4, 4), strict=True)))


def _is_whole(directory: Path, made: list[Any]) -> bool:
    """Whether a run of these arguments has been made here to its end."""
    file = directory / ARGUMENTS  # written last
    return file.exists() and json.loads(file.read_text()) == made


def _summary(lines: list[dict[str, float]], journal: Path) -> dict[str, Any]:
    """Rates in trained samples a second, and the counts that were kept at last.

    `kept_last_third` is the mean of the windows in which the kept counts were measured, in the last
    third; None if nothing else was tried then.
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
    """Trained samples/s in each turn, of the counts that each run ended with: [runs, turns]."""
    kept = config.out_dir / f"{game}-in-turn.json".replace("/", "_")
    made = [*origin(), game, config.turns, config.turn_seconds, *ended]
    known: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {"made": []}
    if known["made"] == made:
        return list(known["rates"])
    print(f"{kept.stem}: {config.turns} turns", flush=True)
    asked = with_room(game, _most(config))
    found, _ = prepare(asked)
    rates: dict[Counts, list[float]] = {Counts(*each): [] for each in ended}
    turns = [each for turn in range(config.turns) for each in of_turn(list(rates), turn)]
    for counts, measured in measure_in_turn(asked, found, turns, config.turn_seconds):
        rates[counts].append(measured.window.rate("trained_samples"))
    by_run = [rates[Counts(*each)] for each in ended]
    kept.write_text(json.dumps({"made": made, "rates": by_run}))
    return by_run


def _print(results: dict[str, dict[str, Any]]) -> None:
    rows = []
    for game, result in results.items():
        fixed = result["fixed"]["in_turn"]
        for how, name in NAMES.items():
            made = result[how]
            last, kept = made["last_third"], made["kept_last_third"]
            share = spread([a / b for a, b in zip(made["in_turn"], fixed, strict=True)])
            rates = (
                f"{made['first_third']:,.0f}",
                f"{last:,.0f}",
                f"{last / kept:.0%}" if kept else "",
            )
            in_turn = f"{share.median:.1%} ({share.low:.1%} to {share.high:.1%})"
            rows.append((f"{game}: {name}", *rates, "/".join(map(str, made["kept"])), in_turn))
    show("trained samples/s from 1/1/1", HEADINGS, rows)


def _draw(results: dict[str, dict[str, Any]], output: Path) -> None:
    figure, rows = pyplot.subplots(
        2,
        len(results),
        figsize=(5.5 * len(results), 5.5),
        squeeze=False,
        sharex=True,
        height_ratios=(2, 1),
        constrained_layout=True,
    )
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
        rate.legend(frameon=False)
        _label(rate, "trained samples/s", "")
        _label(counts, "$N_A + N_P + N_T$", "minutes")
    figure.savefig(output, dpi=110)
    pyplot.close(figure)


def _label(axes: Axes, y: str, x: str) -> None:
    axes.set_ylabel(y)
    axes.set_xlabel(x)
    axes.grid(alpha=0.3)
