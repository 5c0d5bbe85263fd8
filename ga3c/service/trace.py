"""A run's trace in Chrome's format: open it at https://ui.perfetto.dev or chrome://tracing.

There is one row for each agent and each service thread. Arrows follow the first observation of each
segment from the environment to the prediction, then to the environment step that takes the action,
and then to the update that learns from it.
"""

import json
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.messages import Header
from ga3c.experience.book import Segment
from ga3c.wire.requests import Request

MOST_EVENTS = 500_000  # only the newest are kept: a file of about 100 MB, however long the run
MOMENT_S = 1e-6


class Trace:
    """The newest events of all threads. Times come from `time.monotonic`."""

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._followed: dict[int, list[str]] = {}  # by first lane: keys awaiting their step

    def span(self, row: str, name: str, start_s: float, end_s: float, **details: Any) -> None:
        """Record an event of `row` with a start and an end."""
        self._events.append(
            {
                "ph": "X",
                "name": name,
                "tid": row,
                "ts": 1e6 * start_s,
                "dur": 1e6 * (end_s - start_s),
                "args": details,
            }
        )

    def here(self, name: str, start_s: float, end_s: float, **details: Any) -> None:
        """Record an event of the calling thread."""
        self.span(threading.current_thread().name, name, start_s, end_s, **details)

    def stepped(self, agent: str, header: Header, came_s: float) -> None:
        """Record how long an agent waited and stepped before its message came at `came_s`."""
        began_s = came_s - header.stepped_s
        self.span(agent, "wait", began_s - header.waited_s, began_s)
        details = {"group": header.group, "sequence": header.sequence}
        self.span(agent, "step", began_s, came_s, **details)

    def predicted(
        self, requests: Sequence[Request], begun: Sequence[Sequence[Segment]], at_s: float
    ) -> None:
        """Record that this thread answers `requests` at `at_s`; `begun`: segments begun by each."""
        row = threading.current_thread().name
        for request, segments in zip(requests, begun, strict=True):
            agent, first_lane = request.agent, int(request.lanes[0])
            keys = [key_of(segment.lane, segment.start) for segment in segments]
            shown_s = request.came_s - MOMENT_S  # within the agent's step
            for key in self._followed.pop(first_lane, ()):
                self._flow("t", key, agent, shown_s)
            for key in keys:
                self._flow("s", key, agent, shown_s)
                self._flow("t", key, row, at_s)
            if keys:
                self._followed[first_lane] = keys

    def learned(self, segments: Sequence[Segment], at_s: float) -> None:
        """Record that this thread learns from `segments` at `at_s`."""
        for segment in segments:
            key = key_of(segment.lane, segment.start)
            self._flow("f", key, threading.current_thread().name, at_s)

    def _flow(self, phase: str, key: str, row: str, at_s: float) -> None:
        event = {"ph": phase, "name": "observation", "cat": "observation", "id": key}
        self._events.append({**event, "tid": row, "ts": 1e6 * at_s, "bp": "e"})

    def write(self, path: Path) -> None:
        """Write the file. Raises OSError if it cannot be written."""
        kept = list(self._events)  # a copy: a thread that did not end in time may still add events
        rows = {row: number for number, row in enumerate(sorted({e["tid"] for e in kept}))}
        names = [
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": number, "args": {"name": row}}
            for row, number in rows.items()
        ]
        events = ({**event, "pid": 0, "tid": rows[event["tid"]]} for event in kept)
        with open(path, "w") as file:
            file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
            file.write(",\n".join(json.dumps(event) for event in (*names, *events)))
            file.write("\n]}\n")


def key_of(lane: int, step: int) -> str:
    """The key of a lane's observation number `step`."""
    return f"lane {lane} step {step}"
