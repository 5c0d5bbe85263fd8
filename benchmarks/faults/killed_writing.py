"""`kill -9` of the service while it writes a checkpoint, again and again in one run."""

import csv
import json
import random
import signal
import time
from pathlib import Path

from benchmarks.faults.case import Bench, Seen
from benchmarks.faults.processes import END_S
from benchmarks.faults.watched import Watched
from ga3c.runs import checkpoints

POLL_S = 0.0005
ON_S = 60.0  # for a run to resume and to write its next checkpoint
SMALL = (
    *("--game", "tests.tiny:Wide-v0", "--scheduler", "off", "--agents", "1"),
    *("--envs-per-agent", "8"),
)
ON_POLICY = (
    *(*SMALL, "--algorithm", "a3c", "--training-batch-min", "20", "--training-batch-max", "80"),
    *("--checkpoint-every-steps", "300"),
)
REPLAY = (
    *(*SMALL, "--algorithm", "dqn", "--save-replay", "--replay-steps", "4000"),
    *("--replay-min-steps", "500", "--update-size", "50", "--steps-per-update", "8"),
    *("--checkpoint-every-steps", "600"),
)


def on_policy(bench: Bench) -> Seen:
    """A run without a replay."""
    return _killed(bench, ON_POLICY)


def with_a_replay(bench: Bench) -> Seen:
    """A run that saves its replay: 80 MB per checkpoint."""
    return _killed(bench, REPLAY)


def _killed(bench: Bench, arguments: tuple[str, ...]) -> Seen:
    seen, rng = Seen(), random.Random(bench.seed)
    wanted, tries, least = int(bench.scaled(50, 4)), 0, 0
    with bench.watched() as run:
        run.train(*arguments)
        while seen.injected < wanted and tries < 2 * wanted and not seen.problems:
            tries += 1
            if _is_killed_while_writing(run, rng):
                seen.injected += 1
            newest = _check(run.path, seen, least)
            if newest is None:
                break
            least = newest
            run.resume()
            _goes_on(run, least)
        if run.runs:
            run.until(lambda: run.steps > least, ON_S)
            seen.expect(run.end() == 130, f"did not end well: {run.tail()}")
            _check(run.path, seen, least)
            _check_end(run.path, seen)
            seen.expect(not run.left(), f"left behind: {', '.join(run.left())}")
    seen.expect(seen.injected >= wanted, f"only {seen.injected} of {tries} kills hit a checkpoint")
    seen.note = f"{seen.injected} of {tries} kills hit a checkpoint that was being written"
    return seen


def _is_killed_while_writing(run: Watched, rng: random.Random) -> bool:
    """Kill the service while it writes a checkpoint. Returns whether it was left unfinished."""
    _next(run)  # skip a new run's first one, which has no figures yet
    one, begun_s = _next(run), time.monotonic()
    while one.exists() and run.runs:
        time.sleep(POLL_S)
    took_s = time.monotonic() - begun_s
    _next(run)
    time.sleep(rng.uniform(0.0, 0.8 * took_s))
    run.signal(signal.SIGKILL)
    run.ended()
    until_s = time.monotonic() + END_S
    while run.agents() and time.monotonic() < until_s:
        time.sleep(0.05)
    return bool(_unfinished(run))


def _unfinished(run: Watched) -> set[Path]:
    """Checkpoints that are being written; not those that are being removed."""
    found = (run.path / "checkpoints").glob(".partial-*")
    return {path for path in found if path.name.removeprefix(".partial-").isdigit()}


def _next(run: Watched) -> Path:
    """Wait until the next checkpoint is started. Returns where it is written."""
    before, until_s = _unfinished(run), time.monotonic() + ON_S
    while not (new := _unfinished(run) - before):
        if not run.runs or time.monotonic() > until_s:
            raise RuntimeError(f"no checkpoint within {ON_S:g} s: {run.tail()}")
        time.sleep(POLL_S)
    return new.pop()


def _goes_on(run: Watched, steps: int) -> None:
    """Wait until the run says that it goes on from its newest intact checkpoint."""
    words = f"goes on from {steps:,} steps"
    run.until(lambda: words in run.log, ON_S)


def _check(path: Path, seen: Seen, least: int) -> int | None:
    """The newest checkpoint must be intact, with correct counters. Returns its steps."""
    newest, damaged = checkpoints.newest(path / "checkpoints")
    seen.expect(not damaged, f"damaged: {'; '.join(damaged)}")
    if newest is None:
        seen.expect(False, "no intact checkpoint")
        return None
    steps, episodes = newest.steps, newest.state["episodes"]
    seen.expect(steps >= least, f"went back from {least} to {steps} steps")
    with open(path / "episodes.csv") as rows:
        ended = [int(row["steps"]) for row in csv.DictReader(rows)]
    before = sum(each < steps for each in ended)
    seen.expect(before == episodes, f"episodes.csv: {before} games before {steps}, not {episodes}")
    seen.expect(ended == sorted(ended), "episodes.csv: games from before the kill remain")
    made = [json.loads(line)["steps"] for line in (path / "metrics.jsonl").open("rb")]
    seen.expect(made == sorted(made), "metrics.jsonl: lines from before the kill remain")
    counted = int(newest.state["counts"]["steps"])
    seen.expect(counted == steps, f"the checkpoint of {steps} steps counts {counted}")
    updates, counted = int(newest.arrays["counters"][1]), newest.state["counts"].get("updates", 0)
    seen.expect(updates == counted, f"the checkpoint of {updates} updates counts {counted}")
    return steps


def _check_end(path: Path, seen: Seen) -> None:
    """A run that has ended has nothing beyond its last checkpoint."""
    result = json.loads((path / "result.json").read_bytes())
    newest, _ = checkpoints.newest(path / "checkpoints")
    steps = newest.steps if newest else None
    seen.expect(result["steps"] == steps, f"{result['steps']} steps, not {steps}")
    with open(path / "episodes.csv") as rows:
        ended = len(list(csv.DictReader(rows)))
    seen.expect(ended == result["episodes"], f"{ended} games, not {result['episodes']}")
