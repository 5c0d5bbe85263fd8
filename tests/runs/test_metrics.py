"""Counters, windows of time, episodes, and the progress line."""

import json
import math
import threading
import time
from collections import Counter
from typing import Any

import pytest

from ga3c.runs.metrics import Metrics, Snapshot, Window
from ga3c.runs.tally import ROLLING_EPISODES, Episode, Tally, short
from ga3c.settings.scheduler import Counts
from ga3c.training.progress import figures, legend, line

COUNTS = Counts(agents=7, predictors=3, trainers=2)


class Clock:
    """A clock that only moves when it is set."""

    def __init__(self) -> None:
        self.now_s = 500.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tally(clock: Clock) -> Tally:
    """The tally of a run that makes its first step now."""
    tally = Tally(clock)
    tally.begin()
    return tally


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics(clock)


def test_counters_start_at_zero_and_add_up(metrics: Metrics) -> None:
    assert metrics.snapshot()["steps"] == 0
    metrics.add(steps=5, updates=1)
    metrics.add(steps=2.5)
    assert metrics.snapshot().counts == {"steps": 7.5, "updates": 1}


def test_a_snapshot_does_not_change_afterwards(metrics: Metrics, clock: Clock) -> None:
    metrics.add(steps=1)
    before = metrics.snapshot()
    clock.now_s += 1
    metrics.add(steps=1)
    assert (before.time_s, before["steps"]) == (500.0, 1)


def test_dropped_messages_are_counted_by_reason(metrics: Metrics) -> None:
    for reason in ("magic", "magic", "flags"):
        metrics.reject(reason)
    assert metrics.snapshot().counts == {"rejected:magic": 2, "rejected:flags": 1}


def test_a_window_gives_what_lies_between_its_snapshots(metrics: Metrics, clock: Clock) -> None:
    metrics.add(steps=1000, updates=10)
    start = metrics.snapshot()
    clock.now_s += 4.0
    metrics.add(steps=200, updates=5, lag_updates=60)
    window = Window(start, metrics.snapshot())
    assert window.seconds == 4.0
    assert window.count("steps") == 200
    assert window.rate("steps") == 50.0
    assert window.rate("nothing") == 0.0
    assert window.mean("lag_updates", "steps") == 0.3
    assert window.mean("steps", "updates") == 40.0


def test_a_mean_over_nothing_is_zero_and_an_empty_window_is_no_error() -> None:
    empty = Window(Snapshot(1.0), Snapshot(1.0))
    assert empty.mean("lag_updates", "trained_samples") == 0.0
    assert empty.rate("steps") == 0.0
    assert math.isfinite(Window(Snapshot(1.0), Snapshot(1.0, {"steps": 1.0})).rate("steps"))


def test_the_score_is_the_mean_of_the_last_hundred_episodes(tally: Tally) -> None:
    for score in range(50):
        tally.episode(0, float(score), 10)
    assert tally.score_mean() == pytest.approx(sum(range(50)) / 50)
    for score in range(50, 250):
        tally.episode(0, float(score), 10)
    assert ROLLING_EPISODES == 100
    assert tally.score_mean() == pytest.approx(sum(range(150, 250)) / 100)
    assert tally.last_score == 249.0
    assert tally.episodes == 250


def test_episodes_that_explore_too_much_do_not_count_for_the_score(clock: Clock) -> None:
    tally = Tally(clock, most_scored=0.01)
    for score in range(150):
        tally.episode(0, float(score), 10, epsilon=0.01 if score % 2 else 0.4)
    assert tally.episodes == 150
    assert not tally.has_full_mean({0})
    assert tally.score_mean() == pytest.approx(75.0)
    assert tally.last_score == 149.0
    tally.episode(0, -1000.0, 10, epsilon=0.011)
    assert tally.score_mean() == pytest.approx(75.0)
    assert tally.last_score == 149.0
    assert [episode.scored for episode in tally.take_episodes()[-3:]] == [False, True, False]


def test_the_shortest_of_many_first_episodes_do_not_decide_that_a_score_is_reached() -> None:
    """A score of minus the length: the first 100 of 256 lanes to finish have the best scores."""
    tally, lanes = Tally(), set(range(256))
    for lane in range(255):
        tally.episode(0, -float(lane), lane, lane=lane)
        assert not tally.has_full_mean(lanes)
    assert tally.has_full_mean(lanes - {255})  # if the last one's agent is no longer there
    tally.episode(0, -255.0, 255, lane=255)
    assert tally.has_full_mean(lanes)


