"""How acting and learning wait for each other: bounds, meetings, and no deadlocks."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ga3c.experience.book import Segment
from ga3c.experience.replay_pacing import (
    FreeReplay,
    Ratio,
    ReplayPacing,
    TargetPeriod,
    Turn,
)
from ga3c.experience.segments import SegmentBook
from ga3c.settings.checks import check_slack
from ga3c.settings.learning import DQNConfig
from ga3c.settings.replay import PacingConfig, ReplayConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import ServiceConfig
from ga3c.settings.train import TrainConfig
from tests.waiting import SeenWaiting

WAIT_S = 10.0  # far longer than any wait in this file takes


def ratio(
    steps_per_update: float,
    slack_steps: int,
    update_size: int,
    min_steps: int,
    limit_steps: float = float("inf"),
) -> Ratio:
    return Ratio(
        steps_per_update=steps_per_update,
        slack_steps=slack_steps,
        update_size=update_size,
        min_steps=min_steps,
        target_period=100,
        limit_steps=limit_steps,
    )


def turns(pacing: ReplayPacing, most: int = 100) -> list[Turn]:
    """Take a trainer's turns until none is due or `most` are taken. Returns them."""
    made = []
    while len(made) < most and (turn := pacing.turn(0.0)):
        made.append(turn)
        if turn is Turn.LEARN:
            pacing.learned()
        else:
            pacing.flushed(pacing._acted)
    return made


def play(pacing: ReplayPacing, steps: int) -> bool:
    if not pacing.admit(steps, 0.0):
        return False
    pacing.acted(steps)
    return True


