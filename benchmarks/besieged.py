"""`python -m benchmarks.besieged`: a service that reveals its token and addresses.

It prints how to reach it, then its counts, each as a line of JSON, until its input ends. A run
shares its token only with its agents, so this service is built from a run's parts instead.
"""

import contextlib
import json
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from agents import keys
from agents.environments import EnvironmentConfig, spaces
from benchmarks.ledgers import Ledgers
from ga3c import backend
from ga3c.service.service import Service
from ga3c.service.wiring import build_service
from ga3c.settings.learning import LearningConfig
from ga3c.settings.run import RunConfig
from ga3c.settings.scheduler import Counts
from ga3c.settings.service import HostsConfig, ServiceConfig
from ga3c.settings.train import TrainConfig

GAME = EnvironmentConfig("benchmarks.paced:PacedLedger-v0")
T_MAX, AGENTS = 5, 2
SERVICE = ServiceConfig(
    transport="tcp",
    agents=AGENTS,
    max_agents=AGENTS + 2,
    predictors=2,
    max_predictors=2,
    trainers=1,
    max_trainers=1,
    envs_per_agent=8,
    groups=2,
    t_max=T_MAX,
    training_batch_min=20,
    training_batch_max=80,
)
TICK_S = 0.25
STOP_S = 20.0
GUESTS = ("vandal", "stutterer")  # play the lanes after the agents'


def _config(directory: Path) -> TrainConfig:
    """Settings with a second address, for other machines."""
    for name in ("service", "atlas"):
        with contextlib.redirect_stdout(sys.stderr):
            keys.run(keys.Config(directory / name))
    hosts = HostsConfig(
        listen="tcp://127.0.0.1:*",
        key=directory / "service",
        allow=(directory / "atlas.pub",),
        agents_here=AGENTS,
    )
    return TrainConfig(
        run=RunConfig(seed=7),
        environment=GAME,
        service=SERVICE,
        hosts=hosts,
        learning=LearningConfig(reward_clip=0.0),  # the ledger needs the rewards as paid
    )


def _lanes(number: int) -> np.ndarray:
    """The lanes of the agent with this number, int32."""
    each = SERVICE.envs_per_agent
    return np.arange(number * each, (number + 1) * each, dtype=np.int32)


def _place(service: Service) -> dict[str, Any]:
    """What an attacker needs to know."""
    frontend = service.frontend
    for number, guest in enumerate(GUESTS, AGENTS):
        frontend.peers.expect(guest, _lanes(number).reshape(SERVICE.groups, -1))
    assert frontend.listening is not None
    return {
        "hello": asdict(frontend._hello),
        "near": frontend.endpoint,
        "far": frontend.listening.endpoint,
        "agents": list(service.agents._identities.values()),
    }


def _keep_guests(service: Service) -> None:
    """Let guests stay. The service would end them, like agents, at their first damaged message."""
    peers, faults = service.frontend.peers, service.frontend.peers.faults

    def of_agents() -> dict[str, str]:
        return {name: fault for name, fault in faults().items() if name not in GUESTS}

    peers.faults = of_agents  # type: ignore[method-assign]


def _counts(service: Service, ledgers: Ledgers, events: list[str]) -> dict[str, Any]:
    counts = service.metrics.snapshot().counts
    learned, problems = ledgers.seen()
    steps = service.model.source.book._steps  # [lanes]
    return {
        "agents_steps": int((steps[: AGENTS * SERVICE.envs_per_agent] + 1).sum()),
        "repeated": counts.get("repeated_steps", 0),
        "rejected": {
            name.partition(":")[2]: count
            for name, count in counts.items()
            if name.startswith("rejected:")
        },
        "learned": learned,
        "problems": problems,
        "events": events,
    }


def main(directory: str) -> None:
    """Play, learn and count, until the input ends."""
    backend.configure(1, 0)
    config = _config(Path(directory))
    service = build_service(config, spaces(config.environment))
    ledgers = Ledgers(service, T_MAX, but=_lanes(GUESTS.index("vandal") + AGENTS).tolist())
    _keep_guests(service)
    is_over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait, daemon=True).start()
    service.start(Counts(AGENTS, SERVICE.predictors, SERVICE.trainers))
    events: list[str] = []
    try:
        print(json.dumps(_place(service)), flush=True)
        while not is_over.wait(TICK_S):
            events += service.tend()
            print(json.dumps(_counts(service, ledgers, events)), flush=True)
    finally:
        stuck = service.stop(STOP_S)
    if stuck:
        raise SystemExit(f"did not stop: {', '.join(stuck)}")


if __name__ == "__main__":
    main(sys.argv[1])
