"""A disk that is full for a while: a real file system of a few megabytes."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.case import Bench, Seen
from benchmarks.faults.service import newest_steps
from benchmarks.faults.watched import Watched
from ga3c.runs import checkpoints

SIZE_MB = 16
CART_POLE = (
    *("--game", "CartPole-v1", "--algorithm", "a3c", "--scheduler", "off", "--agents", "2"),
    *("--envs-per-agent", "8", "--checkpoint-every-s", "1"),
)
AGAIN_S = 10.0  # once there is room again, a checkpoint is written within this
SAID = "no checkpoint: [Errno 28]"


@contextlib.contextmanager
def _small_disk(place: Path) -> Iterator[str]:
    """Mount a small file system at `place`. Gives the reason if that fails; empty if it worked."""
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs"]
    try:
        done = subprocess.run(["mount", *options, str(place)], capture_output=True, text=True)
        why = done.stderr.strip()
    except OSError as error:
        why = str(error)
    try:
        yield why
    finally:
        if not why:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def _fill(file: Path) -> None:
    """Take all the space that is left."""
    with open(file, "ab", buffering=0) as filler, contextlib.suppress(OSError):
        size = 1 << 20
        while size:
            try:
                filler.write(bytes(size))
            except OSError:
                size //= 2


def full(bench: Bench) -> Seen:
    """The disk of the run is full for a while."""
    seen = Seen()
    with _small_disk(bench.directory / "runs") as why, bench.watched() as run:
        if why:
            seen.note = f"no small file system can be mounted here: {why}"
            return seen
        run.train(*CART_POLE)
        run.begun(2)
        run.until(lambda: newest_steps(run) > 0, AGAIN_S)
        clean_s, after_s = bench.scaled(20.0, 5.0), bench.scaled(10.0, 4.0)
        full_s = bench.scaled(60.0, 8.0)
        bench.disturb(run, seen, lambda: _full(run, seen, full_s), clean_s, after_s, AGAIN_S)
        said = [line for line in run.log.splitlines() if SAID in line]
        seen.expect(len(said) == 1, f"said {len(said)} times: {said[:3]}")
        other = [line for line in run.log.splitlines() if "not written: " in line]
        seen.note = f"full for {full_s:g} s, of which the run said: {'; '.join([*said, *other])}"
        bench.finish(run, seen)
        found, damaged = checkpoints.newest(run.path / "checkpoints")
        seen.expect(found is not None and not damaged, f"damaged at the end: {damaged}")
        _check_goes_on(run, seen)
    return seen


def _full(run: Watched, seen: Seen, seconds: float) -> int:
    """Fill the disk, wait, and free it. Returns 1 if a checkpoint found no space."""
    filler = run.path.parent / "filler"
    _fill(filler)
    kept = newest_steps(run)
    run.until(lambda: SAID in run.log, AGAIN_S)
    before = run.steps
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        _fill(filler)  # the space that the run has freed
        time.sleep(0.2)
    seen.expect(newest_steps(run) >= kept >= 0, "the last intact checkpoint is gone")
    held = newest_steps(run)
    filler.unlink()
    run.until(lambda: newest_steps(run) > held, AGAIN_S)
    run.until(lambda: run.steps > before, AGAIN_S)  # its figures are written again too
    return 1


def _check_goes_on(run: Watched, seen: Seen) -> None:
    """The run is resumed from its last checkpoint."""
    newest = newest_steps(run)
    run.resume("--steps", str(newest + 2000))
    seen.expect(run.ended(60.0) == 0, f"was not resumed: {run.tail()}")
    seen.expect(f"goes on from {newest:,} steps" in run.log, f"did not go on from {newest} steps")
