"""Write the tables of docs/reliability.md from kept results of `ga3c benchmark faults`.

python -m benchmarks.reliability DIRECTORY...     each with a faults.json
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.readme import ROOT, described, replace_between

PAGE = ROOT / "docs" / "reliability.md"
MARKERS = (
    "<!-- faults: python -m benchmarks.reliability DIRECTORY... writes this -->",
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
SHOWN = 5
"""How many of these have a column on the page; of the rest it says only what grew or was left."""
Seen = Mapping[str, Any]


def cells(seen: Seen) -> list[str]:
    """The figures of a case, in the order of HEADINGS."""
    values = ((seen.get(name), form) for name, form in FORMATS.items())
    return ["" if value is None else form.format(value) for value, form in values]


def markdown(cases: Mapping[str, Seen]) -> str:
    """A table for each group of cases: what must hold and what was seen."""
    tables = []
    for group, members in groupby(cases.items(), key=lambda each: each[0].partition("/")[0]):
        lines = [f"### {group.capitalize()}", ""]
        lines.append("| fault | what must hold | " + " | ".join(HEADINGS[:SHOWN]) + " | seen |")
        lines.append("| --- | --- |" + " ---: |" * SHOWN + " --- |")
        lines += [_row(name.partition("/")[2], seen) for name, seen in members]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _row(fault: str, seen: Seen) -> str:
    words = "passed" if seen["passed"] else "; ".join(seen["problems"]) or "not injected"
    more = [f"{seen[n]} more {n}" for n in ("descriptors", "threads") if (seen.get(n) or 0) > 0]
    left = f"{seen['left']} left" if seen.get("left") else ""
    result = "; ".join(filter(None, [words, seen.get("note", ""), *more, left]))
    row = [fault, seen["promise"], *cells(seen)[:SHOWN], result]
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '/') for cell in row)} |"


def page(directories: Sequence[Path]) -> str:
    """The tables of all kept results; if a case has two results, the later directory's counts."""
    results = [json.loads((each / "faults.json").read_text()) for each in directories]
    cases = {name: seen for result in results for name, seen in result["cases"].items()}
    origins = {name: described([each["machine"]]) for each in results for name in each["cases"]}
    passed = sum(bool(seen["passed"]) for seen in cases.values())
    peak = max(seen["peak_mb"] for seen in cases.values() if seen.get("peak_mb"))
    lines = [
        f"{passed} of {len(cases)} cases passed. No service took more than {peak:,.0f} MiB. "
        "Measured:",
        "",
        *(f"- {count} of them {origin}" for origin, count in Counter(origins.values()).items()),
    ]
    return "\n".join([*lines, "", markdown(cases)])


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
