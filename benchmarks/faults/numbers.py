"""Non-finite numbers: in what environments return, in losses, gradients and priorities."""

import json
from functools import partial
from typing import Any

import numpy as np

from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.environments import AGENTS, four, in_turn
from benchmarks.faults.orders import NAMED_S, Orders
from benchmarks.faults.watched import Watched
from ga3c.runs import checkpoints

GAME = "BreakableCart"
RECOVER_S = 10.0
END_S = 60.0
MORE_UPDATES = 20  # this many after a fault show that learning goes on
REFUSED = {
    "nan in observation": "is nan at",
    "infinity in observation": "is inf at",
    "nan in reward": "is nan: must",
    "infinity in reward": "is inf: must",
}
"""By order: what the log says about it."""
KEEP = ("--checkpoint-every-s", "0.2", "--reward-clip", "0", "--clip-norm", "0")
A3C = ("--preset", "a3c-vectors")
REPLAY = ("--preset", "dqn-vectors", "--replay-steps", "20000", "--replay-min-steps", "500")
PRIORITISED = (*REPLAY, "--replay-draws", "prioritised")


def refused_steps(bench: Bench) -> Seen:
    """Non-finite numbers in steps, one kind after another."""
    return in_turn(bench, GAME, REFUSED)


def refused_always(bench: Bench) -> Seen:
    """Every observation of every environment contains NaN."""
    seen, orders = Seen(), Orders(bench.directory)
    orders.always("nan in observation")
    with bench.watched() as run:
        run.train(*four(orders, GAME))
        _expect_failure(run, seen, "in its place before their first step")
        seen.injected = run.log.count("is nan at")
        bench.account(run, seen)
    return seen


def exploding(bench: Bench, algorithm: tuple[str, ...]) -> Seen:
    """A learning rate so large that the first update ruins the weights."""
    seen, orders = Seen(), Orders(bench.directory)
    most = int(bench.scaled(100, 20))
    given = ("--learning-rate", "3e38", "--max-refused-updates", str(most))
    with bench.watched() as run:
        run.train(*four(orders, GAME), *algorithm, *KEEP, *given)
        _expect_failure(run, seen, "updates in a row were left out")
        seen.injected = _result(run)["refused_updates"]
        seen.expect(seen.injected >= most, f"{seen.injected} updates refused, not {most}")
        _expect_finite(run, seen)
        bench.account(run, seen)
    return seen


def _surge(run: Watched, orders: Orders, order: str) -> int:
    """Make an environment return a reward that cannot be learned from. Returns 1."""
    said = run.log.count("left out")
    obeyed = orders.obeyed(run, order)
    run.until(lambda: run.log.count("left out") > said, NAMED_S)
    return obeyed


def surging(bench: Bench, algorithm: tuple[str, ...], order: str) -> Seen:
    """One environment once returns rewards too large for a loss, a gradient or a priority."""
    seen, orders = Seen(), Orders(bench.directory)
    with bench.watched() as run:
        run.train(*four(orders, GAME), *algorithm, *KEEP)
        run.begun(AGENTS)
        inject = partial(_surge, run, orders, order)
        clean_s, after_s = bench.scaled(10.0, 2.0), bench.scaled(10.0, 1.0)
        bench.disturb(run, seen, inject, clean_s, after_s, RECOVER_S)
        learned = run.updates
        run.until(lambda: run.updates >= learned + MORE_UPDATES, RECOVER_S)
        bench.finish(run, seen)
        refused = _result(run)["refused_updates"]
        _expect_finite(run, seen)
    seen.note = f"{refused} updates refused"
    return seen


def _result(run: Watched) -> dict[str, Any]:
    return json.loads((run.path / "result.json").read_text())


def _expect_failure(run: Watched, seen: Seen, words: str) -> None:
    """Wait until the run has ended by itself, with exit code 1 and these words."""
    code = run.ended(END_S)
    seen.expect(code == 1, f"ended with exit code {code}, not 1: {run.tail()}")
    seen.expect(words in run.log, f"did not say `{words}`: {run.tail()}")


def _expect_finite(run: Watched, seen: Seen) -> None:
    """The newest checkpoint is intact, and all its arrays are finite."""
    newest, damaged = checkpoints.newest(run.path / "checkpoints")
    seen.expect(not damaged, f"{len(damaged)} damaged checkpoints")
    arrays = {} if newest is None else newest.arrays
    spoiled = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    seen.expect(bool(arrays) and not spoiled, f"not finite in the checkpoint: {spoiled or 'none'}")


CASES = (
    Case(
        "numbers/in steps",
        "NaN and infinity in an observation and in a reward: the step is refused, the log names "
        "the fault, and the agent is replaced",
        refused_steps,
    ),
    Case(
        "numbers/always in steps",
        "every observation contains NaN: none is learned from, and the run ends and says why",
        refused_always,
    ),
    Case(
        "numbers/weights explode",
        "updates with a non-finite loss are refused and counted; too many in a row end the run, "
        "and the newest checkpoint is finite",
        partial(exploding, algorithm=A3C),
    ),
    Case(
        "numbers/weights explode, replay",
        "the same for an algorithm that learns from a replay",
        partial(exploding, algorithm=REPLAY),
    ),
    Case(
        "numbers/loss",
        "rewards whose squared error is infinite: those updates are refused, and learning goes on",
        partial(surging, algorithm=A3C, order="huge reward"),
    ),
    Case(
        "numbers/gradient",
        "rewards that make the gradient norm infinite: those updates are refused, and learning "
        "goes on",
        partial(surging, algorithm=A3C, order="large reward"),
    ),
    Case(
        "numbers/priority",
        "rewards too large for a priority: a prioritised replay that holds them hardly draws them "
        "again, those updates are refused, and learning goes on",
        partial(surging, algorithm=PRIORITISED, order="huge reward"),
    ),
)
