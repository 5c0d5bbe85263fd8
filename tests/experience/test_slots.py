"""Replays that evict by priority: against a naive one, victim frequencies, and invariants."""

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from agents.actions import Actions
from agents.environments import Spaces
from ga3c.backend import Column
from ga3c.experience.batches import Transitions
from ga3c.experience.memory import HOST, Memory
from ga3c.experience.replay import Replay
from ga3c.experience.replay_book import ReplayBook
from ga3c.experience.sampling import DRAWS
from ga3c.experience.slots import EVICTIONS, MOST_INSERTED, SlotReplay
from ga3c.service import footprint
from ga3c.service.assembly import build_algorithm, small_model
from ga3c.service.footprint import plan
from ga3c.settings.presets import PRESETS
from ga3c.settings.replay import ReplayConfig
from ga3c.settings.train import TrainConfig
from tests.experience.filled import CLIP, MEMORIES, Filled, everyone, first_error
from tests.reference import Array
from tests.reference_replay import NaiveSlots

NEVER = 1e-4  # p-values below this reject a hypothesis; no fixed seed comes near it
EXPONENT = -0.4
VECTORS = Spaces((67,), "float32", Actions(4), 1)
ALL = np.arange(3, dtype=np.int32)


class Slots(Filled):
    """A replay in slots, and naive slots that get the same steps and errors."""

    replay: SlotReplay

    def __init__(self, memory: Memory, slots: int = 24, seed: int = 0, **settings: Any) -> None:
        given = {"replay_draws": "prioritised", "eviction_exponent": EXPONENT, **settings}
        given |= {"eviction": "priority", "replay_steps": slots, "replay_min_steps": 1}
        self.slots = NaiveSlots(slots, given["eviction_exponent"], seed)
        self._acts = given.get("first_priority") == "acting"
        self._n_step, self._entered = given.get("n_step", 3), [0] * given.get("lanes", 3)
        self._largest = 0.0
        super().__init__(memory, seed=seed, **given)

    def _booked(self, *, window: int, reserve: int, n_step: int, stack: int, **sizes: int) -> Any:
        window = reserve + n_step + stack
        more: Any = {"n_step": n_step, "stack": stack, "idle_leave": False, **sizes}
        return ReplayBook(window=window, reserve=reserve, **more)

    def _made(self, config: ReplayConfig, seed: int) -> Replay:
        return SlotReplay(self.experience, self.book, config, seed=seed)

    def flush(self) -> None:
        super().flush()
        steps = []
        for lane, played in enumerate(self.naive.lanes):
            complete = max(len(played) - self._n_step, 0)
            new = range(self._entered[lane], complete)
            steps += [(lane, step) for step in new if not played[step + 1].first]
            self._entered[lane] = complete
        most = min(MOST_INSERTED, self.slots._slots)
        for start in range(0, len(steps), most):
            some = steps[start : start + most]
            self.slots.insert(some, [self._first_size(*step) for step in some])

    def _first_size(self, lane: int, step: int) -> float:
        if self._acts:
            return abs(first_error(self, lane, step)) + 1e-6
        return self._largest or 1.0

    def learned(self, rows: Array, errors: Array) -> None:
        super().learned(rows, errors)
        for row, error in zip(rows.tolist(), errors.tolist(), strict=True):
            self.slots.sizes[row] = (abs(error) if abs(error) < 1e19 else 0.0) + 1e-6
            self._largest = max(self._largest, self.slots.sizes[row])

    def where(self, row: int) -> tuple[int, int]:
        return self.slots.steps[row]

    def check(self, drawn: Transitions) -> None:
        assert set(drawn.rows.tolist()) <= set(range(len(self.slots.steps)))
        for b in range(len(drawn.rows)):
            assert drawn.weights[b] > 0
            self.check_one(drawn, b)

    def check_all(self) -> None:
        """Check that every slot holds the naive slot's transition, and the priorities of its error.

        Slots hold rewards as they were played; draws clip them.
        """
        found, count = self.replay.read(), len(self.slots.steps)
        assert self.replay.drawable == count
        assert found["slots/inserted"].tolist() == [self.slots.inserted]
        columns = {n: found[f"slots/{n}"][:count] for n in self.replay._reader.columns}
        for slot, step in enumerate(self.slots.steps):
            played = np.float32(self.naive.transition(*step).rewards)
            np.testing.assert_array_equal(columns["rewards"][slot][: len(played)], played)
        columns["rewards"] = np.clip(columns["rewards"], -CLIP, CLIP)
        self.check(Transitions(np.arange(count), np.ones(count), **columns))
        powers = {EVICTIONS: EXPONENT, DRAWS: 0.6}
        for name in self.replay._sampler.trees:
            priorities = found[f"replay/{name}"]
            expected = np.array(self.slots.sizes) ** powers[name]
            np.testing.assert_allclose(priorities[:count], expected, rtol=2e-3, atol=1e-4)
            assert not priorities[count:].any()


