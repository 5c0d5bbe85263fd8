"""Evaluations of runs by protocol and game, beside the published scores of each protocol.

Also aggregates of scores over games, with stratified bootstrap intervals, as in Agarwal et al.
2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
"""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ga3c.reports.groups import grouped
from ga3c.reports.history import History
from ga3c.reports.published_figures import CONTROL, published_scores

RESAMPLES = 10_000
INTERVAL = (2.5, 97.5)  # percentiles
SIMILAR_STEPS = 0.6  # a run with a smaller share of another's steps is not averaged with it
Scores = Sequence[np.ndarray]  # for each game, one score per seed


class Source(NamedTuple):
    """Published scores of a protocol, or of one that is close to it."""

    heading: str
    file: str
    column: str


TEN_MILLION = "ten_million_steps.csv"
PPO_STICKY = Source("PPO, 10M steps (sticky)", TEN_MILLION, "ppo_sticky")
A2C = Source("A2C with GAE, 10M steps (not sticky)", TEN_MILLION, "a2c_gae")
APEX = Source("Ape-X, 22.8G frames (no-op starts)", "apex_scores.csv", "apex_dqn_noop_starts")
REFERENCES = {  # the file with random and human scores, and the published scores
    "paper": (
        "ga3c_scores.csv",
        [
            Source("GA3C, 1 day", "ga3c_scores.csv", "ga3c_gpu_1_day"),
            Source("A3C, 4 days (human starts)", "ga3c_scores.csv", "a3c_cpu_4_days"),
            PPO_STICKY,
            A2C,
        ],
    ),
    "trained": (
        "atari57_random_human.csv",
        [
            Source("PPO, 10M steps (not sticky)", TEN_MILLION, "ppo"),
            PPO_STICKY,
            A2C,
        ],
    ),
    "nature": (
        "atari57_random_human.csv",
        [
            Source("DQN, 200M frames", "fast_dqn_scores.csv", "dqn_mean"),
            Source("fast-dqn, 200M frames (best)", "fast_dqn_scores.csv", "fast_dqn_mean"),
            APEX,
        ],
    ),
    "apex": ("atari57_random_human.csv", [APEX]),
    "control": (
        CONTROL,
        [
            Source(f"{algorithm}, {steps} steps", CONTROL, f"{algorithm}_{steps}".lower())
            for algorithm in ("DDPG", "TD3", "SAC")
            for steps in ("100k", "500k", "1M")
        ],
    ),
}
OTHER: tuple[str, list[Source]] = ("atari57_random_human.csv", [])  # for all other protocols


class Row(NamedTuple):
    """The scores of one game's seeds by one protocol."""

    name: str  # the game, with the settings that differ if it has other runs
    game: str
    scores: np.ndarray  # [seeds] mean score of each run's evaluation
    games: int  # the smallest number of games that a run was evaluated over
    steps: tuple[int, int]  # the fewest and the most that a run was trained for
    random: float | None
    human: float | None
    published: tuple[float | None, ...]

    @property
    def normalized(self) -> np.ndarray | None:
        """(score - random) / (human - random) of each seed; None if one is not known."""
        if self.random is None or self.human is None:
            return None
        return (self.scores - self.random) / (self.human - self.random)

    def published_normalized(self, source: int) -> float:
        """The same for a published score; nan if it is not known."""
        score = self.published[source]
        if score is None or self.random is None or self.human is None:
            return float("nan")
        return (score - self.random) / (self.human - self.random)


class EvaluatedGroup(NamedTuple):
    """Evaluations of one group of runs by one protocol."""

    game: str
    entries: list[dict]  # of evaluations.jsonl, one for each seed


class ScoreTable(NamedTuple):
    """All games of one protocol."""

    protocol: str
    settings: str
    sources: list[Source]
    rows: list[Row]


def tables(runs: Sequence[History]) -> list[ScoreTable]:
    """A table for each protocol, from the newest evaluation of each run by that protocol."""
    by_protocol: dict[str, dict[str, EvaluatedGroup]] = {}
    for group in grouped(runs):
        for run in group.runs:
            newest = {json.dumps(entry["protocol"]): entry for entry in run.evaluations}
            for protocol, entry in newest.items():
                rows = by_protocol.setdefault(protocol, {})
                rows.setdefault(group.name, EvaluatedGroup(group.game, [])).entries.append(entry)
    return [_table(json.loads(protocol), rows) for protocol, rows in by_protocol.items()]


def _table(protocol: dict, groups: dict[str, EvaluatedGroup]) -> ScoreTable:
    name = protocol.pop("name")
    settings = ", ".join(f"{setting} {value}" for setting, value in protocol.items())
    references, sources = REFERENCES.get(name, OTHER)
    reference = {**published_scores(OTHER[0]), **published_scores(references)}
    published = [(source, published_scores(source.file)) for source in sources]
    rows = []
    parts = (
        (f"{group}{words}", game, entries)
        for group, (game, together) in sorted(groups.items())
        for words, entries in _by_steps(together)
    )
    for group, game, entries in parts:
        bounds = reference.get(game, {})
        rows.append(
            Row(
                name=group,
                game=game,
                scores=np.array([entry["mean"] for entry in entries]),
                games=min(entry["episodes"] for entry in entries),
                steps=(min(steps := [entry["steps"] for entry in entries]), max(steps)),
                random=bounds.get("random"),
                human=bounds.get("human"),
                published=tuple(
                    scores.get(game, {}).get(source.column) for source, scores in published
                ),
            )
        )
    return ScoreTable(name, settings, list(sources), rows)


def _by_steps(entries: Sequence[dict]) -> list[tuple[str, list[dict]]]:
    """Evaluations after similar numbers of steps, with words that tell several of them apart.

    A run that was interrupted early, or evaluated at an early checkpoint, is no further seed.
    """
    parts: list[list[dict]] = []
    for entry in sorted(entries, key=lambda each: each["steps"], reverse=True):
        if parts and entry["steps"] >= SIMILAR_STEPS * parts[-1][0]["steps"]:
            parts[-1].append(entry)
        else:
            parts.append([entry])
    if len(parts) == 1:
        return [("", list(entries))]
    return [(f", after {part[0]['steps']:,} steps", part) for part in parts]


def median(scores: Scores) -> float:
    """The median over games of the mean over seeds."""
    return float(np.median([seeds.mean() for seeds in scores]))


def mean(scores: Scores) -> float:
    """The mean over games of the mean over seeds."""
    return float(np.mean([seeds.mean() for seeds in scores]))


def interquartile_mean(scores: Scores) -> float:
    """The mean over all games and seeds without the lowest and the highest quarter."""
    ordered = np.sort(np.concatenate(list(scores)))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


AGGREGATES: dict[str, Callable[[Scores], float]] = {
    "median": median,
    "mean": mean,
    "interquartile mean": interquartile_mean,
}


def interval(
    aggregate: Callable[[Scores], float], scores: Scores, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """The 95% interval of `aggregate`; the seeds of each game are resampled separately."""
    random = np.random.default_rng(seed)
    values = [
        aggregate([seeds[random.integers(len(seeds), size=len(seeds))] for seeds in scores])
        for _ in range(resamples)
    ]
    low, high = np.percentile(values, INTERVAL)
    return float(low), float(high)
