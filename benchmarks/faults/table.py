"""The tables of all cases: for the terminal, and in Markdown for docs/reliability.md.

python -m benchmarks.faults.table DIRECTORY...     writes that page's tables from kept results
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.readme import ROOT, described, replace_between
from ga3c.reports.console import show

PAGE = ROOT / "docs" / "reliability.md"
MARKERS = (
    "<!-- faults: python -m benchmarks.faults.table DIRECTORY... writes this -->",
    "<!-- end of faults -->",
)
FORMATS = {
    "injected": "{:,.0f}",
    "pps_before": "{:,.0f}",
    "pps_during": "{:,.0f}",
    "pps_after": "{:,.0f}",
    "recovery_s": "{:.1f} s",
    "peak_mb": "{:,.0f}",
    "descriptors": "{:+.0f}",
    "threads": "{:+.0f}",
    "left": "{:.0f}",
    "seconds": "{:.0f}",
}
HEADINGS = (
    *("injected", "PPS before", "during", "after", "back after", "peak MiB"),
    *("descriptors", "threads", "left", "s in all"),
)
Seen = Mapping[str, Any]


def _cells(seen: Seen) -> list[str]:
    values = ((seen.get(name), form) for name, form in FORMATS.items())
    return ["" if value is None else form.format(value) for value, form in values]


def print_table(cases: Mapping[str, Seen]) -> None:
    """Print what all cases have seen."""
    rows = [
        (name, "passed" if seen["passed"] else "FAILED", *_cells(seen))
        for name, seen in cases.items()
    ]
    show("faults", ("case", "", *HEADINGS), rows, spare=("descriptors", "threads", "s in all"))


def markdown(cases: Mapping[str, Seen]) -> str:
    """A table for each group of cases, of what must hold and what was seen."""
    tables = []
    for group, members in groupby(cases.items(), key=lambda each: each[0].partition("/")[0]):
        lines = [f"### {group.capitalize()}", ""]
        lines.append("| fault | what must hold | " + " | ".join(HEADINGS[:-1]) + " | seen |")
        lines.append("| --- | --- |" + " ---: |" * (len(HEADINGS) - 1) + " --- |")
        lines += [_row(name.partition("/")[2], seen) for name, seen in members]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _row(fault: str, seen: Seen) -> str:
    words = "passed" if seen["passed"] else "; ".join(seen["problems"]) or "not injected"
    result = "; ".join(filter(None, [words, seen.get("note", "")]))
    cells = [fault, seen["promise"], *_cells(seen)[:-1], result]
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '/') for cell in cells)} |"


def page(directories: Sequence[Path]) -> str:
    """The tables of all kept results; of two results of one case the later directory's counts."""
    results = [json.loads((each / "faults.json").read_text()) for each in directories]
    cases = {name: seen for result in results for name, seen in result["cases"].items()}
    origin = described([result["machine"] for result in results[-1:]])
    passed = sum(bool(seen["passed"]) for seen in cases.values())
    return f"Measured {origin}: {passed} of {len(cases)} cases passed.\n\n{markdown(cases)}"


def main() -> None:
    """Update docs/reliability.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directories", type=Path, nargs="+")
    try:
        replace_between(PAGE, MARKERS, page(parser.parse_args().directories))
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
