"""Faults in what is sent: damaged, too large, repeated, in another's name, or no message at all."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.faults import fuzz, vandals
from benchmarks.faults.case import RECOVERED, Bench, Case, Seen
from benchmarks.faults.siege import MOST_MORE_MB, Siege
from benchmarks.faults.stutter import Stutterer

MESSAGES_PER_S = 2000.0
SETTLE_S = 7.0  # silent connections are cut off after 5 s


def besiege(
    bench: Bench,
    attack: Callable[[Siege], int],
    peace: Callable[[Siege, float], object] = lambda siege, seconds: time.sleep(seconds),
) -> Seen:
    """Measure a service before, during and after an attack; it must learn each step once.

    Args: peace: what to do for a number of seconds before the attack.
    """
    seen = Seen()
    with Siege(bench.directory) as siege:
        siege.begun()
        clean_s = bench.scaled(20.0, 4.0)
        peace_s = time.monotonic()
        peace(siege, clean_s)
        began_s, before = time.monotonic(), siege.held()
        seen.pps_before = siege.pps(peace_s, began_s)
        rejected = sum(siege.now["rejected"].values())
        seen.injected = attack(siege)
        over_s, during = time.monotonic(), siege.held()
        seen.pps_during = siege.pps(began_s, over_s)
        time.sleep(SETTLE_S)
        seen.pps_after = siege.pps(over_s, time.monotonic())
        after, now = siege.held(), siege.now
        seen.grown(before, after)
        seen.peak_mb = max(each.memory_mb for each in (before, during, after))
        _check(seen, now, after.memory_mb - before.memory_mb)
        share = seen.pps_during / max(seen.pps_before, 1e-9)
        refused = sum(now["rejected"].values()) - rejected
        seen.note = (
            f"{share:.0%} of the speed before; {refused:,.0f} refused for {len(now['rejected'])} "
            f"reasons, {now['repeated']:,.0f} taken as repeated, {now['learned']:,} steps learned "
            f"once, {after.memory_mb - before.memory_mb:+.1f} MiB"
        )
        code = siege.end()
        seen.expect(code == 0, f"ended with exit code {code}: {siege.said()}")
        left = siege.left()
        seen.left = len(left)
        seen.expect(not left, f"left behind: {', '.join(left)}")
    return seen


def _check(seen: Seen, now: dict[str, Any], more_mb: float) -> None:
    before, during = seen.pps_before or 0.0, seen.pps_during or 0.0
    seen.expect(
        during >= RECOVERED * before, f"{during:,.0f} PPS during the attack, {before:,.0f} before"
    )
    seen.expect(not now["problems"], f"learned: {'; '.join(now['problems'])}")
    deaths = [event for event in now["events"] if event.startswith("agent ")]
    seen.expect(not deaths, f"agents died: {'; '.join(deaths)}")
    seen.expect(more_mb <= MOST_MORE_MB, f"{more_mb:.0f} MiB more than before")


def malformed(bench: Bench) -> Seen:
    """A million damaged messages of thousands of kinds, from peers who know the token."""
    total = int(bench.scaled(1_000_000, 30_000))
    return besiege(bench, lambda siege: vandals.Vandals(siege).send(total, MESSAGES_PER_S))


def raw_bytes(bench: Bench) -> Seen:
    """Raw bytes to both ports."""
    seconds = bench.scaled(60.0, 5.0)
    return besiege(bench, partial(fuzz.connections, seconds=seconds, seed=bench.seed))


def too_large(bench: Bench) -> Seen:
    """Messages of 20,000 parts, and parts of 8 MiB."""
    return besiege(bench, partial(vandals.bombs, count=int(bench.scaled(60, 8))))


def again_and_again(bench: Bench) -> Seen:
    """Steps sent twice, late and early by a peer that played correctly before; and impostors."""
    players: list[Stutterer] = []

    def peace(siege: Siege, seconds: float) -> None:
        players.append(Stutterer(siege, bench.seed))
        players[0].play(seconds, stutters=False)

    def attack(siege: Siege) -> int:
        wrong = players[0].play(bench.scaled(60.0, 5.0), stutters=True)
        return wrong + vandals.thieves(siege, int(bench.scaled(200, 20)))

    return besiege(bench, attack, peace)


CASES: tuple[Case, ...] = (
    Case(
        "messages/malformed",
        "a million damaged messages: none raises, each step is learned once, memory stays flat",
        malformed,
    ),
    Case(
        "messages/raw bytes",
        "bytes that are not ZeroMQ, or almost are, sent to both ports: the same holds",
        raw_bytes,
        is_long=True,
    ),
    Case(
        "messages/too large",
        "messages of 20,000 parts and parts of 8 MiB: the same holds",
        too_large,
    ),
    Case(
        "messages/again and again",
        "steps sent twice, late, early and in other agents' names: each is learned once",
        again_and_again,
        is_long=True,
    ),
)
