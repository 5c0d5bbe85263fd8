"""A trainer thread: segments in, updates of the model out."""

import threading
import time
from collections.abc import Callable

import numpy as np

from ga3c.experience import Lanes, Segment
from ga3c.metrics import Metrics
from ga3c.model import Model
from ga3c.queues import BatchQueue, Closed
from ga3c.trace import MOMENT_S, Trace

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
        trace: Trace | None = None,
    ) -> None:
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
                    self._train(batch)
        except Closed:
            pass

    def _train(self, batch: list[Segment]) -> None:
        started_s = time.monotonic()
        lanes = np.array([segment.lane for segment in batch], np.int32)
        slots = self._lanes.slots(batch)
        versions = self._lanes.versions(lanes, slots[:, :-1])
        learned = self._model.learn(lanes, slots, self._progress())
        ended_s = time.monotonic()
        if self._trace:
            self._trace.here("learn", started_s, ended_s, samples=versions.size)
            self._trace.learned(batch, started_s + MOMENT_S)
        lags = learned.update - 1 - versions
        self._metrics.add(
            updates=1,
            trained_samples=lags.size,
            lag_updates=float(lags.sum()),
            trainers_busy_s=ended_s - started_s,
        )
        self._metrics.set(**learned.means, policy_lag_max=float(lags.max()))
        self._lanes.release(batch)
