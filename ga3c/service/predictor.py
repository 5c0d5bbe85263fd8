"""A predictor thread: answers requests with actions, and passes completed segments to trainers."""

import contextlib
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
from ga3c.service.threads import REMEDIES, Gate, RunFailed
from ga3c.service.trace import MOMENT_S, Trace
from ga3c.wire.frontend import Frontend
from ga3c.wire.queues import BatchQueue, Closed
from ga3c.wire.requests import Reply, Request

WAIT_S = 0.2
HELD_S = 0.005  # longest wait for room; new requests are not polled meanwhile


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
    """Discount of a step that does not terminate its episode."""
    gate: Gate
    actions: ActionLog | None
    """Records all actions, unless None."""
    synchronized: bool
    """Whether each prediction is for all environments."""
    trace: Trace | None
    stop: threading.Event

    def run(self) -> None:
        """The thread's body."""
        held: list[Request] = []  # without room for their next step
        with contextlib.suppress(Closed):
            while not self.stop.is_set():
                started_s = time.monotonic()
                fresh = self.requests.get(0.0 if held else WAIT_S)
                came_s = time.monotonic()
                self.metrics.add(predictors_waiting_s=came_s - started_s)
                if begin := [request.lanes for request in fresh if request.sequence == 0]:
                    self.book.begin(np.concatenate(begin))
                batch, held = self._with_room([*held, *fresh])
                blocked_s = time.monotonic() - came_s
                self.metrics.add(predictors_blocked_s=blocked_s)
                if self.trace and (batch or held):
                    self.trace.here("wait for room", came_s, came_s + blocked_s)
                if batch:
                    self._predict(batch)
        self.requests.fill(held, [len(request.lanes) for request in held])

    def _with_room(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        """A batch of requests whose next step may be made, and the requests held back.

        Waits briefly if all must wait. Raises Closed.
        """
        batch, held = (self._all_or_none if self.synchronized else self._those_with_room)(requests)
        count = sum(len(request.lanes) for request in batch)
        while batch and not self.pacing.admit(count, WAIT_S):
            if self.requests.closed:
                raise Closed
        return batch, held

    def _all_or_none(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        """One batch, whenever learning makes room: otherwise the batches would depend on timing."""
        lanes = [request.lanes for request in requests]
        has_room = not lanes or self.book.admit(np.concatenate(lanes), HELD_S)
        return (requests, []) if has_room else ([], requests)

    def _those_with_room(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        """An environment that must wait for learning does not block others, whose steps learning
        may need."""
        batch, held, count = list[Request](), list[Request](), 0
        for request in requests:
            fits = not batch or count + len(request.lanes) <= self.requests.max_batch
            if fits and self.book.admit(request.lanes, 0.0):
                batch.append(request)
                count += len(request.lanes)
            else:
                held.append(request)
        if held and not batch:
            self.book.admit(held[0].lanes, HELD_S)
        return batch, held

    def _predict(self, batch: list[Request]) -> None:
        batch.sort(key=lambda request: int(request.lanes[0]))  # makes the batch reproducible
        lanes = np.concatenate([request.lanes for request in batch])
        admitted_s = time.monotonic()
        self.tally.begin()
        with self.gate.passing():
            actions, completed, cpu_s = self._act(batch, lanes)
        if self.trace:
            begun = [self.book.begun(request.lanes) for request in batch]
            self.trace.predicted(batch, begun, admitted_s + MOMENT_S)
        counts = np.cumsum([len(request.lanes) for request in batch])[:-1]
        self.frontend.reply(
            [Reply(*pair) for pair in zip(batch, np.split(actions, counts), strict=True)]
        )
        ended_s = time.monotonic()
        if self.trace:
            self.trace.here("predict", admitted_s, ended_s, observations=len(lanes))
        self.metrics.add(predictors_busy_s=ended_s - admitted_s, predictors_cpu_s=cpu_s)
        if completed:
            while completed:
                sizes = [segment.steps for segment in completed]
                completed = completed[self.segments.put(completed, sizes, WAIT_S) :]
            self.metrics.add(predictors_blocked_s=time.monotonic() - ended_s)

    def _act(
        self, batch: list[Request], lanes: np.ndarray
    ) -> tuple[np.ndarray, list[Segment], float]:
        """Actions [n, *shape], the segments that they complete, and the model's CPU seconds."""
        exploration = self.model.exploration(lanes, self.pacing.steps)
        arrivals, cpu_s = self._arrivals(batch, lanes, exploration), time.thread_time()
        try:
            actions = self.model.act(arrivals)
        except FloatingPointError as error:
            raise RunFailed(f"{error}; {REMEDIES}") from error
        cpu_s = time.thread_time() - cpu_s
        self._note_episodes(batch, exploration)
        if self.actions:
            self.actions.append(actions)
        completed = self.book.complete(lanes)  # before the reply lets the agents go on
        self.pacing.acted(len(lanes))
        rewards = float(arrivals.outcomes[:, 0].sum())
        self.metrics.add(steps=len(lanes), rewards=rewards, prediction_batches=1)
        return actions, completed, cpu_s

    def _note_episodes(self, batch: list[Request], exploration: np.ndarray) -> None:
        """Record finished episodes. Args: exploration: how much each lane explores, [n]."""
        first = 0  # place of the request's first lane in the batch
        for request in batch:
            outcomes, infos = request.step.outcomes, request.step.infos
            for place in np.flatnonzero(outcomes["finished"] == 1):
                score = float(outcomes[place]["episode_return"])
                length = int(outcomes[place]["episode_length"])
                epsilon = float(exploration[first + place])
                success = float(outcomes[place]["success"])
                said = () if infos is None else infos[place].tolist()
                lane = int(request.lanes[place])
                self.tally.episode(self.pacing.steps, score, length, epsilon, success, said, lane)
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
