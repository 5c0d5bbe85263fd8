"""BatchQueue: order, the limits of a batch, waiting, closing, and many threads at once."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ga3c.wire.queues import BatchQueue, Closed
from tests.waiting import SeenWaiting

LIMIT_S = 20.0  # for what must happen; generous, since only a failing test waits this long
WAIT_S = 3 * LIMIT_S  # timeout of threads that must be woken; if it runs out, they are too late
NEVER_S = 1e6


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as executor:
        yield executor


def wait_until(happened: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not happened():
        assert time.monotonic() < deadline_s, "it has not happened in time"
        time.sleep(0.001)


def filled(queue: BatchQueue[int], sizes: list[int]) -> BatchQueue[int]:
    """`queue` with items 0, 1, 2... of these sizes."""
    assert queue.put(range(len(sizes)), sizes, 0.0) == len(sizes)
    return queue


def drained(queue: BatchQueue[int]) -> list[list[int]]:
    """All batches that are available without waiting."""
    batches = []
    while batch := queue.get(0.0):
        batches.append(batch)
    return batches


def test_items_come_out_in_the_order_they_went_in() -> None:
    queue = filled(BatchQueue(100, 1, 7, 0.0), [1] * 50)
    assert [item for batch in drained(queue) for item in batch] == list(range(50))
    assert queue.size == 0


@pytest.mark.parametrize(
    ("sizes", "largest", "batches"),
    [
        ([1, 1, 1, 1, 1], 2, [[0, 1], [2, 3], [4]]),
        ([2, 2, 2], 3, [[0], [1], [2]]),
        ([3, 1, 2, 2], 4, [[0, 1], [2, 3]]),
        ([1, 4, 1], 4, [[0], [1], [2]]),  # no item overtakes another, even if it would fit
        ([9, 1, 1], 4, [[0], [1, 2]]),  # larger than a batch: it becomes one of its own
        ([1, 9, 1], 4, [[0], [1], [2]]),
        ([4], 4, [[0]]),
    ],
)
def test_a_batch_is_as_large_as_it_may_be_by_size(
    sizes: list[int], largest: int, batches: list[list[int]]
) -> None:
    assert drained(filled(BatchQueue(100, 0, largest, 0.0), sizes)) == batches


def test_a_batch_below_the_minimum_is_not_handed_out_yet() -> None:
    queue = filled(BatchQueue(10, 4, 6, NEVER_S), [1, 2])
    assert queue.get(0.0) == queue.get(0.005) == []
    assert queue.size == 3
    queue.put([2], [1], 0.0)
    assert queue.get(0.0) == [0, 1, 2]


def test_the_minimum_counts_size_and_not_items() -> None:
    assert filled(BatchQueue(10, 4, 6, NEVER_S), [4]).get(0.0) == [0]


@pytest.mark.parametrize("smallest", [0, 1])
def test_a_minimum_of_zero_or_one_waits_only_for_the_first_item(smallest: int) -> None:
    queue: BatchQueue[int] = BatchQueue(10, smallest, 6, NEVER_S)
    assert queue.get(0.0) == []
    assert filled(queue, [1]).get(0.0) == [0]


def test_a_smaller_batch_is_handed_out_after_the_longest_wait_and_not_before() -> None:
    started_s = time.monotonic()
    queue = filled(BatchQueue(10, 4, 6, 0.03), [1, 1])
    assert queue.get(LIMIT_S) == [0, 1]
    assert time.monotonic() - started_s >= 0.03


def test_the_longest_wait_begins_with_the_first_item_and_not_with_the_get(
    pool: ThreadPoolExecutor,
) -> None:
    queue: BatchQueue[int] = BatchQueue(10, 4, 6, 0.03)
    condition = queue._changed = SeenWaiting(queue._lock)
    got = pool.submit(queue.get, WAIT_S)
    assert condition.waits.acquire(timeout=LIMIT_S), "it waits before anything has come"
    assert filled(queue, [1]).size <= 1
    assert got.result(LIMIT_S) == [0]
    filled(queue, [1])
    time.sleep(0.03)
    assert queue.get(0.0) == [0], "it has waited long enough already"


def test_what_is_left_of_a_full_queue_waits_for_the_minimum_again() -> None:
    queue = filled(BatchQueue(10, 4, 4, NEVER_S), [1] * 6)
    assert drained(queue) == [[0, 1, 2, 3]]
    assert queue.size == 2


def test_a_get_that_waits_is_woken_by_the_item_that_completes_the_batch(
    pool: ThreadPoolExecutor,
) -> None:
    queue: BatchQueue[int] = BatchQueue(10, 3, 6, NEVER_S)
    condition = queue._changed = SeenWaiting(queue._lock)
    got = pool.submit(queue.get, WAIT_S)
    for item in range(3):
        assert condition.waits.acquire(timeout=LIMIT_S), "too few: it waits on"
        assert not got.done()
        queue.put([item], [1], 0.0)
    assert got.result(LIMIT_S) == [0, 1, 2]


def test_an_empty_queue_gives_an_empty_list_after_the_timeout() -> None:
    queue: BatchQueue[int] = BatchQueue(4, 1, 2, 0.0)
    started_s = time.monotonic()
    assert queue.get(0.01) == []
    assert time.monotonic() - started_s >= 0.01
    assert queue.get(0.0) == queue.get(-1.0) == []


def test_put_takes_what_fits_and_says_how_many() -> None:
    queue: BatchQueue[str] = BatchQueue(5, 1, 5, 0.0)
    assert queue.put("abc", [2, 2, 2], 0.0) == 2
    assert queue.put("c", [2], 0.005) == 0
    assert queue.put("d", [1], 0.0) == 1, "a smaller one still fits"
    assert queue.size == 5
    assert queue.get(0.0) == ["a", "b", "d"]


def test_put_of_nothing_puts_nothing() -> None:
    queue: BatchQueue[int] = BatchQueue(5, 1, 5, 0.0)
    assert queue.put([], [], 0.0) == 0
    assert queue.get(0.0) == []


def test_an_item_larger_than_the_queue_is_taken_only_when_it_is_empty() -> None:
    queue: BatchQueue[str] = BatchQueue(4, 1, 4, 0.0)
    assert queue.put("ab", [1, 9], 0.0) == 1
    assert queue.get(0.0) == ["a"]
    assert queue.put("bc", [9, 1], 0.0) == 1
    assert queue.size == 9
    assert queue.get(0.0) == ["b"]


def test_put_waits_while_the_queue_is_full_and_goes_on_when_there_is_space(
    pool: ThreadPoolExecutor,
) -> None:
    queue: BatchQueue[int] = BatchQueue(2, 1, 1, 0.0)
    done = pool.submit(queue.put, range(5), [1] * 5, LIMIT_S)
    for item in range(5):
        wait_until(lambda i=item: queue.size == min(2, 5 - i))  # type: ignore[misc]
        assert item >= 3 or not done.done()
        assert queue.get(LIMIT_S) == [item]
    assert done.result(LIMIT_S) == 5
    assert queue.size == 0


def test_sizes_that_do_not_match_the_items_are_refused() -> None:
    queue: BatchQueue[int] = BatchQueue(5, 1, 5, 0.0)
    with pytest.raises(ValueError):
        queue.put([1, 2], [1], 0.0)


def test_fill_may_exceed_the_capacity_and_its_items_come_first() -> None:
    queue: BatchQueue[int] = BatchQueue(2, 1, 1, 0.0)
    queue.fill([1, 2, 3], [1, 1, 1])
    assert queue.size == 3
    assert queue.put([4], [1], 0.0) == 0, "there is no space"
    assert [queue.get(0.0) for _ in range(3)] == [[1], [2], [3]]
    assert queue.put([4], [1], 0.0) == 1


def test_a_closed_queue_raises_at_once_and_hands_out_nothing_more() -> None:
    queue = filled(BatchQueue(5, 1, 5, 0.0), [1, 1])
    assert not queue.closed
    queue.close()
    queue.close()
    assert queue.closed
    with pytest.raises(Closed):
        queue.get(LIMIT_S)
    with pytest.raises(Closed):
        queue.put([1], [1], LIMIT_S)


def test_close_wakes_everyone_who_waits(pool: ThreadPoolExecutor) -> None:
    empty: BatchQueue[int] = BatchQueue(2, 1, 2, 0.0)
    too_few = filled(BatchQueue(4, 3, 4, NEVER_S), [1])
    full = filled(BatchQueue(2, 2, 2, NEVER_S), [2])
    conditions = [SeenWaiting(queue._lock) for queue in (empty, too_few, full)]
    empty._changed, too_few._changed, full._space = conditions
    waits: list[Callable[[], object]] = [
        *[lambda: empty.get(WAIT_S)] * 4,
        *[lambda: too_few.get(WAIT_S)] * 4,
        *[lambda: full.put([1], [1], WAIT_S)] * 4,
    ]
    waiting: list[Future[object]] = [pool.submit(each) for each in waits]
    assert all(c.waits.acquire(timeout=LIMIT_S) for c in conditions for _ in range(4))
    assert not any(future.done() for future in waiting)
    for queue in (empty, too_few, full):
        queue.close()
    assert all(isinstance(future.exception(LIMIT_S), Closed) for future in waiting)


@pytest.mark.parametrize(("capacity", "smallest", "largest"), [(7, 0, 4), (7, 3, 4), (40, 1, 40)])
def test_many_producers_and_consumers_neither_lose_nor_duplicate(
    pool: ThreadPoolExecutor, capacity: int, smallest: int, largest: int
) -> None:
    queue: BatchQueue[tuple[int, int]] = BatchQueue(capacity, smallest, largest, 0.001)
    producers, each = 4, 300
    taken = threading.Semaphore(0)

    def size_of(item: tuple[int, int]) -> int:
        return 1 + sum(item) % 3

    def produce(producer: int) -> None:
        rng = random.Random(producer)
        left = [(producer, number) for number in range(each)]
        while left:
            items = left[: rng.randrange(1, 6)]
            done = queue.put(items, [size_of(item) for item in items], 0.01)
            del left[:done]

    def consume() -> list[list[tuple[int, int]]]:
        batches = []
        try:
            while True:
                batch = queue.get(0.01)
                if batch:
                    batches.append(batch)
                    taken.release(len(batch))
        except Closed:
            return batches

    consumers = [pool.submit(consume) for _ in range(4)]
    producing = [pool.submit(produce, producer) for producer in range(producers)]
    for future in producing:
        future.result(LIMIT_S)
    for _ in range(producers * each):
        assert taken.acquire(timeout=LIMIT_S), "an item was lost"
    queue.close()
    batches = [future.result(LIMIT_S) for future in consumers]
    everything = sorted(item for mine in batches for batch in mine for item in batch)
    assert everything == [(p, n) for p in range(producers) for n in range(each)]
    for mine in batches:
        assert all(sum(map(size_of, batch)) <= largest for batch in mine)
        for producer in range(producers):  # one consumer sees each producer's items in order
            numbers = [n for batch in mine for p, n in batch if p == producer]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("capacity", "smallest", "largest", "words"),
    [
        (10, -1, 4, "batch_min -1 and .*batch_max 4 with a queue of 10: must be 0 <= min <= max"),
        (10, 5, 4, "batch_min 5 and .*batch_max 4"),
        (10, 0, 0, "batch_max 0 .* or no batch would ever be complete"),
        (3, 1, 4, "batch_max 4 with a queue of 3"),
        (0, 0, 1, "batch_max 1 with a queue of 0"),
    ],
)
def test_limits_that_no_batch_could_meet_are_refused(
    capacity: int, smallest: int, largest: int, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        BatchQueue(capacity, smallest, largest, 0.0)


class NaiveQueue:
    """A slow, simple BatchQueue that never blocks. `patient`: max_wait_s is infinite, not 0."""

    def __init__(self, capacity: int, min_batch: int, max_batch: int, patient: bool) -> None:
        self.limits = capacity, min_batch, max_batch
        self.patient = patient
        self.waiting: list[tuple[int, int]] = []

    @property
    def size(self) -> int:
        return sum(size for _, size in self.waiting)

    def put(self, items: list[int], sizes: list[int]) -> int:
        for done, (item, size) in enumerate(zip(items, sizes)):
            if self.waiting and self.size + size > self.limits[0]:
                return done
            self.waiting = [*self.waiting, (item, size)]
        return len(items)

    def get(self) -> list[int]:
        _, smallest, largest = self.limits
        if not self.waiting or (self.patient and self.size < smallest):
            return []
        for count in range(len(self.waiting), 1, -1):
            if sum(size for _, size in self.waiting[:count]) <= largest:
                break
        else:
            count = 1
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        return [item for item, _ in batch]


@pytest.mark.parametrize("seed", range(40))
def test_random_use_matches_the_naive_implementation(seed: int) -> None:
    rng = random.Random(seed)
    largest = rng.randrange(1, 12)
    capacity, smallest = largest + rng.randrange(10), rng.randrange(largest + 1)
    patient = bool(seed % 2)
    queue: BatchQueue[int] = BatchQueue(capacity, smallest, largest, NEVER_S if patient else 0.0)
    naive = NaiveQueue(capacity, smallest, largest, patient)
    numbers = iter(range(10_000))
    refused: deque[int] = deque()
    for _ in range(300):
        if rng.random() < 0.5:
            items = [refused.popleft() if refused else next(numbers) for _ in range(3)]
            sizes = [rng.randrange(1, 2 + capacity // 2) for _ in items]
            done = queue.put(items, sizes, 0.0)
            assert done == naive.put(items, sizes)
            refused.extend(items[done:])
        else:
            assert queue.get(0.0) == naive.get()
        assert queue.size == naive.size
