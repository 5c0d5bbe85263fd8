"""Faults in other machines that play for a run, and in the network between.

All agents play on two nodes, each with room for all of them. Afterwards the ledger must have every
step once.
"""

import signal
import time
from collections.abc import Callable
from functools import partial

from benchmarks.faults import elsewhere, hostile_peers, ray_cluster, unanswered
from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.far import AGENTS, LEDGER, Far, Host, check_ledger, far
from ga3c.wire.hosts import LOST_S

CLEAN_S, AFTER_S = (20.0, 4.0), (10.0, 3.0)
START_S = 20.0  # for agents to start and reach the earlier speed
COME_BACK_S = 25.0  # after a cut: heartbeats notice it, and reconnects are at most 5 s apart
SEEN_S = 60.0  # for an expected event, on a busy machine


def _broken(
    bench: Bench,
    inject: Callable[[Far], int],
    recover_s: float,
    then: Callable[[Far, Seen], None] = lambda _, __: None,
) -> Seen:
    """A run on two nodes, measured before, while, and after `inject` breaks it."""
    seen = Seen()
    with far(bench, seen) as broken:
        broken.begin(*LEDGER)
        times = bench.scaled(*CLEAN_S), bench.scaled(*AFTER_S)
        bench.disturb(broken.run, seen, partial(inject, broken), *times, recover_s)
        then(broken, seen)
        broken.finish(seen)
        check_ledger(broken.run, seen)
    return seen


def _kill_agents(broken: Far) -> int:
    agents = broken.fullest.agents()
    for each in agents:
        each.kill()
    return len(agents)


def agents_killed(bench: Bench) -> Seen:
    """`kill -9` of all agents of one host."""
    return _broken(bench, _kill_agents, START_S)


def _wait_until_lost(broken: Far, host: Host) -> None:
    broken.run.until(lambda: f"host {host.name} is lost" in broken.run.log, LOST_S + SEEN_S)


def _kill_host(broken: Far) -> int:
    host = broken.fullest
    killed = host.kill()
    _wait_until_lost(broken, host)
    return killed


def host_killed(bench: Bench) -> Seen:
    """`kill -9` of `ga3c agents`: its agents end with it, and new ones start on the other node."""

    def elsewhere(broken: Far, seen: Seen) -> None:
        there = sorted(len(host.agents()) for host in broken.hosts)
        seen.expect(there == [0, AGENTS], f"{there} agents on the two nodes")

    return _broken(bench, _kill_host, START_S, elsewhere)


def _stop_host(broken: Far) -> int:
    """Until the host resumes, the kernel keeps the service's ends of its agents' connections."""
    host = broken.fullest
    stopped = len(host.agents())
    host.signal_all(signal.SIGSTOP)
    _wait_until_lost(broken, host)
    host.signal_all(signal.SIGCONT)
    broken.run.until(lambda: broken.run.log.count(f"host {host.name} has come") == 2, SEEN_S)
    broken.run.until(lambda: broken.playing == AGENTS, SEEN_S)
    return stopped


def host_stopped(bench: Bench) -> Seen:
    """SIGSTOP of a host and its agents; when they resume, the agents are no longer wanted."""
    return _broken(bench, _stop_host, START_S)


def _cut(seconds: float, broken: Far) -> int:
    for number in range(len(broken.hosts)):
        broken.net.cut(number)
    time.sleep(seconds)
    for number in range(len(broken.hosts)):
        broken.net.mend(number)
    return len(broken.hosts)


def cut_shortly(bench: Bench) -> Seen:
    """Both cables are cut for 10 s: nothing is restarted."""

    def none_died(broken: Far, seen: Seen) -> None:
        seen.expect("is lost" not in broken.run.log, "a host was declared lost")
        seen.expect("replaced" not in broken.run.log, "an agent died")

    return _broken(bench, partial(_cut, bench.scaled(10.0, 3.0)), COME_BACK_S, none_died)


def cut_long(bench: Bench) -> Seen:
    """Both cables are cut for 2 minutes: hosts are declared lost, and come back."""
    return _broken(bench, partial(_cut, bench.scaled(120.0, 8.0)), COME_BACK_S + START_S)


def service_anew(bench: Bench) -> Seen:
    """`kill -9` of the service, which is resumed on the same port; hosts keep playing for it."""
    seen = Seen()
    with far(bench, seen) as broken:
        run = broken.run
        broken.begin(*LEDGER, "--checkpoint-every-s", "2")
        clean_s = bench.scaled(*CLEAN_S)
        time.sleep(clean_s)
        killed_s = time.monotonic()
        seen.pps_before = run.pps(killed_s - clean_s, killed_s)
        run.signal(signal.SIGKILL)
        seen.expect(run.ended() == -9, "the service was not killed")
        seen.injected, readings = 1, len(run.readings)
        run.resume("--checkpoint-every-s", "3600")
        run.until(lambda: len(run.readings) > readings + 1, SEEN_S)
        seen.recovery_s = run.readings[readings + 1].at_s - killed_s
        back_s, after_s = time.monotonic(), bench.scaled(*AFTER_S)
        time.sleep(after_s)
        seen.pps_after = run.pps(back_s, back_s + after_s)
        broken.finish(seen)
        check_ledger(run, seen)
    return seen


CASES = (
    Case(
        "machines/agents of a host killed",
        f"all agents of a host are killed: back to speed within {START_S:g} s, each step "
        "stored once",
        agents_killed,
    ),
    Case(
        "machines/host killed",
        f"a host is killed and declared lost {LOST_S:g} s later: on the other one, back to speed "
        f"within {START_S:g} s of that, each step stored once",
        host_killed,
    ),
    Case(
        "machines/host stopped",
        "a host and its agents are stopped: declared lost as if killed; when they resume, the old "
        "agents end, each step stored once",
        host_stopped,
        is_long=True,
    ),
    Case(
        "machines/link cut for 10 s",
        f"all links are cut for 10 s: back to speed within {COME_BACK_S:g} s, no agent dies, each "
        "step stored once",
        cut_shortly,
    ),
    Case(
        "machines/link cut for 2 minutes",
        f"all links are cut for 2 minutes: back to speed within {COME_BACK_S + START_S:g} s, each "
        "step stored once",
        cut_long,
        is_long=True,
    ),
    Case(
        "machines/service anew",
        "the service is killed and resumed on the same port: hosts play for it again, each step "
        "stored once",
        service_anew,
    ),
    *ray_cluster.CASES,
    *elsewhere.CASES,
    *hostile_peers.CASES,
    *unanswered.CASES,
)
