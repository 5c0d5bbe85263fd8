"""A trainer thread: segments in, or draws from the replay, and updates of the model out."""

import threading
import time
from collections.abc import Callable

import numpy as np

from ga3c.experience.pacing import Pacing, Turn
from ga3c.experience.segments import Lanes, Segment
from ga3c.experience.window import ReplayLanes
from ga3c.learning.model import Learned, Model
from ga3c.runs.metrics import Metrics
from ga3c.runs.trace import MOMENT_S, Trace
from ga3c.service.gate import Gate
from ga3c.service.queues import BatchQueue, Closed

WAIT_S = 0.2


class Trainer:
    """Takes batches of segments until stopped or the queue is closed."""

    def __init__(
        self,
        segments: BatchQueue[Segment],
        lanes: Lanes,
        model: Model,
        metrics: Metrics,
        progress: Callable[[], float],
        stop: threading.Event,
        gate: Gate,
        trace: Trace | None = None,
    ) -> None:
        self._gate = gate
        self._trace = trace
        self._segments = segments
        self._lanes = lanes
        self._model = model
        self._metrics = metrics
        self._progress = progress
        self._stop = stop

    def run(self) -> None:
        """The thread's body."""
        try:
            while not self._stop.is_set():
                started_s = time.monotonic()
                batch = self._segments.get(WAIT_S)
                self._metrics.add(trainers_waiting_s=time.monotonic() - started_s)
                if batch:
                    with self._gate.passing():
                        self._train(batch)
        except Closed:
            pass

    def _train(self, batch: list[Segment]) -> None:
        started_s = time.monotonic()
        lanes = np.array([segment.lane for segment in batch], np.int32)
        slots = self._lanes.slots(batch)
        versions = self._lanes.versions(lanes, slots[:, :-1])
        progress, cpu_s = self._progress(), time.thread_time()
        learned = self._model.learn(lanes, slots, progress=progress)
        cpu_s = time.thread_time() - cpu_s
        ended_s = time.monotonic()
        if self._trace:
            self._trace.here("learn", started_s, ended_s, samples=versions.size)
            self._trace.learned(batch, started_s + MOMENT_S)
        lags = learned.update - 1 - versions
        self._metrics.add(
            **_counted(learned, lags.size),
            lag_updates=float(lags.sum()) * learned.is_finite,
            trainers_busy_s=ended_s - started_s,
            trainers_cpu_s=cpu_s,
        )
        self._metrics.set(**learned.means, policy_lag_max=float(lags.max()))
        self._lanes.release(batch)


class ReplayTrainer:
    """Learns from the replay, and makes visible what was played, as the pacing bids."""

    def __init__(
        self,
        pacing: Pacing,
        lanes: ReplayLanes,
        model: Model,
        metrics: Metrics,
        progress: Callable[[], float],
        batch_size: int,
        target_period: int | None,
        stop: threading.Event,
        gate: Gate,
        trace: Trace | None = None,
    ) -> None:
        """Args: target_period: updates between copies to the target; None: where both meet."""
        self._pacing = pacing
        self._lanes = lanes
        self._model = model
        self._metrics = metrics
        self._progress = progress
        self._batch_size = batch_size
        self._target_period = target_period
        self._stop = stop
        self._gate = gate
        self._trace = trace

    def run(self) -> None:
        """The thread's body."""
        while not self._stop.is_set():
            started_s = time.monotonic()
            turn = self._pacing.turn(WAIT_S)
            began_s, cpu_s = time.monotonic(), time.thread_time()
            if turn:
                with self._gate.passing():
                    if turn is Turn.LEARN:
                        self._learn()
                    else:
                        self._flush(turn)
            busy_s = time.monotonic() - began_s
            self._metrics.add(
                trainers_waiting_s=began_s - started_s,
                trainers_busy_s=busy_s,
                trainers_cpu_s=time.thread_time() - cpu_s,
            )

    def _learn(self) -> None:
        started_s = time.monotonic()
        learned = self._model.learn(progress=self._progress())
        if self._target_period and learned.update % self._target_period == 0:
            self._model.copy_target()
        self._pacing.learned()
        self._metrics.add(**_counted(learned, self._batch_size))
        self._metrics.set(**learned.means)
        if self._trace:
            self._trace.here("learn", started_s, time.monotonic(), samples=self._batch_size)

    def _flush(self, turn: Turn) -> None:
        started_s = time.monotonic()
        block = self._lanes.flush()
        self._model.publish(block)
        self._lanes.flushed(block)
        if turn is Turn.MEET:
            self._model.copy_target()
        self._pacing.flushed(int(block.heads.sum()))
        self._metrics.set(replay_steps=float(self._lanes.drawable))
        if self._trace:
            self._trace.here("flush", started_s, time.monotonic(), steps=len(block.entering))


def _counted(learned: Learned, samples: int) -> dict[str, int]:
    """What an update of so many samples adds to the counters."""
    if not learned.is_finite:
        return {"refused_updates": 1}
    return {"updates": 1, "trained_samples": samples}
