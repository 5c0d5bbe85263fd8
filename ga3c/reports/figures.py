"""Reads the published figures that ours are compared with; `published/README.md` has sources."""

import csv
from pathlib import Path

PUBLISHED = Path(__file__).parent / "published"


def published_rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of published figures, each by column."""
    with open(PUBLISHED / name) as file:
        return list(csv.DictReader(file))


def published_pps() -> dict[str, dict[str, float]]:
    """Predictions a second of A3C and GA3C, by network: GA3C's Table 2, 16 cores and a Titan X."""
    rows = [row for row in published_rows("ga3c_pps.csv") if row["system"] == "I"]
    return {
        row["network"].replace("large, stride ", "large-"): {
            name: float(row[name]) for name in ("a3c_pps", "ga3c_pps")
        }
        for row in rows
    }
