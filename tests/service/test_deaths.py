"""When a dead agent is replaced, and when the run ends instead, on a clock that the test sets."""

import pytest

from ga3c.wire.deaths import (
    ELSEWHERE_DELAY_S,
    HEALTHY_S,
    MAX_EARLY_DEATHS,
    MAX_FAILURES,
    SPARED_S,
    Death,
    Deaths,
)

CRASH = Death(played=True, from_outside=False, silent_s=0.0)
KILLED = Death(played=True, from_outside=True, silent_s=0.0)
KILLED_EARLY = KILLED._replace(played=False)


class Place:
    """Agent 3's place in a run."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.updates = 10.0
        self._deaths = Deaths(lambda: self.now_s)

    def lives(self, seconds: float, death: Death, learns: bool = True) -> float:
        """Let an agent live for `seconds` and die. Returns its successor's delay, in seconds."""
        self._deaths.began(3, self.updates)
        self.now_s += seconds
        self.updates += learns
        return self._deaths.delay_s(3, death, self.updates)

    @property
    def hopeless(self) -> str:
        return self._deaths.hopeless(3)


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize("learns", [True, False])
def test_failures_in_a_row_wait_longer_and_longer_and_then_end_the_run(
    place: Place, learns: bool
) -> None:
    delays = []
    while not place.hopeless:
        delays.append(place.lives(1.0, CRASH, learns))
    assert delays == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert place.hopeless == (
        f"{MAX_FAILURES} agents in a row failed in its place, each within 600 s of its start"
    )


@pytest.mark.parametrize("killed", [KILLED, KILLED_EARLY])
def test_agents_that_are_killed_while_the_run_learns_are_replaced_at_once_for_ever(
    place: Place, killed: Death
) -> None:
    assert {place.lives(1.0, killed) for _ in range(1000)} == {0.0}
    assert place.hopeless == ""


@pytest.mark.parametrize("killed", [KILLED, KILLED_EARLY])
def test_a_storm_of_kills_without_an_update_ends_the_run_only_after_a_time(
    place: Place, killed: Death
) -> None:
    first_s = place.now_s + 1.0
    while not place.hopeless:
        assert place.lives(1.0, killed, learns=False) == 0.0
    assert place.now_s - first_s == SPARED_S
    words = "killed from outside, or failed on other machines, for 120 s, in which the run made no"
    assert f"{words} update" in place.hopeless


def test_an_update_during_a_storm_of_kills_restarts_the_time_limit(place: Place) -> None:
    for _ in range(10):
        for learns in (True, *[False] * int(SPARED_S - 1)):
            place.lives(1.0, KILLED, learns)
            assert not place.hopeless


def test_kills_that_an_agent_outlives_do_not_end_a_run_that_does_not_learn_yet(
    place: Place,
) -> None:
    for _ in range(100):
        place.lives(SPARED_S, KILLED, learns=False)
        assert not place.hopeless


def test_a_crash_between_kills_is_counted_and_the_kills_are_not(place: Place) -> None:
    for _ in range(MAX_FAILURES - 1):
        place.lives(1.0, CRASH)
        for _ in range(10):
            place.lives(1.0, KILLED, learns=False)
        assert not place.hopeless
    place.lives(1.0, CRASH)
    assert f"{MAX_FAILURES} agents in a row failed" in place.hopeless


def test_kills_do_not_hide_that_agents_cannot_start(place: Place) -> None:
    for _ in range(MAX_EARLY_DEATHS):
        assert not place.hopeless
        place.lives(1.0, CRASH._replace(played=False))
        place.lives(1.0, KILLED_EARLY, learns=False)
    assert "before their first step" in place.hopeless


@pytest.mark.parametrize("death", [CRASH, KILLED])
def test_rare_deaths_are_never_counted(place: Place, death: Death) -> None:
    delays = {place.lives(HEALTHY_S, death, learns=False) for _ in range(100)}
    assert delays == {0.0}
    assert place.hopeless == ""


def test_a_healthy_agent_forgives_the_failures_before_it(place: Place) -> None:
    for _ in range(MAX_FAILURES - 1):
        place.lives(1.0, CRASH)
    place.lives(HEALTHY_S, CRASH)
    assert place.lives(1.0, CRASH) == 0.0
    assert place.lives(1.0, CRASH) == 0.5


def test_the_time_that_an_agent_hung_is_not_part_of_its_life(place: Place) -> None:
    hung = CRASH._replace(silent_s=3600.0)
    for _ in range(MAX_FAILURES):
        place.lives(3601.0, hung)
    assert place.hopeless


def test_early_deaths_in_a_row_end_the_run_sooner(place: Place) -> None:
    early = CRASH._replace(played=False)
    place.lives(1.0, early)
    place.lives(1.0, CRASH)
    for _ in range(MAX_EARLY_DEATHS):
        assert not place.hopeless
        place.lives(HEALTHY_S, early)
    assert "before their first step" in place.hopeless


def test_places_are_counted_apart() -> None:
    deaths = Deaths(lambda: 0.0)
    for index in range(100):
        deaths.began(index, 0.0)
        assert deaths.delay_s(index, CRASH, 0.0) == 0.0
        assert deaths.hopeless(index) == ""


ELSEWHERE = CRASH._replace(played=False, of_machine=True)


def test_a_machine_whose_agents_fail_does_not_end_a_run_that_learns_but_its_places_wait(
    place: Place,
) -> None:
    place.lives(1.0, KILLED)
    assert {place.lives(0.1, ELSEWHERE) for _ in range(1000)} == {ELSEWHERE_DELAY_S}
    assert place.hopeless == ""


def test_a_game_that_no_machine_can_play_ends_a_run_that_never_learned(place: Place) -> None:
    for _ in range(MAX_EARLY_DEATHS):
        assert not place.hopeless
        place.lives(1.0, ELSEWHERE, learns=False)
    assert "before their first step" in place.hopeless


def test_a_run_that_learns_no_more_because_of_another_machine_ends_after_a_time(
    place: Place,
) -> None:
    place.lives(1.0, KILLED)
    place.lives(1.0, ELSEWHERE)
    first_s = place.now_s
    while not place.hopeless:
        place.lives(1.0, ELSEWHERE, learns=False)
    assert place.now_s - first_s == SPARED_S
    assert "failed on other machines, for 120 s" in place.hopeless


def test_failures_elsewhere_do_not_count_for_an_agent_here_in_the_same_place(
    place: Place,
) -> None:
    place.lives(1.0, KILLED)
    for _ in range(100):
        place.lives(0.1, ELSEWHERE)
    place.lives(0.1, CRASH._replace(played=False))
    assert place.hopeless == ""
