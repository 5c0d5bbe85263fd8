"""Replay draws against a naive replay, their distribution, and priorities against cpprb's."""

from collections import Counter
from typing import Any

import keras
import numpy as np
import psutil
import pytest
from cpprb import PrioritizedReplayBuffer
from scipy.stats import chisquare

from ga3c.experience.memory import HOST, Memory
from ga3c.experience.priorities import Priorities
from ga3c.experience.sampling import DRAWS
from tests.experience.filled import MEMORIES, Filled, everyone, first_error
from tests.reference import Array

NEVER = 1e-4  # p-values below this reject a hypothesis; no fixed seed comes near it


# What is drawn


@MEMORIES
@pytest.mark.parametrize("draws", ["uniform", "prioritised"])
@pytest.mark.parametrize(
    ("shape", "dtype", "stack", "n_step"),
    [
        ((4, 5), "uint8", 4, 1),
        ((4, 5), "uint8", 4, 3),
        ((3,), "float32", 1, 3),
        ((3,), "float32", 2, 5),
    ],
)
def test_draws_match_the_naive_replay_through_ends_cuts_wraps_and_lost_agents(
    memory: Memory, draws: str, shape: tuple[int, ...], dtype: str, stack: int, n_step: int
) -> None:
    filled = Filled(memory, shape, dtype, stack, n_step=n_step, replay_draws=draws)
    everyone(filled, 8)
    checked = 0
    for turn in range(120):  # about 80 steps of each lane, so the ring of 32 slots wraps twice
        lanes = filled.rng.permutation(3)[: filled.rng.integers(1, 4)].astype(np.int32)
        filled.play(lanes)
        if filled.rng.random() < 0.05:
            filled.another_agent(int(lanes[0]))
        if filled.rng.random() < 0.3:
            filled.flush()
        if turn % 2:
            drawn = filled.draw()
            filled.check(drawn)
            checked += int((drawn.weights > 0).sum())
    assert checked > 800


@MEMORIES
@pytest.mark.parametrize("draws", ["uniform", "prioritised"])
def test_every_drawable_transition_is_drawn_eventually(memory: Memory, draws: str) -> None:
    filled = Filled(memory, stack=2, n_step=2, batch=64, replay_draws=draws)
    everyone(filled, 60)
    seen = {filled.where(row) for _ in range(30) for row in filled.draw().rows.tolist()}
    assert seen == filled.naive.drawable()


@MEMORIES
def test_what_has_not_been_flushed_is_not_drawn(memory: Memory) -> None:
    filled = Filled(memory, batch=64)
    everyone(filled, 10)
    before = filled.naive.drawable()
    for _ in range(5):
        filled.play(np.arange(3, dtype=np.int32))
    drawn = {filled.where(row) for _ in range(10) for row in filled.draw().rows.tolist()}
    assert drawn <= before


@MEMORIES
def test_uniform_draws_are_uniform(memory: Memory) -> None:
    filled = Filled(memory, batch=500, seed=3)
    everyone(filled, 50)
    counts = Counter({where: 0 for where in filled.naive.drawable()})
    for _ in range(40):
        drawn = filled.draw()
        assert drawn.weights.all()
        counts.update(filled.where(row) for row in drawn.rows.tolist())
    assert set(counts) == filled.naive.drawable()
    assert chisquare(list(counts.values())).pvalue > NEVER


@MEMORIES
def test_prioritised_draws_are_in_proportion_to_powers_of_the_errors(memory: Memory) -> None:
    filled = Filled(memory, batch=500, seed=4, replay_draws="prioritised", priority_exponent=0.6)
    everyone(filled, 50)
    rows = np.array(sorted({int(r) for _ in range(20) for r in filled.draw().rows}), np.int32)
    assert len(rows) == len(filled.naive.drawable())
    errors = (0.05 + filled.rng.gamma(1.0, size=len(rows))).astype(np.float32)
    filled.learned(rows, -errors)  # negative, because only the size of an error counts
    counts = Counter({int(row): 0 for row in rows})
    for _ in range(60):
        counts.update(int(row) for row in filled.draw().rows)
    shares = (errors.astype(np.float64) + 1e-6) ** 0.6
    expected = shares / shares.sum() * sum(counts.values())
    found = np.array([counts[int(row)] for row in rows])
    assert expected.min() > 5
    assert chisquare(found, expected).pvalue > NEVER


