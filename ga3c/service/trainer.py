"""A trainer thread: does the work that its feed gives, and records the results."""

import threading
import time

from ga3c.runs.metrics import Metrics
from ga3c.service.feeds import Feed
from ga3c.service.threads import Gate
from ga3c.service.trace import MOMENT_S, Trace
from ga3c.wire.queues import Closed

WAIT_S = 0.2


class Trainer:
    """Works until stopped, or until its feed is closed."""

    def __init__(
        self,
        *,
        feed: Feed,
        gate: Gate,
        metrics: Metrics,
        trace: Trace | None,
        stop: threading.Event,
    ) -> None:
        self._feed = feed
        self._gate = gate
        self._metrics = metrics
        self._trace = trace
        self._stop = stop

    def run(self) -> None:
        """The thread's body."""
        try:
            while not self._stop.is_set():
                self._turn()
        except Closed:
            pass

    def _turn(self) -> None:
        started_s = time.monotonic()
        work = self._feed.next(WAIT_S)
        self._metrics.add(trainers_waiting_s=time.monotonic() - started_s)
        if work is None:
            return
        with self._gate.passing():
            began_s = time.monotonic()
            done = work()
            ended_s = time.monotonic()
            self._metrics.add(
                **done.counts, trainers_busy_s=ended_s - began_s, trainers_cpu_s=done.cpu_s
            )
        self._metrics.set(**done.newest)
        if self._trace:
            self._trace.here(done.name, began_s, ended_s, **done.details)
            self._trace.learned(done.segments, began_s + MOMENT_S)
