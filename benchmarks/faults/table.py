"""The table of all cases, for the terminal."""

from collections.abc import Mapping

from benchmarks.reliability import HEADINGS, Seen, cells
from ga3c.reports.console import show


def print_table(cases: Mapping[str, Seen]) -> None:
    """Print what all cases have observed."""
    rows = [
        (name, "passed" if seen["passed"] else "FAILED", *cells(seen))
        for name, seen in cases.items()
    ]
    show("faults", ("case", "", *HEADINGS), rows, spare=("descriptors", "threads", "s in all"))
