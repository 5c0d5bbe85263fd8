"""The ring returns observations as they were seen, and overwrites nothing not yet trained on."""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import ale_py
import gymnasium
import keras
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from agents.actions import Actions
from agents.environments import Spaces
from ga3c import backend
from ga3c.experience.batches import Steps
from ga3c.experience.book import Segment
from ga3c.experience.in_order import InOrder, Shuffled, single_steps
from ga3c.experience.memory import DEVICE, HOST
from ga3c.experience.ring import Arrivals, Experience, RingShape
from ga3c.experience.segments import SegmentBook
from ga3c.learning.a3c import A3C
from ga3c.learning.algorithm import kept_columns
from ga3c.learning.model import Learned, Model
from ga3c.learning.ppo import PPO
from ga3c.settings.learning import A3CConfig, NetworkConfig, OptimizerConfig, PPOConfig
from tests import reference
from tests.reference import Array, Batch, NaiveExperience, NaiveLane, NaiveStacker, Weights
from tests.waiting import SeenWaiting

PLACES = pytest.mark.parametrize("on_device", [True, False], ids=["device", "host"])
WAIT_S = 10.0  # far longer than any wait in this file takes


class Ring:
    """An experience in RAM or on the device, where its functions are compiled as in the model."""

    def __init__(self, on_device: bool, shape: RingShape) -> None:
        self._shape = shape
        self._write: Any
        self._stacks: Any
        if on_device:
            device = Experience(shape, {}, DEVICE)
            frame = ((None, int(np.prod(shape.shape))), shape.dtype)
            index = ((None,), "int32")
            self._write = backend.compiled(
                lambda rows, frames: device.write(rows, {"frame": frames}), [index, frame]
            )
            self._stacks = backend.compiled(device.stacks, [index] * 3)
        else:
            host = Experience(shape, {}, HOST)
            self._write = lambda rows, frames: host.write(rows, {"frame": frames})
            self._stacks = host.stacks

    def write(self, lanes: Array, slots: Array, frames: Array) -> None:
        self._write(self._shape.rows(lanes, slots), frames.reshape(len(frames), -1))

    def stacks(self, lanes: Array, slots: Array, ages: Array) -> Array:
        return np.asarray(self._stacks(lanes, slots, ages))


class Arrived(NamedTuple):
    """The newest frames of some lanes, which arrive together."""

    lanes: Array  # [n] int32
    firsts: Array  # [n] bool
    frames: Array  # [n, *shape]


def random_frames(
    rng: np.random.Generator, count: int, shape: tuple[int, ...], dtype: str
) -> Array:
    if dtype == "uint8":
        return rng.integers(256, size=(count, *shape), dtype=np.uint8)
    return rng.normal(size=(count, *shape)).astype(dtype)


def interleaved(
    rng: np.random.Generator, lanes: int, rounds: int, shape: tuple[int, ...], dtype: str
) -> Iterator[Arrived]:
    """Random lanes in random order. Each lane's first frame and a fifth of the rest are resets."""
    fresh = np.ones(lanes, bool)
    for _ in range(rounds):
        some = rng.permutation(lanes)[: rng.integers(1, lanes + 1)].astype(np.int32)
        firsts = fresh[some] | (rng.random(len(some)) < 0.2)
        fresh[some] = False
        yield Arrived(some, firsts, random_frames(rng, len(some), shape, dtype))


@pytest.fixture(autouse=True)
def first_weights_are_always_the_same() -> None:
    keras.utils.set_random_seed(0)


# Observations


