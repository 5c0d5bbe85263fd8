"""Reads a run's history from its directory: score curve, figures, evaluations."""

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from agents.games import resolve
from ga3c.evaluation.protocols import evaluations
from ga3c.runs import records
from ga3c.runs.finding import EPISODES, METRICS, Resume, find_run, resumes
from ga3c.runs.kept_config import load_config
from ga3c.runs.tally import ROLLING_EPISODES, Episode
from ga3c.settings.checks import WrongInput
from ga3c.settings.train import TrainConfig

CURVE = "curve.csv"  # in a kept result: the score curve, instead of all episodes
POINTS, GRID = 400, 200  # of a curve, and of a mean curve
DAMAGED = (ValueError, KeyError)  # from a line that a kill cut short, say
BANDS = 6  # groups of environments that explore alike
WHOLE = 0.9  # of a run's episodes: it was thinned if fewer are kept

Point = tuple[float, int, float]  # of a curve: seconds, steps, score


class Curve(NamedTuple):
    """The score, as the mean of the last 100 training episodes."""

    seconds: np.ndarray
    steps: np.ndarray
    score: np.ndarray


class History(NamedTuple):
    """The history of one run."""

    path: Path
    config: TrainConfig
    curve: Curve
    figures: list[dict[str, Any]]  # of metrics.jsonl
    evaluations: list[dict[str, Any]]
    by_epsilon: Mapping[str, Curve] = MappingProxyType({})  # of a run with a ladder, else empty
    resumes: tuple[Resume, ...] = ()  # by their steps

    @property
    def game(self) -> str:
        """The ALE rom id or Gymnasium id, whatever name the run used. Never imports its module."""
        name = self.config.environment.game
        with contextlib.suppress(ValueError):
            return name.rpartition(":")[2] if ":" in name else resolve(name).name
        return name


def load(runs: Sequence[Path], runs_dir: Path) -> list[History]:
    """The histories of runs: directories, or names in `runs_dir`.

    Raises WrongInput if one cannot be read.
    """
    if not runs:
        raise WrongInput(f"no run is given: name directories, or runs in the folder {runs_dir}")
    try:
        paths = dict.fromkeys(find_run(run, runs_dir) for run in runs)  # runs/* includes `latest`
        return [read(path) for path in paths]
    except ValueError as error:
        raise WrongInput(str(error)) from error


def read(path: Path) -> History:
    """The history of the run, or of the kept result, in `path`. Raises ValueError."""
    config, kept = load_config(path), path / CURVE
    episodes = [] if kept.exists() else episodes_in(path / EPISODES)
    lines = records.read(path / METRICS)
    figures = [line for line in lines if {"seconds", "steps"} <= line.keys()]
    return History(
        path=path,
        config=config,
        curve=_kept(kept) if kept.exists() else _scores(episodes, figures),
        figures=figures,
        evaluations=evaluations(path),
        by_epsilon=by_epsilon(episodes) if config.has_ladder else {},
        resumes=tuple(resumes(path)),
    )


def _scores(episodes: Sequence[Episode], figures: Sequence[Mapping[str, Any]]) -> Curve:
    """The rolling mean score, from the progress lines if many of the episodes are not kept."""
    if len(episodes) >= WHOLE * (figures[-1].get("episodes", 0) if figures else 0):
        return rolling(episodes)
    lines = [line for line in figures if line.get("score_mean_100") is not None]
    return _curve([(line["seconds"], line["steps"], line["score_mean_100"]) for line in lines])


def mean_of(curves: Sequence[Curve], by: str) -> tuple[np.ndarray, np.ndarray]:
    """Places [k] in the range that all curves cover, and the scores [seeds, k] at these places.

    There are none if the curves have no range in common.
    """
    start = max(getattr(curve, by)[0] for curve in curves)
    end = min(getattr(curve, by)[-1] for curve in curves)
    places = np.linspace(start, end, GRID if start < end else 0)
    return places, np.array([np.interp(places, getattr(c, by), c.score) for c in curves])


def windows(run: History) -> Iterator[dict[str, Any]]:
    """The run's figures, without meaningless ones.

    A resumed run restarts its agents and recompiles its network: its figures are left out until the
    window after its first update. Policy lag is left out unless samples were trained on in order.
    """
    left, is_starting = deque(resume.steps for resume in run.resumes), False
    for line in run.figures:
        while left and line["steps"] > left[0]:
            left.popleft()
            is_starting = True
        if is_starting:
            yield {name: line[name] for name in ("steps", "seconds")}
        elif line.get("tps") and "replay_steps" not in line:
            yield line
        else:
            yield {name: value for name, value in line.items() if name != "policy_lag"}
        is_starting = is_starting and not line.get("tps")


def rolling(episodes: Sequence[Episode]) -> Curve:
    """The rolling mean score after each episode that counts for it."""
    return _rolling([episode for episode in episodes if episode.scored])


def by_epsilon(episodes: Sequence[Episode]) -> dict[str, Curve]:
    """The rolling mean scores of a run by how much its environments explore, from least to most.

    For a run with a ladder. Its environments are divided into at most `BANDS` groups of equal size,
    each named by its epsilons. Empty without episodes.
    """
    epsilons = np.unique([episode.epsilon for episode in episodes])
    curves = {}
    for band in np.array_split(epsilons, min(BANDS, len(epsilons))) if len(epsilons) > 1 else []:
        name = f"{band[0]:.2g} to {band[-1]:.2g}" if len(band) > 1 else f"{band[0]:.2g}"
        inside = [episode for episode in episodes if band[0] <= episode.epsilon <= band[-1]]
        curves[name] = _rolling(inside)
    return curves


def episodes_in(file: Path) -> list[Episode]:
    """The episodes of an `episodes.csv`; runs of earlier versions have no epsilons."""
    episodes = []
    for row in records.table(file):
        with contextlib.suppress(*DAMAGED):
            counts = int(row["steps"]), float(row["score"]), int(row["length"])
            epsilon, scored = row.get("epsilon") or 0.0, row.get("scored") != "0"
            episodes.append(Episode(float(row["seconds"]), *counts, float(epsilon), scored))
    return episodes


def _rolling(episodes: Sequence[Episode]) -> Curve:
    """The mean of the last 100 scores after each episode."""
    scores: deque[float] = deque(maxlen=ROLLING_EPISODES)
    points = []
    for episode in episodes:
        scores.append(episode.score)
        mean = round(sum(scores) / len(scores), 3)
        points.append((episode.seconds, episode.steps, mean))
    return _curve(points)


def _kept(file: Path) -> Curve:
    points = []
    for row in records.table(file):
        with contextlib.suppress(*DAMAGED):
            points.append((float(row["seconds"]), int(row["steps"]), float(row["score_mean_100"])))
    return _curve(points)


def _curve(points: list[Point]) -> Curve:
    """The points, thinned evenly. Of each step only the last is used: it counts all its games."""
    settled = list({point[1]: point for point in points}.values())
    stride = max(len(settled) // POINTS, 1)
    columns = np.array(settled[:-1:stride] + settled[-1:], np.float64).reshape(-1, 3).T
    return Curve(*columns)
