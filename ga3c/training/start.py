"""What a run begins with."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agents.environments import Spaces
from ga3c.settings.train import TrainConfig

OnFigures = Callable[[Mapping[str, Any]], Any]
"""Is given each line of a run's figures, and ends the run by what is true."""


class Start(NamedTuple):
    """A run that is ready to begin or to be resumed."""

    config: TrainConfig
    spaces: Spaces
    path: Path  # its directory
    on_figures: OnFigures | None = None  # of the program that has begun it
