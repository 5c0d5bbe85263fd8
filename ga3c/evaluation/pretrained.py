"""Small trained policies that come with ga3c: run directories with nothing but the weights."""

import contextlib
from pathlib import Path

from agents.games import resolve
from ga3c.runs.kept_config import CONFIG

DIRECTORY = Path(__file__).resolve().parents[1] / "pretrained"


def names() -> list[str]:
    """The games that there is a policy for, as ALE rom ids."""
    return sorted(file.parent.name for file in DIRECTORY.glob(f"*/{CONFIG}"))


def find(game: str) -> Path:
    """The directory of the policy for `game`. Raises ValueError if there is none."""
    with contextlib.suppress(ValueError):  # no game has this name
        path = DIRECTORY / resolve(game).name
        if (path / CONFIG).is_file():
            return path
    raise ValueError(f"pretrained {game}: must be one of {', '.join(names())}")
