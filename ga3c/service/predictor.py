"""A predictor thread: answers requests with actions, and passes completed segments to trainers."""

import threading
import time
from dataclasses import dataclass

import numpy as np

from ga3c.experience.book import Book, Segment
from ga3c.experience.pacing import Pacing
from ga3c.experience.ring import Arrivals, outcome_rows
from ga3c.learning.model import Model
from ga3c.runs.action_log import ActionLog
from ga3c.runs.metrics import Metrics
from ga3c.runs.tally import Tally
from ga3c.service.threads import Gate
from ga3c.service.trace import MOMENT_S, Arrival, Trace
from ga3c.wire.frontend import Frontend
from ga3c.wire.queues import BatchQueue, Closed
from ga3c.wire.requests import Reply, Request

WAIT_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """Takes batches of requests until stopped or the queue is closed."""

    requests: BatchQueue[Request]
    segments: BatchQueue[Segment]
    """Where completed segments go."""
    book: Book
    pacing: Pacing
    model: Model
    frontend: Frontend
    metrics: Metrics
    tally: Tally
    discount: float
    """Of a step that does not terminate its episode."""
    gate: Gate
    actions: ActionLog | None
    """Of all actions; None records none."""
    trace: Trace | None
    stop: threading.Event

    def run(self) -> None:
        """The thread's body."""
        try:
            while not self.stop.is_set():
                started_s = time.monotonic()
                batch = self.requests.get(WAIT_S)
                waited_s = time.monotonic() - started_s
                self.metrics.add(predictors_waiting_s=waited_s)
                if batch:
                    self._predict(batch)
        except Closed:
            pass

    def _predict(self, batch: list[Request]) -> None:
        batch.sort(key=lambda request: int(request.lanes[0]))  # makes the batch reproducible
        lanes = np.concatenate([request.lanes for request in batch])
        fresh = [request.lanes for request in batch if request.sequence == 0]
        if fresh:
            self.book.begin(np.concatenate(fresh))
        started_s = time.monotonic()
        self._wait_for_room(lanes)
        admitted_s = time.monotonic()
        self.tally.begin()
        with self.gate.passing():
            actions, completed, cpu_s = self._act(batch, lanes)
        if self.trace:
            self.trace.predicted(
                [Arrival(r.agent, int(r.lanes[0]), r.came_s) for r in batch],
                [self.book.begun(r.lanes) for r in batch],
                admitted_s + MOMENT_S,
            )
        counts = np.cumsum([len(request.lanes) for request in batch])[:-1]
        self.frontend.reply(
            [Reply(*pair) for pair in zip(batch, np.split(actions, counts), strict=True)]
        )
        ended_s = time.monotonic()
        if self.trace:
            self.trace.here("wait for room", started_s, admitted_s)
            self.trace.here("predict", admitted_s, ended_s, observations=len(lanes))
        self.metrics.add(
            predictors_busy_s=ended_s - admitted_s,
            predictors_cpu_s=cpu_s,
            predictors_blocked_s=admitted_s - started_s,
        )
        while completed:
            sizes = [segment.steps for segment in completed]
            completed = completed[self.segments.put(completed, sizes, WAIT_S) :]

    def _wait_for_room(self, lanes: np.ndarray) -> None:
        """Wait until the next step of all `lanes` [n] may be made. Raises Closed."""
        while not (self.book.admit(lanes, WAIT_S) and self.pacing.admit(len(lanes), WAIT_S)):
            if self.requests.closed:
                raise Closed

    def _act(
        self, batch: list[Request], lanes: np.ndarray
    ) -> tuple[np.ndarray, list[Segment], float]:
        """Actions int32 [n], the segments that they complete, and the model's CPU seconds."""
        exploration = self.model.exploration(lanes, self.pacing.steps)
        arrivals, cpu_s = self._arrivals(batch, lanes, exploration), time.thread_time()
        actions = self.model.act(arrivals)
        cpu_s = time.thread_time() - cpu_s
        if exploration.any() and exploration.min() == exploration.max():  # not a ladder
            name = "noise" if actions.dtype.kind == "f" else "epsilon"
            self.metrics.set(**{name: float(exploration[0])})
        self._note_episodes(batch, exploration)
        if self.actions:
            self.actions.append(actions)
        completed = self.book.complete(lanes)  # before the reply lets the agents go on
        self.pacing.acted(len(lanes))
        rewards = float(arrivals.outcomes[:, 0].sum())
        self.metrics.add(steps=len(lanes), rewards=rewards, prediction_batches=1)
        return actions, completed, cpu_s

    def _note_episodes(self, batch: list[Request], exploration: np.ndarray) -> None:
        """Args: exploration: how much each lane of the batch explores, [n]."""
        first = 0  # place of the request's first lane in the batch
        for request in batch:
            outcomes = request.step.outcomes
            for place in np.flatnonzero(outcomes["finished"] == 1):
                score = float(outcomes[place]["episode_return"])
                length = int(outcomes[place]["episode_length"])
                epsilon = float(exploration[first + place])
                self.tally.episode(self.pacing.steps, score, length, epsilon)
            first += len(outcomes)

    def _arrivals(
        self, batch: list[Request], lanes: np.ndarray, exploration: np.ndarray
    ) -> Arrivals:
        outcomes = np.concatenate([request.step.outcomes for request in batch])
        firsts = outcomes["first"] == 1
        slots, ages = self.book.advance(lanes, firsts, self.model.updates)
        return Arrivals(
            lanes,
            slots,
            ages,
            outcome_rows(outcomes, self.discount),
            batch[0].step.frames
            if len(batch) == 1
            else np.concatenate([request.step.frames for request in batch]),
            exploration,
        )
