"""Faults in saved data: a kill while it is written, a full disk, damaged files, old formats."""

from benchmarks.faults import damaged_files, full_disk, killed_writing, repeated
from benchmarks.faults.case import Case

CASES: tuple[Case, ...] = (
    Case(
        "data/killed while writing",
        "killed while writing a checkpoint, 50 times: resumes from an intact one, counters correct",
        killed_writing.on_policy,
    ),
    Case(
        "data/killed while writing a replay",
        "the same with a saved replay",
        killed_writing.with_a_replay,
        is_long=True,
    ),
    Case(
        "data/full disk",
        "goes on, keeps its last intact checkpoint, says so once, and writes again when it can",
        full_disk.full,
    ),
    Case(
        "data/damaged files",
        "each file truncated, bit-flipped, missing or another run's: the checkpoint before it is "
        "used, or the run says that there is none; one of other shapes is refused",
        damaged_files.damaged,
    ),
    Case(
        "data/older formats",
        "runs in the first format resume with everything they had",
        damaged_files.older,
    ),
    Case(
        "data/killed and repeated",
        "in lockstep, a run that is killed and resumed ends like one that is not, to the last bit",
        repeated.killed_and_equal,
        is_long=True,
    ),
)
