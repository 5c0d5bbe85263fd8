"""Lockstep runs that are killed, and end as if they had not been: equal to the last bit."""

import csv
import signal
from pathlib import Path

import numpy as np

from benchmarks.faults.case import Bench, Seen
from benchmarks.faults.watched import Watched
from ga3c.runs import checkpoints

IN_TURN = (
    *("--lockstep", "--agents", "1", "--groups", "1", "--scheduler", "off", "--seed", "3"),
    *("--envs-per-agent", "8", "--checkpoint-every-steps", "400"),
)
BATCHES = ("--training-batch-min", "80", "--training-batch-max", "80")
RUNS = {
    "a3c": ("--algorithm", "a3c", "--game", "CartPole-v1", *BATCHES),
    "a3c, continuous": ("--algorithm", "a3c", "--game", "Pendulum-v1", *BATCHES),
    "ppo": ("--algorithm", "ppo", "--game", "CartPole-v1", "--pending-segments", "3"),
}
END_S = 240.0
UNTIMED = ("steps", "episodes", "scores", "actions")  # of a checkpoint's state


def killed_and_equal(bench: Bench) -> Seen:
    """Each run twice: once without a fault, once killed halfway and resumed."""
    seen, equal = Seen(), []
    steps = int(bench.scaled(20_000, 5_000))
    for name, arguments in RUNS.items():
        given = (*IN_TURN, *arguments, "--schedule-steps", str(steps))
        word = name.replace(", ", "-")
        with bench.watched(f"{word}-whole") as whole, bench.watched(f"{word}-killed") as killed:
            for run in (whole, killed):
                run.train(*given, "--steps", str(steps))
            if _is_killed(killed, steps // 2):
                seen.injected += 1
            killed.resume()
            for run in (whole, killed):
                code = run.ended(END_S)
                seen.expect(code == 0, f"{name}: ended with exit code {code}: {run.tail()}")
            _compare(name, whole.path, killed.path, seen)
            equal.append(name)
    seen.note = f"{', '.join(equal)}; dqn and dpg promise the same weights only without a pause"
    return seen


def _is_killed(run: Watched, steps: int) -> bool:
    """Kill the service once a checkpoint has this many steps. Returns whether it still ran."""
    directory = run.path / "checkpoints"

    def is_far() -> bool:
        kept = checkpoints.kept(directory)
        return bool(kept) and int(kept[-1].name) >= steps

    run.until(is_far, END_S)
    run.signal(signal.SIGKILL)
    return run.ended() == -signal.SIGKILL


def _compare(name: str, one: Path, other: Path, seen: Seen) -> None:
    expected, found = (checkpoints.newest(run / "checkpoints")[0] for run in (one, other))
    if expected is None or found is None:
        seen.expect(False, f"{name}: a run has no checkpoint")
        return
    seen.expect(set(expected.arrays) == set(found.arrays), f"{name}: different arrays")
    unlike = [
        key
        for key in expected.arrays
        if not np.array_equal(expected.arrays[key], found.arrays[key])
    ]
    seen.expect(not unlike, f"{name}: not equal to the last bit: {', '.join(unlike[:5])}")
    for key in UNTIMED:
        seen.expect(expected.state.get(key) == found.state.get(key), f"{name}: different {key}")
    seen.expect(_games(one) == _games(other), f"{name}: different games in episodes.csv")


def _games(run: Path) -> list[tuple[str, str, str]]:
    with open(run / "episodes.csv") as rows:
        return [(row["steps"], row["score"], row["length"]) for row in csv.DictReader(rows)]
