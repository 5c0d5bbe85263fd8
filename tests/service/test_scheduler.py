"""The annealer, which proposes counts, and the scheduler, which measures its proposals."""

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ga3c.runs.metrics import Snapshot
from ga3c.service.annealer import Annealer, Decision, Figures
from ga3c.service.scheduler import UNPLAYED_S, Scheduler, replay
from ga3c.settings.scheduler import Counts, SchedulerConfig

MOST = Counts(16, 6, 6)
SMALLEST = Counts(1, 1, 1)
START = Counts(5, 3, 2)


def eager(**settings: float) -> SchedulerConfig:
    """Settings with which a single win is enough, and any gain is a win."""
    return SchedulerConfig(**{"wins": 1, "margin": 0.0, **settings})  # type: ignore[arg-type]


def made(rate: float, **others: Any) -> Figures:
    """The figures of a window with this rate; those not in `others` have fixed values."""
    return Figures(rate, 5.0, 1000.0, 100.0, (0.5, 0.5, 0.5))._replace(**others)


def distance(a: Counts, b: Counts) -> int:
    return sum(abs(x - y) for x, y in zip(a, b))


def neighbours(kept: Counts, most: Counts) -> set[Counts]:
    """All settings within the limits that differ by one in one count."""
    every = itertools.product(*(range(1, limit + 1) for limit in most))
    return {Counts(*counts) for counts in every if distance(Counts(*counts), kept) == 1}


def anneal(
    annealer: Annealer, decisions: int, rate: Callable[[Counts], float]
) -> list[tuple[Decision, Counts]]:
    """The decisions when `rate` gives the training rates, each with the counts kept after it."""
    walked = []
    for i in range(decisions):
        kept = made(rate(annealer.kept))
        tried = annealer.propose(kept)
        assert tried is not None
        decision = annealer.judge(tried, kept, made(rate(tried)), float(i))
        walked.append((decision, annealer.kept))
    return walked


@pytest.mark.parametrize("start", [SMALLEST, MOST, Counts(5, 3, 2), Counts(1, 6, 3)])
def test_every_neighbour_within_the_limits_is_proposed_once_and_nothing_else(start: Counts) -> None:
    annealer = Annealer(eager(), start, MOST, seed=0)
    expected = neighbours(start, MOST)
    tried = [d.tried for d, _ in anneal(annealer, len(expected), lambda c: float(c == start))]
    assert len(tried) == len(set(tried))
    assert set(tried) == expected
    assert annealer.kept == start


@pytest.mark.parametrize("seed", range(5))
def test_a_walk_on_pure_noise_stays_within_the_limits_by_single_steps(seed: int) -> None:
    rng = random.Random(seed)
    annealer = Annealer(eager(cooling=1.0), Counts(2, 1, 1), Counts(4, 2, 3), seed)
    kept = annealer.kept
    for decision, now in anneal(annealer, 300, lambda _: rng.random() + 0.1):
        assert decision.kept == kept
        assert decision.tried in neighbours(kept, Counts(4, 2, 3))
        assert now == (decision.tried if decision.accepted else kept)
        kept = now


def test_a_proposal_stands_until_it_is_judged() -> None:
    annealer = Annealer(eager(), Counts(5, 3, 2), MOST, seed=0)
    assert len({annealer.propose(made(1000.0)) for _ in range(10)}) == 1


@pytest.mark.parametrize(
    ("waiting", "first"),
    [
        ((0.1, 0.6, 0.5), Counts(6, 3, 2)),  # agents are the bottleneck
        ((0.6, 0.1, 0.5), Counts(5, 4, 2)),
        ((0.7, 0.6, 0.2), Counts(5, 3, 3)),
        ((0.5, 0.9, 0.5), Counts(5, 2, 2)),  # there is one predictor too many
    ],
)
def test_the_waiting_shares_decide_what_is_tried_first(
    waiting: tuple[float, float, float], first: Counts
) -> None:
    for seed in range(10):
        annealer = Annealer(eager(), START, MOST, seed)
        assert annealer.propose(made(1000.0, waiting=waiting)) == first


