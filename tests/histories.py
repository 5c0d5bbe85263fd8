"""Histories of runs that were never trained, for tables and plots."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ga3c.reports.history import Curve, History
from ga3c.reports.plots import ROLES
from ga3c.settings.train import TrainConfig

WINDOW = {"pps": 900.0, "tps": 800.0, "prediction_queue": 8, "training_queue": 40}
WINDOW |= {"policy_lag": 4.0, "agents": 2, "predictors": 1, "trainers": 1}
WINDOW |= {f"{role}_waiting": 0.5 for role in ROLES}


def windows(*trained: float, start: int = 1) -> list[dict[str, Any]]:
    """Windows of 100 steps and 60 seconds, each with its trained samples a second."""
    return [
        {**WINDOW, "steps": 100 * number, "seconds": 60.0 * number, "tps": tps}
        for number, tps in enumerate(trained, start)
    ]


def made(
    name: str, config: TrainConfig, seed: int = 0, end: float = 500.0, **parts: Any
) -> History:
    """A run of `end` steps without evaluations. Args: parts: of its history, instead of these."""
    curve = Curve(*np.array([[60.0, 60.0 * end / 100], [100.0, end], [-20.0, 20.0]]))
    usual = {"curve": curve, "figures": windows(*[800.0] * 5), "evaluations": []}
    seeded = replace(config, run=replace(config.run, seed=seed))
    return History(Path(name), seeded, **{**usual, **parts})
