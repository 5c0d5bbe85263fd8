"""A trainer thread: does the work from its feed, and records the results."""

import contextlib
import threading
import time
from dataclasses import dataclass

from ga3c.runs.metrics import Metrics
from ga3c.service.feeds import Feed, Work
from ga3c.service.threads import Gate
from ga3c.service.trace import MOMENT_S, Trace
from ga3c.wire.queues import Closed

WAIT_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Works until stopped, or until its feed is closed."""

    feed: Feed
    gate: Gate
    metrics: Metrics
    trace: Trace | None
    stop: threading.Event

    def run(self) -> None:
        """The thread's body."""
        with contextlib.suppress(Closed):
            while not self.stop.is_set():
                free_s = time.monotonic()
                for work in self.feed.next(WAIT_S):
                    self.metrics.add(trainers_waiting_s=time.monotonic() - free_s)
                    self._do(work)
                    free_s = time.monotonic()
                self.metrics.add(trainers_waiting_s=time.monotonic() - free_s)

    def _do(self, work: Work) -> None:
        with self.gate.passing():
            began_s, began_cpu_s = time.monotonic(), time.thread_time()
            done = work()
            ended_s, cpu_s = time.monotonic(), time.thread_time() - began_cpu_s
            self.metrics.add(**done.counts, trainers_busy_s=ended_s - began_s, trainers_cpu_s=cpu_s)
        self.metrics.set(**done.newest)
        if self.trace:
            self.trace.here(done.name, began_s, ended_s, **done.details)
            self.trace.learned(done.segments, began_s + MOMENT_S)
