"""How a batch of segments is divided into updates, prepared for them and released."""

import threading
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from ga3c.experience.book import Segment
from ga3c.experience.in_order import single_steps
from ga3c.learning.model import Learned
from ga3c.service.feeds import Passes, SegmentFeed

LANES = np.arange(10, dtype=np.int32)
SLOTS = (100 * LANES[:, None] + np.arange(21)).astype(np.int32)  # ten segments of 20 steps


def taken(passes: Passes, updates: int) -> list[list[int]]:
    """The lanes of each update's segments. Checks that each lane comes with its own slots."""
    parts = list(passes.minibatches(LANES, SLOTS, updates))
    for lanes, slots in parts:
        np.testing.assert_array_equal(slots, SLOTS[lanes])
    return [lanes.tolist() for lanes, _ in parts]


def test_one_pass_without_minibatches_is_the_batch_in_its_order() -> None:
    assert taken(Passes(), 0) == [LANES.tolist()]


@pytest.mark.parametrize("minibatch", [20, 60, 70, 100, 1000, None])
@pytest.mark.parametrize("passes", [1, 3])
def test_each_pass_takes_each_segment_once_in_parts_of_like_size(
    passes: int, minibatch: int | None
) -> None:
    parts = taken(Passes(passes, minibatch), 7)
    assert Counter(lane for part in parts for lane in part) == dict.fromkeys(range(10), passes)
    sizes = [20 * len(part) for part in parts]
    assert max(sizes) <= (minibatch or 1000)
    assert max(sizes) - min(sizes) <= 20
    each = len(parts) // passes
    for one in range(passes):
        lanes = [lane for part in parts[one * each : (one + 1) * each] for lane in part]
        assert sorted(lanes) == LANES.tolist()


def test_orders_differ_between_passes_and_batches_and_come_from_the_seed() -> None:
    passes = Passes(2, 40, seed=3)
    first = taken(passes, 0)
    assert first[:5] != first[5:]
    assert first != taken(passes, 10)
    assert first != taken(Passes(2, 40, seed=4), 0)
    assert first == taken(Passes(2, 40, seed=3), 0)


def test_successive_batches_are_learned_in_orders_of_their_own() -> None:
    """Each order is seeded by the number of updates so far, which a resumed run knows as well."""
    learned: list[list[int]] = []
    model = SimpleNamespace(preparations=[], updates=0)

    def learn(lanes: np.ndarray, slots: np.ndarray, progress: float) -> Learned:
        learned.append(lanes.tolist())
        model.updates += 1
        return Learned(model.updates, {}, True)

    model.learn = learn
    passes = Passes(2, 40, seed=3)
    feed = SegmentFeed(
        segments=SimpleNamespace(  # type: ignore[arg-type]
            get=lambda _: [Segment(int(lane), 0, 20) for lane in LANES], closed=False
        ),
        book=SimpleNamespace(  # type: ignore[arg-type]
            slots=lambda _: SLOTS,
            versions=lambda lanes, slots: np.zeros(slots.shape, np.int64),
            release=lambda _: None,
        ),
        model=model,  # type: ignore[arg-type]
        progress=lambda: 0.0,
        passes=passes,
        whole_batches=False,
    )
    for _ in range(2):
        for work in feed.next(0.0):
            work()
    assert learned == [*taken(passes, 0), *taken(passes, 10)]


@pytest.mark.parametrize(("is_finite", "update"), [(True, 8), (False, 7)])
def test_the_lag_of_a_refused_update_is_that_of_the_weights_that_it_left(
    is_finite: bool, update: int
) -> None:
    """It was to be the eighth update, from steps that acted with the weights of the fifth."""
    model = SimpleNamespace(learn=lambda lanes, slots, progress: Learned(update, {}, is_finite))
    feed = SegmentFeed(
        segments=SimpleNamespace(),  # type: ignore[arg-type]
        book=SimpleNamespace(  # type: ignore[arg-type]
            versions=lambda lanes, slots: np.full(slots.shape, 5), release=lambda _: None
        ),
        model=model,  # type: ignore[arg-type]
        progress=lambda: 0.0,
        passes=Passes(),
        whole_batches=False,
    )
    assert feed._learn(LANES, SLOTS, []).newest["policy_lag_max"] == 2.0