@PLACES
@pytest.mark.parametrize(
    ("shape", "dtype", "stack"),
    [
        ((6, 5), "uint8", 4),
        ((6, 5), "uint8", 3),
        ((6, 5), "float32", 4),
        ((3,), "float32", 1),
        ((3,), "float32", 2),
        ((4, 3, 3), "uint8", 1),
    ],
)
def test_stacks_match_the_naive_stacker_through_ends_and_wraps(
    on_device: bool, shape: tuple[int, ...], dtype: str, stack: int
) -> None:
    rng = np.random.default_rng(stack)
    book = SegmentBook(3, t_max=3, pending=2, stack=stack)
    ring = Ring(on_device, RingShape(3, book.capacity, shape, dtype, stack))
    naive = NaiveStacker(3, stack)
    wraps = 0
    for arrived in interleaved(rng, 3, 60, shape, dtype):
        slots, ages = book.advance(arrived.lanes, arrived.firsts, version=0)
        ring.write(arrived.lanes, slots, arrived.frames)
        expected = [
            naive.push(int(lane), frame, bool(first))
            for lane, frame, first in zip(arrived.lanes, arrived.frames, arrived.firsts)
        ]
        found = ring.stacks(arrived.lanes, slots, ages)
        assert found.dtype == np.dtype(dtype)
        if dtype == "float32":  # the network takes stacked vectors flat
            expected = [stacked.reshape(-1) for stacked in expected]
        np.testing.assert_array_equal(found, expected)
        wraps += int((slots == 0).sum())
    assert wraps > 6  # each of 3 lanes starts at slot 0; the other visits are wraps


@pytest.fixture(scope="module")
def pong() -> list[list[tuple[Array, bool]]]:
    """Observations [84, 84, 4] of real Pong as Gymnasium stacks them, by lane, with reset flags."""
    gymnasium.register_envs(ale_py)
    return [pong_observations(seed, steps=110) for seed in range(2)]


def pong_observations(seed: int, steps: int) -> list[tuple[Array, bool]]:
    game = gymnasium.make("PongNoFrameskip-v4", max_episode_steps=120)  # frames
    env = FrameStackObservation(AtariPreprocessing(game), 4, padding_type="reset")
    env.action_space.seed(seed)
    observations: list[tuple[Array, bool]] = []
    ended = True
    for _ in range(steps):
        first = ended
        if first:
            observation, _ = env.reset(seed=seed + len(observations))
        else:
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        ended = not first and (terminated or truncated)
        observations.append((np.moveaxis(observation, 0, -1), first))
    env.close()
    return observations


@PLACES
def test_stacks_match_gymnasiums_over_real_pong(
    on_device: bool, pong: list[list[tuple[Array, bool]]]
) -> None:
    """The ring gets only the newest frame of each observation; lanes advance at random times."""
    lanes = len(pong)
    book = SegmentBook(lanes, t_max=5, pending=2, stack=4)
    ring = Ring(on_device, RingShape(lanes, book.capacity, (84, 84), "uint8", 4))
    rng = np.random.default_rng(0)
    position = [0] * lanes
    ages_of_slots = np.zeros((lanes, book.capacity), np.int32)
    while min(position) < len(pong[0]):
        turn = [i for i in range(lanes) if position[i] < len(pong[i]) and rng.random() < 0.7]
        if not turn:
            continue
        observations = [pong[lane][position[lane]][0] for lane in turn]
        firsts = np.array([pong[lane][position[lane]][1] for lane in turn])
        some = np.array(turn, np.int32)
        slots, ages = book.advance(some, firsts, version=0)
        ages_of_slots[some, slots] = ages
        ring.write(some, slots, np.stack([o[..., -1] for o in observations]))
        np.testing.assert_array_equal(ring.stacks(some, slots, ages), observations)
        for lane in turn:
            position[lane] += 1
        segments = book.complete(some)
        for segment in segments:
            after = book.slots([segment])[0]
            same_lane = np.full(len(after), segment.lane, np.int32)
            found = ring.stacks(same_lane, after, ages_of_slots[segment.lane, after])
            seen = pong[segment.lane][segment.start : segment.start + len(after)]
            np.testing.assert_array_equal(found, [observation for observation, _ in seen])
        book.release(segments)
    resets = [sum(first for _, first in lane) for lane in pong]
    assert min(resets) >= 4  # several episodes ended
    assert len(pong[0]) > 5 * book.capacity  # the ring wrapped around


# The book of the ring


