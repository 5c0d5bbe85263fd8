"""Counters of all threads, and rates over windows of time."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ROLLING_EPISODES = 100


class Episode(NamedTuple):
    """A finished episode of a lane."""

    seconds: float  # since the run began
    steps: int  # of the whole run, when it ended
    score: float  # unclipped return
    length: int  # in steps


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
        """The share of a role's time in a state: waiting, busy or blocked; 0 without any time."""
        seconds = sum(self.count(f"{role}_{name}_s") for name in ("waiting", "busy", "blocked"))
        return self.count(f"{role}_{state}_s") / max(seconds, 1e-9)


class Metrics:
    """Counters and finished episodes. Safe from every thread.

    The counters are `steps` (one environment step is one prediction; the frame of a reset counts),
    `prediction_batches`, `updates`, `trained_samples`, `lag_updates` (summed over samples),
    `refused_updates` (left out because their loss or gradient was not finite), `*_busy_s` and
    `*_waiting_s` for each role, `*_cpu_s` (CPU time of the threads that call the model, inside it),
    `rejected:<reason>` (messages) and `agent_deaths`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._last: dict[str, float] = {}
        self._scores: deque[float] = deque(maxlen=ROLLING_EPISODES)
        self._fresh: list[Episode] = []
        self._episodes = 0
        self._last_score = float("nan")
        self.started_s = clock()

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self.started_s

    def read(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as JSON values."""
        with self._lock:
            return {
                "seconds": self.seconds,
                "steps": self._counts["steps"],
                "counts": dict(self._counts),
                "scores": list(self._scores),
                "episodes": self._episodes,
            }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continue from what `read` returned."""
        with self._lock:
            self.started_s = self._clock() - values["seconds"]
            self._counts = Counter(values["counts"])
            self._scores.extend(values["scores"])
            self._episodes = values["episodes"]
            if values["scores"]:
                self._last_score = values["scores"][-1]

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

    def episode(self, score: float, length: int) -> None:
        """Record a finished episode."""
        with self._lock:
            self._fresh.append(Episode(self.seconds, int(self._counts["steps"]), score, length))
            self._scores.append(score)
            self._episodes += 1
            self._last_score = score

    def snapshot(self) -> Snapshot:
        """The counters now."""
        with self._lock:
            return Snapshot(self._clock(), dict(self._counts))

    def total(self, name: str) -> float:
        """The value of one counter."""
        with self._lock:
            return self._counts[name]

    def newest(self) -> dict[str, float]:
        """The newest values given to `set`."""
        with self._lock:
            return dict(self._last)

    def take_episodes(self) -> list[Episode]:
        """The episodes finished since the last call."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
            return fresh

    @property
    def episodes(self) -> int:
        """Number of finished episodes."""
        return self._episodes

    @property
    def last_score(self) -> float:
        """Score of the newest episode; nan before the first."""
        return self._last_score

    def score_mean(self) -> float:
        """Mean score of the last 100 episodes, or of all if fewer; nan before the first."""
        with self._lock:
            return sum(self._scores) / len(self._scores) if self._scores else float("nan")