def test_ratio_learns_once_every_so_many_steps_after_the_first() -> None:
    pacing = ratio(4.0, 16, update_size=2, min_steps=10)
    learned = []
    for _ in range(25):
        assert play(pacing, 2)
        learned.append(turns(pacing).count(Turn.LEARN))
    steps = 2 * np.arange(1, 26)
    assert np.cumsum(learned).tolist() == np.maximum((steps - 10) // 4, 0).tolist()


def test_ratio_lets_acting_be_ahead_by_the_slack_and_no_more() -> None:
    pacing = ratio(4.0, 16, update_size=1, min_steps=10)
    assert sum(play(pacing, 1) for _ in range(100)) == 10 + 16
    assert turns(pacing).count(Turn.LEARN) == 4  # learning is never ahead of acting
    assert sum(play(pacing, 1) for _ in range(100)) == 16


def test_ratio_may_be_more_than_one_update_a_step() -> None:
    pacing = ratio(0.25, 4, update_size=1, min_steps=1)
    assert play(pacing, 1)
    assert play(pacing, 1)
    assert turns(pacing).count(Turn.LEARN) == 4


def test_ratio_flushes_blocks() -> None:
    pacing = ratio(1.0, 100, update_size=5, min_steps=5)
    flushes = []
    for _ in range(20):
        play(pacing, 1)
        flushes.append(turns(pacing).count(Turn.FLUSH))
    assert flushes == [0, 0, 0, 0, 1] * 4


def test_the_smallest_slack_lets_nothing_be_played_while_an_update_is_made() -> None:
    pacing = ratio(4.0, 4, update_size=1, min_steps=4)
    assert sum(play(pacing, 1) for _ in range(100)) == 8
    assert [pacing.turn(0.0)] == [Turn.FLUSH]
    pacing.flushed(8)
    assert pacing.turn(0.0) is Turn.LEARN
    assert not play(pacing, 1)
    pacing.learned()
    assert play(pacing, 1)


def _configured(**parts: Any) -> TrainConfig:
    return TrainConfig(algorithm="dqn", **parts)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"pacing": PacingConfig(slack_steps=8)}, "forever"),
        ({"replay": ReplayConfig(replay_min_steps=1000)}, "nothing to draw"),
        ({"service": ServiceConfig(synchronized=True)}, "needs groups 1"),
        ({"service": ServiceConfig(lockstep=True)}, "lockstep with algorithm dqn: is for a3c and"),
        ({"replay": ReplayConfig(update_size=20_000)}, "nothing to draw when learning begins"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_what_would_happen(
    parts: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        _configured(**parts)


@pytest.mark.parametrize("pacing", ["ratio", "free"])
def test_other_pacings_accept_a_period_shorter_than_an_updates_steps(pacing: Any) -> None:
    assert PacingConfig().period_steps < 20_000
    assert _configured(
        pacing=PacingConfig(pacing=pacing, steps_per_update=20_000, slack_steps=100_000)
    )


def test_target_period_accepts_any_update_size() -> None:
    pacing = PacingConfig(pacing="target-period", period_steps=800)
    assert _configured(replay=ReplayConfig(update_size=20_000), pacing=pacing)


@pytest.mark.parametrize(
    ("part", "values", "words"),
    [
        (ReplayConfig, {"replay_min_steps": 9000, "replay_steps": 5000}, "never begin"),
        (PacingConfig, {"steps_per_update": 0.0}, "wait forever"),
        (
            PacingConfig,
            {"pacing": "target-period", "period_steps": 2},
            "no period would have an update",
        ),
        (ReplayConfig, {"n_step": 0}, "at least 1"),
        (DQNConfig, {"epsilon_end": 1.5}, "must be in"),
    ],
)
def test_impossible_settings_are_refused(part: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        part(**values)


@pytest.mark.parametrize("steps_per_update", [0.3, 1.0, 4.0, 7.5])
@pytest.mark.parametrize("batch", [1, 3, 16])
def test_ratio_with_its_smallest_slack_never_stops(steps_per_update: float, batch: int) -> None:
    slack = int(np.ceil(batch + steps_per_update)) - (steps_per_update == int(steps_per_update))
    check_slack(slack, batch, steps_per_update)  # does not raise: the settings accept this slack
    pacing = ratio(steps_per_update, slack, update_size=batch, min_steps=batch)
    for _ in range(200):
        assert play(pacing, batch)
        turns(pacing)


def test_period_acts_and_learns_concurrently_and_then_both_meet() -> None:
    pacing = TargetPeriod(8, updates=2, min_steps=4)
    assert sum(play(pacing, 1) for _ in range(100)) == 4
    assert pacing.turn(0.0) is Turn.MEET
    assert not play(pacing, 1)  # acting waits during a meeting
    pacing.flushed(4)
    assert [pacing.turn(0.0) for _ in range(3)] == [Turn.LEARN, Turn.LEARN, None]
    assert sum(play(pacing, 1) for _ in range(100)) == 8  # acting goes on while updates are made
    assert pacing.turn(0.0) is None
    pacing.learned()
    assert pacing.turn(0.0) is None  # the second update is not done yet
    pacing.learned()
    assert pacing.turn(0.0) is Turn.MEET


def test_period_does_not_meet_while_a_prediction_is_on_its_way() -> None:
    pacing = TargetPeriod(4, updates=1, min_steps=4)
    assert pacing.admit(4, 0.0)
    assert pacing.turn(0.0) is None
    pacing.acted(4)
    assert pacing.turn(0.0) is Turn.MEET


def test_period_meets_although_the_flush_of_a_full_lane_took_its_last_steps() -> None:
    pacing = TargetPeriod(8, updates=1, min_steps=4)
    assert play(pacing, 3)
    pacing.hurry()
    assert pacing.turn(0.0) is Turn.FLUSH
    assert play(pacing, 1)  # before the trainer has read which steps there are
    pacing.flushed(4)
    assert not play(pacing, 1)
    assert pacing.turn(0.0) is Turn.MEET


def test_periods_shorter_than_a_prediction_batch_go_on() -> None:
    pacing = TargetPeriod(16, updates=4, min_steps=100)
    played = 0
    for _ in range(100):
        played += 64 * play(pacing, 64)
        turns(pacing)
    assert played == 100 * 64
    assert pacing.read()["learned"] == 4 * ((played - 100) // 16 + 1)


def test_updates_that_do_not_divide_a_period_are_made_over_several_periods() -> None:
    pacing = TargetPeriod(
        7, updates=PacingConfig("target-period", 4.0, 1, 7).updates_per_period, min_steps=7
    )
    learned = []
    for _ in range(9):
        while play(pacing, 1):
            pass
        learned.append(turns(pacing).count(Turn.LEARN))
    assert learned == [1, 2, 2, 2, 1, 2, 2, 2, 1]
    assert sum(learned[:8]) == 8 * 7 / 4


def test_a_lane_without_room_is_flushed_without_a_meeting() -> None:
    pacing = TargetPeriod(100, updates=1, min_steps=10)
    play(pacing, 5)
    pacing.hurry()
    assert pacing.turn(0.0) is Turn.FLUSH
    pacing.flushed(5)
    assert pacing.turn(0.0) is None
    assert sum(play(pacing, 1) for _ in range(100)) == 5


@pytest.mark.parametrize("kind", ["ratio", "period"])
def test_acting_ends_at_the_limit_and_all_its_updates_are_made(kind: str) -> None:
    pacing: ReplayPacing
    if kind == "ratio":
        pacing = ratio(2.0, 8, update_size=1, min_steps=4, limit_steps=20)
    else:
        pacing = TargetPeriod(8, updates=4, min_steps=4, limit_steps=20)
    played, made = 0, list[Turn]()
    for _ in range(50):
        while play(pacing, 1):
            played += 1
        made += turns(pacing, 3)  # so few that some updates are still due at the limit
    assert played == 20
    assert made.count(Turn.LEARN) == (20 - 4) // 2
    assert pacing.is_settled
    assert pacing.turn(0.0) is None


def free(
    min_steps: int = 10, update_size: int = 4, limit_steps: float = float("inf")
) -> FreeReplay:
    return FreeReplay(
        update_size=update_size, min_steps=min_steps, target_period=3, limit_steps=limit_steps
    )


def test_free_acting_never_waits_for_learning_nor_learning_for_acting() -> None:
    pacing = free()
    assert sum(play(pacing, 3) for _ in range(1000)) == 1000, "no update was made"
    assert turns(pacing, 50) == [Turn.FLUSH, *[Turn.LEARN] * 49], "no step was made"
    assert [pacing.copies_target(update) for update in (1, 2, 3, 4, 6)] == [
        *(False, False, True, False, True)
    ]


def test_free_learning_begins_after_the_minimum_and_flushes_come_first() -> None:
    pacing = free(min_steps=10, update_size=4)
    assert play(pacing, 8)
    assert turns(pacing) == [Turn.FLUSH]
    assert pacing.missing_steps == 2
    assert play(pacing, 2)
    assert turns(pacing, 5) == [Turn.LEARN] * 5
    assert play(pacing, 1)
    assert turns(pacing, 2) == [Turn.LEARN] * 2, "fewer new steps than a flush takes"
    pacing.hurry()
    assert turns(pacing, 2) == [Turn.FLUSH, Turn.LEARN]


def test_free_learning_ends_with_the_steps_of_the_run() -> None:
    pacing = free(limit_steps=20)
    assert sum(play(pacing, 1) for _ in range(100)) == 20
    assert pacing.turn(0.0) is None
    assert pacing.is_settled


def test_free_learning_waits_until_a_lost_replay_is_filled_again() -> None:
    pacing = free(min_steps=10, update_size=2, limit_steps=100)
    pacing.begin_after(50)
    assert play(pacing, 9)
    assert Turn.LEARN not in turns(pacing)
    assert play(pacing, 1)
    assert turns(pacing, 3) == [Turn.LEARN] * 3


def test_a_resumed_run_without_its_replay_fills_a_new_one_first() -> None:
    pacing = ratio(1.0, 8, update_size=1, min_steps=4, limit_steps=100)
    pacing.begin_after(90)
    played = 0
    for _ in range(4):
        played += play(pacing, 1)
        assert Turn.LEARN not in turns(pacing)
    for _ in range(50):
        played += play(pacing, 1)
        turns(pacing)
    assert played == 10


def test_restored_counts_continue_in_the_same_way() -> None:
    one = ratio(2.0, 8, update_size=1, min_steps=4)
    for _ in range(11):
        play(one, 1)
        turns(one)
    other = ratio(2.0, 8, update_size=1, min_steps=4)
    other.restore(one.read())
    for _ in range(9):
        assert play(one, 1) == play(other, 1)
        assert turns(one) == turns(other)


def heard(pacing: ReplayPacing, wait: Callable[[float], object], wake: Callable[[], None]) -> Any:
    """What `wait` returns when `wake` is called meanwhile.

    The waiter must be woken: its own timeout is ten times longer than the test waits.
    """
    condition = pacing._changed = SeenWaiting()
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(wait(10 * WAIT_S)), daemon=True)
    waiting.start()
    assert condition.waits.acquire(timeout=WAIT_S)
    wake()
    waiting.join(WAIT_S)
    assert len(answers) == 1, "it still waits"
    return answers[0]


def test_a_finished_update_wakes_a_thread_that_waits_to_act() -> None:
    pacing = ratio(4.0, 4, update_size=1, min_steps=4)
    while play(pacing, 1):
        pass
    assert pacing.turn(0.0) is Turn.FLUSH
    pacing.flushed(8)
    assert pacing.turn(0.0) is Turn.LEARN
    assert heard(pacing, lambda timeout_s: pacing.admit(1, timeout_s), pacing.learned)


def test_steps_flushes_and_hurry_wake_a_thread_that_waits_for_a_turn() -> None:
    pacing = ratio(4.0, 16, update_size=9, min_steps=5)
    assert play(pacing, 8)
    assert pacing.admit(1, 0.0)
    assert heard(pacing, pacing.turn, lambda: pacing.acted(1)) is Turn.FLUSH
    assert heard(pacing, pacing.turn, lambda: pacing.flushed(9)) is Turn.LEARN
    pacing.learned()
    assert play(pacing, 1)
    assert heard(pacing, pacing.turn, pacing.hurry) is Turn.FLUSH


def test_a_meeting_wakes_acting_and_the_last_update_wakes_the_next_meeting() -> None:
    pacing = TargetPeriod(8, updates=1, min_steps=4)
    assert play(pacing, 4)
    assert pacing.turn(0.0) is Turn.MEET
    assert heard(pacing, lambda timeout_s: pacing.admit(8, timeout_s), lambda: pacing.flushed(4))
    assert pacing.turn(0.0) is Turn.LEARN
    pacing.acted(8)
    assert heard(pacing, pacing.turn, pacing.learned) is Turn.MEET


@pytest.mark.parametrize("kind", ["ratio", "period"])
def test_threads_never_break_the_bounds_nor_stop(kind: str) -> None:
    pacing: ReplayPacing
    if kind == "ratio":
        pacing = ratio(4.0, 24, update_size=8, min_steps=32)
    else:
        pacing = TargetPeriod(40, updates=10, min_steps=32)
    ended, wrong = threading.Event(), []

    def act(batch: int) -> None:
        while not ended.is_set():
            if pacing.admit(batch, 0.05):
                pacing.acted(batch)
                counts = pacing.read()
                if kind == "ratio" and counts["acted"] > 32 + 24 + 4 * counts["learned"] + 4:
                    wrong.append(counts)

    def learn() -> None:
        while not ended.is_set():
            turn = pacing.turn(0.05)
            if turn is Turn.LEARN:
                pacing.learned()
            elif turn:
                pacing.flushed(pacing.read()["acted"])

    threads = [threading.Thread(target=act, args=(batch,)) for batch in (3, 8)]
    threads += [threading.Thread(target=learn) for _ in range(2)]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + 30
    while pacing.read()["learned"] < 500 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    ended.set()
    for thread in threads:
        thread.join(5)
    counts = pacing.read()
    assert counts["learned"] >= 500
    assert not wrong
    share = (counts["acted"] - 32) / counts["learned"]
    assert 3.5 < share < 4.5


def lockstep(envs: int, t_max: int, pending: int, batch: int) -> TrainConfig:
    """Settings of a run in lockstep with `batch` segments per update."""
    size = batch * t_max
    service = ServiceConfig(
        lockstep=True,
        agents=1,
        groups=1,
        envs_per_agent=envs,
        t_max=t_max,
        pending_segments=pending,
        training_batch_min=size,
        training_batch_max=size,
        training_queue=2 * size,
    )
    return TrainConfig(service=service, scheduler=SchedulerConfig(scheduler="off"))


def largest_batch(envs: int, t_max: int, pending: int) -> int:
    """The most segments per update that the settings allow."""
    batch = 1
    with contextlib.suppress(ValueError):
        while lockstep(envs, t_max, pending, batch + 1):
            batch += 1
    return batch


@pytest.mark.parametrize("envs", [1, 2, 3, 4, 6, 8, 13])
@pytest.mark.parametrize("t_max", [1, 2, 3, 5])
@pytest.mark.parametrize("pending", [2, 3])
def test_in_lockstep_every_batch_that_is_accepted_can_be_filled(
    envs: int, t_max: int, pending: int
) -> None:
    """Batches cut through the segments that several environments complete at once."""
    largest, lanes = largest_batch(envs, t_max, pending), np.arange(envs)
    for batch in range(max(largest - 3, 1), largest + 1):
        book, waiting = SegmentBook(envs, t_max, pending, stack=1), list[Segment]()
        book.begin(lanes)
        for _ in range(envs):
            while len(waiting) < batch:
                assert book.admit(lanes, 0.0), f"{len(waiting)} of {batch} segments"
                book.advance(lanes, np.zeros(envs, bool), 0)
                waiting += book.complete(lanes)
            book.release(waiting[:batch])
            del waiting[:batch]
