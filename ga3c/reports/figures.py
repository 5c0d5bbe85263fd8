"""Published figures to compare ours with, each file from the work that its README names."""

import csv
from pathlib import Path

PUBLISHED = Path(__file__).parent / "published"


def published_rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of published figures, by column."""
    with open(PUBLISHED / name) as file:
        return list(csv.DictReader(file))
