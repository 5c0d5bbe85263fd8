"""Counters shared by all threads, rates over time windows, and CPU time of the cores."""

import contextlib
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from agents.machine import of_groups, stated
from ga3c.settings.machine import CORES

STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Snapshot:
    """The counters at one moment."""

    time_s: float
    counts: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return self.counts.get(name, 0.0)


@dataclass(frozen=True)
class Window:
    """The time between two snapshots."""

    start: Snapshot
    end: Snapshot

    @property
    def seconds(self) -> float:
        """The length of the window."""
        return self.end.time_s - self.start.time_s

    def count(self, name: str) -> float:
        """The increase of a counter."""
        return self.end[name] - self.start[name]

    def rate(self, name: str) -> float:
        """The increase of a counter per second."""
        return self.count(name) / max(self.seconds, 1e-9)

    def mean(self, name: str, per: str) -> float:
        """The increase of a counter per increase of the counter `per`; 0 if that did not grow."""
        return self.count(name) / self.count(per) if self.count(per) else 0.0

    def share(self, role: str, state: str) -> float:
        """The share of a role's time in a state: waiting, busy or blocked; 0 if it has none."""
        seconds = sum(self.count(f"{role}_{name}_s") for name in ("waiting", "busy", "blocked"))
        return self.count(f"{role}_{state}_s") / max(seconds, 1e-9)


class Metrics:
    """Counters and latest figures; thread-safe. Only the scheduler bases decisions on them.

    The counters are `steps` (one environment step is one prediction; the frame of a reset counts),
    `rewards` (summed, not clipped), `prediction_batches`, `updates`, `trained_samples`,
    `lag_updates` (summed over samples), `refused_updates` (skipped because their loss or gradient
    was not finite), `*_busy_s` and `*_waiting_s` for each role, `predictors_blocked_s` (waiting for
    learning), `*_cpu_s` (CPU time of the threads that call the model: for predictors inside it, for
    trainers in all work with it), `frontend_waiting_s` (for messages), `messages` (each with a
    group's step), `rejected:<reason>` (messages), `repeated_steps` (sent again after a
    reconnection), `agent_deaths` and `evaluations_failed`. For steps from other machines:
    `far_messages`, `far_bytes`, and `trips` with `trips_s`, their round-trip times.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards both
        self._counts: Counter[str] = Counter()
        self._last: dict[str, float] = {}

    def read(self) -> dict[str, float]:
        """All counters."""
        with self._lock:
            return dict(self._counts)

    def restore(self, counts: Mapping[str, float]) -> None:
        """Continue counting from `counts`."""
        with self._lock:
            self._counts = Counter(counts)

    def add(self, **increments: float) -> None:
        """Increase counters."""
        with self._lock:
            self._counts.update(increments)

    def reject(self, reason: str) -> None:
        """Count a rejected message by its reason."""
        with self._lock:
            self._counts[f"rejected:{reason}"] += 1

    def set(self, **values: float) -> None:
        """Keep the newest value of a quantity that is not a counter, such as a loss."""
        with self._lock:
            self._last.update(values)

    def snapshot(self) -> Snapshot:
        """The counters now."""
        with self._lock:
            return Snapshot(self._clock(), dict(self._counts))

    def newest(self) -> dict[str, float]:
        """The newest values given to `set`."""
        with self._lock:
            return dict(self._last)


class CoresTime(NamedTuple):
    """CPU seconds of all cores that this process may use, since an arbitrary start."""

    busy: float  # including steal time, which a virtual machine's host took
    idle: float


def cores_time(root: Path = Path("/"), allowed: int = CORES) -> CoresTime:
    """The busy and idle seconds until now; only the difference between two calls is meaningful.

    If a control group allows less time than our cores have, the busy time is the group's.

    Args:
        root: where the control groups' `proc` and `sys` are mounted.
        allowed: cores that we may use.
    """
    cores = _of_ours(psutil.cpu_times(percpu=True))
    groups = of_groups(root, _used_v2_s, _used_v1_s, controller="cpuacct")
    used_s = next(groups, None) if allowed < len(cores) else None
    if used_s is not None:
        return CoresTime(used_s, allowed * time.monotonic() - used_s)
    idle = sum(core.idle + getattr(core, "iowait", 0.0) for core in cores)
    whole = sum(sum(core[:8]) for core in cores)  # user time already includes the guests' time
    return CoresTime(whole - idle, idle)


def _of_ours(times: list[Any]) -> list[Any]:
    """The times of the cores that we may use; all, if a container numbers cores differently."""
    try:
        listed = re.findall(r"^cpu(\d+) ", STAT.read_text(), re.MULTILINE)
        ours = os.sched_getaffinity(0)
    except (OSError, AttributeError):  # not Linux
        return times
    numbered = dict(zip(map(int, listed), times, strict=False))
    return [numbered[core] for core in ours] if ours <= numbered.keys() else times


def _used_v2_s(group: Path) -> float:
    """The CPU seconds that a control group has used."""
    used = stated(group / "cpu.stat")
    if "usage_usec" not in used:
        raise ValueError(f"{group} has no usage_usec")
    return used["usage_usec"] / 1e6


def _used_v1_s(group: Path) -> float:
    return int((group / "cpuacct.usage").read_text()) / 1e9


def families(leaders: Iterable[int]) -> dict[int, list[int]]:
    """The processes in the session of each leader, itself first: it and all that it started."""
    found = {leader: [leader] for leader in leaders}
    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # the process has just ended
            if pid not in found and (leader := os.getsid(pid)) in found:
                found[leader].append(pid)
    return found


def resident_mb(pid: int) -> float:
    """The resident memory of a process in MiB; 0 if it has ended."""
    with contextlib.suppress(psutil.Error):
        return float(psutil.Process(pid).memory_info().rss) / 2**20
    return 0.0


def cpu_s_of_others(pids: Iterable[int]) -> float:
    """CPU seconds that processes other than `pids` have used of our cores.

    Only the difference between two calls is meaningful.
    """
    ours = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):  # the process has just ended
            used = psutil.Process(pid).cpu_times()
            ours += used.user + used.system
    return cores_time().busy - ours
