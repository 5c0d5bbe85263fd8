"""Faults in the service: signals, kills, a clock that jumps and threads that raise."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks.faults.broken import TRIGGER
from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.watched import Watched
from ga3c.runs import checkpoints, records
from ga3c.runs.scratch import PREFIX

SMALL = (
    *("--game", "CartPole-v1", "--algorithm", "a3c", "--scheduler", "off"),
    *("--agents", "2", "--max-agents", "2", "--checkpoint-every-s", "2"),
)
PONG = (
    *("--game", "Pong", "--algorithm", "a3c", "--scheduler", "off", "--checkpoint-every-s", "10"),
    *("--agents", "2", "--max-agents", "2"),
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
HASTENED_S = 5.0  # a second signal ends a run within this
ORPHANS_S = 2.0  # agents of a killed service end within this
RECOVER_S = 10.0


def game(bench: Bench) -> tuple[str, ...]:
    """Pong in the long form, a small game in the quick one."""
    return SMALL if bench.quick else PONG


def newest_steps(run: Watched) -> int:
    """Steps of the newest intact checkpoint; -1 if there is none."""
    checkpoint, _ = checkpoints.newest(run.path / "checkpoints")
    return checkpoint.steps if checkpoint else -1


def _resume_by_turns(bench: Bench, run: Watched, turn: int) -> None:
    if turn:
        run.resume()
    else:
        run.train(*game(bench))
    known, steps = len(run.readings), run.steps
    run.until(lambda: len(run.readings) > known and run.steps > steps, 120.0)


def signals(bench: Bench) -> Seen:
    """SIGINT, SIGTERM and SIGHUP end a run, which is resumed each time."""
    seen = Seen()
    with bench.watched() as run:
        for turn, number in enumerate(SIGNALS):
            _resume_by_turns(bench, run, turn)
            run.signal(number)
            code = run.ended()
            seen.injected += 1
            seen.expect(code == INTERRUPTED, f"{number!r}: exit code {code}")
            last = records.read(run.path / "metrics.jsonl")[-1]["steps"]
            kept = newest_steps(run)
            seen.expect(kept >= last, f"{number!r}: checkpoint of {kept} steps, {last} were shown")
            bench.account(run, seen)
    return seen


def second_signal(bench: Bench) -> Seen:
    """Two signals, while all agents are stopped, so that a clean stop takes its full timeout."""
    seen = Seen()
    with bench.watched() as run:
        _resume_by_turns(bench, run, 0)
        run.until(lambda: newest_steps(run) > 0, 320.0)
        for each in run.agents():
            each.suspend()
        run.signal(signal.SIGINT)
        time.sleep(1.0)
        seen.expect(run.runs, "ended by the first signal, before the second was sent")
        began_s = time.monotonic()
        run.signal(signal.SIGINT)
        seen.injected += 1
        code = run.ended()
        took_s = time.monotonic() - began_s
        seen.expect(code == INTERRUPTED, f"exit code {code}")
        seen.expect(took_s < HASTENED_S, f"ended {took_s:.1f} s after the second signal")
        seen.expect(newest_steps(run) > 0, "the checkpoint before the signals is not intact")
        seen.note = f"ended {took_s:.1f} s after the second signal"
        bench.account(run, seen)
    return seen


def killed(bench: Bench) -> Seen:
    """The service alone is killed; the next start removes its temporary files."""
    seen = Seen()
    with bench.watched() as run:
        _resume_by_turns(bench, run, 0)
        run.signal(signal.SIGKILL)
        run.ended()
        seen.injected += 1
        _expect_agents_gone(run, seen)
        _expect_swept(run, seen)
        bench.finish(run, seen)
    return seen


def group_killed(bench: Bench) -> Seen:
    """The service, its agents and everything else it started are killed."""
    seen = Seen()
    with bench.watched() as run:
        _resume_by_turns(bench, run, 0)
        run.kill_all()
        seen.injected += 1
        _expect_agents_gone(run, seen)
        _expect_swept(run, seen)
        bench.finish(run, seen)
    return seen


def _expect_agents_gone(run: Watched, seen: Seen) -> None:
    killed_s = time.monotonic()
    while run.agents() and time.monotonic() - killed_s < 3 * ORPHANS_S:
        time.sleep(0.02)
    took_s = time.monotonic() - killed_s
    seen.expect(took_s <= ORPHANS_S, f"agents still ran {took_s:.1f} s after the kill")
    seen.note = f"agents gone after {took_s:.2f} s"


def _expect_swept(run: Watched, seen: Seen) -> None:
    left = set(run.temporary.glob(f"{PREFIX}*"))
    seen.expect(bool(left), "the killed service left nothing to remove: the case shows nothing")
    known = len(run.readings)
    run.resume()
    run.until(lambda: len(run.readings) > known, 120.0)
    seen.expect(not any(path.exists() for path in left), "the next start did not remove it")


def thread_raises(bench: Bench, name: str) -> Seen:
    """A predictor's or a trainer's thread raises while the run learns."""
    seen, trigger = Seen(), bench.directory / "trigger"
    with bench.watched() as run:
        own = ("--algorithm", f"benchmarks.faults.broken:{name}", "--learns-from", "segments")
        small = tuple(word for word in SMALL if word not in ("--algorithm", "a3c"))
        run.train(*small, *own, environment={TRIGGER: str(trigger)})
        run.begun(2)
        trigger.touch()
        code = run.ended()
        seen.injected += not trigger.exists()
        seen.expect(code == 1, f"exit code {code}")
        seen.expect("told to fail" in run.log, "the traceback was not printed")
        seen.expect(newest_steps(run) > 0, "no checkpoint was kept")
        bench.account(run, seen)
    return seen


def clock_moved(bench: Bench) -> Seen:
    """The wall clock of the service and its agents jumps 1 h forward, 2 h back and 2 h forward."""
    seen, file, library = Seen(), bench.directory / "clock", bench.directory / "clock.so"
    build = ["cc", "-shared", "-fPIC", "-o", str(library), str(Path(__file__).with_name("clock.c"))]
    subprocess.run(build, check=True, capture_output=True)
    file.write_text("0\n")
    moved = {"LD_PRELOAD": str(library), "GA3C_CLOCK": str(file)}
    clock = [sys.executable, "-c", "import time; print(time.time())"]

    def move() -> int:
        """Returns how many of the moves a program next to the run has seen."""
        seen_moved = 0
        for seconds in (3600, -3600, 3600):  # it then stays until the run has ended
            file.write_text(f"{seconds}\n")
            time.sleep(2.0)
            shown = subprocess.run(
                clock, env={**os.environ, **moved}, capture_output=True, check=True
            )
            seen_moved += abs(float(shown.stdout) - time.time() - seconds) < 60.0
        return seen_moved

    with bench.watched() as run:
        run.train(*game(bench), environment=moved)
        run.begun(2)
        bench.disturb(run, seen, move, bench.scaled(20.0, 5.0), bench.scaled(10.0, 3.0), RECOVER_S)
        seen.expect("replaced" not in run.log, "an agent was replaced")
        bench.finish(run, seen)
        result = json.loads((run.path / "result.json").read_text())
        seen.expect(result["seconds"] < 3000, f"the run lasted {result['seconds']} s by its clock")
    return seen


CASES = (
    Case(
        "service/signals",
        "SIGINT, SIGTERM and SIGHUP end a run with exit code 130 and a final checkpoint",
        signals,
    ),
    Case(
        "service/second signal",
        f"a second signal ends a run within {HASTENED_S:g} s even if its agents do not respond",
        second_signal,
    ),
    Case(
        "service/killed",
        f"agents of a killed service end within {ORPHANS_S:g} s; the next start cleans up the rest",
        killed,
    ),
    Case(
        "service/group killed",
        "the service and everything it started are killed: the next start cleans up what is left",
        group_killed,
    ),
    Case(
        "service/predictor raises",
        "the run ends with exit code 1, the traceback and a checkpoint",
        partial(thread_raises, name="FailsActing"),
    ),
    Case(
        "service/trainer raises",
        "the run ends with exit code 1, the traceback and a checkpoint",
        partial(thread_raises, name="FailsLearning"),
    ),
    Case(
        "service/clock moved",
        "the wall clock jumps by an hour: nothing is declared dead and no time is miscounted",
        clock_moved,
    ),
)
