"""Faults of the agents' processes: they are killed, stopped, or never come up."""

import random
import signal
import time
from functools import partial

import psutil

from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.watched import Watched

AGENTS = 16
PONG = ("--game", "Pong", "--scheduler", "off", "--envs-per-agent", "8")
PONG += ("--agents", str(AGENTS), "--max-agents", str(AGENTS))
RECOVER_S = 10.0


def _kill_some(run: Watched, seconds: float, rng: random.Random) -> int:
    """Kill a quarter of the agents each second. Returns how many were killed."""
    killed, until_s = 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        killed += _kill(rng.sample(run.agents(), AGENTS // 4))
        time.sleep(1.0)
    return killed


def _kill(agents: list[psutil.Process]) -> int:
    for each in agents:
        each.send_signal(signal.SIGKILL)
    return len(agents)


def killed_each_second(bench: Bench) -> Seen:
    """`kill -9` of 4 of 16 agents each second."""
    seen, rng = Seen(), random.Random(bench.seed)
    with bench.watched() as run:
        run.train(*PONG)
        run.begun(AGENTS)
        inject = partial(_kill_some, run, bench.scaled(60.0, 8.0), rng)
        clean_s = bench.scaled(20.0, 6.0)
        bench.disturb(run, seen, inject, clean_s, bench.scaled(10.0, 4.0), RECOVER_S)
        bench.finish(run, seen)
    return seen


def all_killed(bench: Bench) -> Seen:
    """`kill -9` of all agents at once."""
    seen = Seen()
    with bench.watched() as run:
        run.train(*PONG)
        run.begun(AGENTS)
        clean_s, after_s = bench.scaled(20.0, 6.0), bench.scaled(10.0, 4.0)
        bench.disturb(run, seen, lambda: _kill(run.agents()), clean_s, after_s, RECOVER_S)
        bench.finish(run, seen)
    return seen


CASES = (
    Case(
        "agents/killed each second",
        "4 of 16 agents are killed each second: the run goes on and is as fast within 10 s",
        killed_each_second,
    ),
    Case(
        "agents/all killed at once",
        "all 16 agents are killed: they are replaced and the run is as fast within 10 s",
        all_killed,
    ),
)
