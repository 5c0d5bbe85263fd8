"""What a run needs to start."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agents.environments import Spaces
from ga3c.settings.train import TrainConfig

OnFigures = Callable[[Mapping[str, Any]], Any]
"""Called with the figures of each progress line; a true return value ends the run."""


class Start(NamedTuple):
    """A run that is ready to start or to be resumed."""

    config: TrainConfig
    spaces: Spaces
    path: Path  # its directory
    on_figures: OnFigures | None = None  # from the program that started the run