@MEMORIES
@pytest.mark.parametrize("draws", ["uniform", "prioritised"])
def test_without_repeats_no_row_is_drawn_twice(memory: Memory, draws: str) -> None:
    filled = Filled(memory, batch=24, replay_draws=draws, replay_repeats=False)
    everyone(filled, 40)
    filled_up = 0
    for _ in range(20):
        drawn = filled.draw()
        rows = drawn.rows[drawn.weights > 0].tolist()
        assert len(rows) == len(set(rows))
        filled_up += len(rows) == 24
    assert filled_up >= 15


@MEMORIES
def test_with_repeats_some_rows_are_drawn_twice(memory: Memory) -> None:
    filled = Filled(memory, batch=64)
    everyone(filled, 40)
    assert len(set(filled.draw().rows.tolist())) < 64


@MEMORIES
def test_the_same_seed_draws_the_same_and_another_does_not(memory: Memory) -> None:
    rows = []
    for seed in (1, 1, 2):
        filled = Filled(memory, seed=seed)
        everyone(filled, 30)
        rows.append([filled.draw().rows.tolist() for _ in range(3)])
    assert rows[0] == rows[1] != rows[2]
    assert len(set(map(tuple, rows[0]))) == 3


# Priorities


@MEMORIES
@pytest.mark.parametrize("n_step", [1, 3, 5])
def test_first_priorities_are_the_errors_of_the_values_that_acting_had(
    memory: Memory, n_step: int
) -> None:
    """This holds through ends, cuts, flushes before all n steps are made, wraps and lost agents."""
    config: dict[str, Any] = {"replay_draws": "prioritised", "first_priority": "acting"}
    filled = Filled(memory, n_step=n_step, priority_exponent=0.6, **config)
    sampler, checked = filled.replay._sampler, 0
    for turn in range(100):  # about 70 steps of each lane, so the ring of 32 slots wraps twice
        lanes = filled.rng.permutation(3)[: filled.rng.integers(1, 4)].astype(np.int32)
        filled.play(lanes, ends=0.15, cuts=0.15)
        if filled.rng.random() < 0.05:
            filled.another_agent(int(lanes[0]))
        if turn % 4 == 3:
            filled.flush()
            priorities = sampler.read()["priorities"]
            drawable = {filled.where(row): row for row in np.flatnonzero(priorities).tolist()}
            assert set(drawable) == filled.naive.drawable()
            for (lane, step), row in drawable.items():
                expected = (abs(first_error(filled, lane, step)) + 1e-6) ** 0.6
                assert priorities[row] == pytest.approx(expected, rel=1e-3, abs=1e-4)
                checked += 1
    assert checked > 500


@MEMORIES
def test_a_first_priority_is_replaced_by_the_error_of_the_first_draw(memory: Memory) -> None:
    config: dict[str, Any] = {"replay_draws": "prioritised", "first_priority": "acting"}
    filled = Filled(memory, priority_exponent=1.0, **config)
    everyone(filled, 20)
    row = filled.draw().rows[:1]
    filled.learned(row, np.array([123.0], np.float32))
    everyone(filled, 1)
    priorities = filled.replay._sampler.read()["priorities"]
    assert priorities[row[0]] == pytest.approx(123.0)
    others = np.delete(priorities, row[0])
    assert others.max() < 20, "no step takes over the largest error"


