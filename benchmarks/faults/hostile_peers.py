"""Peers that must not harm the good ones: strangers, and machines whose keys are allowed.

One run plays on two nodes; the hostile peers connect from the first, one kind after another.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.faults.case import RECOVERED, Bench, Case, Seen
from benchmarks.faults.far import AGENTS, LEDGER, NODES, Far, far
from benchmarks.faults.processes import marked_environment, new_mark

STRANGERS = ("unknown_key", "wrong_service", "idle")
ALLOWED = ("oversized", "many_parts", "bomb", "never_reads")
ROGUE = "rogue"  # an allowed key that no good machine has
MOST_MORE_MB = 128.0  # the service's memory may grow by this much, at its peak
ENDED_S = 120.0
QUICK_SHARE = 0.75  # in the quick form: two seconds on a busy machine are noisy


def _lowest_priority() -> None:
    """Set it for this process and its session: with sched_autogroup_enabled, Linux divides cores
    among sessions before it looks at nice values.
    """
    os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")


def _attack(bench: Bench, broken: Far, kind: str, key: str) -> int:
    """Attack for some seconds. Returns how often.

    The attacker has the lowest priority: on another machine it would take none of these cores.

    An attacker that is cut off while it sends may be aborted by an assertion in its own ZeroMQ.
    Then another one takes over, and the first counts as one attack.
    """
    connections, keys = bench.scaled(5000, 1000), (broken.shared("service"), broken.key(key))
    until_s, count = time.monotonic() + bench.scaled(10.0, 3.0), 0
    while (seconds := until_s - time.monotonic()) > 0:
        command = [
            *(*broken.net.node(0), sys.executable, "-m", "benchmarks.hostile"),
            *(kind, broken.net.connect(0), *map(str, keys), f"{seconds}", f"{connections:.0f}"),
        ]
        environment = marked_environment(new_mark(), bench.directory)
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds + ENDED_S,
            start_new_session=True,
            preexec_fn=_lowest_priority,
        )
        if done.returncode not in (0, -signal.SIGABRT):
            raise RuntimeError(f"{kind}: {done.stderr[-1000:]}")
        count += 1 if done.returncode else int(json.loads(done.stdout))
    return count


def _share(bench: Bench, seen: Seen, broken: Far, kind: str, key: str) -> float:
    """The PPS of the good agents under attack, relative to quiet windows before and after."""
    quiet, attacked = [], []
    quiet_s = bench.scaled(10.0, 2.0)
    for turn in range(int(bench.scaled(3, 1)) + 1):
        if turn:
            began_s = time.monotonic()
            count = _attack(bench, broken, kind, key)
            attacked.append(broken.run.pps(began_s, time.monotonic()))
            seen.expect(count > 0, f"{kind}: not injected")
            seen.injected += count
        began_s = time.monotonic()
        time.sleep(quiet_s)
        if not broken.run.runs:
            raise RuntimeError(f"{kind}: the run has ended: {broken.run.tail()}")
        quiet.append(broken.run.pps(began_s, began_s + quiet_s))
    seen.pps_before = seen.pps_before or quiet[0]
    seen.pps_during = min(*attacked, seen.pps_during or attacked[0])
    seen.pps_after = quiet[-1]
    return statistics.mean(attacked) / statistics.mean(quiet)


def _attacked(bench: Bench, kinds: tuple[str, ...], key: str) -> Seen:
    """A run under one kind of attack after another; the good agents must keep their PPS.

    The run has one agent more than the good nodes have room for, so that a rogue can get it.
    """
    seen = Seen()
    with far(bench, seen, room=AGENTS // NODES) as broken:
        broken.begin(*LEDGER, agents=AGENTS + 1, allow=(ROGUE,))
        before = broken.run.held[-1]
        for kind in kinds:
            share = _share(bench, seen, broken, kind, key)
            words = f"{kind.replace('_', ' ')}: {share:.0%} of PPS"
            seen.expect(share >= bench.scaled(RECOVERED, QUICK_SHARE), words)
            seen.note += f"; {words}"
        more_mb = max(each.memory_mb for each in broken.run.held) - before.memory_mb
        seen.expect(more_mb <= MOST_MORE_MB, f"{more_mb:.0f} MiB more at the peak")
        seen.grown(before, broken.run.held[-1])
        broken.finish(seen)
    return seen


def strangers(bench: Bench) -> Seen:
    """Unknown keys, peers that expect another service's key, and idle connections."""
    return _attacked(bench, STRANGERS, "node0")


def allowed(bench: Bench) -> Seen:
    """A machine whose key is allowed sends what it should not, and does not read."""
    return _attacked(bench, ALLOWED, ROGUE)


CASES = (
    Case(
        "machines/strangers",
        "peers with unknown keys, peers that expect another service's key, and 5,000 idle "
        f"connections: good agents keep {RECOVERED:.0%} of their PPS",
        strangers,
        is_long=True,
    ),
    Case(
        "machines/hostile but allowed",
        "oversized parts, messages of many parts, decompression bombs and a peer that never reads, "
        f"with an allowed key: good agents keep {RECOVERED:.0%} of their PPS, and memory grows by "
        f"at most {MOST_MORE_MB:g} MiB",
        allowed,
    ),
)
