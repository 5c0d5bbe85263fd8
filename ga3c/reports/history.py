"""Reads a run's history from its directory: score curve, figures, evaluations."""

import contextlib
import csv
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from agents.games import resolve
from ga3c.runs import records
from ga3c.runs.finding import EPISODES, METRICS, evaluations, find_run, resumes
from ga3c.runs.kept_config import NOT_LEARNED_FROM, learned_from, load_config
from ga3c.runs.tally import ROLLING_EPISODES, Episode
from ga3c.settings.checks import WrongInput
from ga3c.settings.train import TrainConfig

CURVE = "curve.csv"  # in a kept result: the score curve, instead of all episodes
POINTS, GRID = 400, 200  # of a curve, and of a mean curve
DAMAGED = (ValueError, TypeError, KeyError)  # from a line that a kill cut short, say
BANDS = 6  # groups of environments that explore alike
LEFT_OUT = (*NOT_LEARNED_FROM, "info_keys")
FIRST_TOLD = ("algorithm", "network", "pacing")  # the most telling settings, in this order
LAST_TOLD = ("learning_rate_end", "schedule_steps", "learns_from", "training_wait_s")  # say little

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
    resumed: tuple[int, ...] = ()  # steps made before each resume
    changed: tuple[str, ...] = ()  # settings that it was resumed with, in words

    @property
    def game(self) -> str:
        """The ALE rom id or Gymnasium id, whatever name the run used. Never imports its module."""
        name = self.config.environment.game
        with contextlib.suppress(ValueError):
            return name.rpartition(":")[2] if ":" in name else resolve(name).name
        return name


class Group(NamedTuple):
    """Runs that differ only in their seed."""

    game: str
    differs: str  # the settings that differ from the other groups of the game, if any
    runs: list[History]

    @property
    def name(self) -> str:
        """The game, and the settings that differ."""
        return f"{self.game} ({self.differs})" if self.differs else self.game


def groups(histories: Sequence[History]) -> list[Group]:
    """Runs grouped by game and settings, in the order they were given."""
    by_settings: dict[tuple[str, str, tuple[str, ...]], list[History]] = {}
    for run in histories:
        key = (run.game, json.dumps(settings(run.config)), run.changed)
        by_settings.setdefault(key, []).append(run)
    grouped = []
    for (game, text, changed), runs in by_settings.items():
        others = [json.loads(other) for name, other, _ in by_settings if name == game]
        own = json.loads(text)
        rest = [other for other in others if other != own]
        grouped.append(Group(game, ", ".join((*_distinguishing(own, rest), *changed)), runs))
    return grouped


def _distinguishing(own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A few settings, in words, that distinguish `own` from each of `others`, chosen greedily."""
    left = list(others)
    while left:
        counts = {name: sum(other[name] != own[name] for other in left) for name in own}
        first = [name for name in FIRST_TOLD if counts[name]]
        told = [name for name in own if name not in LAST_TOLD and counts[name]]
        name = first[0] if first else max(told or own, key=lambda each: counts[each])
        yield _in_words(name, own[name])
        left = [other for other in left if other[name] == own[name]]


def _in_words(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    if name == "algorithm":  # its value speaks for itself
        return str(value)
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}"


def settings(config: TrainConfig) -> dict[str, Any]:
    """The settings that learning depends on, without the sections and settings of `LEFT_OUT`."""
    flat = {name.rpartition(".")[2]: value for name, value in learned_from(config).items()}
    module, colon, _ = flat.pop("game").rpartition(":")
    with contextlib.suppress(ValueError):  # the game may no longer exist
        flat["sticky_actions"] = None if colon else config.environment.stickiness
    return {n: v for n, v in {**flat, "module": module}.items() if n not in LEFT_OUT}


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
    config, kept, resumed = load_config(path), path / CURVE, resumes(path)
    episodes = [] if kept.exists() else episodes_in(path / EPISODES)
    return History(
        path=path,
        config=config,
        curve=_kept(kept) if kept.exists() else rolling(episodes),
        figures=records.read(path / METRICS),
        evaluations=evaluations(path),
        by_epsilon=by_epsilon(episodes) if config.has_ladder else {},
        resumed=tuple(each["steps"] for each in resumed if "steps" in each),  # not in earlier ones
        changed=tuple(words for each in resumed for words in _changes(each)),
    )


def _changes(resume: Mapping[str, Any]) -> Iterator[str]:
    for name, (_, value) in resume.get("changed", {}).items():
        if (setting := name.rpartition(".")[2]) not in LEFT_OUT:
            yield f"{_in_words(setting, value)} from {resume['steps']:,} steps on"


def mean_of(curves: Sequence[Curve], by: str) -> tuple[np.ndarray, np.ndarray]:
    """Places [k] in the range that all curves cover, and the scores [seeds, k] at these places."""
    starts = [getattr(curve, by)[0] for curve in curves]
    ends = [getattr(curve, by)[-1] for curve in curves]
    places = np.linspace(max(starts), max(min(ends), max(starts)), GRID)
    return places, np.array([np.interp(places, getattr(c, by), c.score) for c in curves])


def windows(run: History) -> Iterator[dict[str, Any]]:
    """The run's figures, without meaningless ones.

    A resumed run restarts its agents and recompiles its network: its figures are left out until the
    window after its first update. Policy lag is left out unless samples were trained on in order.
    """
    left, is_starting = list(run.resumed), False
    for line in run.figures:
        if left and line["steps"] > left[0]:
            left = [steps for steps in left if steps >= line["steps"]]
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
    if file.exists():
        with open(file, errors="replace") as rows:
            for row in csv.DictReader(rows):
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
    with open(file, errors="replace") as rows:
        for row in csv.DictReader(rows):
            with contextlib.suppress(*DAMAGED):
                point = float(row["seconds"]), int(row["steps"]), float(row["score_mean_100"])
                points.append(point)
    return _curve(points)


def _curve(points: list[Point]) -> Curve:
    """The points, thinned evenly. Of each step only the last is used: it counts all its games."""
    settled = list({point[1]: point for point in points}.values())
    stride = max(len(settled) // POINTS, 1)
    columns = np.array(settled[:-1:stride] + settled[-1:], np.float64).reshape(-1, 3).T
    return Curve(*columns)