def test_no_agent_is_added_beyond_the_cap_on_memory() -> None:
    for cap_mb, adds in ((1100.0, True), (1099.0, False)):
        annealer = Annealer(eager(max_memory_mb=cap_mb), START, MOST, seed=0)
        tried = set()
        for _ in range(6 if adds else 5):
            counts = annealer.propose(made(1000.0))  # 1,000 MiB in use, 100 per agent
            assert counts is not None
            tried.add(counts)
            annealer.judge(counts, made(1000.0), made(1.0), 1.0)
        assert (Counts(6, 3, 2) in tried) == adds
        assert len(tried) == (6 if adds else 5)


def test_beyond_the_cap_on_policy_lag_only_a_smaller_lag_is_accepted() -> None:
    for lag_kept, lag_tried, gain, accepted in (
        (5.0, 20.0, 2.0, False),
        (5.0, 9.9, 2.0, True),
        (20.0, 19.0, 0.1, True),
        (20.0, 21.0, 2.0, False),
    ):
        annealer = Annealer(eager(max_policy_lag=10.0), START, MOST, seed=0)
        kept = made(1000.0, policy_lag=lag_kept)
        tried = annealer.propose(kept)
        assert tried is not None
        figures = made(1000.0 * gain, policy_lag=lag_tried)
        assert annealer.judge(tried, kept, figures, 1.0).accepted == accepted


@pytest.mark.parametrize(
    ("memory_mb", "lag", "accepted"),
    [(900.0, 9.0, True), (900.0, 21.0, False), (1300.0, 9.0, False)],
)
def test_beyond_both_caps_only_a_setting_that_reduces_both_is_accepted(
    memory_mb: float, lag: float, accepted: bool
) -> None:
    annealer = Annealer(eager(max_policy_lag=10.0, max_memory_mb=1000.0), START, MOST, seed=0)
    kept = made(1000.0, memory_mb=1200.0, policy_lag=20.0)
    tried = annealer.propose(kept)
    assert tried is not None
    figures = made(2000.0, memory_mb=memory_mb, policy_lag=lag)
    assert annealer.judge(tried, kept, figures, 1.0).accepted == accepted


def test_a_win_is_not_credited_to_another_setting() -> None:
    """The memory cap rules out a setting that has won once. The next one starts with no wins."""
    annealer = Annealer(eager(wins=2, max_memory_mb=1100.0), START, MOST, seed=0)
    more = Counts(6, 3, 2)
    for _ in range(6):
        kept = made(1000.0, waiting=(0.2, 0.5, 0.5))
        tried = annealer.propose(kept)
        assert tried is not None
        won = made(2000.0 if tried == more else 1.0)
        if annealer.judge(tried, kept, won, 1.0).wins:
            break
    assert tried == more
    full = made(1000.0, memory_mb=1101.0)
    other = annealer.propose(full)
    assert other not in (None, more)
    assert other is not None
    decision = annealer.judge(other, full, made(2000.0, memory_mb=1000.0), 1.0)
    assert (decision.wins, decision.accepted) == (1, False)


def test_looks_without_a_proposal_do_not_change_the_next_proposal() -> None:
    """The journal, which a resumed run replays, has no windows without a promising neighbour."""
    idle = made(1000.0, waiting=(0.0, 0.95, 0.95))
    start = Counts(5, 1, 1)
    for seed in range(10):
        tried = []
        for looks in (0, 7):
            annealer = Annealer(eager(), start, Counts(5, 6, 6), seed)
            for _ in range(looks):
                assert annealer.propose(idle) is None
            tried.append(annealer.propose(made(1000.0)))
        assert tried[0] == tried[1]


def test_windows_without_room_for_another_agent_do_not_change_later_decisions() -> None:
    """The journal has no entry for windows without room either: a replay must do without them."""
    config, nothing = eager(max_memory_mb=1000.0), 0
    busy, idle = (0.5, 0.5, 0.5), (0.0, 0.95, 0.95)
    for seed in range(50):
        draws = random.Random(seed)
        live, again = (Annealer(config, SMALLEST, Counts(4, 1, 1), seed=seed) for _ in range(2))
        for _ in range(60):
            waiting = draws.choice([busy, idle])
            kept = made(1000.0, memory_mb=draws.choice([800.0, 950.0]), waiting=waiting)
            tried = live.propose(kept)
            nothing += tried is None
            if tried is not None:
                assert again.propose(kept) == tried
                result = made(draws.choice([500.0, 1100.0]))
                assert live.judge(tried, kept, result, 0.0) == again.judge(tried, kept, result, 0.0)
    assert nothing


