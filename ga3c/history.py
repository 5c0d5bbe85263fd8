"""What a run's directory tells about its course: the score's curve, figures, evaluations."""

import csv
import json
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ga3c.config import TrainConfig
from ga3c.metrics import ROLLING_EPISODES
from ga3c.runs import EVALUATIONS, load_config

CURVE = "curve.csv"  # of a kept result: the score's curve without the episodes
POINTS = 400


class Curve(NamedTuple):
    """The score, as the mean of the last 100 training episodes."""

    seconds: np.ndarray
    steps: np.ndarray
    score: np.ndarray


class History(NamedTuple):
    """One run's course."""

    path: Path
    config: TrainConfig
    curve: Curve
    figures: list[dict[str, Any]]  # of metrics.jsonl
    evaluations: list[dict[str, Any]]

    @property
    def name(self) -> str:
        """Of what the run is about: runs that differ by their seed alone have it in common."""
        return self.config.environment.game


def read(path: Path) -> History:
    """The course of the run in `path`, or of a kept result. Raises ValueError."""
    return History(
        path,
        load_config(path),
        _kept(path / CURVE) if (path / CURVE).exists() else rolling(path / "episodes.csv"),
        _lines(path / "metrics.jsonl"),
        _lines(path / EVALUATIONS),
    )


def rolling(episodes: Path) -> Curve:
    """The rolling mean score after each episode of an `episodes.csv`, thinned evenly."""
    scores: deque[float] = deque(maxlen=ROLLING_EPISODES)
    points = []
    if episodes.exists():
        with open(episodes) as file:
            for row in csv.DictReader(file):
                scores.append(float(row["score"]))
                mean = sum(scores) / len(scores)
                points.append((float(row["seconds"]), int(row["steps"]), round(mean, 3)))
    stride = max(len(points) // POINTS, 1)
    return _curve(points[::stride] + points[-1:])


def _kept(file: Path) -> Curve:
    with open(file) as rows:
        points = [
            (float(row["seconds"]), int(row["steps"]), float(row["score_mean_100"]))
            for row in csv.DictReader(rows)
        ]
    return _curve(points)


def _curve(points: list[tuple[float, int, float]]) -> Curve:
    columns = np.array(points, np.float64).reshape(-1, 3).T
    return Curve(*columns)


def _lines(file: Path) -> list[dict[str, Any]]:
    """A file's objects; the last may be cut short by a kill."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            found.append(dict(json.loads(line)))
        except ValueError:
            break
    return found
