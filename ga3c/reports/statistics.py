"""Aggregates of scores over games, with stratified bootstrap intervals.

As in Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
"""

from collections.abc import Callable, Sequence

import numpy as np

RESAMPLES = 10_000
INTERVAL = (2.5, 97.5)  # percentiles
Scores = Sequence[np.ndarray]  # for each game, one score per seed


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