@MEMORIES
@pytest.mark.parametrize("fanout", [2, 4, 64])
def test_priorities_and_weights_match_cpprb(memory: Memory, fanout: int) -> None:
    rng = np.random.default_rng(5)
    size, alpha, beta = 100, 0.7, 0.5
    tree = Priorities(memory, size, fanout)
    other = PrioritizedReplayBuffer(size, {"x": {}}, alpha=alpha, eps=0.0)
    other.add(x=np.arange(size), priorities=np.ones(size))
    tree.set(np.arange(size, dtype=np.int32), np.ones(size, np.float32))
    for _ in range(20):
        rows = rng.choice(size, 10, replace=False).astype(np.int32)
        errors = rng.gamma(0.5, size=10).astype(np.float32) + np.float32(1e-3)
        tree.set(rows, errors ** np.float32(alpha))
        other.update_priorities(rows, errors)
    sample = other.sample(200, beta=beta)
    rows = sample["indexes"].astype(np.int32)
    priorities = np.asarray(tree.of(rows))
    smallest = tree.read()[:size].min()  # cpprb divides weights by the whole buffer's largest
    np.testing.assert_allclose((priorities / smallest) ** -beta, sample["weights"], rtol=1e-4)
    points = (np.cumsum(tree.read()) / tree.read().sum()).astype(np.float32)[: size - 1]
    below = np.asarray(tree.draw(points - np.float32(1e-5)))
    # A point just below the end of row i falls on row i, up to rounding.
    assert np.mean(below == np.arange(size - 1)) > 0.9
    assert (np.abs(below - np.arange(size - 1)) <= 1).all()


@MEMORIES
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 4096, 4097, 300_000])
def test_a_row_with_all_the_priority_is_always_drawn(memory: Memory, rows: int) -> None:
    tree = Priorities(memory, rows)
    for row in {0, rows // 2, rows - 1}:
        only = np.array([row], np.int32)
        tree.set(only, np.ones(1, np.float32))
        points = np.array([0.0, 0.3, np.nextafter(np.float32(1), np.float32(0))], np.float32)
        assert np.asarray(tree.draw(points)).tolist() == [row] * 3
        tree.set(only, np.zeros(1, np.float32))


@pytest.mark.parametrize(("power", "size"), [(1.0, 1.0), (2.0, 1e-4)])
def test_weights_are_the_inverse_shares_power_over_the_largest(power: float, size: float) -> None:
    filled = Filled(HOST, batch=32, replay_draws="prioritised", priority_exponent=power)
    everyone(filled, 40)
    rows = np.unique(filled.draw().rows)
    errors = filled.rng.gamma(1.0, size=len(rows)).astype(np.float32) + np.float32(0.1)
    filled.learned(rows, np.float32(size) * errors)
    for beta in (0.0, 0.4, 1.0):
        drawn = filled.draw(beta)
        priorities = np.asarray(filled.replay._sampler.trees[DRAWS].of(drawn.rows))
        expected = (1 / priorities) ** beta
        np.testing.assert_allclose(drawn.weights, expected / expected.max(), rtol=1e-4)


@pytest.mark.parametrize(("start", "end"), [(0.4, 1.0), (0.5, 0.1)])
def test_the_importance_exponent_goes_from_its_start_to_its_end(start: float, end: float) -> None:
    exponents = {"importance_exponent": start, "importance_exponent_end": end}
    filled = Filled(HOST, replay_draws="prioritised", **exponents)
    rates = [filled.replay.rates(progress) for progress in (0.0, 0.5, 1.0)]
    found = [rate["importance_exponent"] for rate in rates]
    assert found == pytest.approx([start, (start + end) / 2, end])


@MEMORIES
def test_new_steps_have_the_largest_priority_so_far(memory: Memory) -> None:
    filled = Filled(memory, replay_draws="prioritised", priority_exponent=1.0)
    everyone(filled, 10)
    rows = np.unique(filled.draw().rows)
    filled.learned(rows, np.full(len(rows), 7.0, np.float32))
    filled.learned(rows, np.full(len(rows), 0.5, np.float32))
    known = filled.replay.read()["replay/priorities"]
    everyone(filled, 2)
    now = filled.replay.read()["replay/priorities"]
    entered = now[(known == 0) & (now > 0)]
    assert len(entered) > 0
    np.testing.assert_allclose(entered, 7.0, rtol=1e-5)


@MEMORIES
def test_a_restored_replay_draws_alike(memory: Memory) -> None:
    one = Filled(memory, replay_draws="prioritised")
    everyone(one, 40)
    drawn = one.draw()
    one.learned(drawn.rows, one.rng.gamma(1.0, size=16).astype(np.float32))
    other = Filled(memory, replay_draws="prioritised")
    other.replay.restore(one.replay.read())
    for _ in range(3):
        for mine, its in zip(one.draw(0.5), other.draw(0.5), strict=True):
            np.testing.assert_allclose(mine, its, rtol=1e-4)


# The book


@MEMORIES
@pytest.mark.parametrize("draws", ["uniform", "prioritised"])
def test_the_steps_of_a_lane_that_nobody_plays_leave_as_others_grow_old(
    memory: Memory, draws: str
) -> None:
    """The old steps do not come back when the lane is played again."""
    filled = Filled(memory, stack=2, window=20, reserve=12, replay_draws=draws)
    everyone(filled, 30)
    left, others = np.array([2], np.int32), np.array([0, 1], np.int32)

    def shares(steps: int, lanes: Array) -> set[int]:
        for _ in range(steps):
            filled.play(lanes)
            filled.flush()
        drawn = [filled.draw() for _ in range(20)]
        for each in drawn:
            filled.check(each)
        return {filled.where(row)[0] for each in drawn for row in each.rows[each.weights > 0]}

    assert shares(5, others) == {0, 1, 2}, "the reserve: as between lanes that are all played"
    count = filled.book.drawable
    assert shares(15, others) == {0, 1, 2}
    assert filled.book.drawable < count
    assert shares(20, others) == {0, 1}
    assert 2 not in shares(2, left), "its old steps have left for good"
    assert shares(15, left) == {0, 1, 2}


@MEMORIES
def test_the_new_steps_of_a_lane_that_nobody_played_for_long_are_drawn(memory: Memory) -> None:
    filled = Filled(memory, n_step=1)
    everyone(filled, 5)
    left, others = np.array([2], np.int32), np.array([0, 1], np.int32)
    for lanes, rounds in ((others, 200), (left, 5)):
        for _ in range(rounds):
            filled.play(lanes, ends=0.0, cuts=0.0)
            filled.flush()
    drawn = filled.draw()
    filled.check(drawn)
    assert 2 in {filled.where(row)[0] for row in drawn.rows.tolist()}


def test_a_window_that_no_transition_fits_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"replay of 6 steps for each of 3 .* < n_step 3 \+ stack 4"
    ):
        Filled(HOST, (8, 8), "uint8", stack=4, window=6)
    Filled(HOST, (8, 8), "uint8", stack=4, window=7)


