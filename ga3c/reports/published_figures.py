"""Reads the published figures that ours are compared with; sources: `published/README.md`."""

import csv
from pathlib import Path

PUBLISHED = Path(__file__).parent / "published"
CONTROL = "control.csv"  # a column for each algorithm and number of steps: sac_500k


def published_rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of published figures, each by column."""
    with open(PUBLISHED / name) as file:
        return list(csv.DictReader(file))


def published_scores(name: str) -> dict[str, dict[str, float]]:
    """The numbers in a file of published scores, by game and column."""
    return {
        row["game"]: {k: float(v) for k, v in row.items() if k != "game" and v}
        for row in published_rows(name)
    }


def control_scores(game: str, furthest: float) -> dict[str, dict[int, float]]:
    """Published scores of a control task after up to `furthest` steps, by algorithm and steps.

    For example {"DDPG": {100_000: 443.0, 500_000: 794.0}, "TD3": ...
    """
    scores: dict[str, dict[int, float]] = {}
    for column, score in published_scores(CONTROL).get(game, {}).items():
        algorithm, _, steps = column.partition("_")
        made = int(steps[:-1]) * {"k": 1_000, "m": 1_000_000}[steps[-1]]
        if made <= furthest:
            scores.setdefault(algorithm.upper(), {})[made] = score
    return scores
