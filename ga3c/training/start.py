"""What a run begins with."""

from pathlib import Path
from typing import NamedTuple

from agents.environments import Spaces
from ga3c.settings.train import TrainConfig


class Start(NamedTuple):
    """A run that is ready to begin or to be resumed."""

    config: TrainConfig
    spaces: Spaces
    path: Path  # its directory