def test_single_steps_are_each_observation_with_the_next() -> None:
    lanes, slots = single_steps(LANES, SLOTS)
    assert lanes.tolist() == [lane for lane in range(10) for _ in range(20)]
    assert slots.tolist() == [[100 * k + t, 100 * k + t + 1] for k in range(10) for t in range(20)]
    parts = list(Passes(1, 7).minibatches(lanes, slots, 0))
    assert sorted(len(lanes) for lanes, _ in parts) == [6] * 3 + [7] * 26  # 200 steps
    shuffled = np.concatenate([slots for _, slots in parts])
    assert sorted(shuffled.tolist()) == slots.tolist() != shuffled.tolist()


def test_no_other_batch_is_measured_while_the_targets_of_one_are_in_use() -> None:
    """With two trainers, a second batch waits until the first one has been trained on.

    Measuring it sooner would change the units of the first batch's observations and values.
    """
    done: list[str] = []

    def learn(lanes: np.ndarray, slots: np.ndarray, progress: float) -> Learned:
        done.append("learn")
        return Learned(len(done), {}, True)

    model = SimpleNamespace(preparations=[lambda *_: done.append("measure")], learn=learn)
    model.updates = 0
    feed = SegmentFeed(
        segments=SimpleNamespace(  # type: ignore[arg-type]
            get=lambda _: [Segment(0, 0, 20)], closed=False
        ),
        book=SimpleNamespace(  # type: ignore[arg-type]
            slots=lambda _: SLOTS[:1],
            versions=lambda lanes, slots: np.zeros(slots.shape, np.int64),
            release=lambda _: None,
        ),
        model=model,  # type: ignore[arg-type]
        progress=lambda: 0.0,
        passes=Passes(2, 10),
        whole_batches=False,
    )
    works = iter(feed.next(0.0))
    next(works)()  # one trainer has measured its batch
    assert list(feed.next(0.0)) == [], "it waits no longer than it is told"
    other = threading.Thread(target=lambda: [work() for work in feed.next(10.0)], daemon=True)
    other.start()
    other.join(0.2)
    assert done == ["measure"], "the other batch changed the unit"
    for work in works:
        work()
    other.join(10.0)
    assert done == 2 * ["measure", *4 * ["learn"]]


@pytest.mark.parametrize("whole_batches", [True, False])
def test_a_batch_is_prepared_first_and_released_with_its_last_update(whole_batches: bool) -> None:
    """Predictors must not overwrite a batch's steps before that: later passes still need them."""
    done: list[str] = []
    batch = [Segment(int(lane), 0, 20) for lane in LANES]

    def learn(lanes: np.ndarray, slots: np.ndarray, progress: float) -> Learned:
        done.append("learn")
        return Learned(len(done), {}, True)

    feed = SegmentFeed(
        segments=SimpleNamespace(get=lambda _: batch, closed=False),  # type: ignore[arg-type]
        book=SimpleNamespace(  # type: ignore[arg-type]
            slots=lambda _: SLOTS,
            versions=lambda lanes, slots: np.zeros(slots.shape, np.int64),
            release=lambda released: done.append("release") if released else None,
        ),
        model=SimpleNamespace(  # type: ignore[arg-type]
            preparations=[
                lambda lanes, slots: done.append("measure"),
                lambda lanes, slots: done.append("prepare"),
            ],
            learn=learn,
            updates=0,
        ),
        progress=lambda: 0.0,
        passes=Passes(2, 70),
        whole_batches=whole_batches,
    )
    released: list[Segment] = []
    works = 0
    for work in feed.next(0.0):
        released += work().segments
        works += 1
    assert (works == 1) == whole_batches, "a checkpoint may be taken between two works"
    updates = 2 * 3  # two passes over 200 single steps, at most 70 per update
    assert done.count("learn") == updates
    counts = [(name, done.count(name)) for name in ("measure", "prepare", "learn", "release")]
    assert done == [name for name, count in counts for _ in range(count)]
    assert released == batch
