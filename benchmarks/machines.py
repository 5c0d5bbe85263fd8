"""`ga3c benchmark machines`: what it costs to have agents on another machine.

The other machine is this one, behind a relay that delays everything. So the figures show the cost
of encryption, compression and latency, but not of network cards. The first points compare
transports without delay: ipc, tcp, CURVE, and CURVE with compressed frames. The others show, by
round-trip time, how many groups of environments hide it: an agent plays with one group while the
answers to the others are in flight.
If interrupted, the same command continues (benchmarks/points.py).
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from agents import keys
from agents.host import MOST_PORT
from benchmarks.delays import Delay
from benchmarks.points import Figures, Point, PointsConfig, conclude, measure
from ga3c.reports.console import show
from ga3c.reports.processes import end
from ga3c.settings.checks import check_count
from ga3c.settings.machine import CORES

LOCAL: dict[str, dict[str, str]] = {"ipc": {}, "tcp": {"transport": "tcp"}}
FAR: dict[str, dict[str, str]] = {"tcp, CURVE": {"no-compress": ""}, "tcp, CURVE, compressed": {}}
MS = " ms there and back"
QUICK_ROUND_TRIPS_MS, QUICK_GROUPS = (5.0,), (2, 8)


@dataclass(frozen=True)
class Config(PointsConfig):
    """Measure agents on another machine: by transport, by round-trip time and by groups."""

    agents: int = CORES
    """Agent processes."""
    envs: int = 64
    """Environments per agent process."""
    round_trips_ms: tuple[float, ...] = (1.0, 5.0, 20.0)
    """Round-trip times between agents and service, in milliseconds; if left out, --quick measures
    one of them."""
    groups: tuple[int, ...] = (2, 4, 8, 16)
    """Numbers of groups that an agent's environments are divided into; if left out, --quick
    measures two of them."""
    port: int = 5599
    """A free TCP port on this machine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "agents", "envs")
        if not 1 <= self.port <= MOST_PORT:
            raise ValueError(f"port {self.port}: must be in [1, {MOST_PORT}], as TCP has no other")
        if not self.groups:
            raise ValueError("groups: must name at least one number, or nothing is measured")
        for groups in self.groups:
            if groups < 1 or self.envs % groups:
                raise ValueError(f"groups {groups}: must divide envs {self.envs}")
        if not self.round_trips_ms or min(self.round_trips_ms) < 0:
            raise ValueError(f"round_trips_ms {self.round_trips_ms}: must not be negative")

    @property
    def far(self) -> list[tuple[float, int]]:
        """The round-trip times and the numbers of groups to measure."""
        trips = self.reduced("round_trips_ms", QUICK_ROUND_TRIPS_MS)
        return list(product(trips, self.reduced("groups", QUICK_GROUPS)))


def run(config: Config) -> None:
    """Measure the missing points; print and save all. Raises RuntimeError on a failure."""
    around = partial(far_away, config)
    measured = measure(list(points(config)), config.game, config.window_s, config.out_dir, around)
    _print(measured)
    conclude("machines", measured, config)


def _key(config: Config, name: str) -> Path:
    return config.out_dir / "keys" / name


def points(config: Config) -> Iterator[Point]:
    """All points; creates the keys that they need."""
    _key(config, "").mkdir(parents=True, exist_ok=True)
    for name in ("service", "host"):
        if not _key(config, name).exists():
            keys.run(keys.Config(_key(config, name)))
    agents = {"agents": str(config.agents), "max-agents": str(config.agents)}
    agents["envs-per-agent"] = str(config.envs)
    listening = {
        "listen": f"tcp://127.0.0.1:{config.port}",
        "key": str(_key(config, "service")),
        "allow": f"{_key(config, 'host')}.pub",
        "agents-here": "0",
    }
    for name, options in LOCAL.items():
        yield Point(name, {**agents, **options})
    for name, options in FAR.items():
        yield Point(name, {**agents, **options, **listening})
    for trip_ms, groups in config.far:
        options = {"groups": str(groups)}
        yield Point(f"{trip_ms:g}{MS}", {**agents, **options, **listening})


@contextlib.contextmanager
def far_away(config: Config, point: Point) -> Iterator[None]:
    """While a point is measured: a host at the point's distance, if the point has one."""
    if "listen" not in point.options:
        yield
        return
    trip_ms = float(point.part.removesuffix(MS)) if point.part.endswith(MS) else 0.0
    with Delay(("127.0.0.1", config.port), trip_ms / 2000) as port, _host(config, port):
        yield


@contextlib.contextmanager
def _host(config: Config, port: int) -> Iterator[None]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "ga3c", "agents", "--connect", f"tcp://127.0.0.1:{port}"),
            *("--key", str(_key(config, "host")), "--agents", str(config.agents)),
            *("--service", f"{_key(config, 'service')}.pub"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        end(process)


def _print(measured: list[tuple[Point, Figures]]) -> None:
    first = measured[0][1]["pps"]
    rows = [
        (
            point.part,
            point.options.get("groups", ""),
            f"{figures['pps']:,.0f}",
            f"{figures['pps'] / first:.0%}",
            f"{figures['agents_waiting_share']:.0%}",
        )
        for point, figures in measured
    ]
    headings = ("transport, or round trip", "groups", "PPS", "of ipc", "agents wait")
    show(f"agents on another machine; both share {CORES} cores", headings, rows)