def test_the_episodes_of_an_earlier_process_decide_until_one_finishes(tally: Tally) -> None:
    for _ in range(100):
        tally.episode(0, 1.0, 5)
    resumed = Tally()
    resumed.restore(tally.read())
    assert resumed.has_full_mean({0, 1})
    resumed.episode(0, 1.0, 5, lane=1)
    assert not resumed.has_full_mean({0, 1})


def test_time_counts_from_the_first_step_and_goes_on_after_a_resume(clock: Clock) -> None:
    tally = Tally(clock)
    clock.now_s += 9.0  # while networks are built and ROMs are loaded
    assert tally.seconds == 0.0
    assert not tally.has_begun
    tally.begin()
    clock.now_s += 2.0
    tally.begin()
    assert tally.seconds == 2.0
    kept, resumed = tally.read(), Tally(clock)
    clock.now_s += 100.0
    resumed.restore(kept)
    clock.now_s += 9.0
    assert resumed.seconds == 2.0
    resumed.begin()
    clock.now_s += 3.0
    assert resumed.seconds == 5.0
    resumed.end()
    clock.now_s += 8.0
    assert resumed.seconds == 5.0, "agents that are slow to stop make no run slower"


def test_before_the_first_episode_scores_are_nan(tally: Tally) -> None:
    assert math.isnan(tally.score_mean())
    assert math.isnan(tally.last_score)
    assert tally.episodes == 0


def gone_on_with(tally: Tally, clock: Clock, lacking: str = "") -> Tally:
    """The tally of a resumed run; its saved state lacks the key `lacking`, as in older versions."""
    again = Tally(clock)
    again.restore({key: value for key, value in tally.read().items() if key != lacking})
    return again


def test_the_mean_length_is_over_the_last_100_scored_episodes_and_is_kept(clock: Clock) -> None:
    tally = Tally(clock, most_scored=0.01)
    assert math.isnan(tally.length_mean())
    for length in range(150):
        tally.episode(0, 1.0, length)
    tally.episode(0, 1.0, 10_000, epsilon=0.4)
    assert tally.length_mean() == pytest.approx(99.5)  # the mean of 50 to 149
    assert gone_on_with(tally, clock).length_mean() == tally.length_mean()
    older = gone_on_with(tally, clock, lacking="lengths")
    assert math.isnan(older.length_mean()) and older.score_mean() == 1.0


def test_the_success_rate_is_over_the_last_100_that_reported_it_and_is_kept(
    clock: Clock,
) -> None:
    tally = Tally(clock, most_scored=0.01)
    tally.episode(0, 1.0, 5)
    assert math.isnan(tally.success_rate())
    for number in range(150):
        tally.episode(0, 1.0, 5, success=float(number >= 120))
        tally.episode(0, 1.0, 5)
    tally.episode(0, 1.0, 5, epsilon=0.4, success=1.0)
    assert tally.success_rate() == pytest.approx(0.3)
    assert gone_on_with(tally, clock).success_rate() == tally.success_rate()
    older = gone_on_with(tally, clock, lacking="successes")
    assert math.isnan(older.success_rate()) and older.score_mean() == 1.0


@pytest.mark.parametrize(
    ("mean", "words"),
    [(None, "-"), (12345.6, "12,350"), (0.97123, "0.9712"), (3.2e-6, "3.2e-06"), (-2.0, "-2")],
)
def test_a_mean_is_shown_with_four_digits_that_count(mean: float | None, words: str) -> None:
    assert short(mean) == words


def test_means_of_infos_are_over_the_last_100_that_were_reported_and_are_kept(clock: Clock) -> None:
    tally = Tally(clock, most_scored=0.01, info_keys=("coins", "falls"))
    tally.episode(0, 1.0, 5)
    assert all(map(math.isnan, tally.info_means().values()))
    for number in range(150):
        tally.episode(0, 1.0, 5, infos=[number, math.nan])
    tally.episode(0, 1.0, 5, infos=[math.nan, 3.0])
    tally.episode(0, 1.0, 5, epsilon=0.4, infos=[1e6, 1e6])
    assert tally.info_means() == {"coins": pytest.approx(99.5), "falls": 3.0}
    kept = json.loads(json.dumps(tally.read()))
    again = Tally(clock, info_keys=("falls", "new"))  # a resumed run may ask for others
    again.restore(kept)
    assert again.info_means()["falls"] == 3.0 and math.isnan(again.info_means()["new"])
    again = Tally(clock, info_keys=("falls",))
    again.restore({key: value for key, value in kept.items() if key != "infos"})
    assert math.isnan(again.info_means()["falls"])


