"""A service whose numbers of agents, predictors and trainers keep changing."""

import os
import random
import time

import psutil

from agents.environments import spaces
from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.processes import belongings
from ga3c.command.parse import parse
from ga3c.service.service import Service
from ga3c.service.wiring import build_service
from ga3c.settings.scheduler import Counts
from ga3c.settings.train import TrainConfig

MOST = Counts(4, 4, 4)
SMALL = (
    *("--game", "CartPole-v1", "--algorithm", "a3c", "--scheduler", "off"),
    *("--agents", str(MOST.agents), "--envs-per-agent", "4"),
)
BEGIN_S = 60.0
STOP_S = 8.0


def changed(bench: Bench) -> Seen:
    """1,000 random changes (100 in the quick form), then back to the initial counts."""
    seen, draw = Seen(), random.Random(bench.seed)
    config = parse(list(SMALL), TrainConfig, "ga3c benchmark faults")
    service = build_service(config, spaces(config.environment))
    clean_s = bench.scaled(20.0, 4.0)
    try:
        service.start()
        _learn_on(service, seen)
        seen.pps_before, before = _rate(service, seen, clean_s), belongings(os.getpid())
        began, began_s = service.snapshot()["steps"], time.monotonic()
        for _ in range(int(bench.scaled(1000, 100))):
            service.resize(Counts(*(draw.randint(1, most) for most in MOST)))
            _tend(service, seen, draw.choice((0.0, 0.02, 0.1)))
            seen.injected += 1
        steps = service.snapshot()["steps"] - began
        seen.pps_during = steps / (time.monotonic() - began_s)
        service.resize(config.service.counts)
        _learn_on(service, seen)
        seen.pps_after, after = _rate(service, seen, clean_s), belongings(os.getpid())
        assert before and after
        seen.threads = after.threads - before.threads
        seen.expect(seen.threads <= 0, f"{seen.threads:+} threads")
        deaths = service.snapshot()["agent_deaths"]
        seen.expect(not deaths, f"{deaths:.0f} agents died")
    finally:
        stuck = service.stop(STOP_S)
    seen.expect(not stuck, f"did not end in time: {', '.join(stuck)}")
    seen.left = len(psutil.Process().children(recursive=True))
    seen.expect(not seen.left, f"{seen.left} processes are left behind")
    return seen


def _learn_on(service: Service, seen: Seen) -> None:
    """Wait until all agents play and an update is made."""
    updates, until_s = service.snapshot()["updates"], time.monotonic() + BEGIN_S
    while not service.plays() or service.snapshot()["updates"] <= updates:
        if time.monotonic() > until_s:
            raise RuntimeError(f"no update within {BEGIN_S:g} s: {service.waits()}")
        _tend(service, seen, 0.1)


def _rate(service: Service, seen: Seen, seconds: float) -> float:
    steps, began_s = service.snapshot()["steps"], time.monotonic()
    _tend(service, seen, seconds)
    return (service.snapshot()["steps"] - steps) / (time.monotonic() - began_s)


def _tend(service: Service, seen: Seen, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while True:
        seen.problems += service.tend()
        if (left_s := until_s - time.monotonic()) <= 0:
            return
        time.sleep(min(left_s, 0.1))


CASES = (
    Case(
        "counts/changed",
        "1,000 random changes to the numbers of agents, predictors and trainers: none is lost, no "
        "thread is left behind, and the run keeps learning",
        changed,
    ),
)
