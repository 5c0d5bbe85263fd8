"""Runs whose agents all play on two other nodes: they learn, about as fast as with local agents."""

import statistics
import time
from collections.abc import Sequence

from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.far import NODES, Far
from benchmarks.faults.nodes import Namespaces
from ga3c.runs.finding import newest_figures

CATCH = (
    *("--game", "tests.tiny:Catch-v0", "--algorithm", "a3c", "--envs-per-agent", "16"),
    *("--optimizer", "adam", "--optimizer-epsilon", "1e-5", "--learning-rate", "2e-3"),
)
CAUGHT = 0.6  # mean score of 100 games; 1 is the best, -0.8 is chance
PONG = ("--game", "Pong", "--algorithm", "a3c")
PONG_SCORE = -19.0  # chance: -20.4
CATCH_S, PONG_S = 120.0, 1500.0
SETTLE_S = 4.0
LEAST_SHARE = 0.75  # of the speed with agents here; the rest is a busy machine's noise


def _learn(far: Far, seen: Seen, score: float, within_s: float, *arguments: str) -> None:
    """Learn on the nodes until 100 games have this mean score."""
    began_s = time.monotonic()
    far.begin(*arguments, "--score", f"{score}")
    seen.injected += far.playing
    code = far.run.ended(within_s)
    reached = newest_figures(far.run.path).get("score_mean_100")
    seen.expect(code == 0 and reached is not None and reached >= score, f"score {reached}")
    seconds = time.monotonic() - began_s
    seen.note += f"; score {reached:.2f} {seconds:.0f} s after the command"


def catch(bench: Bench) -> Seen:
    """Catch is learned by agents on two nodes. Raises NoNamespaces."""
    seen = Seen()
    with Namespaces(NODES) as net, bench.watched() as run, Far(bench, run, net, NODES) as far:
        seen.note = net.words
        _learn(far, seen, CAUGHT, CATCH_S, *CATCH)
        far.account(seen)
    return seen


def pong(bench: Bench) -> Seen:
    """Pong with agents on two nodes and with as many here, in turn; the full form also learns it.

    Raises NoNamespaces.
    """
    seen = Seen()
    with Namespaces(NODES) as net:
        seen.note = net.words
        here, there = [], []
        for turn in range(int(bench.scaled(3, 1))):
            here.append(_pps(bench, seen, net, f"here-{turn}", 0))
            there.append(_pps(bench, seen, net, f"there-{turn}", NODES))
        seen.pps_before, seen.pps_during = statistics.median(here), statistics.median(there)
        share = seen.pps_during / seen.pps_before
        seen.note += f"; {share:.0%} of the PPS with agents here ({_all(here)}; {_all(there)})"
        seen.expect(share >= LEAST_SHARE, f"{share:.0%} of the PPS with agents here")
        if not bench.quick:
            with bench.watched("learned") as run, Far(bench, run, net, NODES) as far:
                _learn(far, seen, PONG_SCORE, PONG_S, *PONG)
                far.account(seen)
    return seen


def _all(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:,.0f}" for rate in rates)


def _pps(bench: Bench, seen: Seen, net: Namespaces, name: str, nodes: int) -> float:
    """PPS of Pong with agents on this many nodes, or on the learner if there are none."""
    with bench.watched(name) as run, Far(bench, run, net, nodes) as far:
        far.begin(*PONG)
        seen.injected += far.playing if nodes else 0
        time.sleep(SETTLE_S)
        began_s, seconds = time.monotonic(), bench.scaled(30.0, 6.0)
        time.sleep(seconds)
        pps = run.pps(began_s, began_s + seconds)
        far.finish(seen)
    return pps


CASES = (
    Case(
        "machines/Catch learned elsewhere", "all agents on two other nodes: Catch is learned", catch
    ),
    Case(
        "machines/Pong played elsewhere",
        f"all agents on two other nodes: at least {LEAST_SHARE:.0%} of the PPS with agents here "
        "(PPS before), and Pong starts to be learned: a mean of -19, where chance gives -20.4",
        pong,
        is_long=True,
    ),
)