def test_a_lane_waits_for_room_and_goes_on_after_a_flush() -> None:
    filled = Filled(HOST, reserve=4)
    lanes = np.arange(3, dtype=np.int32)
    for _ in range(4):
        assert filled.book.admit(lanes, 0.0)
        filled.play(lanes)
    assert not filled.book.admit(lanes, 0.01)
    filled.flush()
    assert filled.book.admit(lanes, 0.0)


@MEMORIES
def test_a_ring_of_a_million_steps_takes_no_more_memory_once_full(memory: Memory) -> None:
    keras.backend.clear_session()
    lanes, block = 1000, 100
    filled = Filled(memory, (8,), lanes=lanes, window=1000, reserve=2 * block, batch=32)
    process, used = psutil.Process(), []
    frames = np.ones((lanes, 8), np.float32)
    everyone_once = np.arange(lanes, dtype=np.int32)
    flat = np.ones(lanes, np.float32)
    for step in range(3000):
        slots, ages = filled.book.advance(everyone_once, flat == 0, 0)
        values = {"frame": frames, "age": ages, "reward": flat, "discount": flat}
        values |= {"first": 0 * flat, "action": slots, "q": flat, "value": flat}
        filled._write(filled.ring.rows(everyone_once, slots).astype(np.int32), values)
        filled.book.complete(everyone_once)
        if step % block == block - 1:
            filled.replay.flush()
            drawn = filled.draw()
            assert drawn.weights.all()
            used.append(process.memory_info().rss / 2**20)
    assert filled.book.drawable == lanes * (1000 - 3)
    assert max(used[12:]) - used[11] < 30  # MiB; a copy of the ring would take 69
