"""The book of segments: each is handed out once, in order of completion."""

import threading
from collections.abc import Mapping

import numpy as np

from ga3c.experience.book import Book, Segment

COLUMNS = ("steps", "starts", "ages", "versions", "free")  # arrays that `SegmentBook.read` copies


class SegmentBook(Book):
    """Which slot of its ring each lane fills next, and which segments await training.

    Segment k of a lane holds its steps k T .. (k + 1) T. At most `pending` segments of a lane are
    untrained, including the one being filled. The ring has pending * T + stack slots: room for
    these segments and for the earlier frames that the first observation's stack needs. `admit`
    waits if a step would overwrite an untrained segment, which bounds policy lag. Safe for several
    predictors and trainers.
    """

    BYTES_OF_A_SLOT = 8  # the version of the acting weights, in RAM

    def __init__(self, lanes: int, t_max: int, pending: int, stack: int) -> None:
        super().__init__(lanes, self.slots_of_a_lane(t_max, pending, stack), stack)
        self.t_max = t_max
        self._starts = np.zeros(lanes, np.int64)  # the current agent's first segment
        self._versions = np.zeros((lanes, self.capacity), np.int64)
        self._free = np.ones((lanes, pending), bool)  # segment k is at k % pending
        self._waiting: dict[Segment, None] = {}  # completed and not yet trained, in order
        self._trained = threading.Condition()  # guards _free and _waiting

    @staticmethod
    def slots_of_a_lane(t_max: int, pending: int, stack: int) -> int:
        """Number of slots that a lane needs in the ring."""
        return pending * t_max + stack

    def begin(self, lanes: np.ndarray) -> None:
        """Record that a new agent plays `lanes`, and discard their unfinished segments.

        Otherwise the last agent's steps would still be trained on, however old they are. Lanes that
        begin together start their first segments staggered, after up to t_max - 1 steps that are
        not trained on. If all lanes completed their segments at once, trainers would idle between
        these moments, and predictors would wait for room in the queue.
        """
        super().begin(lanes)
        starts = (self._steps[lanes] // self.t_max + 1) * self.t_max
        self._steps[lanes] = starts - 1 - lanes % self.t_max
        self._starts[lanes] = starts

    def admit(self, lanes: np.ndarray, timeout_s: float) -> bool:
        """Wait until the next step of all `lanes` [n] may be written. False on timeout."""
        segments = np.maximum(self._steps[lanes], 0) // self.t_max
        places = segments % self._free.shape[1]
        with self._trained:
            return self._trained.wait_for(lambda: bool(self._free[lanes, places].all()), timeout_s)

    def advance(
        self, lanes: np.ndarray, firsts: np.ndarray, version: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Slots and ages, int32 [n], of the next step of each lane. Stores `version`."""
        slots, ages = super().advance(lanes, firsts, version)
        self._versions[lanes, slots] = version
        return slots, ages

    def begun(self, lanes: np.ndarray) -> list[Segment]:
        """The segments whose first observation is the newest step of one of `lanes`."""
        steps = self._steps[lanes]
        begins = (steps >= self._starts[lanes]) & (steps % self.t_max == 0)
        return self._segments(lanes[begins], steps[begins])

    def complete(self, lanes: np.ndarray) -> list[Segment]:
        """The segments that the newest step of `lanes` completed. `release` them once trained."""
        steps = self._steps[lanes]
        done = (steps > self._starts[lanes]) & (steps % self.t_max == 0)
        segments = self._segments(lanes[done], steps[done] - self.t_max)
        with self._trained:
            for segment in segments:
                self._free[self._place(segment)] = False
                self._waiting[segment] = None
        return segments

    def release(self, segments: list[Segment]) -> None:
        """Record that the segments were trained on, so that their records may be overwritten."""
        with self._trained:
            for segment in segments:
                self._free[self._place(segment)] = True
                self._waiting.pop(segment, None)
            self._trained.notify_all()

    def settle(self, most: int, timeout_s: float) -> bool:
        """Wait until at most `most` segments await training. False on timeout."""
        with self._trained:
            return self._trained.wait_for(lambda: len(self._waiting) <= most, timeout_s)

    @property
    def waiting(self) -> list[Segment]:
        """The segments that are complete but not yet trained on, in order of completion."""
        with self._trained:
            return list(self._waiting)

    def slots(self, segments: list[Segment]) -> np.ndarray:
        """Slots [B, T + 1] int32 of the segments' observations."""
        starts = np.array([segment.start for segment in segments], np.int64)
        return ((starts[:, None] + np.arange(self.t_max + 1)) % self.capacity).astype(np.int32)

    def versions(self, lanes: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Versions of the acting weights, [B, T] int64, for lanes [B] and slots [B, T]."""
        return self._versions[lanes[:, None], slots]

    def read(self) -> dict[str, np.ndarray]:
        """A copy of the book's arrays; `waiting` is int64 [segments, 2]: lane and start."""
        book = {name: getattr(self, f"_{name}").copy() for name in COLUMNS}
        waiting = [(segment.lane, segment.start) for segment in self.waiting]
        return {**book, "waiting": np.array(waiting, np.int64).reshape(-1, 2)}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises KeyError or ValueError if it does not fit."""
        for name in COLUMNS:
            getattr(self, f"_{name}")[:] = values[name]
        lanes, starts = np.asarray(values["waiting"], np.int64).reshape(-1, 2).T
        self._waiting = dict.fromkeys(self._segments(lanes, starts))

    def _segments(self, lanes: np.ndarray, starts: np.ndarray) -> list[Segment]:
        return [
            Segment(int(lane), int(start), self.t_max)
            for lane, start in zip(lanes, starts, strict=True)
        ]

    def _place(self, segment: Segment) -> tuple[int, int]:
        return segment.lane, segment.start // self.t_max % self._free.shape[1]