def with_errors(slots: Slots, errors: Array) -> Slots:
    """Fill the replay, then set the priorities of all slots from these errors, as updates do."""
    while slots.replay.drawable < len(errors):
        everyone(slots, 20)
    slots.learned(np.arange(len(errors), dtype=np.int32), np.asarray(errors, np.float32))
    return slots


# Against the naive slots


@MEMORIES
@pytest.mark.parametrize("draws", ["uniform", "prioritised"])
@pytest.mark.parametrize("first", ["acting", "largest"])
@pytest.mark.parametrize(
    ("slots", "stack", "n_step", "action"),
    [(24, 1, 3, ((), "int32")), (24, 2, 5, ((2,), "float32")), (7, 1, 1, ((), "int32"))],
)
def test_slots_match_the_reference_through_ends_cuts_wraps_and_absent_lanes(
    memory: Memory, draws: str, first: str, slots: int, stack: int, n_step: int, action: Column
) -> None:
    """Both choose the same victims, so every slot has the same step, transition and priorities."""
    settings = {"replay_draws": draws, "first_priority": first, "action": action}
    filled = Slots(memory, slots, stack=stack, n_step=n_step, batch=8, **settings)
    drawn_of: set[tuple[int, int]] = set()
    for turn in range(90):  # the ring wraps twice, and the slots are filled several times over
        absent = 2 if turn in range(30, 60) else int(filled.rng.integers(6))
        filled.play(ALL[absent != ALL])
        if filled.rng.random() < 0.05:
            filled.another_agent(0)
        if filled.rng.random() < 0.3:
            filled.flush()
        if filled.replay.drawable and turn % 3 == 0:
            filled.flush()
            drawn = filled.draw()
            filled.check(drawn)
            drawn_of |= {filled.where(row) for row in drawn.rows.tolist()}
            rows = np.unique(drawn.rows).astype(np.int32)
            filled.learned(rows, filled.rng.gamma(0.3, size=len(rows)).astype(np.float32))
            filled.check_all()
    assert filled.slots.inserted > 6 * slots
    assert len(drawn_of) > 60


@MEMORIES
def test_evicted_steps_are_never_drawn_again_and_all_others_are_drawn(memory: Memory) -> None:
    filled = Slots(memory, batch=64, priority_exponent=0.1)
    named: dict[bytes, tuple[int, int]] = {}  # steps by their observations, which are random
    everyone(filled, 12)
    for _ in range(30):
        everyone(filled, 3)
        named |= {filled.naive.transition(*s).observation.tobytes(): s for s in filled.slots.steps}
        drawn = filled.draw()
        found = {named[observation.tobytes()] for observation in drawn.observations}
        assert found <= set(filled.slots.steps)
        assert not found & set(filled.slots.gone)
    assert len(filled.slots.gone) > 100
    seen = {filled.where(row) for _ in range(30) for row in filled.draw().rows.tolist()}
    assert seen == set(filled.slots.steps)


@MEMORIES
def test_a_restored_replay_draws_and_evicts_alike(memory: Memory) -> None:
    one, other = Slots(memory), Slots(memory)
    everyone(one, 40)
    drawn = one.draw()
    one.learned(np.unique(drawn.rows), np.linspace(0.1, 3, len(np.unique(drawn.rows))))
    other.replay.restore(one.replay.read())
    for name in ("rng", "naive", "slots", "acted", "_fresh", "_entered", "_largest"):
        setattr(other, name, deepcopy(getattr(one, name)))
    for _ in range(3):
        everyone(one, 12)
        everyone(other, 12)
        for mine, its in zip(one.draw(0.5), other.draw(0.5), strict=True):
            np.testing.assert_allclose(mine, its, rtol=1e-4)
    mine, its = one.replay.read(), other.replay.read()
    assert mine.keys() == its.keys()
    for name in mine:
        np.testing.assert_allclose(mine[name], its[name], rtol=1e-4, err_msg=name)
    other.check_all()


