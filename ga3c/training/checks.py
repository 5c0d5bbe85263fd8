"""Checks of a run that come before the tensor framework is loaded, which takes seconds."""

from agents.games import check_found
from ga3c.settings.checks import is_own
from ga3c.settings.train import TrainConfig


def check_own_parts(config: TrainConfig) -> None:
    """Raises ValueError if the module of an own network or algorithm is not found."""
    for setting, part in (("network", config.network.network), ("algorithm", config.algorithm)):
        if is_own(part):
            try:
                check_found(part.partition(":")[0])
            except ValueError as error:
                raise ValueError(f"{setting} {part}: {error}") from error
