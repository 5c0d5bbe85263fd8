"""The table of all cases: for the terminal, and in Markdown for docs/reliability.md."""

from collections.abc import Mapping
from typing import Any

from benchmarks.faults.case import Case
from ga3c.reports.console import show

FORMATS = {
    "injected": ",.0f",
    "pps_before": ",.0f",
    "pps_during": ",.0f",
    "pps_after": ",.0f",
    "recovery_s": ".1f",
    "peak_mb": ",.0f",
    "descriptors": "+.0f",
    "threads": "+.0f",
    "left": ".0f",
    "seconds": ".0f",
}
HEADINGS = (
    *("injected", "PPS before", "during", "after", "s until back"),
    *("peak MiB", "descriptors", "threads", "left", "s in all"),
)
Cases = Mapping[str, Mapping[str, Any]]


def _cells(seen: Mapping[str, Any]) -> list[str]:
    values = ((seen.get(name), form) for name, form in FORMATS.items())
    return ["" if value is None else format(value, form) for value, form in values]


def print_table(seen: Cases) -> None:
    """Print what all cases have seen."""
    rows = [
        (name, "passed" if each["passed"] else "FAILED", *_cells(each))
        for name, each in seen.items()
    ]
    show("faults", ("case", "", *HEADINGS), rows, spare=("descriptors", "threads", "s in all"))


def markdown(seen: Cases, cases: Mapping[str, Case]) -> str:
    """A table with the promise of each case, what was seen, and what did not hold."""
    lines = ["| case | what must hold | " + " | ".join(HEADINGS) + " | result |"]
    lines.append("| --- | --- |" + " ---: |" * len(HEADINGS) + " --- |")
    for name, each in seen.items():
        words = "passed" if each["passed"] else "; ".join(each["problems"]) or "not injected"
        result = ": ".join(filter(None, [words, each.get("note", "")]))
        cells = [f"`{name}`", cases[name].promise, *_cells(each), result]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"