def test_the_state_of_another_kind_of_replay_is_refused() -> None:
    kept = Filled(HOST, window=16, replay_draws="prioritised").replay.read()
    rows = len(kept["replay/priorities"])
    with pytest.raises(ValueError, match="the experience has no 'evictions'"):
        Slots(HOST, rows).replay.restore(kept)
    with pytest.raises(ValueError, match="shape"):
        Slots(HOST, rows // 2).replay.restore(kept)


# How often each slot is drawn or evicted


@MEMORIES
def test_victims_are_drawn_in_proportion_to_powers_of_the_errors(memory: Memory) -> None:
    errors = np.random.default_rng(1).gamma(1.0, size=200) + 0.05
    filled = with_errors(Slots(memory, 200, reserve=90, seed=2), errors)
    replay, masses = filled.replay, filled.replay._evictions.read()
    counts = np.zeros(200)
    for each in range(400):
        replay._inserted = 1000 + each  # seeds the draw of the victims
        victims = replay._victims(10)
        assert len(set(victims.tolist())) == 10
        counts[victims] += 1
        # Some victims have priority 0 now; an insertion would set the new ones.
        replay._evictions.restore(masses)
    shares = (errors + 1e-6) ** EXPONENT
    assert chisquare(counts, shares / shares.sum() * counts.sum()).pvalue > NEVER
    assert chisquare(counts, np.full(200, counts.mean())).pvalue < NEVER, "not uniform"


@MEMORIES
def test_draws_are_in_proportion_to_powers_of_the_errors(memory: Memory) -> None:
    errors = np.random.default_rng(2).gamma(1.0, size=100) + 0.05
    filled = with_errors(Slots(memory, 100, reserve=60, batch=500), errors)
    counts = np.zeros(100)
    for _ in range(40):
        np.add.at(counts, filled.draw().rows, 1)
    shares = (errors + 1e-6) ** 0.6
    assert chisquare(counts, shares / shares.sum() * counts.sum()).pvalue > NEVER


@MEMORIES
def test_uniform_draws_are_uniform_over_the_slots_that_are_full(memory: Memory) -> None:
    filled = Slots(memory, 100, batch=500, replay_draws="uniform")
    everyone(filled, 20)
    full = filled.replay.drawable
    assert 20 < full < 60
    counts = Counter({slot: 0 for slot in range(full)})
    for _ in range(20):
        drawn = filled.draw()
        filled.check(drawn) if not counts.total() else None
        counts.update(drawn.rows.tolist())
    assert set(counts) == set(range(full))
    assert chisquare(list(counts.values())).pvalue > NEVER


@MEMORIES
@pytest.mark.parametrize("draws", ["uniform", "prioritised"])
def test_without_repeats_no_slot_is_drawn_twice(memory: Memory, draws: str) -> None:
    filled = Slots(memory, batch=16, replay_draws=draws, replay_repeats=False)
    everyone(filled, 30)
    rows = [d.rows[d.weights > 0].tolist() for d in (filled.draw() for _ in range(10))]
    assert all(len(set(each)) == len(each) for each in rows)
    assert max(map(len, rows)) == 16


@MEMORIES
@pytest.mark.parametrize("draws", ["uniform", "prioritised"])
def test_draws_from_an_empty_replay_have_weight_0(memory: Memory, draws: str) -> None:
    filled = Slots(memory, replay_draws=draws)
    filled.play(ALL)
    filled.flush()
    assert not filled.draw().weights.any()
    assert filled.replay.drawable == 0


@MEMORIES
def test_weights_are_the_inverse_shares_power_over_the_largest(memory: Memory) -> None:
    errors = np.random.default_rng(3).gamma(1.0, size=24) + 0.1
    filled = with_errors(Slots(memory, batch=32), errors)
    for beta in (0.0, 0.4, 1.0):
        drawn = filled.draw(beta)
        expected = errors[drawn.rows] ** (-0.6 * beta)
        np.testing.assert_allclose(drawn.weights, expected / expected.max(), rtol=1e-3)


# No slot is a victim twice


@MEMORIES
@pytest.mark.parametrize("heavy", [0, 2, 4])
def test_no_victim_is_taken_twice_where_one_slot_has_nearly_all_the_mass(
    memory: Memory, heavy: int
) -> None:
    """The slot with nearly all the mass is nearly always among the victims."""
    errors = np.full(5, 1e6)
    errors[heavy] = 0.0  # its priority is 251, that of the others 0.004
    filled = with_errors(Slots(memory, 5), errors)
    masses, taken = filled.replay._evictions.read(), 0
    for count in (1, 2, 3, 4, 5) * 6:
        filled.replay._inserted += 1
        victims = filled.replay._victims(count).tolist()
        assert len(set(victims)) == count
        assert set(victims) <= set(range(5))
        taken += heavy in victims
        filled.replay._evictions.restore(masses)
    assert taken >= 29


@MEMORIES
def test_victims_differ_however_the_sums_are_rounded(memory: Memory) -> None:
    """Draws that always fall on one slot simulate sums whose rounding has lost all other slots."""
    filled = with_errors(Slots(memory, 8), np.ones(8))
    filled.replay._fallen_on = partial(np.full_like, fill_value=3)
    for count in range(1, 9):
        victims = filled.replay._victims(count).tolist()
        assert len(set(victims)) == count
        assert 3 in victims


# Errors that are not finite


@MEMORIES
def test_errors_without_a_finite_square_are_evicted_first_and_spoil_no_sum(memory: Memory) -> None:
    errors = np.ones(24)
    errors[:4] = np.nan, np.inf, -np.inf, 3e38  # the square of the last one is not finite
    filled = with_errors(Slots(memory, batch=64), errors)
    filled.check_all()
    for name in (EVICTIONS, DRAWS):
        priorities = filled.replay._sampler.trees[name].read()
        assert np.isfinite(priorities).all()
        assert (priorities[:24] > 0).all()
    bad = {filled.where(slot) for slot in range(4)}
    everyone(filled, 4)
    assert bad <= set(filled.slots.gone)
    filled.check_all()


@MEMORIES
@pytest.mark.parametrize("exponent", [0.0, -0.4, -6.0])
def test_errors_of_any_size_leave_sums_finite_and_above_0(memory: Memory, exponent: float) -> None:
    filled = Slots(memory, 24, eviction_exponent=exponent, first_priority="acting")
    everyone(filled, 40)
    sizes = np.array([0.0, 1e-30, 3e38, *np.ones(21)], np.float32)
    filled._learned(np.arange(24, dtype=np.int32), sizes)
    priorities = filled.replay._evictions.read()[:24]
    assert np.isfinite(priorities.sum())
    assert (priorities > 0).all()
    assert len(set(filled.replay._victims(24).tolist())) == 24


@MEMORIES
def test_values_of_acting_that_are_not_finite_spoil_no_sum(memory: Memory) -> None:
    filled = Slots(memory, first_priority="acting")
    everyone(filled, 20)
    values = filled.experience.read()
    values["q"][:] = np.nan
    values["value"][::2] = np.inf
    filled.experience.restore(values)
    filled.play(ALL)
    filled.replay.flush()
    for tree in filled.replay._sampler.trees.values():
        assert np.isfinite(tree.read()).all()
    assert filled.draw().weights.all()


# Settings


def configured(**replay: Any) -> TrainConfig:
    config = PRESETS["dqn-vectors"]
    given = {"eviction": "priority", "replay_draws": "prioritised", **replay}
    return replace(config, replay=replace(config.replay, **given))


def test_pictures_are_refused_in_one_line() -> None:
    pong, config = Spaces((84, 84), "uint8", Actions(6), 4), configured()
    said = "eviction priority with pictures: keeps .* 8 frames instead of one.* --eviction fifo"
    with pytest.raises(ValueError, match=said):
        small_model(config, pong)
    with pytest.raises(ValueError, match=said):
        plan(config, pong, build_algorithm(config, Actions(6)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"eviction_exponent": 0.4}, "eviction_exponent 0.4: must be at most 0, or the"),
        ({"replay_steps": 3 * 10**9}, "replay_steps 3000000000 >= 2147483648 with eviction"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        configured(**given)


@pytest.mark.parametrize("draws", ["uniform", "prioritised"])
def test_the_stated_memory_is_what_is_allocated(draws: str) -> None:
    config = configured(replay_steps=100_000, replay_draws=draws)
    stated = plan(config, VECTORS, build_algorithm(config, Actions(4)))
    window, stack = config.replay_window(1), 1
    reserve, n_step = config.replay_reserve, config.replay.n_step
    assert window == reserve + n_step + stack
    columns = 2 * 67 * 4 + 4 + 3 * n_step * 4
    trees = 4 * (2 if draws == "prioritised" else 1)
    assert stated.step_bytes == columns + trees
    ring = config.max_lanes * (window + reserve) * (67 * 4 + 4 * 4 + 4)
    assert stated.fixed_bytes == ring
    allocated = sum(
        array.nbytes
        for name, array in small_model(config, VECTORS).source.read().items()
        if name.startswith("slots/") and name != "slots/inserted"
    )
    assert allocated == columns * config.replay.replay_min_steps, "a small model has fewer slots"


def test_too_many_slots_are_refused_with_the_number_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The machine's free memory may change between two plans.
    monkeypatch.setattr(footprint, "free_bytes", lambda memory: 8_000_000_000)
    config = configured(replay_steps=2_000_000_000)
    with pytest.raises(ValueError, match=r"replay_steps 2,000,000,000 take .* at most") as refusal:
        plan(config, VECTORS, build_algorithm(config, Actions(4)))
    most = int(str(refusal.value).split("at most ")[1].split(" ")[0].replace(",", ""))
    fits = configured(replay_steps=int(0.9 * most))
    planned = plan(fits, VECTORS, build_algorithm(fits, Actions(4)))
    step_bytes = 2 * 67 * 4 + 4 + 3 * fits.replay.n_step * 4 + 8
    stated = fits.replay.replay_steps * step_bytes + planned.fixed_bytes
    assert str(planned).startswith(f"{stated / 1e9:.2f} GB in RAM")
