"""To be written."""

from benchmarks.faults.case import Case

CASES: tuple[Case, ...] = ()
