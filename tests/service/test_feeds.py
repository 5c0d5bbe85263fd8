"""How a batch of segments is divided into updates."""

from collections import Counter

import pytest

from ga3c.experience.book import Segment
from ga3c.service.feeds import Passes

BATCH = [Segment(lane, 0, 20) for lane in range(10)]


def test_one_pass_without_minibatches_is_the_batch_in_its_order() -> None:
    assert list(Passes().minibatches(BATCH, 0)) == [BATCH]


@pytest.mark.parametrize("minibatch", [20, 60, 70, 100, 1000, None])
@pytest.mark.parametrize("passes", [1, 3])
def test_each_pass_takes_each_segment_once_in_parts_of_like_size(
    passes: int, minibatch: int | None
) -> None:
    parts = list(Passes(passes, minibatch).minibatches(BATCH, 7))
    assert Counter(segment for part in parts for segment in part) == dict.fromkeys(BATCH, passes)
    sizes = [20 * len(part) for part in parts]
    assert max(sizes) <= (minibatch or 1000)
    assert max(sizes) - min(sizes) <= 20
    each = len(parts) // passes
    for one in range(passes):
        taken = [segment for part in parts[one * each : (one + 1) * each] for segment in part]
        assert sorted(taken) == BATCH


def test_orders_differ_between_passes_and_batches_and_come_from_the_seed() -> None:
    passes = Passes(2, 40, seed=3)
    first = list(passes.minibatches(BATCH, 0))
    assert first[:5] != first[5:]
    assert first != list(passes.minibatches(BATCH, 10))
    assert first != list(Passes(2, 40, seed=4).minibatches(BATCH, 0))
    assert first == list(Passes(2, 40, seed=3).minibatches(BATCH, 0))
