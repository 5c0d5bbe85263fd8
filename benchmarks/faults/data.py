"""Faults of what is kept: a kill while it is written, a full disk, damaged files, old formats."""

from benchmarks.faults import damaged_files, full_disk, killed_writing, repeated
from benchmarks.faults.case import Case

CASES: tuple[Case, ...] = (
    Case(
        "data/killed while writing",
        "killed in the middle of a checkpoint, 50 times: resumes from a whole one, counters right",
        killed_writing.on_policy,
    ),
    Case(
        "data/killed while writing a replay",
        "the same with a replay that is kept",
        killed_writing.with_a_replay,
        is_long=True,
    ),
    Case(
        "data/full disk",
        "goes on, keeps its last whole checkpoint, says so once, and writes again when it can",
        full_disk.full,
    ),
    Case(
        "data/damaged files",
        "each file truncated, flipped, missing, another run's: the one before is used, or it says "
        "that there is none; one of other shapes is refused",
        damaged_files.damaged,
    ),
    Case(
        "data/older formats",
        "runs of the first format go on with all that they had",
        damaged_files.older,
    ),
    Case(
        "data/killed and repeated",
        "in lockstep, a run that is killed and resumed ends as one that is not, to the last bit",
        repeated.killed_and_equal,
        is_long=True,
    ),
)
