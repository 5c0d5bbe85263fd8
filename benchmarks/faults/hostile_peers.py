"""Peers that must not harm the good ones: strangers, and machines whose keys are allowed.

One run plays on two nodes; the hostile peers come from the first, one kind after another.
"""

import json
import subprocess
import sys
import time

from benchmarks.faults.case import RECOVERED, Bench, Case, Seen
from benchmarks.faults.far import AGENTS, LEDGER, NODES, Far, far
from benchmarks.faults.processes import new_mark
from benchmarks.faults.watched import marked_environment

STRANGERS = ("unknown_key", "wrong_service", "idle")
ALLOWED = ("oversized", "many_parts", "bomb", "never_reads")
ROGUE = "rogue"  # an allowed key that no good machine has
MOST_MORE_MB = 128.0  # that the service may hold more than before, at its worst moment
ENDED_S = 60.0


def _attack(bench: Bench, broken: Far, kind: str, key: str) -> tuple[int, float]:
    """Attack for some seconds. Returns how often, and the PPS of the good agents meanwhile."""
    seconds, connections = bench.scaled(20.0, 4.0), bench.scaled(5000, 1000)
    keys = f"{broken.shared('service')}", f"{broken.key(key)}"
    address, node = broken.net.connect(0), broken.net.node(0)
    command = [
        *(*node, sys.executable, "-m", "benchmarks.hostile", kind, address, *keys),
        *(f"{seconds}", f"{connections:.0f}"),
    ]
    began_s = time.monotonic()
    environment = marked_environment(new_mark(), bench.directory)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=seconds + ENDED_S
    )
    if done.returncode:
        raise RuntimeError(f"{kind}: {done.stderr[-1000:]}")
    return int(json.loads(done.stdout)), broken.run.pps(began_s, time.monotonic())


def _attacked(bench: Bench, kinds: tuple[str, ...], key: str) -> Seen:
    """A run under one kind of attack after another; the good agents keep their PPS.

    One agent has no place on the good nodes, so that a rogue can have it.
    """
    seen = Seen()
    with far(bench, seen, room=AGENTS // NODES) as broken:
        broken.begin(*LEDGER, agents=AGENTS + 1, allow=(ROGUE,))
        clean_s = bench.scaled(20.0, 5.0)
        time.sleep(clean_s)
        now_s = time.monotonic()
        seen.pps_before = before = broken.run.pps(now_s - clean_s, now_s)
        held = broken.run.held[-1]
        for kind in kinds:
            count, pps = _attack(bench, broken, kind, key)
            seen.expect(count > 0, f"{kind}: not injected")
            seen.injected += count
            words = f"{kind.replace('_', ' ')} ({count:,}): {pps / before:.0%} of PPS"
            seen.expect(pps >= RECOVERED * before, words)
            seen.pps_during = min(pps, seen.pps_during or pps)
            seen.note += f"; {words}"
        peak_mb = max(each.memory_mb for each in broken.run.held)
        more_mb = peak_mb - held.memory_mb
        seen.expect(more_mb <= MOST_MORE_MB, f"{more_mb:.0f} MiB more at its worst")
        time.sleep(bench.scaled(10.0, 3.0))
        seen.descriptors = broken.run.held[-1].descriptors - held.descriptors
        seen.threads = broken.run.held[-1].threads - held.threads
        broken.finish(seen)
    return seen


def strangers(bench: Bench) -> Seen:
    """Unknown keys, peers that take the service for another one, and idle connections."""
    return _attacked(bench, STRANGERS, "node0")


def allowed(bench: Bench) -> Seen:
    """A machine whose key is allowed sends what it should not, and does not read."""
    return _attacked(bench, ALLOWED, ROGUE)


CASES = (
    Case(
        "machines/strangers",
        "peers with unknown keys, that take the service for another one, and 5,000 idle "
        f"connections: good agents keep {RECOVERED:.0%} of their PPS",
        strangers,
    ),
    Case(
        "machines/hostile but allowed",
        "oversized parts, messages of many parts, decompression bombs and a peer that never reads, "
        f"with an allowed key: good agents keep {RECOVERED:.0%} of their PPS, memory grows by at "
        f"most {MOST_MORE_MB:g} MiB",
        allowed,
    ),
)
