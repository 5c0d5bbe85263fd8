"""The whole service in this process, with real agents, real sockets and real games."""

import math
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from agents import keys
from agents.actions import Actions
from agents.environments import EnvironmentConfig, Spaces, spaces
from agents.headers import Header, Kind
from agents.host import Config as HostConfig
from agents.messages import OUTCOME, Step, encode_step
from agents.orders import Host
from agents.tails import FIRST_LINES
from agents.worker import Task
from ga3c import backend
from ga3c.experience.book import Segment
from ga3c.learning.model import Model
from ga3c.runs.tally import Tally
from ga3c.service import assembly
from ga3c.service.predictor import Predictor
from ga3c.service.service import Service
from ga3c.service.threads import RunFailed
from ga3c.service.wiring import build_service
from ga3c.settings.learning import LearningConfig
from ga3c.settings.presets import PRESETS
from ga3c.settings.run import RunConfig
from ga3c.settings.scheduler import Counts, SchedulerConfig
from ga3c.settings.service import HostsConfig, ServiceConfig
from ga3c.settings.train import TrainConfig
from ga3c.wire import deaths
from ga3c.wire.peers import STOPPED_S
from ga3c.wire.requests import Request
from tests import leaks
from tests.commands import LIGHT, ROOT, Command, children, wait_for
from tests.tiny import ledger_end, ledger_reward

CORRIDOR = "tests.tiny:Corridor-v0"
LEDGER = "tests.tiny:Ledger-v0"
T_MAX = 5
DISCOUNT = LearningConfig().discount
STOP_S = 10.0
WAIT_S = 40.0  # limit for what takes a second on an idle machine
SLOWEST_MAKE_S = "ga3c.service.agents.SLOWEST_MAKE_S"  # a larger value gives agents longer to start
SMALL = ServiceConfig(
    agents=1,
    predictors=1,
    trainers=1,
    max_agents=3,
    envs_per_agent=4,
    groups=2,
    t_max=T_MAX,
    training_batch_min=0,
    training_batch_max=4 * T_MAX,
    training_queue=16 * T_MAX,
)


def configured(game: str = CORRIDOR, **service: Any) -> TrainConfig:
    return TrainConfig(
        run=RunConfig(seed=7),
        environment=EnvironmentConfig(game),
        service=replace(SMALL, **service),
        learning=LearningConfig(reward_clip=0.0),  # off, as the ledger's rewards can exceed 1
    )


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder in which the service makes its private directories."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    backend.configure(1, 0)
    return tmp_path


def made(config: TrainConfig) -> Service:
    return build_service(config, spaces(config.environment))


@contextmanager
def running(service: Service) -> Iterator[Service]:
    """Start the service, and stop it at the end: in time, and with nothing left behind."""
    before = set(threading.enumerate())
    try:
        service.start()
        yield service
    finally:
        stuck = service.stop(STOP_S)
    assert stuck == []
    assert set(threading.enumerate()) <= before
    assert children() == set()
    assert list(Path(tempfile.gettempdir()).glob("ga3c-*")) == []


def tend_until(
    service: Service,
    holds: Callable[[], bool],
    wait_s: float = WAIT_S,
    events: list[str] | None = None,
) -> list[str]:
    """Tend the service until `holds()` is true. Returns the events reported meanwhile.

    Args: events: the list to add them to, for those before an exception.
    """
    deadline_s = time.monotonic() + wait_s
    events = [] if events is None else events
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {wait_s} s; {events}"
        events += service.tend()
        time.sleep(0.01)
    return events


def steps(service: Service) -> int:
    return int(service.metrics.snapshot()["steps"])


def lane_steps(service: Service) -> np.ndarray:
    """Each lane's steps since its first segment began; negative before that."""
    return service.model.source.book._steps + 1


def all_play(service: Service) -> Callable[[], bool]:
    """A function that says whether every lane of every agent has made 10 more steps than now."""
    lanes = service.counts.agents * service.config.envs_per_agent
    before = lane_steps(service).copy()
    return lambda: bool((lane_steps(service)[:lanes] >= before[:lanes] + 10).all())


def reaches(values: list[float], count: int) -> Callable[[], bool]:
    return lambda: len(values) >= count


def alive(role: str) -> int:
    return sum(thread.name.startswith(f"{role}-") for thread in threading.enumerate())