def test_the_paper_s_walk_keeps_whatever_did_no_harm() -> None:
    config = SchedulerConfig(scheduler="random")
    for gain, accepted in ((1.0, True), (1.001, True), (0.999, False)):
        annealer = Annealer(config, START, MOST, seed=0)
        tried = annealer.propose(made(1000.0))
        assert tried is not None
        assert annealer.judge(tried, made(1000.0), made(1000.0 * gain), 1.0).accepted == accepted


def test_the_paper_s_walk_draws_each_proposal_anew() -> None:
    annealer = Annealer(SchedulerConfig(scheduler="random"), START, MOST, seed=0)
    tried = [d.tried for d, _ in anneal(annealer, 60, lambda c: float(c == START))]
    assert set(tried) == neighbours(START, MOST)
    assert any(a == b for a, b in itertools.pairwise(tried))


def test_where_there_is_only_one_setting_nothing_is_proposed() -> None:
    assert Annealer(eager(), SMALLEST, SMALLEST, seed=0).propose(made(1000.0)) is None


@pytest.mark.parametrize("gain", [0.0, 1e-9, 0.5, 100.0])
@pytest.mark.parametrize("seed", range(10))
def test_a_rate_that_is_no_worse_is_always_accepted(gain: float, seed: int) -> None:
    annealer = Annealer(eager(temperature=1e-9), Counts(5, 3, 2), MOST, seed)
    tried = annealer.propose(made(1000.0))
    assert tried is not None
    assert annealer.judge(tried, made(1000.0), made(1000.0 * (1 + gain)), 1.0).accepted
    assert annealer.kept == tried


def test_anything_is_better_than_a_rate_of_zero() -> None:
    annealer = Annealer(eager(), Counts(5, 3, 2), MOST, seed=0)
    tried = annealer.propose(made(1000.0))
    assert tried is not None
    assert annealer.judge(tried, made(0.0), made(1.0), 1.0).accepted


def test_a_rate_of_zero_is_not_better_than_zero() -> None:
    annealer = Annealer(eager(), Counts(5, 3, 2), MOST, seed=0)
    for _ in range(20):  # no update yet, for example while a replay fills
        tried = annealer.propose(made(0.0))
        if tried is not None:
            assert not annealer.judge(tried, made(0.0), made(0.0), 1.0).accepted


@pytest.mark.parametrize(("loss", "chance"), [(0.02, math.exp(-1)), (0.01, math.exp(-0.5))])
def test_a_loss_is_accepted_as_often_as_the_temperature_says(loss: float, chance: float) -> None:
    accepted = 0
    for seed in range(2000):
        annealer = Annealer(eager(temperature=0.02), Counts(5, 3, 2), MOST, seed)
        tried = annealer.propose(made(1000.0))
        assert tried is not None
        accepted += annealer.judge(tried, made(1000.0), made(1000.0 * (1 - loss)), 1.0).accepted
    assert abs(accepted / 2000 - chance) < 4 * math.sqrt(chance * (1 - chance) / 2000)


def test_a_great_loss_is_rejected() -> None:
    annealer = Annealer(eager(), Counts(5, 3, 2), MOST, seed=0)
    for decision, kept in anneal(annealer, 100, lambda c: 1000.0 if c == Counts(5, 3, 2) else 10.0):
        assert not decision.accepted
        assert kept == Counts(5, 3, 2)


def test_the_temperature_falls_with_every_decision() -> None:
    annealer = Annealer(
        eager(temperature=0.5, cooling=0.75),
        Counts(5, 3, 2),
        MOST,
        seed=0,
    )
    decisions = [decision for decision, _ in anneal(annealer, 10, lambda c: float(sum(c)))]
    assert [decision.temperature for decision in decisions] == pytest.approx(
        [0.5 * 0.75**i for i in range(10)]
    )
    assert annealer.temperature == pytest.approx(0.5 * 0.75**10)


def test_a_gain_within_the_margin_is_not_worth_a_change() -> None:
    annealer = Annealer(eager(margin=0.03, temperature=1e-6), SMALLEST, MOST, seed=0)
    for gain, accepted in ((0.0, False), (0.02, False), (0.031, True)):
        tried = annealer.propose(made(1000.0))
        assert tried is not None
        decision = annealer.judge(tried, made(1000.0), made(1000.0 * (1 + gain)), 1.0)
        assert decision.accepted == accepted