class Waiting:
    """Completed segments that await training, to be released in random order."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def add(self, segments: list[Segment]) -> None:
        self._segments += segments

    def draw(self) -> list[Segment]:
        """Remove some segments at random, at least one, and return them."""
        count = int(self._rng.integers(1, len(self._segments) + 1))
        drawn = self._rng.permutation(len(self._segments))[:count]
        some = [self._segments[i] for i in drawn]
        self._segments = [s for i, s in enumerate(self._segments) if i not in drawn]
        return some


@pytest.mark.parametrize(
    ("t_max", "pending", "stack"),
    [(1, 2, 1), (1, 3, 4), (3, 2, 4), (4, 1, 1), (5, 3, 4), (2, 4, 2)],
)
@pytest.mark.parametrize("seed", range(3))
def test_admit_blocks_exactly_where_a_promised_record_would_be_overwritten(
    t_max: int, pending: int, stack: int, seed: int
) -> None:
    """A naive model with explicit sets of steps agrees on when to block.

    Until its release, a segment needs its steps and the older frames of its first stack.
    """
    rng = np.random.default_rng([seed, t_max, pending, stack])
    count = 4
    book = SegmentBook(count, t_max, pending, stack)
    naive = [NaiveLane(book.capacity, t_max, stack) for _ in range(count)]
    waiting = Waiting(rng)
    trained: list[list[int]] = [[] for _ in range(count)]
    blocked = 0
    for _ in range(600):
        some = rng.permutation(count)[: rng.integers(1, count + 1)].astype(np.int32)
        expected = all(naive[lane].may_advance() for lane in some)
        assert book.admit(some, timeout_s=0.0) == expected
        if not expected:
            blocked += 1
        else:
            slots, _ = book.advance(some, rng.random(len(some)) < 0.1, version=0)
            for lane, slot in zip(some, slots):
                own = naive[lane]
                assert slot == (own.step + 1) % book.capacity
                assert own.would_overwrite() not in own.needed()
                own.advance()
            completed = book.complete(some)
            waiting.add(completed)
            for segment in completed:
                naive[segment.lane].promise(segment.start)
                trained[segment.lane] += range(segment.start, segment.start + t_max)
            for own in naive:
                assert own.needed() <= set(own.held.values())
        if len(waiting) and rng.random() < 0.1:
            released = waiting.draw()
            book.release(released)
            for segment in released:
                del naive[segment.lane].promised[segment.start]
    assert blocked > 10
    for lane, own in enumerate(naive):  # segments cover a lane's steps once, in order
        assert trained[lane] == list(range(own.step // t_max * t_max))
        assert own.step > 3 * book.capacity


def test_slots_of_a_segment_hold_its_steps() -> None:
    book = SegmentBook(2, t_max=3, pending=2, stack=4)
    assert book.capacity == 10
    np.testing.assert_array_equal(
        book.slots([Segment(0, 0, 3), Segment(1, 9, 3)]), [[0, 1, 2, 3], [9, 0, 1, 2]]
    )
    assert book.slots([Segment(0, 6, 3)]).dtype == np.int32


def test_next_segment_begins_with_the_last_observation_of_the_one_before() -> None:
    book = SegmentBook(1, t_max=2, pending=2, stack=1)
    lane = np.array([0])
    starts = []
    for step in range(7):
        book.advance(lane, np.array([step == 0]), version=0)
        completed = book.complete(lane)
        starts += [segment.start for segment in completed]
        book.release(completed)
    assert starts == [0, 2, 4]


def test_lanes_that_begin_together_end_their_segments_one_after_another() -> None:
    """This also holds after new agents take over: their segments contain only their own steps."""
    book = SegmentBook(8, t_max=4, pending=2, stack=4)
    lanes = np.arange(8, dtype=np.int32)
    for _ in range(3):
        book.begin(lanes)
        ended: list[list[int]] = []
        for step in range(10):
            assert book.admit(lanes, timeout_s=0.0)
            book.advance(lanes, np.full(8, step == 0), version=0)
            completed = book.complete(lanes)
            book.release(completed)
            ended.append([segment.lane for segment in completed])
        assert ended[:4] == [[]] * 4
        assert ended[4:] == [[0, 4], [1, 5], [2, 6], [3, 7], [0, 4], [1, 5]]


def test_ages_count_from_the_reset_up_to_the_stack() -> None:
    book = SegmentBook(1, t_max=5, pending=2, stack=4)
    firsts = [True, False, False, False, False, True, False, True]
    ages = [int(book.advance(np.array([0]), np.array([f]), 0)[1][0]) for f in firsts]
    assert ages == [0, 1, 2, 3, 3, 0, 1, 0]


def test_versions_are_those_of_the_weights_that_acted() -> None:
    book = SegmentBook(2, t_max=2, pending=2, stack=1)
    both = np.array([0, 1], np.int32)
    for step in range(5):
        book.advance(both[:1], np.array([step == 0]), version=10 + step)
        book.advance(both[1:], np.array([step == 0]), version=20 + step)
    slots = book.slots([Segment(0, 2, 2), Segment(1, 2, 2)])[:, :-1]
    np.testing.assert_array_equal(book.versions(both, slots), [[12, 13], [22, 23]])


def test_release_wakes_a_predictor_that_waits() -> None:
    """The predictor must be woken: its own timeout is ten times longer than the test waits."""
    book = SegmentBook(1, t_max=1, pending=1, stack=1)
    lane = np.array([0])
    completed = []
    for step in range(2):
        assert book.admit(lane, timeout_s=0.0)
        book.advance(lane, np.array([step == 0]), version=0)
        completed += book.complete(lane)
    assert not book.admit(lane, timeout_s=0.0)
    condition = book._trained = SeenWaiting()
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.append(book.admit(lane, 10 * WAIT_S)), daemon=True
    )
    waiting.start()
    assert condition.waits.acquire(timeout=WAIT_S)
    book.release(completed)
    waiting.join(WAIT_S)
    assert answers == [True]


def test_blocked_lane_blocks_only_batches_that_it_is_in() -> None:
    book = SegmentBook(2, t_max=1, pending=1, stack=1)
    for step in range(2):
        book.advance(np.array([0]), np.array([step == 0]), version=0)
        book.complete(np.array([0]))
    assert not book.admit(np.array([0, 1]), timeout_s=0.0)
    assert book.admit(np.array([1]), timeout_s=0.0)


# Through the model


class Played:
    """A model that has acted for three lanes for a while, with a record of all it saw and did."""

    def __init__(
        self,
        on_device: bool,
        picture: bool,
        weights: list[Array] | None,
        algorithm: A3C | PPO | None = None,
        network: NetworkConfig | None = None,
        reward_clip: float = 1.0,
    ) -> None:
        spaces = (
            Spaces((20, 20), "uint8", Actions(3), 4)
            if picture
            else Spaces((3,), "float32", Actions(3), 1)
        )
        self.t_max = 4
        self.lanes = SegmentBook(3, self.t_max, pending=2, stack=spaces.stack)
        ring = RingShape(3, self.lanes.capacity, spaces.shape, spaces.dtype, spaces.stack)
        algorithm = algorithm or A3C(A3CConfig(), Actions(3))
        memory = DEVICE if on_device else HOST
        experience = Experience(ring, kept_columns(algorithm), memory, reward_clip)
        source = Shuffled if isinstance(algorithm, PPO) else InOrder
        self.model = Model(
            algorithm=algorithm,
            network=network or NetworkConfig(),
            optimizer=OptimizerConfig(),
            source=source(experience, self.lanes),
            is_picture=picture,
            seed=1,
        )
        if weights is not None:
            paths = (f"weights/{weight.path}" for weight in self.model.network.weights)
            self.model.restore({**self.model.read(), **dict(zip(paths, weights))})
        self.seen = NaiveExperience(3, spaces.stack)
        self.segments: list[Segment] = []  # each lane's last completed segment
        self.slots: list[list[int]] = [[], [], []]
        rng = np.random.default_rng(0)
        for arrived in interleaved(rng, 3, 40, spaces.shape, spaces.dtype):
            self._act(arrived, rng)

    def _act(self, arrived: Arrived, rng: np.random.Generator) -> None:
        assert self.lanes.admit(arrived.lanes, timeout_s=0.0)
        slots, ages = self.lanes.advance(arrived.lanes, arrived.firsts, version=0)
        outcomes = np.stack(
            [
                rng.normal(size=len(slots)),
                np.where(rng.random(len(slots)) < 0.2, 0.0, 0.99),
                arrived.firsts,
            ],
            axis=1,
        ).astype(np.float32)
        for lane, frame, outcome in zip(arrived.lanes, arrived.frames, outcomes):
            self.seen.see(int(lane), frame, outcome)
        greedy = np.zeros(len(slots), np.float32)
        actions = self.model.act(
            Arrivals(arrived.lanes, slots, ages, outcomes, arrived.frames, greedy)
        )
        log_probs = self.recorded("log_prob", arrived.lanes, slots)
        for lane, slot, action, log_prob in zip(arrived.lanes, slots, actions, log_probs):
            self.seen.do(int(lane), int(action), float(log_prob))
            self.slots[lane].append(int(slot))
        completed = self.lanes.complete(arrived.lanes)
        lanes = {segment.lane for segment in completed}
        self.segments = [s for s in self.segments if s.lane not in lanes] + completed
        self.lanes.release(completed)

    def weights(self) -> list[Array]:
        return [w for path, w in self.model.read().items() if path.startswith("weights/")]

    def recorded(self, column: str, lanes: Array, slots: Array) -> Array:
        experience = self.model.experience
        return np.asarray(experience.gather(column, experience.ring.rows(lanes, slots)))

    def places(self) -> tuple[Array, Array]:
        lanes = np.array([segment.lane for segment in self.segments], np.int32)
        return lanes, self.lanes.slots(self.segments)

    def learn(self) -> Learned:
        return self.model.learn(*self.places(), progress=0.0)


@PLACES
@pytest.mark.parametrize(("limit", "expected"), [(1.0, 1.0), (2.5, 2.5), (0.0, 7.0)])
def test_rewards_are_kept_as_they_are_and_clipped_on_both_sides_where_learning_reads_them(
    on_device: bool, limit: float, expected: float
) -> None:
    """A limit of 0 turns clipping off."""
    memory = DEVICE if on_device else HOST
    experience = Experience(RingShape(1, 4, (3,), "float32", 1), {}, memory, limit)
    played = {name: np.zeros((4, *s), t) for name, (s, t) in experience.columns.items()}
    played["reward"] = np.array([7.0, -7.0, 0.5, 0.0], np.float32)
    experience.restore(played)
    rows = memory.cast(np.arange(4, dtype=np.int32), memory.row_dtype)
    assert np.asarray(experience.rewards(rows)).tolist() == [expected, -expected, 0.5, 0.0]
    assert experience.read()["reward"].tolist() == [7.0, -7.0, 0.5, 0.0]


@PLACES
@pytest.mark.parametrize("picture", [True, False], ids=["pictures", "vectors"])
def test_act_records_action_and_log_probability_beside_the_outcome(
    on_device: bool, picture: bool
) -> None:
    played = Played(on_device, picture, None)
    for lane, slots in enumerate(played.slots):
        last = slice(-played.lanes.capacity, None)  # what the ring still holds
        held = np.array(slots[last])
        observations = np.array(played.seen.observations[lane][last])
        decisions = played.seen.decisions[lane][last]
        outcomes = np.array(played.seen.outcomes[lane][last])
        lanes = np.full(len(held), lane)
        actions = played.recorded("action", lanes, held)
        assert actions.dtype == (backend.ROW_DTYPE if on_device else np.int32)
        assert set(actions) <= {0, 1, 2}
        np.testing.assert_array_equal(actions, [action for action, _ in decisions])
        logits = np.asarray(played.model.network(observations)[0], np.float64)
        expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(
            played.recorded("log_prob", lanes, held),
            expected[np.arange(len(held)), actions],
            rtol=1e-4,
        )
        for column, values in zip(("reward", "discount", "first"), outcomes.T):
            np.testing.assert_array_equal(played.recorded(column, lanes, held), values)


@pytest.mark.parametrize("picture", [True, False], ids=["pictures", "vectors"])
def test_host_and_device_act_and_learn_alike(picture: bool) -> None:
    device = Played(True, picture, None)
    start = device.weights()
    host = Played(False, picture, start)
    for lane in range(3):
        device_decisions = np.array(device.seen.decisions[lane])
        np.testing.assert_allclose(device_decisions, host.seen.decisions[lane], rtol=1e-5)
    for _ in range(3):
        one, other = device.learn(), host.learn()
        assert one.update == other.update
        assert one.means == pytest.approx(other.means, rel=1e-5, abs=1e-5)
    for one_weight, other_weight, first in zip(device.weights(), host.weights(), start):
        np.testing.assert_allclose(one_weight, other_weight, atol=1e-5)
        assert not np.array_equal(one_weight, first)


@PLACES
@pytest.mark.parametrize("picture", [True, False], ids=["pictures", "vectors"])
def test_single_steps_come_with_what_was_prepared_for_their_segments(
    on_device: bool, picture: bool
) -> None:
    config = A3CConfig(correction="vtrace", trace_decay=0.9)
    played = Played(on_device, picture, None, PPO(config, PPOConfig(), Actions(3)))
    model, source = played.model, played.model.source
    parts = played.seen.segments(
        [segment.lane for segment in played.segments],
        [segment.start for segment in played.segments],
        played.t_max,
    )
    observations = parts.pop("observations")
    answers = [model.network(each) for each in observations]
    batch = Batch(
        logits=np.array([np.asarray(logits, np.float64) for logits, _ in answers]),
        values=np.array([np.asarray(values, np.float64) for _, values in answers]),
        **parts,
    )
    expected = reference.a3c_constants(
        batch,
        Weights(0.5, 0.01, 0.9, reward_clip=1.0, log_epsilon=0.0, vtrace=True, normalize=False),
    )
    (prepare,) = model.preparations
    prepare(*played.places())
    lanes, slots = single_steps(*played.places())
    order = np.random.default_rng(0).permutation(len(lanes))
    draw = partial(source.draw, {})
    if on_device:
        draw = backend.compiled(draw, source.inputs)
    steps = Steps(*(np.asarray(part) for part in draw(lanes[order], slots[order])))
    lived = order[batch.firsts.reshape(-1)[order] == 0]
    place = {step: where for where, step in enumerate(order)}
    rows = [place[step] for step in lived]
    assert rows
    pictures = observations[:, :-1].reshape(len(order), -1)
    np.testing.assert_array_equal(steps.observations.reshape(len(order), -1), pictures[order])
    np.testing.assert_array_equal(steps.firsts, batch.firsts.reshape(-1)[order])
    np.testing.assert_array_equal(steps.actions, batch.actions.reshape(-1)[order])
    for found, wanted in (
        (steps.log_probs, batch.log_probs),
        (steps.prior_log_probs, batch.log_probs),  # there was no update since acting
        (steps.advantages, expected.advantages),
        (steps.targets, expected.targets),
        (steps.rewards, np.clip(batch.rewards, -1.0, 1.0)),
    ):
        np.testing.assert_allclose(found[rows], wanted.reshape(-1)[lived], rtol=1e-4, atol=1e-5)
    before = model.read()
    learned = model.learn(lanes[order[:5]], slots[order[:5]], progress=0.0)
    assert learned.update == 1
    assert any(not np.array_equal(value, before[name]) for name, value in model.read().items())


@PLACES
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_updates_of_a_batch_use_the_statistics_measured_before_it(
    on_device: bool, clip: float
) -> None:
    algorithm = PPO(A3CConfig(), PPOConfig(), Actions(3))
    units = NetworkConfig(normalize_observations=True, follow_rewards=True)
    played = Played(on_device, False, None, algorithm, units, clip)

    def measured() -> dict[str, Array]:
        names = ("normalized", "value_scale")
        return {p: w for p, w in played.model.read().items() if any(n in p for n in names)}

    first = measured()
    measure, prepare = played.model.preparations
    measure(*played.places())
    before = measured()
    assert before and not any(np.array_equal(before[path], first[path]) for path in first)
    (square,) = (value for path, value in before.items() if path.endswith("value_scale/square"))
    rewards = np.array([played.seen.outcomes[s.lane][s.start + 1 :][:4] for s in played.segments])
    rewards = np.clip(rewards[..., 0], -clip, clip) if clip else rewards[..., 0]
    assert square == pytest.approx(np.square(rewards).mean(), rel=1e-5), "as they are clipped"
    prepare(*played.places())
    lanes, slots = single_steps(*played.places())
    played.model.learn(lanes[:5], slots[:5], progress=0.0)
    for path, value in measured().items():
        np.testing.assert_array_equal(value, before[path])
