"""Evaluations of runs by protocol and game, beside the published scores of each protocol.

Also aggregates of scores over games, with stratified bootstrap intervals, as in Agarwal et al.
2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ga3c.reports.groups import Group, grouped
from ga3c.reports.history import History
from ga3c.reports.published_figures import CONTROL, published_scores
from ga3c.runs.checkpoints import BEST

RESAMPLES = 10_000
INTERVAL = (2.5, 97.5)  # percentiles
SIMILAR_STEPS = 0.6  # a run with a smaller share of another's steps is not averaged with it
Scores = Sequence[np.ndarray]  # for each game, one score per seed


class Source(NamedTuple):
    """Published scores of a protocol, or of one that is close to it."""

    heading: str
    file: str
    column: str


ATARI57 = "atari57_random_human.csv"  # the 57-game table
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
        ATARI57,
        [
            Source("PPO, 10M steps (not sticky)", TEN_MILLION, "ppo"),
            PPO_STICKY,
            A2C,
        ],
    ),
    "nature": (
        "fast_dqn_scores.csv",
        [
            Source("DQN, 200M frames", "fast_dqn_scores.csv", "dqn_mean"),
            Source("fast-dqn, 200M frames (best)", "fast_dqn_scores.csv", "fast_dqn_mean"),
            APEX,
        ],
    ),
    "apex": (ATARI57, [APEX]),
    "control": (
        CONTROL,
        [
            Source(f"{algorithm}, {steps} steps", CONTROL, f"{algorithm}_{steps}".lower())
            for algorithm in ("DDPG", "TD3", "SAC")
            for steps in ("100k", "500k", "1M")
        ],
    ),
}
OTHER: tuple[str, list[Source]] = (ATARI57, [])  # for all other protocols


class Row(NamedTuple):
    """The scores of one game's seeds by one protocol."""

    name: str  # the game, with the settings that differ if it has other runs
    game: str
    scores: np.ndarray  # [seeds] mean score of each run's evaluation
    seeds: tuple[int, ...]  # of the same runs
    games: int  # the smallest number of games that a run was evaluated over
    steps: tuple[int, int]  # the fewest and the most after which a run was evaluated
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


class Evaluation(NamedTuple):
    """One run's evaluation by one protocol."""

    seed: int  # of the run
    mean: float
    games: int
    steps: int
    trained_steps: int  # of the whole run if its best weights were evaluated, else the same


class ScoreTable(NamedTuple):
    """All games of one protocol."""

    protocol: str
    settings: str
    sources: list[Source]
    rows: list[Row]
    by_atari57: list[str]  # games that the protocol's own table lacks: normalised by ATARI57


def tables(runs: Sequence[History]) -> list[ScoreTable]:
    """A table for each protocol, from one evaluation of each run by that protocol."""
    by_protocol: dict[str, list[tuple[Group, list[Evaluation]]]] = {}
    for group in grouped(runs):
        evaluated: dict[str, list[Evaluation]] = {}
        for run in group.runs:
            for protocol, evaluation in _counted(run).items():
                evaluated.setdefault(protocol, []).append(evaluation)
        for protocol, evaluations in evaluated.items():
            by_protocol.setdefault(protocol, []).append((group, evaluations))
    return [_table(json.loads(protocol), groups) for protocol, groups in by_protocol.items()]


def _counted(run: History) -> dict[str, Evaluation]:
    """For each protocol, the evaluation that counts: the one after the most steps.

    Of several after the same steps, it is the newest of those over the most games.
    """
    ordered = sorted(run.evaluations, key=lambda entry: (entry["steps"], entry["episodes"]))
    seed = run.config.run.seed
    whole = max((line["steps"] for line in (*run.figures, *ordered)), default=0)
    counted = {}
    for entry in ordered:
        mean, games, steps = entry["mean"], entry["episodes"], entry["steps"]
        trained_steps = whole if entry["protocol"].get("weights") == BEST else steps
        evaluation = Evaluation(seed, mean, games, steps, trained_steps)
        counted[json.dumps(entry["protocol"])] = evaluation
    return counted


def _table(
    protocol: dict[str, Any], groups: Sequence[tuple[Group, list[Evaluation]]]
) -> ScoreTable:
    name = protocol.pop("name")
    settings = ", ".join(f"{setting} {value}" for setting, value in protocol.items())
    unchanged = name.removesuffix(", changed")
    file, known_sources = REFERENCES.get(unchanged, OTHER)
    sources = known_sources if name == unchanged else []
    own, others = published_scores(file), published_scores(ATARI57)
    published = [(source.column, published_scores(source.file)) for source in sources]
    rows, by_atari57 = [], set()
    for group, evaluations in sorted(groups, key=lambda pair: pair[0].name):
        # A user's own game may have the id of a published one.
        game = "" if ":" in group.runs[0].config.environment.game else group.game
        if game in others and game not in own:
            by_atari57.add(game)
        bounds = own.get(game) or others.get(game, {})
        scores = tuple(by_game.get(game, {}).get(column) for column, by_game in published)
        rows += [
            _row(f"{group.name}{words}", group.game, part, bounds, scores)
            for words, part in _by_steps(evaluations)
        ]
    return ScoreTable(name, settings, sources, rows, sorted(by_atari57))


def _row(
    name: str,
    game: str,
    evaluations: Sequence[Evaluation],
    bounds: Mapping[str, float],
    published: tuple[float | None, ...],
) -> Row:
    steps = [each.steps for each in evaluations]
    return Row(
        name=name,
        game=game,
        scores=np.array([each.mean for each in evaluations]),
        seeds=tuple(each.seed for each in evaluations),
        games=min(each.games for each in evaluations),
        steps=(min(steps), max(steps)),
        random=bounds.get("random"),
        human=bounds.get("human"),
        published=published,
    )


def _by_steps(evaluations: Sequence[Evaluation]) -> list[tuple[str, list[Evaluation]]]:
    """Evaluations after similar training, with words that tell several of them apart.

    A run that was interrupted early, or evaluated at an early checkpoint, is no further seed.
    """
    parts: list[list[Evaluation]] = []
    for evaluation in sorted(evaluations, key=lambda each: each.trained_steps, reverse=True):
        if parts and evaluation.trained_steps >= SIMILAR_STEPS * parts[-1][0].trained_steps:
            parts[-1].append(evaluation)
        else:
            parts.append([evaluation])
    if len(parts) == 1:
        return [("", list(evaluations))]
    return [(f", trained for {part[0].trained_steps:,} steps", part) for part in parts]


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