def test_a_setting_is_kept_only_when_it_has_won_as_often_as_asked() -> None:
    config = SchedulerConfig(wins=3, margin=0.03, temperature=1e-6)
    annealer = Annealer(config, SMALLEST, MOST, seed=0)
    first = annealer.propose(made(1000.0))
    assert first is not None
    for gain, wins, accepted in ((0.1, 1, False), (0.1, 2, False), (0.0, 0, False)):
        assert annealer.propose(made(1000.0)) == first
        decision = annealer.judge(first, made(1000.0), made(1000.0 * (1 + gain)), 1.0)
        assert (decision.wins, decision.accepted) == (wins, accepted)
    second = annealer.propose(made(1000.0))
    assert second not in (None, first)
    assert second is not None
    decisions = [annealer.judge(second, made(1000.0), made(1100.0), 1.0) for _ in range(3)]
    assert [decision.accepted for decision in decisions] == [False, False, True]
    assert annealer.kept == second
    third = annealer.propose(made(1000.0))
    assert third is not None
    assert annealer.judge(third, made(1000.0), made(1100.0), 1.0).wins == 1


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.03])
def test_noise_alone_seldom_changes_the_counts(noise: float) -> None:
    """If windows differ only by chance, fewer than one decision in ten changes the counts."""
    moves = 0
    for seed in range(20):
        rng = random.Random(seed)
        annealer = Annealer(SchedulerConfig(), Counts(2, 1, 1), Counts(2, 4, 4), seed)
        walked = anneal(annealer, 50, lambda _, rng=rng: rng.gauss(1, noise))  # type: ignore[misc]
        moves += sum(decision.accepted for decision, _ in walked)
    assert moves / 1000 < 0.1


def test_calm_grows_when_all_neighbours_are_rejected_and_ends_with_an_acceptance() -> None:
    start = Counts(1, 2, 2)
    annealer = Annealer(eager(), start, MOST, seed=0)
    around = len(neighbours(start, MOST))
    worse = lambda c: 1000.0 if c == start else 1.0  # noqa: E731
    anneal(annealer, around - 1, worse)
    assert annealer.calm == 0
    anneal(annealer, 1, worse)
    assert annealer.calm == 1
    anneal(annealer, around, worse)
    assert annealer.calm == 2
    anneal(annealer, 1, lambda c: 1.0 if c == start else 2.0)
    assert annealer.calm == 0
    assert annealer.kept != start


def test_the_same_seed_decides_alike() -> None:
    def run(seed: int) -> list[tuple[Decision, Counts]]:
        rng = random.Random(1)
        annealer = Annealer(eager(), Counts(5, 3, 2), MOST, seed)
        return anneal(annealer, 50, lambda _: rng.gauss(1, 0.02))

    assert run(3) == run(3)
    assert run(3) != run(4)


def smooth(counts: Counts) -> float:
    """A training rate with one smooth peak, at (6, 3, 2)."""
    away = zip(counts, (6, 3, 2), (8, 4, 4))
    return 1000 * math.exp(-sum(((count - best) / width) ** 2 for count, best, width in away))


def slowest_part(counts: Counts) -> float:
    """The rate of the slowest role. It drops if the counts exceed 14 cores in total."""
    flow = min(120 * counts.agents, 400 * counts.predictors, 350 * counts.trainers)
    return flow / (1 + 0.012 * max(0, sum(counts) - 14) ** 2)


@pytest.mark.parametrize("rate", [smooth, slowest_part])
@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_landscape_is_climbed_to_near_its_best(
    rate: Callable[[Counts], float], seed: int
) -> None:
    rng = random.Random(100 + seed)
    annealer = Annealer(eager(), Counts(2, 1, 1), MOST, seed)
    anneal(annealer, 200, lambda counts: rate(counts) * rng.gauss(1, 0.01))
    every = itertools.product(*(range(1, limit + 1) for limit in MOST))
    assert rate(annealer.kept) >= 0.95 * max(rate(Counts(*counts)) for counts in every)


