"""Checkpoints whose files are damaged, missing or another run's, and checkpoints in old formats."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.faults.case import Bench, Seen
from benchmarks.faults.processes import ROOT
from benchmarks.faults.watched import Watched
from ga3c.runs import checkpoints
from ga3c.runs.checkpoints import ARRAYS, MANIFEST, STATE

OLD_RUNS = ROOT / "tests" / "runs" / "old_runs"
FILES = (ARRAYS, STATE, MANIFEST)
END_S = 120.0  # for a short run, from its start to its end
A3C = ("--algorithm", "a3c", "--scheduler", "off", "--agents", "1", "--envs-per-agent", "8")
STEPS = 3000  # of a run before its checkpoint is damaged
MORE = ("--checkpoint-every-steps", "1000", "--steps", str(STEPS))
CART_POLE = (*A3C, "--game", "CartPole-v1", *MORE)
ACROBOT = (*A3C, "--game", "Acrobot-v1", *MORE)  # observations and actions of other shapes


def _truncated(file: Path, other: Path) -> None:
    os.truncate(file, file.stat().st_size * 2 // 3)


def _flipped(file: Path, other: Path) -> None:
    """Flip one bit that matters: in the manifest, in the name of a file's checksum."""
    data = bytearray(file.read_bytes())
    at = data.index(b"sha256") if file.name == MANIFEST else len(data) // 2
    data[at] ^= 1
    file.write_bytes(data)


def _missing(file: Path, other: Path) -> None:
    file.unlink()


def _swapped(file: Path, other: Path) -> None:
    shutil.copyfile(other / file.name, file)


DAMAGES: tuple[Callable[[Path, Path], None], ...] = (_truncated, _flipped, _missing, _swapped)


def _made(bench: Bench, name: str, *arguments: str) -> Path:
    """A short run that has ended."""
    with bench.watched(name) as run:
        run.train(*arguments)
        if run.ended(END_S):
            raise RuntimeError(f"{name}: {run.tail()}")
    return run.path


def damaged(bench: Bench) -> Seen:
    """Damage each file of the newest checkpoint in each way; all; and swap in other shapes."""
    seen = Seen()
    whole = _made(bench, "whole", *CART_POLE, "--seed", "1")
    other = _made(bench, "other", *CART_POLE, "--seed", "2")
    unlike = _made(bench, "unlike", *ACROBOT)
    cases = [(file, damage) for damage in DAMAGES for file in FILES]
    resumed = cases[:: len(FILES) + 1] if bench.quick else cases  # one of each damage, at least
    for file, damage in cases:
        name = f"{file} {damage.__name__.strip('_')}"
        with bench.watched(name.replace(" ", "-")) as run:
            _copy(whole, run.path)
            damage(_newest(run.path) / file, _newest(other))
            seen.injected += 1
            if (file, damage) in resumed:
                _check_goes_on(run, seen, name)
            else:
                _check_is_seen(run.path, seen, name)
    with bench.watched("none") as run:
        _none_is_whole(run, whole, seen)
    with bench.watched("shapes") as run:
        _other_shapes(run, whole, unlike, seen)
    seen.note = f"{len(cases)} damages, with {len(resumed)} of which the run was resumed"
    return seen


def _copy(run: Path, to: Path) -> None:
    shutil.copytree(run, to)
    (to / "result.json").unlink()


def _newest(run: Path) -> Path:
    return checkpoints.kept(run / "checkpoints")[-1]


def _check_goes_on(run: Watched, seen: Seen, name: str) -> None:
    """The run resumes from the checkpoint before its newest."""
    before, newest = checkpoints.kept(run.path / "checkpoints")[-2:]
    run.resume("--steps", str(STEPS + 1000))
    code = run.ended(END_S)
    seen.expect(code == 0, f"{name}: ended with exit code {code}: {run.tail()}")
    words = f"goes on from {int(before.name):,} steps"
    seen.expect(words in run.log, f"{name}: did not say: {words}")
    words = checkpoints.PASSED_OVER
    seen.expect(words in run.log, f"{name}: did not say: {words}")
    aside = newest.with_name(f"damaged-{newest.name}")
    seen.expect(aside.exists(), f"{name}: the damaged one was not set aside")


def _check_is_seen(run: Path, seen: Seen, name: str) -> None:
    """The same without a run: the damage is noticed, and the checkpoint before it is read."""
    before = checkpoints.kept(run / "checkpoints")[-2]
    found, faults = checkpoints.newest(run / "checkpoints")
    right = found is not None and found.path == before and len(faults) == 1
    seen.expect(right, f"{name}: read {found and found.path}: {faults}")


def _none_is_whole(run: Watched, whole: Path, seen: Seen) -> None:
    _copy(whole, run.path)
    for number, each in enumerate(checkpoints.kept(run.path / "checkpoints")):
        os.truncate(each / FILES[number % len(FILES)], 10)
        seen.injected += 1
    run.resume("--steps", str(STEPS + 1000))
    code, said = run.ended(END_S), run.tail(1)
    seen.expect(code == 1, f"none intact: ended with exit code {code}: {run.tail()}")
    seen.expect("no whole checkpoint" in said, f"none intact: said only: {said}")


def _other_shapes(run: Watched, whole: Path, unlike: Path, seen: Seen) -> None:
    _copy(whole, run.path)
    newest = _newest(run.path)
    shutil.rmtree(newest)
    shutil.copytree(_newest(unlike), newest)
    seen.injected += 1
    run.resume("--steps", str(STEPS + 1000))
    code, said = run.ended(END_S), run.tail(1)
    seen.expect(code == 2, f"other shapes: ended with exit code {code}: {run.tail()}")
    seen.expect("does not fit the settings" in said, f"other shapes: said only: {said}")


def older(bench: Bench) -> Seen:
    """Runs in the first format, one of each kind, resume with everything they had."""
    seen, steps = Seen(), 1600
    for name in ("a3c", "dqn"):
        with bench.watched(name) as run:
            shutil.copytree(OLD_RUNS / name, run.path)
            before, _ = checkpoints.newest(run.path / "checkpoints")
            assert before
            run.resume("--steps", str(steps), "--trust")
            code = run.ended(END_S)
            seen.expect(code == 0, f"{name}: ended with exit code {code}: {run.tail()}")
            after, faults = checkpoints.newest(run.path / "checkpoints")
            assert after
            seen.expect(not faults, f"{name}: {faults}")
            seen.expect(after.steps >= steps, f"{name}: {after.steps} steps")
            for counts in ("updates", "steps"):
                more = after.state["counts"][counts] - before.state["counts"][counts]
                seen.expect(more > 0, f"{name}: {more} more {counts}")
            seen.injected += 1
    return seen