def test_episodes_are_taken_once_with_when_they_ended(tally: Tally, clock: Clock) -> None:
    clock.now_s += 3.0
    tally.episode(1234, -21.0, 758)
    clock.now_s += 1.0
    tally.episode(1240, 2.5, 99)
    first = Episode(3.0, 1234, -21.0, 758, epsilon=0.0, scored=True)
    assert tally.take_episodes() == [first, Episode(4.0, 1240, 2.5, 99, 0.0, scored=True)]
    assert tally.take_episodes() == []
    tally.episode(1241, 1.0, 1)
    assert [episode.score for episode in tally.take_episodes()] == [1.0]
    assert tally.episodes == 3, "taking them does not uncount them"


def test_only_the_newest_value_of_a_loss_is_kept(metrics: Metrics) -> None:
    metrics.set(loss=1.0, entropy=0.5)
    metrics.set(loss=0.25)
    newest = metrics.newest()
    assert newest == {"loss": 0.25, "entropy": 0.5}
    newest["loss"] = 9.0
    assert metrics.newest()["loss"] == 0.25


class Slow(Counter[str]):
    """Lets other threads run between reading a count and changing it."""

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name, default)
        time.sleep(0.0)
        return found

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        time.sleep(0.0)
        return found


def test_many_threads_lose_no_count_and_no_episode(metrics: Metrics, tally: Tally) -> None:
    metrics._counts = Slow()

    def count() -> None:
        for _ in range(500):
            metrics.add(steps=1, busy_s=0.5)
            metrics.reject("magic")
            tally.episode(0, 1.0, 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert metrics.snapshot().counts == {"steps": 2000, "busy_s": 1000.0, "rejected:magic": 2000}
    assert len(tally.take_episodes()) == tally.episodes == 2000


def test_the_line_holds_ga3cs_fields(metrics: Metrics, tally: Tally, clock: Clock) -> None:
    metrics.add(steps=10_000)
    start = metrics.snapshot()
    clock.now_s += 3661.0
    metrics.add(steps=3_661_000, trained_samples=1_830_500, updates=36_610, lag_updates=5_491_500)
    metrics.add(prediction_batches=36_610)
    tally.episode(0, -20.0, 800)
    tally.episode(0, -19.0, 900)
    values = figures(Window(start, metrics.snapshot()), metrics, tally, COUNTS, 17, 320)
    assert values["updates_per_s"] == 10.0
    assert values["prediction_batch"] == 100.0
    assert line(values) == (
        "[Time 1:01:01] [Episode 2 Score -19.0] [RScore -19.5 Steps 3,671,000] "
        "[PPS 1000 TPS 500] [PQ 17 TQ 320 Lag 3.0] [NT 2 NP 3 NA 7]"
    )


def test_the_legend_explains_every_abbreviation_of_the_line() -> None:
    for abbreviation in ("RScore", "PPS", "TPS", "NT", "NP", "NA", "lag"):
        assert abbreviation in legend({})
    assert "trained samples per step" in legend({"replay_steps": 0.0})


def test_before_the_first_episode_the_line_has_a_dash_and_the_figures_null(
    metrics: Metrics, tally: Tally
) -> None:
    now = metrics.snapshot()
    values = figures(Window(now, now), metrics, tally, COUNTS, 0, 0)
    assert values["score"] is None
    assert values["score_mean_100"] is None
    assert "[Time 0:00:00] [Episode 0 Score -] [RScore - Steps 0] [PPS 0 TPS 0]" in line(values)
    assert json.loads(json.dumps(values, allow_nan=False)) == values


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_shown_as_a_dash(
    metrics: Metrics, tally: Tally, score: float
) -> None:
    tally.episode(0, score, 1)
    now = metrics.snapshot()
    values = figures(Window(now, now), metrics, tally, COUNTS, 0, 0)
    assert "Score -]" in line(values)
    json.dumps(values, allow_nan=False)


def test_the_newest_values_are_among_the_figures(metrics: Metrics, tally: Tally) -> None:
    metrics.set(loss=0.123456789)
    now = metrics.snapshot()
    assert figures(Window(now, now), metrics, tally, COUNTS, 0, 0)["loss"] == 0.12346


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_leaves_the_figures_valid_json(
    metrics: Metrics, tally: Tally, loss: float
) -> None:
    metrics.set(loss=loss)
    now = metrics.snapshot()
    json.dumps(figures(Window(now, now), metrics, tally, COUNTS, 0, 0), allow_nan=False)