def test_a_temperature_of_zero_rejects_every_loss() -> None:
    config = eager(temperature=1e-300, cooling=0.01)
    annealer = Annealer(config, Counts(5, 3, 2), MOST, seed=0)
    walked = anneal(annealer, 40, lambda c: 1000.0 if c == Counts(5, 3, 2) else 10.0)
    assert not any(decision.accepted for decision, _ in walked)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"wins": 0}, "wins 0: must be at least 1"),
        ({"window_s": 0.0}, "window_s 0.0: must be above 0"),
        ({"temperature": -0.1}, "temperature -0.1: must be above 0"),
        ({"settle_s": -1.0}, "settle_s must be at least 0"),
        ({"cooling": 0.0}, r"cooling in \(0, 1\]"),
        ({"cooling": 1.1}, r"cooling in \(0, 1\]"),
        ({"patience": 0.5}, "patience at least 1"),
        ({"max_policy_lag": 0.0}, "max_policy_lag 0.0: must be above 0"),
        ({"max_memory_mb": -1.0}, "max_memory_mb -1.0: must be above 0"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_value(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SchedulerConfig(**wrong)


class World:
    """A service whose training rate is a function of its counts and of a clock that `run` moves.

    For `transient_s` after a change of the counts, its rate is misleadingly high.
    """

    def __init__(
        self,
        journal: Path,
        config: SchedulerConfig,
        rate: Callable[[Counts, float], float],
        start: Counts = START,
        most: Counts = MOST,
        transient_s: float = 0.0,
    ) -> None:
        self.now_s = 1000.0
        self.samples = 0.0
        self.readings: list[float] = []  # the times at which the counters were read
        self.applied: list[tuple[float, Counts]] = []
        self.decisions: list[Decision] = []
        self.counts = start
        self.waits_until_s = -math.inf  # until then, some agent has made no step
        self.others: Callable[[float], float] = lambda now_s: 0.0  # the share of cores they use
        self._foreign_cpu_s = self.stops_s = 0.0
        self._rate = rate
        self._transient_s = transient_s
        self._journal = journal
        self.scheduler = Scheduler(config, start, most, 0, self, journal, lambda: self.now_s)

    def run(self, seconds: float, tick_s: float = 0.5) -> None:
        for _ in range(int(seconds / tick_s)):
            changed_s = self.applied[-1][0] if self.applied else -math.inf
            settled = self.now_s >= changed_s + self._transient_s
            rate = self._rate(self.counts, self.now_s) if settled else 1e6
            taken = self.others(self.now_s)
            self.samples += rate * (1 - taken) * tick_s
            self._foreign_cpu_s += taken * tick_s
            self.now_s += tick_s
            decision = self.scheduler.tick()
            if decision is not None:
                self.decisions.append(decision)

    def journal(self) -> list[dict[str, Any]]:
        """The decisions in the journal. Its first line, with the settings, is left out."""
        return [json.loads(line) for line in self._journal.read_text().splitlines()[1:]]

    def snapshot(self) -> Snapshot:
        self.readings.append(self.now_s)
        return Snapshot(self.now_s, {"trained_samples": self.samples})

    def plays(self) -> bool:
        return self.now_s >= self.waits_until_s

    def memory_mb(self) -> list[float]:
        return [700.0] + [100.0] * self.counts.agents

    def foreign_cpu_s(self) -> float:
        return self._foreign_cpu_s

    def stopped_s(self) -> float:
        return self.stops_s

    def resize(self, counts: Counts) -> None:
        self.counts = counts
        self.applied.append((self.now_s, counts))


CONFIG = eager(settle_s=5.0, window_s=15.0, patience=1.0)
PERIOD_S = 2 * (5.0 + 15.0)  # per decision: settle, measure, change, settle, measure


def test_every_window_is_of_equal_length_and_begins_when_the_change_has_settled(
    tmp_path: Path,
) -> None:
    config = dataclasses.replace(CONFIG, max_policy_lag=1e9)  # with a cap, no window is cut short
    world = World(tmp_path / "journal", config, lambda c, _: smooth(c), transient_s=5.0)
    world.run(20 * PERIOD_S + 20)
    windows = list(zip(world.readings[::2], world.readings[1::2]))
    assert len(windows) >= 39
    assert {end - start for start, end in windows} == {15.0}
    for changed_s, _ in world.applied:
        assert not any(start < changed_s + 5.0 and changed_s < end for start, end in windows)
    for decision in world.decisions:
        assert decision.figures_kept.rate == pytest.approx(smooth(decision.kept))
        assert decision.figures_tried.rate == pytest.approx(smooth(decision.tried))


def test_rates_are_right_when_ticks_come_late(tmp_path: Path) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, _: smooth(c))
    world.run(10 * PERIOD_S, tick_s=7.0)
    assert len(world.decisions) >= 5
    for decision in world.decisions:
        assert decision.figures_kept.rate == pytest.approx(smooth(decision.kept))
        assert decision.figures_tried.rate == pytest.approx(smooth(decision.tried))


def test_a_much_slower_setting_is_undone_after_a_third_of_the_window(tmp_path: Path) -> None:
    start = Counts(1, 1, 1)
    config = SchedulerConfig(settle_s=5.0, window_s=15.0)
    world = World(
        tmp_path / "journal",
        config,
        lambda c, _: 1000.0 if c == start else 700.0,
        start,
        Counts(2, 1, 1),
    )
    world.run(60.0)
    (changed_s, _), (undone_s, _) = world.applied[:2]
    assert undone_s - changed_s == pytest.approx(5.0 + 15.0 / 3, abs=1.0)
    assert world.decisions[0].figures_tried.rate == pytest.approx(700.0)


def test_a_window_in_which_others_take_the_cores_is_measured_again(tmp_path: Path) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, _: smooth(c))
    world.others = lambda now_s: 0.4 if now_s % 100.0 < 20.0 else 0.02  # like an occasional build
    world.run(40 * PERIOD_S)
    assert len(world.decisions) >= 20
    for decision in world.decisions:
        for counts, figures in (
            (decision.kept, decision.figures_kept),
            (decision.tried, decision.figures_tried),
        ):
            assert figures.rate == pytest.approx(smooth(counts), rel=0.1)


