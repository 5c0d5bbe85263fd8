"""Faults in environments: they raise, hang, exit, return what they must not, or are slow."""

import time
from collections.abc import Mapping
from functools import partial

from benchmarks.faults.case import RECOVERED, Bench, Case, Seen
from benchmarks.faults.orders import Orders
from benchmarks.faults.watched import Watched
from benchmarks.faulty_games import REPEATS, SLOW, SLOW_S

AGENTS = 4
A3C = ("--algorithm", "a3c")  # makes many small updates, so its speed is steady
RECOVER_S = 10.0
FLOODED = 1 / 3  # of the speed before: the flood uses this machine's cores, too
GROWTH_MB = 64.0  # answers that nobody reads may not take more memory than this
FAULTS = {
    "raises": "RuntimeError: this game was told to raise",
    "hangs": "it owed a step for",
    "exits": "SystemExit: 7",
    "ends at once": "exited 7",
    "shape": "must have the same shape",
    "type": "from dtype('complex64')",
    "nan in reward": "is nan",
}
"""By order: what the log says about it."""


def four(orders: Orders, game: str, timeout_s: float = 3.0) -> tuple[str, ...]:
    """The arguments of a run with four agents."""
    counts = ("--agents", str(AGENTS), "--max-agents", str(AGENTS), "--envs-per-agent", "4")
    return (
        *(*orders.game(game), "--scheduler", "off", *counts),
        *("--agent-timeout-s", str(timeout_s)),
    )


def breaking(bench: Bench) -> Seen:
    """One environment after another breaks, each in a different way."""
    return in_turn(bench, "BreakableCart" if bench.quick else "BreakablePong", FAULTS)


def in_turn(bench: Bench, game: str, faults: Mapping[str, str]) -> Seen:
    """Give these orders to a run, each once it has recovered from the one before.

    Args: faults: by order: what the log must say about it.
    """
    seen, orders, notes = Seen(), Orders(bench.directory), []
    clean_s, after_s = bench.scaled(10.0, 2.0), bench.scaled(5.0, 1.0)
    with bench.watched() as run:
        run.train(*four(orders, game), *A3C)
        run.begun(AGENTS)
        for order, words in faults.items():
            each = Seen()
            inject = partial(orders.once, run, order, words)
            bench.disturb(run, each, inject, clean_s, after_s, RECOVER_S)
            _add(seen, order, each)
            notes.append(f"{order} {each.recovery_s or RECOVER_S:.1f}")
        bench.finish(run, seen)
    seen.note = f"seconds until back: {', '.join(notes)}"
    return seen


def _add(seen: Seen, order: str, each: Seen) -> None:
    """Add what one of several faults has shown to the sum of all."""
    seen.injected += each.injected
    seen.problems += [f"{order}: {problem}" for problem in each.problems]
    seen.pps_before = seen.pps_before or each.pps_before
    seen.pps_after = each.pps_after
    seen.recovery_s = max(seen.recovery_s or 0.0, each.recovery_s or 0.0)
    seen.descriptors = (seen.descriptors or 0) + (each.descriptors or 0)
    seen.threads = (seen.threads or 0) + (each.threads or 0)


def slow(bench: Bench) -> Seen:
    """One environment is 100 times as slow as the others for a while."""
    seen, orders = Seen(), Orders(bench.directory)
    with bench.watched() as run:
        run.train(*four(orders, "BreakablePong", 60.0), *A3C)
        run.begun(AGENTS)
        inject = partial(_wait, run, orders)
        clean_s, after_s = bench.scaled(20.0, 4.0), bench.scaled(10.0, 2.0)
        bench.disturb(run, seen, inject, clean_s, after_s, RECOVER_S)
        bench.finish(run, seen)
    assert seen.pps_before is not None and seen.pps_during is not None
    kept, fair = seen.pps_during / max(seen.pps_before, 1.0), RECOVERED * (1 - 1 / AGENTS)
    seen.note = f"{kept:.0%} of the speed with 1 of {AGENTS * 4} environments {SLOW} times as slow"
    seen.expect(kept >= fair, f"only {kept:.0%} of the speed, not {fair:.0%}")
    return seen


def _wait(run: Watched, orders: Orders) -> int:
    obeyed = orders.obeyed(run, "slow")
    time.sleep(SLOW_S)
    return obeyed


def never_reading(bench: Bench) -> Seen:
    """An agent sends its last step again and again, and reads no answer."""
    seen, orders = Seen(), Orders(bench.directory)
    with bench.watched() as run:
        run.train(*four(orders, "BreakableCart"))
        run.begun(AGENTS)
        inject = partial(orders.once, run, "never reads", "it owed a step for")
        held_mb, known = run.held[-1].memory_mb, len(run.held)
        clean_s, after_s = bench.scaled(20.0, 4.0), bench.scaled(10.0, 2.0)
        bench.disturb(run, seen, inject, clean_s, after_s, RECOVER_S)
        grown_mb = max(held.memory_mb for held in run.held[known:]) - held_mb
        bench.finish(run, seen)
    assert seen.pps_before is not None
    during, least = seen.pps_during or 0.0, FLOODED * seen.pps_before
    seen.expect(during >= least, f"{during:,.0f} PPS during the flood, not {least:,.0f}")
    seen.note = (
        f"{REPEATS:,} steps of each group sent again, at most {grown_mb:.0f} MiB more memory"
    )
    seen.expect(grown_mb < GROWTH_MB, f"{grown_mb:.0f} MiB more memory")
    return seen


CASES = (
    Case(
        "agents/environment breaks",
        "an environment raises, hangs, exits in two ways, returns a wrong shape, type or NaN: the "
        "log names the fault, the agent is replaced, and the run is back to speed within 10 s",
        breaking,
    ),
    Case(
        "agents/environment slow",
        f"one environment is {SLOW} times as slow: agents that do not play it lose no speed",
        slow,
        is_long=True,
    ),
    Case(
        "agents/never reading",
        "an agent floods the service and reads no answer: the others play on, meanwhile at a third "
        "of the speed or more, memory stays flat, and the agent is replaced when it goes silent",
        never_reading,
    ),
)
