"""A run's clock and finished episodes, which can decide when it ends and survive a resume."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from agents.messages import NOT_SAID

ROLLING_EPISODES = 100
INFO = "info/"  # prefix of the figures that environments report in their infos


def short(mean: float | None) -> str:
    """A mean with four digits that count: 12,350, 0.971; a dash if there is none."""
    return "-" if mean is None else f"{float(f'{mean:.4g}'):,.10g}"


def short_score(score: float) -> str:
    """A score without meaningless digits: 12,345, 0.97."""
    return f"{round(score, 2):,.10g}"


class Episode(NamedTuple):
    """A finished episode of a lane."""

    seconds: float  # since the run began
    steps: int  # of the whole run, when it ended
    score: float  # unclipped return
    length: int  # in steps
    epsilon: float  # how much its lane explored when it ended
    scored: bool  # whether it counts for the run's score


class Tally:
    """The clock and the episodes. Thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        most_scored: float = math.inf,
        info_keys: Sequence[str] = (),
    ) -> None:
        """For episodes whose environments report numbers under `info_keys`.

        Args: most_scored: the largest epsilon of an episode that counts for the run's score.
        """
        self._clock = clock
        self._most_scored = most_scored
        self._lock = threading.Lock()  # guards all that follows
        self._scores: deque[float] = deque(maxlen=ROLLING_EPISODES)
        self._lengths: deque[int] = deque(maxlen=ROLLING_EPISODES)
        self._successes: deque[float] = deque(maxlen=ROLLING_EPISODES)
        self._infos = {key: deque[float](maxlen=ROLLING_EPISODES) for key in info_keys}
        self._lanes: set[int] = set()  # that have finished an episode in this process
        self._fresh: list[Episode] = []
        self._episodes = 0
        self._last_score = float("nan")
        self._before_s = 0.0  # seconds of the run before this process
        self._began_s: float | None = None  # when this process made its first step
        self._ended_s: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the run's first step, without the time between its end and a resume."""
        now_s = self._clock() if self._ended_s is None else self._ended_s
        return self._before_s + now_s - (now_s if self._began_s is None else self._began_s)

    @property
    def has_begun(self) -> bool:
        """Whether this process has made a step."""
        return self._began_s is not None

    def begin(self) -> None:
        """Called when a step is made; time counts from the first one."""
        if self._began_s is None:
            self._began_s = self._clock()

    def end(self) -> None:
        """Stop the clock: the time that the run takes to stop does not count."""
        self._ended_s = self._clock()

    def episode(
        self,
        steps: int,
        score: float,
        length: int,
        epsilon: float = 0.0,
        success: float = NOT_SAID,
        infos: Sequence[float] = (),
        lane: int = 0,
    ) -> None:
        """Record an episode that finished on `lane` when the run had made `steps` steps.

        Args: infos: the numbers under each of the `info_keys`; nan where there was none.
        """
        scored = epsilon <= self._most_scored
        with self._lock:
            self._lanes.add(lane)
            self._fresh.append(Episode(self.seconds, steps, score, length, epsilon, scored))
            self._episodes += 1
            if scored:
                self._scores.append(score)
                self._lengths.append(length)
                if success != NOT_SAID:
                    self._successes.append(success)
                for values, value in zip(self._infos.values(), infos, strict=False):
                    if not math.isnan(value):
                        values.append(value)
                self._last_score = score

    def take_episodes(self) -> list[Episode]:
        """The episodes finished since the last call."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
            return fresh

    @property
    def episodes(self) -> int:
        """The number of episodes finished so far."""
        return self._episodes

    def has_full_mean(self, lanes: set[int]) -> bool:
        """Whether `score_mean` is over 100 episodes that may decide the end of a run.

        They may not before each of the `lanes` that play has finished an episode in this process:
        of many that begin at once, the shortest finish first. Those kept by an earlier process may.
        """
        fair = not self._lanes or lanes <= self._lanes
        return fair and len(self._scores) == ROLLING_EPISODES

    @property
    def last_score(self) -> float:
        """The score of the newest episode that counts; nan before the first."""
        return self._last_score

    def score_mean(self) -> float:
        """The mean of the last 100 episodes that count, or all if fewer; nan before the first."""
        with self._lock:
            return _mean(self._scores)

    def length_mean(self) -> float:
        """The mean length of the same episodes, in steps; nan before the first."""
        with self._lock:
            return _mean(self._lengths)

    def success_rate(self) -> float:
        """The rate over the last 100 of these that reported success or failure; nan before one."""
        with self._lock:
            return _mean(self._successes)

    def info_means(self) -> dict[str, float]:
        """The mean of the last 100 numbers under each info key; nan before the first."""
        with self._lock:
            return {key: _mean(values) for key, values in self._infos.items()}

    def read(self) -> dict[str, Any]:
        """Everything that a resumed run continues with, as JSON values."""
        with self._lock:
            return {
                "seconds": self.seconds,
                "scores": list(self._scores),
                "lengths": list(self._lengths),
                "successes": list(self._successes),
                "infos": {key: list(values) for key, values in self._infos.items()},
                "episodes": self._episodes,
            }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Restore what `read` returned; time continues from there."""
        with self._lock:
            self._before_s = values["seconds"]
            self._scores.extend(values["scores"])
            self._lengths.extend(values.get("lengths", []))  # older runs lack these
            self._successes.extend(values.get("successes", []))
            for key, kept in self._infos.items():
                kept.extend(values.get("infos", {}).get(key, []))
            self._episodes = values["episodes"]
            if values["scores"]:
                self._last_score = values["scores"][-1]


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