def test_a_window_with_an_evaluation_in_it_is_measured_again(tmp_path: Path) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, t: smooth(c) * (0.5 if busy(t) else 1.0))

    def busy(now_s: float) -> bool:
        return now_s % 200.0 < 10.0

    for _ in range(2000):
        if busy(world.now_s + 0.5):
            world.scheduler.disturb()
        world.run(0.5)
    assert len(world.decisions) >= 20
    for decision in world.decisions:
        assert decision.figures_kept.rate == pytest.approx(smooth(decision.kept), rel=0.05)
        assert decision.figures_tried.rate == pytest.approx(smooth(decision.tried), rel=0.05)


def test_counts_are_tuned_even_if_others_always_take_the_cores(tmp_path: Path) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, _: smooth(c))
    world.others = lambda now_s: 0.5
    world.run(60 * PERIOD_S)
    assert len(world.decisions) >= 10
    for decision in world.decisions:
        assert decision.figures_kept.rate == pytest.approx(0.5 * smooth(decision.kept))


def test_counts_of_workers_that_hardly_wait_are_not_reduced() -> None:
    annealer = Annealer(SchedulerConfig(), Counts(2, 2, 2), Counts(2, 2, 2), seed=0)
    waiting = (0.05, 0.2, 0.5)  # of agents, predictors, trainers
    figures = Figures(1000.0, 0.0, 100.0, 50.0, waiting)
    worse = figures._replace(rate=1.0)
    tried = set()
    for _ in range(2):
        counts = annealer.propose(figures)
        assert counts is not None
        tried.add(counts)
        annealer.judge(counts, figures, worse, 0.0)
    assert tried == {Counts(2, 1, 2), Counts(2, 2, 1)}
    assert annealer.calm == 1, "these are all"


def test_a_rejected_setting_is_undone_at_once_and_an_accepted_one_left(tmp_path: Path) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, _: smooth(c))
    applied_before = 0
    outcomes = set()
    for _ in range(int(40 * PERIOD_S / 0.5)):
        made = len(world.decisions)
        world.run(0.5)
        if len(world.decisions) == made:
            continue
        decision = world.decisions[-1]
        new, applied_before = world.applied[applied_before:], len(world.applied)
        assert new[0][1] == decision.tried
        undone = [] if decision.accepted else [(world.now_s, decision.kept)]
        assert new[1:] == undone
        outcomes.add(decision.accepted)
    assert outcomes == {True, False}