def observed_lags(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A list that receives the largest lag of each update, in updates."""
    lags: list[float] = []
    set_values = service.metrics.set

    def observe(**values: float) -> None:
        lags.append(values["policy_lag_max"])
        set_values(**values)

    monkeypatch.setattr(service.metrics, "set", observe)
    return lags


@pytest.mark.parametrize("game", [CORRIDOR, "Pong"])
def test_counts_change_200_times_while_running(game: str) -> None:
    draw = random.Random(1)
    config = configured(game, envs_per_agent=2)
    with running(made(config)) as service:
        tend_until(service, lambda: steps(service) > 0)
        for change in range(200):
            agents = draw.randint(1, 3) if change % 4 == 0 else service.counts.agents
            counts = Counts(agents, draw.randint(1, 4), draw.randint(1, 4))
            service.resize(counts)
            assert service.counts == counts
            assert service.tend() == []
            time.sleep(draw.choice([0.0, 0.01, 0.05]))
        events = tend_until(
            service,
            lambda: (
                alive("predictor") == counts.predictors
                and alive("trainer") == counts.trainers
                and children() == set(service.agents.pids())
            ),
        )
        assert counts.agents <= len(service.agents.pids()) <= config.service.most.agents
        trained = service.metrics.snapshot()["trained_samples"]
        events += tend_until(service, all_play(service))
        events += tend_until(
            service, lambda: service.metrics.snapshot()["trained_samples"] > trained
        )
        assert events == []
        assert service.metrics.snapshot()["agent_deaths"] == 0


def rests(service: Service, number: int) -> Callable[[], bool]:
    """A function that says whether `number` agents rest and all have confirmed it."""
    return lambda: (
        len(service.agents.pids()) == service.counts.agents + number
        and not any(map(service.frontend.peers.knows, service.agents._retired))
    )


@pytest.mark.parametrize("when", ["before they have connected", "as they play"])
def test_retired_agents_rest_until_they_are_wanted(when: str) -> None:
    with running(made(configured(max_agents=4))) as service:
        service.resize(Counts(3, 1, 1))
        if when == "as they play":
            tend_until(service, all_play(service))
        one, *others = service.agents.pids()
        service.resize(Counts(1, 1, 1))
        assert tend_until(service, rests(service, 2)) == []
        assert tend_until(service, all_play(service)) == []
        assert service.agents.pids()[0] == one
        service.resize(Counts(3, 1, 1))
        assert tend_until(service, all_play(service)) == []
        assert sorted(service.agents.pids()[1:]) == sorted(others)
        assert not any(name.startswith("rejected") for name in service.snapshot().counts)


def test_agents_that_rest_are_never_more_than_there_is_room_for() -> None:
    with running(made(configured(max_agents=3))) as service:
        for agents in (3, 1, 3, 1, 3, 2):
            service.resize(Counts(agents, 1, 1))  # before any of them can confirm that it rests
            assert len(service.agents.pids()) <= 3
        assert tend_until(service, lambda: children() == set(service.agents.pids())) == []
        assert tend_until(service, all_play(service)) == []


def test_with_a_cap_on_memory_no_agent_rests() -> None:
    config = configured(agents=2)
    config = replace(config, scheduler=SchedulerConfig(max_memory_mb=1e6))
    with running(made(config)) as service:
        tend_until(service, all_play(service))
        service.resize(Counts(1, 1, 1))
        assert len(service.agents.pids()) == 1
        assert tend_until(service, lambda: children() == set(service.agents.pids())) == []
        assert tend_until(service, all_play(service)) == []


def test_the_death_of_a_resting_agent_is_reported_only_once_it_has_a_task() -> None:
    with running(made(configured(agents=3))) as service:
        tend_until(service, all_play(service))
        service.resize(Counts(1, 1, 1))
        tend_until(service, rests(service, 2))
        _, first, second = service.agents.pids()
        os.kill(first, signal.SIGKILL)
        assert tend_until(service, lambda: first not in service.agents.pids()) == []
        os.kill(second, signal.SIGKILL)
        service.resize(Counts(2, 1, 1))  # before the service has noticed its death
        (event,) = tend_until(service, all_play(service))
        assert "was killed by signal 9" in event


def test_a_resting_agent_that_dies_with_a_playing_one_does_not_replace_it() -> None:
    """Both are reaped at once, and the playing one, which is older, would be replaced first."""
    with running(made(configured(agents=3))) as service:
        tend_until(service, all_play(service))
        service.resize(Counts(2, 1, 1))
        tend_until(service, rests(service, 1))
        pids = service.agents.pids()
        assert len(pids) == 3
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: all(psutil.Process(p).status() == psutil.STATUS_ZOMBIE for p in pids), 9.0)
        events = tend_until(service, all_play(service))
        assert len([event for event in events if "was killed by signal 9" in event]) == 2


def test_a_score_waits_for_no_agent_that_has_not_begun() -> None:
    """One may wait for a machine to the run's end."""
    with running(made(configured(agents=2))) as service:
        assert service.agents.lanes == set()
        tend_until(service, all_play(service))
        assert service.agents.lanes == set(range(8))
        service.resize(Counts(3, 1, 1))
        assert service.agents.lanes == set(range(8))


class Trained:
    """Copies of the batches that a model was trained on, and the segments that were released."""

    def __init__(self) -> None:
        self.batches: list[list[np.ndarray]] = []
        self.released: list[Segment] = []

    def by(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
        """Record what `service` learns from. Returns the service."""
        learn, release = service.model.learn, service.model.source.book.release
        source = service.model.source

        def draw(lanes: Any, slots: Any) -> Any:
            return source.draw({}, lanes, slots)

        if service.model.experience.memory.on_device:
            draw = backend.compiled(draw, source.inputs)

        def observed_learn(lanes: np.ndarray, slots: np.ndarray, progress: float) -> Any:
            segments = draw(lanes, slots)
            self.batches.append([np.array(part) for part in segments])
            return learn(lanes, slots, progress=progress)

        def observed_release(segments: list[Segment]) -> None:
            self.released += segments
            release(segments)

        monkeypatch.setattr(service.model, "learn", observed_learn)
        monkeypatch.setattr(service.model.source.book, "release", observed_release)
        return service

    def check(self, discount: float) -> int:
        """Assert that `Ledger`'s steps were learned once and as they happened. Returns how many."""
        seen: Counter[tuple[int, ...]] = Counter()
        for observations, actions, _, rewards, discounts, firsts in self.batches:
            x = observations.reshape(len(actions), T_MAX + 1, 4).astype(int)
            for b, t in np.ndindex(actions.shape):
                number, episode, step, _ = x[b, t]
                if firsts[b, t]:
                    assert x[b, t + 1, 2] == 0
                    continue
                action = int(actions[b, t])
                assert list(x[b, t + 1]) == [number, episode, step + 1, action]
                assert rewards[b, t] == ledger_reward(step + 1, action)
                terminated, _ = ledger_end(number, episode, step + 1)
                assert discounts[b, t] == np.float32(0 if terminated else discount)
                seen[number, episode, step] += 1
        assert set(seen.values()) == {1}
        return len(seen)


@pytest.mark.parametrize("experience", ["device", "host"])
def test_each_step_is_learned_once_and_as_it_happened(
    experience: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = Trained()
    config = configured(LEDGER, agents=3, predictors=2, trainers=2, experience=experience)
    service = trained.by(made(config), monkeypatch)
    with running(service):
        tend_until(service, all_play(service))
        tend_until(service, all_play(service))
        service.agents.resize(0)
        tend_until(service, rests(service, 3))
        tend_until(service, lambda: not service.frontend.unanswered)  # the agents' last steps
        completed = (lane_steps(service) - 1) // T_MAX
        tend_until(service, lambda: len(trained.released) >= completed.sum())
        tend_until(
            service,
            lambda: service.metrics.snapshot()["trained_samples"] >= completed.sum() * T_MAX,
        )
        made_steps = lane_steps(service)
        staggered = np.arange(len(made_steps)) % T_MAX  # steps before a lane's first segment
        played = (made_steps + staggered).sum()
        tend_until(service, lambda: service.metrics.snapshot()["steps"] >= played)
        counts = service.metrics.snapshot()
    assert counts["steps"] == played
    assert counts["trained_samples"] == completed.sum() * T_MAX
    assert counts["updates"] == len(trained.batches)
    assert sorted(trained.released) == [
        Segment(lane, k * T_MAX, T_MAX)
        for lane, count in enumerate(completed)
        for k in range(count)
    ]
    learned = trained.check(DISCOUNT)
    void = sum(int(batch[-1].sum()) for batch in trained.batches)
    assert learned + void == completed.sum() * T_MAX


@pytest.mark.parametrize("how", ["retired", "killed"])
def test_a_lane_never_mixes_an_agent_with_its_successor(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = Trained()
    service = trained.by(made(configured(LEDGER, agents=2, predictors=2)), monkeypatch)
    with running(service):
        for _ in range(4):
            tend_until(service, all_play(service))
            if how == "killed":
                os.kill(service.agents.pids()[1], signal.SIGKILL)
                continue
            for agents in (1, 2, 1, 2):
                service.resize(Counts(agents, 2, 1))
                service.tend()
        tend_until(service, all_play(service))
    assert trained.check(DISCOUNT) > 100


def test_the_first_games_are_cut_within_the_configured_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No game of Pong ends by itself in so few steps, so every reset learned from is a cut. A cut
    before a lane's first segment is not learned from: at most half of the lanes have one."""
    trained, within_steps = Trained(), 2 * T_MAX
    config = configured("Pong", experience="host", stagger_steps=within_steps)

    def learned_beyond() -> set[int]:
        """Lanes that were trained on beyond the last step at which their first game can be cut."""
        return {part.lane for part in trained.released if part.start > within_steps}

    with running(trained.by(made(config), monkeypatch)) as service:
        tend_until(service, lambda: len(learned_beyond()) == config.service.lanes)
    resets = sum(int(batch[-1].sum()) for batch in trained.batches)
    assert config.service.lanes / 2 <= resets <= config.service.lanes


@pytest.mark.parametrize("compress", [True, False])
def test_frames_from_another_machine_are_compressed_unless_the_run_was_told_not_to(
    compress: bool, tmp_path: Path
) -> None:
    for name in ("service", "host"):
        keys.run(keys.Config(tmp_path / name))
    door = HostsConfig(
        listen="tcp://127.0.0.1:*",
        key=tmp_path / "service",
        allow=(tmp_path / "host.pub",),
        agents_here=0,
        compress=compress,
    )
    service = made(replace(configured(envs_per_agent=32), hosts=door))
    assert service.frontend.listening
    address = service.frontend.listening.endpoint
    curve = HostConfig(address, tmp_path / "host", tmp_path / "service.pub").curve
    host = Host(connect=address, curve=curve, agents=1, name="atlas", modules=("tests.tiny",))
    obeying = threading.Thread(target=host.obey)
    with running(service):
        obeying.start()
        tend_until(service, lambda: service.metrics.snapshot()["far_messages"] >= 20)
        host.stop()
        obeying.join(STOP_S)
        host.close()
    count = service.config.envs_per_group
    step = Step(np.zeros((count, 7), np.float32), np.zeros(count, OUTCOME))
    whole = sum(map(len, encode_step(Header(Kind.STEP, 0, count), step)))
    counts = service.metrics.snapshot()
    sent = counts["far_bytes"] / counts["far_messages"]
    assert sent < 0.6 * whole if compress else sent == whole


def slowed(service: Service, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every update take `seconds` longer."""
    learn = service.model.learn

    def slow_learn(*inputs: Any, progress: float) -> Any:
        time.sleep(seconds)
        return learn(*inputs, progress=progress)

    monkeypatch.setattr(service.model, "learn", slow_learn)


@pytest.mark.parametrize(
    ("pending", "queue_segments"), [(2, 16), (8, 4)], ids=["pending segments", "training queue"]
)
def test_policy_lag_is_bounded_by_what_may_await_training(
    pending: int, queue_segments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst case: all lanes are in one group, so they step together, with a segment per update.

    The lag of a lane's segment k is the number of other segments trained on after its first
    observation and before itself. They can be segments k - 1 (just completed) and k of every
    lane, and older ones that await training: at most `pending - 1` per lane, as the book admits
    no more, and at most what the queue and the trainers hold.
    """
    config = configured(
        groups=1,
        pending_segments=pending,
        training_batch_max=T_MAX,
        training_queue=queue_segments * T_MAX,
    )
    lanes = config.service.envs_per_agent
    bound = 2 * lanes + min((pending - 1) * lanes, queue_segments + config.service.trainers) - 1
    service = made(config)
    lags = observed_lags(service, monkeypatch)
    slowed(service, 0.01, monkeypatch)
    with running(service):
        tend_until(service, lambda: len(lags) >= 100)
    assert lanes - 1 <= max(lags) <= bound


def test_a_batch_of_many_updates_holds_up_neither_checkpoint_nor_stop() -> None:
    """Here a batch takes a minute: 20,000 passes. `running` asserts that the stop is in time."""
    service = made(configured(passes=20_000, minibatch=T_MAX))
    with running(service):
        tend_until(service, lambda: service.model.updates > 100)
        for _ in range(5):
            before = service.model.updates
            found = service.kept.read(10.0)  # far less than the batch takes
            assert found is not None and found[0]["counters"][1] >= before
            tend_until(service, lambda: service.model.updates > before)  # noqa: B023


def test_an_agent_that_waits_for_learning_holds_up_no_other() -> None:
    """One agent waits for learning, which waits for a batch that the stopped agent must fill.

    When that agent continues, its requests must not queue behind those held for the other.
    """
    whole = 4 * T_MAX
    service = made(
        configured(
            agents=2,
            envs_per_agent=2,
            groups=1,
            training_batch_min=whole,
            training_batch_max=whole,
            training_wait_s=1000.0,
        )
    )
    with running(service):
        tend_until(service, lambda: service.model.updates >= 3)
        behind = service.agents.pids()[1]
        for _ in range(3):
            os.kill(behind, signal.SIGSTOP)
            before = -1
            while before != steps(service):  # until the other may play no further
                before = steps(service)
                time.sleep(0.3)
            os.kill(behind, signal.SIGCONT)
            updates = service.model.updates
            tend_until(service, lambda: service.model.updates >= updates + 10)  # noqa: B023


PAUSED_UPDATES = 400  # much more than the lag of any lane that plays


def test_a_lane_that_paused_does_not_learn_from_before_the_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = made(configured(agents=2))
    lags = observed_lags(service, monkeypatch)
    with running(service):
        tend_until(service, all_play(service))
        paused_lanes = slice(4, 8)
        for _ in range(3):  # until some lane stops within a segment
            service.resize(Counts(1, 1, 1))
            tend_until(service, rests(service, 1))
            within = lane_steps(service)[paused_lanes] % T_MAX != 1
            tend_until(service, reaches(lags, len(lags) + PAUSED_UPDATES))
            service.resize(Counts(2, 1, 1))
            tend_until(service, all_play(service))
            if within.any():
                break
        assert within.any()
    assert max(lags) < PAUSED_UPDATES


def test_killed_agents_are_replaced() -> None:
    with running(made(configured(agents=3))) as service:
        tend_until(service, all_play(service))
        killed = service.agents.pids()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        events = tend_until(service, lambda: service.metrics.snapshot()["agent_deaths"] == 3)
        assert len(events) == 3
        assert all("was killed by signal 9" in e and "replaced by" in e for e in events)
        assert not set(killed) & set(service.agents.pids())
        assert tend_until(service, all_play(service)) == []


def test_a_dead_agent_ends_a_run_in_lockstep() -> None:
    """A successor would play other games, so the same seed would not give the same weights."""
    in_turn = replace(SMALL, groups=1, lockstep=True, training_batch_min=4 * T_MAX)
    config = replace(configured(), service=in_turn, scheduler=SchedulerConfig("off"))
    with running(made(config)) as service:
        tend_until(service, all_play(service))
        os.kill(service.agents.pids()[0], signal.SIGKILL)
        with pytest.raises(RunFailed, match="was killed by signal 9: no other can take its"):
            tend_until(service, lambda: False)
    assert service.snapshot()["agent_deaths"] == 1


def test_each_agent_has_a_seed_of_its_own_also_in_a_dead_ones_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = made(configured(agents=2))
    tasks: list[Task] = []
    launcher = service.agents._launcher
    start = launcher.start
    monkeypatch.setattr(launcher, "start", lambda task: (tasks.append(task), start(task)))
    with running(service):
        tend_until(service, all_play(service))
        os.kill(service.agents.pids()[0], signal.SIGKILL)
        tend_until(service, lambda: len(tasks) == 3)
    assert None not in {task.seed for task in tasks}
    assert len({task.seed for task in tasks}) == 3


def test_an_episode_has_the_epsilon_of_its_own_lane() -> None:
    """With a ladder of epsilons, only episodes of the greediest lanes count for the score."""
    ladder = np.array([0.4, 0.3, 0.2, 0.1], np.float32)
    batch = []
    for group, finished in enumerate(([1, 0], [0, 1])):
        outcomes = np.zeros(2, OUTCOME)
        outcomes["finished"], outcomes["episode_return"] = finished, [group, group]
        lanes = np.arange(2, dtype=np.int32) + 2 * group
        batch.append(Request("agent", group, 1, lanes, Step(np.zeros((2, 4)), outcomes), 0.0))
    tally = Tally(most_scored=0.15)
    predictor: Any = SimpleNamespace(tally=tally, pacing=SimpleNamespace(steps=7))
    Predictor._note_episodes(predictor, batch, ladder)
    found = [(each.score, each.epsilon, each.scored) for each in tally.take_episodes()]
    assert found == [(0.0, pytest.approx(0.4), False), (1.0, pytest.approx(0.1), True)]
    for _ in range(100):
        tally.episode(0, 0.0, 1)
    assert [tally.has_full_mean({lane}) for lane in range(4)] == [True, False, False, True]
    assert 0 < assembly.most_scored(PRESETS["apex"]) < 0.4
    assert assembly.most_scored(PRESETS["dqn-pictures"]) == math.inf


@pytest.mark.parametrize("when", ["as it starts", "as it plays"])
def test_a_frozen_agent_is_replaced(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if when == "as it plays":
        monkeypatch.setattr(SLOWEST_MAKE_S, 10.0)
    with running(made(configured(agent_timeout_s=3.0))) as service:
        if when == "as it plays":
            tend_until(service, all_play(service))
        else:  # this agent has the usual time to start; only its successor has longer
            monkeypatch.setattr(SLOWEST_MAKE_S, 10.0)
        pid = service.agents.pids()[0]
        os.kill(pid, signal.SIGSTOP)
        events = tend_until(service, lambda: pid not in service.agents.pids())
        assert any("was killed by signal 9" in event for event in events)
        tend_until(service, all_play(service))


def test_a_frozen_agent_is_replaced_though_the_main_thread_is_rarely_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It calls `on_figures`, for example, or writes a large checkpoint."""
    monkeypatch.setattr(SLOWEST_MAKE_S, 10.0)
    with running(made(configured(agent_timeout_s=3.0))) as service:
        tend_until(service, all_play(service))
        pid = service.agents.pids()[0]
        os.kill(pid, signal.SIGSTOP)
        events: list[str] = []
        for _ in range(3):
            time.sleep(STOPPED_S + 1.0)
            events += service.tend()
        assert pid not in service.agents.pids(), events
        assert any("was killed by signal 9" in event for event in events)


def test_no_agent_is_killed_for_its_silence_while_the_service_itself_was_stopped(
    command: Callable[..., Command],
) -> None:
    """Ctrl-Z and `fg`, for example, stop and continue both the service and its agents."""
    given = ["--game", CORRIDOR, "--algorithm", "a3c", "--scheduler", "off", *LIGHT]
    run = command("train", *given, "--agent-timeout-s", "3")
    run.until_steps_are_made()
    deaths = run.out.count("killed by signal")  # may be above 0 on a busy machine
    service, agents = psutil.Process(run.process.pid), run.agents()
    for process in agents:
        process.suspend()
    time.sleep(0.5)  # all that they have sent is received, so each owes a step
    service.suspend()
    time.sleep(4.0)
    service.resume()
    time.sleep(1.0)
    steps = run.steps()
    for process in agents:
        process.resume()
    run.until(lambda: run.steps() > steps)
    assert run.out.count("killed by signal") == deaths


def test_agents_that_fail_at_once_fail_the_run_with_their_traceback() -> None:
    with (
        running(made(configured("tests.tiny:Fallen-v0", agents=2))) as service,
        pytest.raises(RunFailed, match=r"(?s)Traceback.*the corridor has fallen in"),
    ):
        tend_until(service, lambda: False)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raises", "RuntimeError: the floor has given way"),
        ("observation", r"InvalidStep: .*observation of environment 0 is nan at \[3\]"),
    ],
)
def test_agents_that_fail_in_every_game_end_the_run_with_their_traceback(
    fault: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "MAX_FAILURES", 3)
    config = configured(f"tests.tiny:Broken-{fault}-v0")
    events: list[str] = []
    with (
        running(made(config)) as service,
        pytest.raises(
            RunFailed, match=rf"(?s)agent-\d\.\d exited 1: 3 agents in a row.*Trace.*{words}"
        ),
    ):
        tend_until(service, lambda: False, events=events)
    assert service.snapshot()["agent_deaths"] == 3
    assert any(re.search(f"{words}.*: replaced by agent", event) for event in events)
    assert any(re.search(f"{words}.*: to be replaced in 0.5 s", event) for event in events)


def test_agents_that_hang_in_every_game_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths, "MAX_FAILURES", 2)
    config = configured("tests.tiny:Broken-hangs-v0", agent_timeout_s=3.0)
    words = r"(?s)killed by signal 9: 2 agents in a row failed in its place.*owed a step"
    with running(made(config)) as service, pytest.raises(RunFailed, match=words):
        tend_until(service, lambda: False)


WRONG_SPEAKER = """
import json, sys, numpy as np, zmq
from agents import messages
from agents.actions import Actions
from agents.messages import Header, Hello, Kind, Step
from agents.link import connect
from agents.worker import Task
task = Task.from_json(sys.stdin.readline())
socket = connect(zmq.Context(), task.endpoint, task.identity, task.token)
hello = Hello(task.token, {shape}, "float32", Actions(2), task.groups, task.envs_per_group)
socket.send_multipart(messages.encode_hello(hello))
n = task.envs_per_group
step = Step(np.full((n, 7), np.nan, np.float32), np.zeros(n, messages.OUTCOME))
socket.send_multipart(messages.encode_step(Header(Kind.STEP, 1, n), step))
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("(7,)", "frame values: nan of environment 0 of its group"),
        ("(8,)", r"hello fields: Hello.token='', shape=.8,.*, not Hello.token='', shape=.7,"),
    ],
)
def test_an_agent_whose_message_is_refused_is_ended_at_once_with_the_reason(
    directory: Path, monkeypatch: pytest.MonkeyPatch, shape: str, words: str
) -> None:
    service = made(configured())
    (directory / "speaker.py").write_text(WRONG_SPEAKER.format(shape=shape))
    stand_in = directory / "stand-in"
    stand_in.write_text(f"#!/bin/sh\nexec {sys.executable} {directory}/speaker.py\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    events: list[str] = []
    with running(service), pytest.raises(RunFailed, match=f"(?s)its message was refused: {words}"):
        tend_until(service, lambda: False, events=events)
    assert len(events) == 2
    assert all(re.search(f"signal 9 .its message was refused: {words}", line) for line in events)


def test_an_agent_that_ends_before_its_first_word_fails_the_run_with_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = made(configured())
    monkeypatch.syspath_prepend(service.scratch.path)
    (service.scratch.path / "zmq.py").write_text("raise ImportError('no sockets here')")
    with (
        running(service),
        pytest.raises(RunFailed, match=r"(?s)Traceback.*no sockets here"),
    ):
        tend_until(service, lambda: False)


@pytest.mark.parametrize(
    ("game", "changes"),
    [
        (CORRIDOR, {"experience": "host"}),
        ("tests.tiny:Catch-v0", {"experience": "host"}),
        ("Pong", {"experience": "host"}),
        (CORRIDOR, {"transport": "tcp"}),
    ],
    ids=str,
)
def test_training_works_for_every_place_of_experience_and_every_transport(
    game: str, changes: dict[str, str]
) -> None:
    with running(made(configured(game, **changes))) as service:
        assert service.model.experience.memory.on_device == ("experience" not in changes)
        assert service.frontend.endpoint.partition("://")[0] == changes.get("transport", "ipc")
        assert tend_until(service, lambda: service.metrics.snapshot()["updates"] >= 5) == []
        assert service.metrics.snapshot()["steps"] > 0


@pytest.mark.parametrize("name", ["Wide", "ManyActions", "WidePicture"])
def test_training_works_for_wide_observations_and_many_actions(name: str) -> None:
    config = configured(f"tests.tiny:{name}-v0", envs_per_agent=2)
    with running(made(config)) as service:
        assert tend_until(service, lambda: service.metrics.snapshot()["updates"] >= 2) == []
        assert not any(name.startswith("rejected") for name in service.snapshot().counts)


def test_a_group_may_have_thousands_of_environments() -> None:
    many = {"envs_per_agent": 4200, "groups": 1, "training_queue": 4200 * T_MAX, "max_agents": 1}
    with running(made(configured(**many))) as service:
        assert tend_until(service, lambda: service.metrics.snapshot()["updates"] >= 1) == []


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (Spaces((2**25,), "float32", Actions(2), 1), "4 environments per group take 536870912"),
        (Spaces((4,), "float32", Actions(65_537), 1), "65537 actions: must be at most 65536"),
    ],
)
def test_spaces_too_large_for_a_message_are_refused_before_anything_starts(
    directory: Path, shown: Spaces, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        build_service(configured(envs_per_agent=4, groups=1), shown)
    assert list(directory.iterdir()) == []


def test_a_chatty_environment_trains_and_fills_no_disk(directory: Path) -> None:
    with running(made(configured("tests.tiny:Chatty-v0"))) as service:
        shown = tend_until(service, lambda: steps(service) >= 1000)
        assert len(shown) <= FIRST_LINES + 1  # none at all where this takes less than `HELD_S`
        assert sum(path.stat().st_size for path in directory.rglob("*")) < 100_000


def test_each_episode_is_counted_once_with_its_return_and_length() -> None:
    """CartPole pays 1 per step. Only the steps of unfinished games are in no episode."""
    with running(made(configured("CartPole-v1"))) as service:
        tend_until(service, lambda: service.tally.episodes >= 60)
    episodes = service.tally.take_episodes()
    assert len(episodes) == service.tally.episodes
    assert all(episode.score == episode.length > 0 for episode in episodes)
    played = steps(service)
    told = sum(episode.length + 1 for episode in episodes)  # a reset also counts as a step
    assert told <= played <= told + 4 * 501
    assert [e.steps for e in episodes] == sorted(e.steps for e in episodes)


@pytest.mark.parametrize("method", ["learn", "act"])
def test_a_failing_service_thread_fails_the_run_with_its_traceback(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Model):
        def _fail(self, *_: Any, **__: Any) -> Any:
            raise ArithmeticError("no such number")

    setattr(Failing, method, Failing._fail)
    monkeypatch.setattr(assembly, "Model", Failing)
    with (
        running(made(configured())) as service,
        pytest.raises(RunFailed, match=r"(?s)Traceback.*_fail.*no such number"),
    ):
        tend_until(service, lambda: False)


def test_a_failing_frontend_fails_the_run_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise ArithmeticError("no such score")

    service = made(configured())
    monkeypatch.setattr(service.tally, "episode", fail)
    with (
        running(service),
        pytest.raises(RunFailed, match=r"(?s)Traceback.*no such score"),
    ):
        tend_until(service, lambda: False)


def test_frozen_agents_do_not_hold_up_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service waits for all agents at once, not for one after another."""
    monkeypatch.setattr("ga3c.service.service.AGENTS_END_S", 4.0)
    with running(made(configured(agents=3))) as service:
        tend_until(service, all_play(service))
        for pid in service.agents.pids():
            os.kill(pid, signal.SIGSTOP)
        started_s = time.monotonic()
        service.stop(WAIT_S)
        assert time.monotonic() - started_s < 3 * 4.0


def test_a_service_stops_at_once_while_it_starts() -> None:
    with running(made(configured(agents=3))):
        pass


def test_a_service_that_never_started_can_be_stopped(directory: Path) -> None:
    service = made(configured())
    assert list(directory.glob("ga3c-*")) != []
    assert service.stop(STOP_S) == []
    assert list(directory.glob("ga3c-*")) == []


def test_services_one_after_another_keep_no_files_open() -> None:
    def once() -> None:
        with running(made(configured(agents=2))) as service:
            tend_until(service, lambda: steps(service) > 0)
            os.kill(service.agents.pids()[0], signal.SIGKILL)
            tend_until(service, lambda: service.metrics.snapshot()["agent_deaths"] == 1)

    once()
    descriptors = leaks.descriptors()
    once()
    assert not leaks.descriptors() - descriptors
