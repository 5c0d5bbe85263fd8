"""Faults in agent processes: they are killed or stopped, or their environments break."""

import json
import random
import signal
import time
from functools import partial

import psutil

from benchmarks.faults import environments
from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.late import send_late_steps
from benchmarks.faults.orders import Orders
from benchmarks.faults.watched import Watched

AGENTS = 16
EACH_SECOND = 4
RECOVER_S = 10.0
LATE_STEPS = 100


def _sixteen(bench: Bench) -> tuple[str, ...]:
    game = "CartPole-v1" if bench.quick else "Pong"
    counts = ("--agents", str(AGENTS), "--max-agents", str(AGENTS), "--envs-per-agent", "8")
    return ("--game", game, "--algorithm", "a3c", "--scheduler", "off", *counts)


def _kill_some(run: Watched, seconds: float, rng: random.Random) -> int:
    """Kill a quarter of the agents every second. Returns how many were killed."""
    killed, until_s = 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        agents = run.agents()
        killed += _kill(rng.sample(agents, min(EACH_SECOND, len(agents))))
        time.sleep(1.0)
    return killed


def _kill(agents: list[psutil.Process]) -> int:
    for each in agents:
        each.send_signal(signal.SIGKILL)
    return len(agents)


def killed_each_second(bench: Bench) -> Seen:
    """`kill -9` of 4 of 16 agents every second."""
    seen, rng = Seen(), random.Random(bench.seed)
    with bench.watched() as run:
        run.train(*_sixteen(bench))
        run.begun(AGENTS)
        inject = partial(_kill_some, run, bench.scaled(60.0, 5.0), rng)
        clean_s = bench.scaled(20.0, 4.0)
        bench.disturb(run, seen, inject, clean_s, bench.scaled(10.0, 2.0), RECOVER_S)
        bench.finish(run, seen)
    return seen


def all_killed(bench: Bench) -> Seen:
    """`kill -9` of all agents at once."""
    seen = Seen()
    with bench.watched() as run:
        run.train(*_sixteen(bench))
        run.begun(AGENTS)
        clean_s, after_s = bench.scaled(20.0, 4.0), bench.scaled(10.0, 2.0)
        bench.disturb(run, seen, lambda: _kill(run.agents()), clean_s, after_s, RECOVER_S)
        bench.finish(run, seen)
    return seen


def _stop_one(run: Watched, orders: Orders, seconds: float, timeout_s: float) -> int:
    """Stop an agent, and after `seconds` send steps in its name. Returns 1 if it was replaced."""
    pid, task = orders.task(run)
    until_s = time.monotonic() + seconds
    psutil.Process(pid).suspend()
    run.until(lambda: f"it owed a step for {timeout_s:g} s" in run.log, seconds)
    time.sleep(max(0.0, until_s - time.monotonic()))
    send_late_steps(task, LATE_STEPS)
    return 1


def stopped(bench: Bench) -> Seen:
    """SIGSTOP of an agent for longer than the service waits for a step."""
    seen, orders = Seen(), Orders(bench.directory)
    timeout_s, seconds = bench.scaled(10.0, 2.0), bench.scaled(30.0, 5.0)
    with bench.watched() as run:
        run.train(*environments.four(orders, "BreakableCart", timeout_s))
        run.begun(environments.AGENTS)
        inject = partial(_stop_one, run, orders, seconds, timeout_s)
        clean_s, after_s = bench.scaled(20.0, 4.0), bench.scaled(10.0, 2.0)
        bench.disturb(run, seen, inject, clean_s, after_s, RECOVER_S)
        bench.finish(run, seen)
        refused = json.loads((run.path / "result.json").read_text())["rejected_messages"]
    seen.note = f"late steps refused: {refused}"
    seen.expect(refused == {"no hello": LATE_STEPS}, f"not {LATE_STEPS} refused: {refused}")
    return seen


def dying_at_start(bench: Bench) -> Seen:
    """Every agent dies in its first step."""
    seen, orders = Seen(), Orders(bench.directory)
    orders.always("ends at once")
    with bench.watched() as run:
        run.train(*environments.four(orders, "BreakableCart"))
        code = run.ended(60.0)
        seen.injected = run.log.count("exited 7")
        seen.expect(code == 1, f"ended with exit code {code}, not 1: {run.tail()}")
        for words in ("to be replaced in 0.5 s", "in its place before their first step"):
            seen.expect(words in run.log, f"did not say `{words}`: {run.tail()}")
        bench.account(run, seen)
    return seen


CASES = (
    Case(
        "agents/killed each second",
        "4 of 16 agents are killed every second: the run goes on and is back to speed within 10 s",
        killed_each_second,
    ),
    Case(
        "agents/all killed at once",
        "all 16 agents are killed: they are replaced and the run is back to speed within 10 s",
        all_killed,
    ),
    Case(
        "agents/stopped",
        "an agent is stopped for 30 s: it is replaced after --agent-timeout-s, and steps sent "
        "in its name later are refused and counted",
        stopped,
    ),
    Case(
        "agents/dying at start",
        "every agent dies in its first step: replacements wait, then the run ends and says why",
        dying_at_start,
    ),
    *environments.CASES,
)