def test_the_kept_setting_is_measured_anew_right_before_each_proposal(tmp_path: Path) -> None:
    def drifting(counts: Counts, now_s: float) -> float:
        return smooth(counts) * now_s  # all rates grow with time, whatever the counts

    world = World(tmp_path / "journal", CONFIG, drifting)
    world.run(20 * PERIOD_S)
    assert len(world.decisions) >= 19
    began_s = 1000.0
    for decision in world.decisions:
        middle_s = began_s + 5.0 + 7.5
        expected = drifting(decision.kept, middle_s)
        assert decision.figures_kept.rate == pytest.approx(expected, rel=0.001)
        began_s = decision.seconds
    rates = [decision.figures_kept.rate for decision in world.decisions]
    assert len(set(rates)) == len(rates)


def test_the_journal_holds_every_decision(tmp_path: Path) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, _: smooth(c))
    world.run(10 * PERIOD_S + 10)
    assert len(world.decisions) == 10
    assert world.journal() == [json.loads(json.dumps(each.plain())) for each in world.decisions]
    assert [line["seconds"] for line in world.journal()] == [
        1000 + PERIOD_S * (i + 1) for i in range(10)
    ]


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [("accepted", True), ("tried", {"agents": 5, "predictors": 9, "trainers": 2})],
)
def test_a_journal_that_does_not_follow_from_its_figures_is_refused(
    entry: str, wrong: Any, tmp_path: Path
) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, _: 1000.0 - distance(c, START))
    world.run(5 * PERIOD_S + 10)
    begun, *lines = (tmp_path / "journal").read_text().splitlines()
    assert json.loads(lines[2])[entry] != wrong
    lines[2] = json.dumps(json.loads(lines[2]) | {entry: wrong})
    (tmp_path / "journal").write_text("\n".join([begun, *lines]) + "\n")
    with pytest.raises(ValueError, match="would be"):
        replay(tmp_path / "journal")


@pytest.mark.parametrize("name", ["anneal", "random"])
def test_a_journal_s_figures_give_its_decisions_again(tmp_path: Path, name: Any) -> None:
    rng = random.Random(0)
    config = dataclasses.replace(CONFIG, scheduler=name, max_policy_lag=40.0)
    world = World(tmp_path / "journal", config, lambda c, _: smooth(c) * rng.gauss(1, 0.02))
    world.run(50 * PERIOD_S)
    assert len(world.decisions) > 40
    assert replay(tmp_path / "journal") == world.decisions


def test_a_window_starts_over_if_an_agent_had_to_be_replaced(tmp_path: Path) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, _: smooth(c))
    world.run(10.0)  # into the first window
    world.waits_until_s = world.now_s + 4.0
    world.run(25.0)
    assert len(world.readings) == 3
    began_s, again_s, end_s = world.readings
    assert began_s < world.waits_until_s
    assert again_s == pytest.approx(world.waits_until_s + CONFIG.settle_s, abs=1.0)
    assert end_s == again_s + CONFIG.window_s


@pytest.mark.parametrize("name", ["anneal", "random"])
def test_a_window_in_which_the_process_was_stopped_is_measured_again(
    name: Any, tmp_path: Path
) -> None:
    """As by Ctrl-Z. Otherwise its rate would be far too low, and the wrong setting would win."""
    config = dataclasses.replace(CONFIG, scheduler=name, max_policy_lag=1e9)
    world = World(tmp_path / "journal", config, lambda c, _: smooth(c))
    for _ in range(40):
        world.run(PERIOD_S * 1.3)
        world.now_s += 600.0
        world.stops_s += 600.0
    assert len(world.decisions) > 20
    for each in world.decisions:
        for counts, made in ((each.kept, each.figures_kept), (each.tried, each.figures_tried)):
            assert made.rate == pytest.approx(smooth(counts))


def test_an_agent_replaced_late_in_a_long_window_does_not_undo_the_setting(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, window_s=2 * UNPLAYED_S)
    world = World(tmp_path / "journal", config, lambda c, _: smooth(c))
    world.run(2 * CONFIG.settle_s + config.window_s + 1.5 * UNPLAYED_S)
    assert len(world.applied) == 1, "a setting is being measured"
    world.waits_until_s = world.now_s + 3.0
    world.run(4 * UNPLAYED_S)
    assert world.decisions[0].figures_tried.rate == pytest.approx(smooth(world.applied[0][1]))


