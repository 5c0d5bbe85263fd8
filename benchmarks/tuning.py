"""`ga3c benchmark tuning`: GA3C's Figure 2 on this machine, the counts tuned from 1/1/1.

For each game three runs, one after another: our annealing, the paper's random walk, and fixed
counts, for comparison. Runs that `out_dir` keeps whole are not made again.
"""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.points import keep_in, said_by
from benchmarks.reporting import show
from ga3c.config import CORES
from ga3c.machine import origin

START_S = 60.0
ARGUMENTS = "arguments.json"
COLOURS = {"anneal": "C0", "random": "C1", "fixed": "C2"}
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
    json: bool = False
    """Print the result as one JSON object in the last line."""

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"seconds {self.seconds}: must be above 0, or nothing is measured")
        if min(self.fixed) < 1:
            raise ValueError(f"fixed {self.fixed}: must be numbers of at least 1")


def run(config: Config) -> None:
    """Make the runs that are missing, then print, draw and keep. Raises RuntimeError."""
    config.out_dir.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for game in config.games:
        lines = {how: _train(config, game, how) for how in COLOURS}
        results[game] = {how: _summary(lines[how]) for how in COLOURS}
        results[game] |= {"lines": lines}
    _print(results)
    _draw(results, config.out_dir / "tuning.png")
    keep_in(config.out_dir, "tuning", {"games": results}, config, config.json)


def _train(config: Config, game: str, how: str) -> list[dict[str, float]]:
    """The progress of a run: seconds, trained samples a second, counts."""
    name = f"{game}-{how}".replace("/", "_")
    directory = config.out_dir / name
    agents, predictors, trainers = config.fixed if how == "fixed" else (1, 1, 1)
    most = [max(pair) for pair in zip(config.fixed, (CORES, 4, 4), strict=True)]
    arguments = ["--game", game, "--scheduler", "off" if how == "fixed" else how]
    arguments += ["--agents", str(agents), "--max-agents", str(most[0])]
    arguments += ["--predictors", str(predictors), "--max-predictors", str(most[1])]
    arguments += ["--trainers", str(trainers), "--max-trainers", str(most[2])]
    arguments += ["--seconds", str(config.seconds)]
    arguments += ["--progress-every-s", str(min(5.0, config.seconds / 8))]
    made = [*arguments, *origin()]
    if not _is_whole(directory, made):
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
        raise RuntimeError(f"{name} ended before its first progress: give it more --seconds")
    return lines


def _is_whole(directory: Path, made: list[Any]) -> bool:
    """Whether a run of these arguments has been made here to its end."""
    file = directory / ARGUMENTS  # written last
    return file.exists() and json.loads(file.read_text()) == made


def _summary(lines: list[dict[str, float]]) -> dict[str, float]:
    """Rates of the first and of the last third, in trained samples a second."""
    third = max(len(lines) // 3, 1)
    first, last = ([line["tps"] for line in part] for part in (lines[:third], lines[-third:]))
    return {"first_third": sum(first) / len(first), "last_third": sum(last) / len(last)}


def _print(results: dict[str, dict[str, Any]]) -> None:
    rows = []
    for game, result in results.items():
        best = result["fixed"]["last_third"]
        for how, name in NAMES.items():
            last, counts = result[how]["last_third"], result["lines"][how][-1]
            at_last = "/".join(f"{counts[n]:g}" for n in ("agents", "predictors", "trainers"))
            told = (f"{result[how]['first_third']:,.0f}", f"{last:,.0f}", f"{last / best:.0%}")
            rows.append((f"{game}: {name}", *told, at_last))
    rates = ("first third", "last third", "of the fixed one's", "counts at last")
    show("trained samples/s from 1/1/1", ("", *rates), rows)


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
            lines = result["lines"][how]
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
