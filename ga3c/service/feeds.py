"""The work of trainers: updates from segments in order, or updates and flushes of a replay."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np

from ga3c.experience.book import Segment
from ga3c.experience.in_order import Prepare, single_steps
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


Part = tuple[np.ndarray, np.ndarray]
"""Segments of T steps: their lanes int32 [B] and slots int32 [B, T + 1]."""
Progress = Callable[[], float]
"""The position in the schedules."""
Work = Callable[[], Done]
"""A piece of work. A checkpoint may be taken between two pieces, never within one."""


class Feed(Protocol):
    """Gives a trainer its next work."""

    def next(self, timeout_s: float) -> Iterable[Work]:
        """The next pieces of work. Finish each before asking for the next.

        Empty if there is none within the timeout. Iterating raises Closed.
        """

    def waits(self) -> str:
        """Says what learning waits for and what to change."""


@dataclass(frozen=True)
class Passes:
    """How a batch of segments, or of their single steps, is divided into updates."""

    passes: int = 1
    """How often each step is trained on."""
    minibatch: int | None = None
    """Most samples per update; None: the whole batch."""
    seed: int = 0

    def minibatches(self, lanes: np.ndarray, slots: np.ndarray, updates: int) -> Iterator[Part]:
        """The part of the batch for each update. Each pass covers all segments in its own order.

        Args:
            lanes, slots: [B] and [B, T + 1], of segments of T steps.
            updates: the number of updates made so far, which seeds the orders.
        """
        count = size = len(lanes)
        if self.minibatch is not None:
            size = max(1, min(count, self.minibatch // (slots.shape[1] - 1)))
        draws = np.random.default_rng([self.seed, updates])
        for _ in range(self.passes):
            order = np.arange(count) if size == count else draws.permutation(count)
            for part in np.array_split(order, -(-count // size)):
                yield lanes[part], slots[part]


@dataclass(frozen=True, kw_only=True)
class SegmentFeed:
    """Updates from segments in the order of completion."""

    segments: BatchQueue[Segment]
    book: SegmentBook
    model: Model
    progress: Progress
    passes: Passes
    whole_batches: bool
    """Whether all updates of a batch are one piece of work."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held while a batch with prepared targets is trained: measuring another batch meanwhile would
    change the units of its observations and values."""

    def next(self, timeout_s: float) -> Iterator[Work]:
        """The updates of the next batch."""
        takes_turns = bool(self.model.preparations)
        if takes_turns and not self.turn.acquire(timeout=timeout_s):
            return
        try:
            if batch := self.segments.get(timeout_s):
                works = self._updates(batch)
                yield from [partial(_in_one, works)] if self.whole_batches else works
        finally:
            if takes_turns:
                self.turn.release()

    def _updates(self, batch: list[Segment]) -> Iterator[Work]:
        """The updates of a batch. A closed queue cuts them short, unless they are one piece."""
        lanes = np.array([segment.lane for segment in batch], np.int32)
        slots, passes = self.book.slots(batch), self.passes
        if self.model.preparations:
            once = list(replace(passes, passes=1).minibatches(lanes, slots, 0))
            for prepare, part in itertools.product(self.model.preparations, once):
                yield partial(self._prepare, prepare, *part)
            lanes, slots = single_steps(lanes, slots)
        parts = list(passes.minibatches(lanes, slots, self.model.updates))
        for made, part in enumerate(parts, 1):
            if self.segments.closed and made > 1 and not self.whole_batches:
                return
            yield partial(self._learn, *part, batch if made == len(parts) else [])

    def waits(self) -> str:
        """How many samples await training, and how many a batch takes."""
        return (
            f"{self.segments.size} samples await training, a batch takes at least "
            f"{self.segments.min_batch}: give a smaller --training-batch-min, a larger "
            "--training-queue or more --pending-segments"
        )

    def _prepare(self, prepare: Prepare, lanes: np.ndarray, slots: np.ndarray) -> Done:
        prepare(lanes, slots)
        return Done("prepare", {"samples": slots[:, 1:].size}, {})

    def _learn(self, lanes: np.ndarray, slots: np.ndarray, batch: list[Segment]) -> Done:
        """Make an update, then release `batch`: segments for which it was the last one."""
        versions = self.book.versions(lanes, slots[:, :-1])
        learned = self.model.learn(lanes, slots, progress=self.progress())
        self.book.release(batch)
        lags = learned.update - learned.is_finite - versions
        lag = {"lag_updates": float(lags.sum()) * learned.is_finite}
        counts = {**_counted(learned, lags.size), **lag}
        newest = {**learned.means, "policy_lag_max": float(lags.max())}
        return Done("learn", {"samples": lags.size}, newest, counts, batch)


def _in_one(works: Iterable[Work]) -> Done:
    """Do a batch's work as one piece: a checkpoint in between would hold half of it."""
    done = [work() for work in works]
    counts = sum((Counter(each.counts) for each in done), Counter[str]())
    samples = sum(each.details["samples"] for each in done if each.name == done[-1].name)
    return replace(done[-1], details={"samples": samples}, counts=dict(counts))


@dataclass(frozen=True, kw_only=True)
class ReplayFeed:
    """Updates from a replay, and flushes of new steps, when the pacing says so."""

    pacing: ReplayPacing
    replay: Replay
    model: Model
    progress: Progress
    batch_size: int
    """Transitions per update."""

    def next(self, timeout_s: float) -> Iterable[Work]:
        """The next update or flush."""
        turn = self.pacing.turn(timeout_s)
        if turn is None:
            return []
        return [self._learn if turn is Turn.LEARN else partial(self._flush, turn)]

    def waits(self) -> str:
        """The progress of acting and learning, and what each is waiting for."""
        return self.pacing.waits()

    def _learn(self) -> Done:
        learned = self.model.learn(progress=self.progress())
        if self.pacing.copies_target(learned.update):
            self.model.copy_target()
        self.pacing.learned()
        counts = _counted(learned, self.batch_size)
        return Done("learn", {"samples": self.batch_size}, learned.means, counts)

    def _flush(self, turn: Turn) -> Done:
        block = self.replay.flush()
        if turn is Turn.MEET:
            self.model.copy_target()
        self.pacing.flushed(int(block.heads.sum()))
        newest = {"replay_steps": float(self.replay.drawable)}
        return Done("flush", {"steps": len(block.entering)}, newest)


def _counted(learned: Learned, samples: int) -> dict[str, float]:
    """The increments of the counters for an update of `samples` samples."""
    if not learned.is_finite:
        return {"refused_updates": 1}
    return {"updates": 1, "trained_samples": samples}
