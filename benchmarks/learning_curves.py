"""Keep the curves of finished runs, and draw them.

    python -m benchmarks.learning_curves keep NAME RUN...     into benchmarks/results/NAME/
    python -m benchmarks.learning_curves draw NAME...         benchmarks/results/learning.png

A kept run is three small files: its settings, its machine, and `curve.csv` with the mean score of
the last 100 episodes by steps and by seconds.
"""

import argparse
import csv
import json
import shutil
from collections import deque
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

RESULTS = Path(__file__).parent / "results"
ROLLING_EPISODES = 100
POINTS = 400


class Point(NamedTuple):
    """One point of a kept curve."""

    seconds: float
    steps: int
    score_mean_100: float


def curve(episodes: Path) -> list[Point]:
    """The rolling mean score after each episode of an `episodes.csv`, thinned evenly."""
    scores: deque[float] = deque(maxlen=ROLLING_EPISODES)
    points = []
    with open(episodes) as file:
        for row in csv.DictReader(file):
            scores.append(float(row["score"]))
            mean = sum(scores) / len(scores)
            points.append(Point(float(row["seconds"]), int(row["steps"]), round(mean, 3)))
    stride = max(len(points) // POINTS, 1)
    return points[::stride] + points[-1:]


def keep(name: str, runs: list[Path]) -> None:
    """Copy what a reader needs of `runs` to results/NAME/SEED/."""
    for run in runs:
        config = json.loads((run / "config.json").read_text())
        target = RESULTS / name / f"seed-{config['run']['seed']}"
        target.mkdir(parents=True, exist_ok=True)
        for name_of_file in ("config.json", "meta.json", "result.json"):
            shutil.copy(run / name_of_file, target / name_of_file)
        with open(target / "curve.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(Point._fields)
            writer.writerows(curve(run / "episodes.csv"))
        print(f"kept {run} as {target}")


def _kept(folder: Path) -> list[Point]:
    with open(folder / "curve.csv") as file:
        return [
            Point(float(row["seconds"]), int(row["steps"]), float(row["score_mean_100"]))
            for row in csv.DictReader(file)
        ]


def _draw(axes: Axes, name: str, by: str) -> None:
    for folder in sorted((RESULTS / name).glob("seed-*")):
        points = _kept(folder)
        scale, attribute = (1e-6, "steps") if by == "steps" else (1 / 60, "seconds")
        axes.plot(
            [getattr(point, attribute) * scale for point in points],
            [point.score_mean_100 for point in points],
            label=folder.name.replace("-", " "),
        )
    axes.set_xlabel("environment steps, millions" if by == "steps" else "minutes")
    axes.set_ylabel("score, mean of 100 episodes")
    axes.set_title(f"{name} by {'steps' if by == 'steps' else 'time'}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def draw(names: list[str], output: Path) -> None:
    """One row of two panels for each kept name."""
    figure, rows = pyplot.subplots(
        len(names), 2, figsize=(10, 3.6 * len(names)), squeeze=False, constrained_layout=True
    )
    for name, (left, right) in zip(names, rows, strict=True):
        _draw(left, name, "steps")
        _draw(right, name, "seconds")
    figure.savefig(output, dpi=110)
    print(f"drew {output}")


def main() -> None:
    """Keep or draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    keeping = commands.add_parser("keep")
    keeping.add_argument("name")
    keeping.add_argument("runs", type=Path, nargs="+")
    drawing = commands.add_parser("draw")
    drawing.add_argument("names", nargs="+")
    drawing.add_argument("--output", type=Path, default=RESULTS / "learning.png")
    options = parser.parse_args()
    if options.command == "keep":
        keep(options.name, options.runs)
    else:
        draw(options.names, options.output)


if __name__ == "__main__":
    main()
