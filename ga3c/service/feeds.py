"""The work of trainers: updates from segments in order, or updates and flushes of a replay."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from ga3c.experience.book import Segment
from ga3c.experience.replay import Replay
from ga3c.experience.replay_pacing import ReplayPacing, Turn
from ga3c.experience.segments import SegmentBook
from ga3c.learning.model import Learned, Model
from ga3c.wire.queues import BatchQueue


@dataclass(frozen=True)
class Done:
    """The result of one piece of work."""

    name: str  # for the trace
    details: dict[str, int]  # for the trace
    newest: dict[str, float]  # new values of gauges
    counts: dict[str, float] = field(default_factory=dict)  # increments of counters
    segments: list[Segment] = field(default_factory=list)  # segments that the update used
    cpu_s: float = 0.0  # CPU seconds of this thread inside the model


Work = Callable[[], Done]
"""A piece of work. The trainer must do it before it asks for the next one."""


class Feed(Protocol):
    """Gives a trainer its next piece of work."""

    def next(self, timeout_s: float) -> Work | None:
        """The next piece of work; None if there is none within the timeout. Raises Closed."""

    def waits(self) -> str:
        """What learning waits for, and what to change, in words."""


@dataclass(frozen=True)
class Passes:
    """How a batch of segments is divided into updates."""

    passes: int = 1
    """How often each segment is trained."""
    minibatch: int | None = None
    """Most samples of an update; None: the whole batch."""
    seed: int = 0

    def minibatches(self, batch: list[Segment], updates: int) -> Iterator[list[Segment]]:
        """The segments of each update. Every pass takes all segments, in an order of its own.

        Args: updates: the number of updates made so far, which seeds the orders.
        """
        count = len(batch)
        size = count
        if self.minibatch is not None:
            size = max(1, min(count, self.minibatch // batch[0].steps))
        draws = np.random.default_rng([self.seed, updates])
        for _ in range(self.passes):
            order = np.arange(count) if size == count else draws.permutation(count)
            for part in np.array_split(order, -(-count // size)):
                yield [batch[place] for place in part]


class SegmentFeed:
    """Updates from segments in the order of completion."""

    def __init__(
        self,
        *,
        segments: BatchQueue[Segment],
        book: SegmentBook,
        model: Model,
        progress: Callable[[], float],
        batch_min: int,
        passes: Passes,
    ) -> None:
        """Args: progress: position in the schedules; batch_min: samples of the smallest batch."""
        self._passes = passes
        self._segments = segments
        self._book = book
        self._model = model
        self._progress = progress
        self._batch_min = batch_min

    def next(self, timeout_s: float) -> Work | None:
        """The next update. Raises Closed."""
        batch = self._segments.get(timeout_s)
        return partial(self._learn, batch) if batch else None

    def waits(self) -> str:
        """How many samples await training, and how many a batch takes."""
        return (
            f"{self._segments.size} samples await training, a batch takes at least "
            f"{self._batch_min}: give a smaller --training-batch-min, a larger --training-queue "
            "or more --pending-segments"
        )

    def _learn(self, batch: list[Segment]) -> Done:
        cpu_s, counts = time.thread_time(), defaultdict[str, float](float)
        for part in self._passes.minibatches(batch, self._model.updates):
            newest = self._update(part, counts)
        self._book.release(batch)
        cpu_s = time.thread_time() - cpu_s
        samples = sum(segment.steps for segment in batch)
        return Done("learn", {"samples": samples}, newest, dict(counts), batch, cpu_s)

    def _update(self, batch: list[Segment], counts: dict[str, float]) -> dict[str, float]:
        """Make one update and add it to `counts`. Returns the new values of gauges."""
        lanes = np.array([segment.lane for segment in batch], np.int32)
        slots = self._book.slots(batch)
        versions = self._book.versions(lanes, slots[:, :-1])
        learned = self._model.learn(lanes, slots, progress=self._progress())
        lags = learned.update - 1 - versions
        lag = {"lag_updates": float(lags.sum()) * learned.is_finite}
        for name, count in {**_counted(learned, lags.size), **lag}.items():
            counts[name] += count
        return {**learned.means, "policy_lag_max": float(lags.max())}


class ReplayFeed:
    """Updates from a replay, and flushes of new steps, when the pacing says so."""

    def __init__(
        self,
        *,
        pacing: ReplayPacing,
        replay: Replay,
        model: Model,
        progress: Callable[[], float],
        batch_size: int,
    ) -> None:
        """Args: progress: position in the schedules; batch_size: transitions of an update."""
        self._pacing = pacing
        self._replay = replay
        self._model = model
        self._progress = progress
        self._batch_size = batch_size

    def next(self, timeout_s: float) -> Work | None:
        """The next update or flush."""
        turn = self._pacing.turn(timeout_s)
        if turn is None:
            return None
        return self._learn if turn is Turn.LEARN else partial(self._flush, turn)

    def waits(self) -> str:
        """The progress of acting and learning, and what each waits for."""
        return self._pacing.waits()

    def _learn(self) -> Done:
        cpu_s = time.thread_time()
        learned = self._model.learn(progress=self._progress())
        if self._pacing.copies_target(learned.update):
            self._model.copy_target()
        self._pacing.learned()
        counts = _counted(learned, self._batch_size)
        cpu_s = time.thread_time() - cpu_s
        return Done("learn", {"samples": self._batch_size}, learned.means, counts, cpu_s=cpu_s)

    def _flush(self, turn: Turn) -> Done:
        cpu_s = time.thread_time()
        block = self._replay.flush()
        if turn is Turn.MEET:
            self._model.copy_target()
        self._pacing.flushed(int(block.heads.sum()))
        newest = {"replay_steps": float(self._replay.drawable)}
        cpu_s = time.thread_time() - cpu_s
        return Done("flush", {"steps": len(block.entering)}, newest, cpu_s=cpu_s)


def _counted(learned: Learned, samples: int) -> dict[str, float]:
    """The increments of the counters for an update of `samples` samples."""
    if not learned.is_finite:
        return {"refused_updates": 1}
    return {"updates": 1, "trained_samples": samples}
