"""A replay filled the way predictors fill it, and a naive replay to compare it with."""

from typing import Any

import numpy as np
import pytest

from ga3c import backend
from ga3c.backend import Column
from ga3c.experience.batches import Transitions
from ga3c.experience.memory import DEVICE, HOST, Memory
from ga3c.experience.replay import Replay, RingReplay
from ga3c.experience.replay_book import ReplayBook
from ga3c.experience.ring import Experience, RingShape
from ga3c.settings.replay import ReplayConfig
from tests.reference import Array
from tests.reference_replay import NaiveReplay

MEMORIES = pytest.mark.parametrize("memory", [DEVICE, HOST], ids=["device", "host"])
ACTED: dict[str, Column] = {
    "action": ((), "int32"),
    "q": ((), "float32"),
    "value": ((), "float32"),
}
CLIP = 1.0


class Filled:
    """A replay written the way predictors write it, and a naive replay that gets the same steps.

    On the device, writes, draws and updates of priorities are compiled, as in the service.
    """

    def __init__(
        self,
        memory: Memory,
        shape: tuple[int, ...] = (3,),
        dtype: str = "float32",
        stack: int = 1,
        window: int = 20,
        reserve: int = 12,
        n_step: int = 3,
        batch: int = 16,
        lanes: int = 3,
        seed: int = 0,
        action: Column = ((), "int32"),
        **config: Any,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.book = self._booked(
            lanes=lanes, window=window, reserve=reserve, n_step=n_step, stack=stack
        )
        self.ring = RingShape(lanes, self.book.capacity, shape, dtype, stack)
        self._acted = {**ACTED, "action": action}
        self.experience = Experience(self.ring, self._acted, memory, CLIP)
        sizes = {"update_size": 1, "n_step": n_step, "batch_size": batch}
        settings = ReplayConfig(**{**sizes, **config})
        self.replay = self._made(settings, seed)
        self.naive = NaiveReplay(lanes, stack, window, n_step, reserve)
        self.acted: list[list[tuple[float, float]]] = [[] for _ in range(lanes)]  # q and value
        self._fresh = np.ones(lanes, bool)
        self._compile(memory, shape, dtype)

    def _booked(self, **sizes: int) -> ReplayBook:
        return ReplayBook(**sizes)

    def _made(self, config: ReplayConfig, seed: int) -> Replay:
        return RingReplay(self.experience, self.book, config, seed=seed)

    def _compile(self, memory: Memory, shape: tuple[int, ...], dtype: str) -> None:
        replay, index = self.replay, ((None,), "int32")
        self._write: Any = self.experience.write
        self._draw: Any = lambda beta: replay.draw({"importance_exponent": beta})
        self._learned: Any = lambda rows, errors: replay.learned(of_rows(rows), errors)
        if memory.on_device:
            names = ("frame", "age", "reward", "discount", "first", *ACTED)
            columns = self.experience.columns
            parts = [((None, *columns[n][0]), columns[n][1]) for n in names]
            written = backend.compiled(
                lambda rows, *values: self.experience.write(rows, dict(zip(names, values))),
                [index, *parts],
            )
            self._write = lambda rows, values: written(rows, *(values[n] for n in names))
            self._draw = backend.compiled(self._draw, [((), "float32")])
            errors = ((None,), "float32")
            self._learned = backend.compiled(self._learned, [index, errors])

    def play(self, lanes: Array, ends: float = 0.1, cuts: float = 0.1) -> None:
        """Play one step in each of `lanes` that has room."""
        waiting = self.book._steps[lanes] + 1 - self.book._flushed[lanes]
        lanes = lanes[waiting < self.book._reserve]
        if not len(lanes):
            return
        count = len(lanes)
        firsts = self._fresh[lanes]
        ended = ~firsts & (self.rng.random(count) < ends)
        cut = ~firsts & ~ended & (self.rng.random(count) < cuts)
        slots, ages = self.book.advance(lanes, firsts, 0)
        frames = (255 * self.rng.random((count, *self.ring.shape))).astype(self.ring.dtype)
        discounts = np.where(ended, 0.0, 0.9).astype(np.float32)
        rewards = self.rng.normal(size=count).astype(np.float32)
        shape, dtype = self._acted["action"]
        actions = self.rng.integers(4, size=(count, *shape)).astype(dtype)
        q, value = self.rng.normal(size=(2, count)).astype(np.float32)
        values = {
            "frame": frames.reshape(count, -1),
            "age": ages,
            "reward": rewards,
            "discount": discounts,
            "first": firsts.astype(np.float32),
            "action": actions,
            "q": q,
            "value": value,
        }
        self._write(self.ring.rows(lanes, slots).astype(np.int32), values)
        self.book.complete(lanes)
        self._fresh[lanes] = ended | cut
        for i, lane in enumerate(lanes):
            outcome = np.array([rewards[i], discounts[i], firsts[i]], np.float32)
            self.naive.add(int(lane), frames[i], outcome, actions[i])
            self.acted[lane].append((float(q[i]), float(value[i])))

    def another_agent(self, lane: int) -> None:
        """Make the lane's next step the first of a new game, as when its agent was lost."""
        self._fresh[lane] = True

    def flush(self) -> None:
        self.replay.flush()
        self.naive.flush()

    def draw(self, beta: float = 0.0) -> Transitions:
        return Transitions(*(np.asarray(part) for part in self._draw(np.float32(beta))))

    def learned(self, rows: Array, errors: Array) -> None:
        self._learned(rows, errors)

    def where(self, row: int) -> tuple[int, int]:
        """The lane and step of a row: the newest step that belongs in the row's slot."""
        lane, slot = divmod(row, self.ring.capacity)
        newest = len(self.naive.lanes[lane]) - 1
        return lane, newest - (newest - slot) % self.ring.capacity

    def check(self, drawn: Transitions) -> None:
        """Check that drawn transitions may be drawn and equal the naive ones; skip weights of 0."""
        allowed = self.naive.drawable()
        for b, row in enumerate(drawn.rows.tolist()):
            if drawn.weights[b]:
                assert self.where(row) in allowed
                self.check_one(drawn, b)

    def check_one(self, drawn: Transitions, b: int) -> None:
        """Check that the drawn transition `b` equals the naive one of its step."""
        expected = self.naive.transition(*self.where(int(drawn.rows[b])))
        count, shape = len(expected.rewards), self.ring.observation_shape
        observations = expected.observation, expected.next_observation
        for found, naive in zip((drawn.observations, drawn.next_observations), observations):
            np.testing.assert_array_equal(found[b], naive.reshape(shape))
        np.testing.assert_array_equal(drawn.actions[b], expected.action)
        assert drawn.valid[b].tolist() == [1.0] * count + [0.0] * (len(drawn.valid[b]) - count)
        rewards = np.clip(np.float32(expected.rewards), -CLIP, CLIP)
        np.testing.assert_array_equal(drawn.rewards[b, :count], rewards)
        np.testing.assert_array_equal(drawn.discounts[b, :count], np.float32(expected.discounts))


def of_rows(rows: Any) -> Transitions:
    return Transitions(rows, *[None] * 7)


def everyone(filled: Filled, rounds: int) -> None:
    for _ in range(rounds):
        filled.play(np.arange(filled.ring.lanes, dtype=np.int32))
        if filled.rng.random() < 0.3:
            filled.flush()
    filled.flush()


def first_error(filled: Filled, lane: int, step: int) -> float:
    """A step's n-step error, from the values recorded while acting and clipped rewards."""
    transition = filled.naive.transition(lane, step)
    value = filled.acted[lane][step + len(transition.rewards)][1]
    steps = zip(reversed(transition.rewards), reversed(transition.discounts), strict=True)
    for reward, discount in steps:
        value = min(max(reward, -CLIP), CLIP) + discount * value
    return value - filled.acted[lane][step][0]