def test_a_setting_whose_agents_never_all_play_is_undone(tmp_path: Path) -> None:
    """Agents may never all play because no machine has room for another one."""
    world = World(tmp_path / "journal", CONFIG, lambda c, _: smooth(c))
    world.plays = lambda: world.counts.agents <= START.agents  # type: ignore[method-assign]
    world.run(40 * PERIOD_S)
    undone = [each for each in world.decisions if each.tried.agents > START.agents]
    assert undone
    assert not any(each.accepted for each in undone)
    assert len(world.decisions) > len(undone), "the others are tuned all the same"
    assert replay(tmp_path / "journal") == world.decisions


def test_each_decision_compares_with_the_setting_kept_by_the_last_one(tmp_path: Path) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, _: smooth(c))
    world.run(30 * PERIOD_S)
    for before, after in itertools.pairwise(world.decisions):
        assert after.kept == (before.tried if before.accepted else before.kept)


def test_calm_makes_the_pauses_between_proposals_grow(tmp_path: Path) -> None:
    start = Counts(1, 1, 1)
    config = SchedulerConfig(settle_s=5.0, window_s=15.0, patience=2.0)
    world = World(
        tmp_path / "journal",
        config,
        lambda c, _: 1000.0 if c == start else 900.0,
        start,
        Counts(2, 1, 1),  # the only neighbour: each rejection adds to the calm
    )
    world.run(600.0)
    times = [decision.seconds for decision in world.decisions[:4]]
    pauses = [after - before - PERIOD_S for before, after in itertools.pairwise(times)]
    assert pauses == [15.0 * (2**calm - 1) for calm in (1, 2, 3)]


def test_without_a_neighbour_nothing_is_applied_and_nothing_decided(tmp_path: Path) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, _: 1.0, SMALLEST, SMALLEST)
    world.run(5 * PERIOD_S)
    assert world.applied == []
    assert world.decisions == []
    assert world.journal() == []


def test_a_run_that_trains_nothing_is_not_an_error(tmp_path: Path) -> None:
    world = World(tmp_path / "journal", CONFIG, lambda c, _: 0.0)
    world.run(5 * PERIOD_S)
    assert {decision.figures_tried.rate for decision in world.decisions} == {0.0}
    assert len(world.journal()) == len(world.decisions) >= 4


def test_the_scheduler_climbs_a_noisy_landscape_to_near_its_best(tmp_path: Path) -> None:
    rng = random.Random(0)
    world = World(
        tmp_path / "journal",
        CONFIG,
        lambda c, _: smooth(c) * rng.gauss(1, 0.02),
        start=Counts(2, 1, 1),
        transient_s=5.0,
    )
    world.run(120 * PERIOD_S)
    assert smooth(world.counts) >= 950


def test_a_resumed_run_continues_its_journal(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    whole = World(tmp_path / "whole", CONFIG, lambda c, _: smooth(c))
    whole.run(40 * PERIOD_S)
    first = World(journal, CONFIG, lambda c, _: smooth(c))
    first.run(20 * PERIOD_S)
    with open(journal, "a") as file:
        file.write('{"seconds": 17')  # a line that a kill cut short
    second = World(journal, CONFIG, lambda c, _: smooth(c))
    second.counts = second.scheduler.counts  # a service starts with these
    second.run(20 * PERIOD_S)
    expected = [(d.kept, d.tried, d.accepted) for d in whole.decisions]
    found = [(d.kept, d.tried, d.accepted) for d in first.decisions + second.decisions]
    assert found == expected[: len(found)]
    assert len(found) >= len(expected) - 2
    assert [d.tried for d in replay(journal)] == [tried for _, tried, _ in found]


@pytest.mark.parametrize("text", ['{"config"', "nonsense\n", '{"config": {}}\n{"kept": 3}\n'])
def test_a_damaged_journal_is_started_over(tmp_path: Path, text: str) -> None:
    journal = tmp_path / "journal"
    journal.write_text(text)
    world = World(journal, CONFIG, lambda c, _: smooth(c))
    world.run(5 * PERIOD_S)
    assert world.decisions
