"""The warnings that a run gives, and the failures that end it."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from agents.environments import EnvironmentConfig, spaces
from ga3c import backend
from ga3c.runs import checkpoints
from ga3c.runs.kept_config import load_config
from ga3c.runs.metrics import Snapshot, Window
from ga3c.service.service import Service
from ga3c.service.wiring import build_service
from ga3c.settings.learning import OptimizerConfig
from ga3c.settings.presets import PRESETS
from ga3c.settings.run import RunConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import ServiceConfig
from ga3c.settings.train import TrainConfig
from ga3c.training.watch import MEASURED_LAG_UPDATES, STILL_S, Watch, resumed_schedule
from tests.commands import CORRIDOR, PATIENCE, STOP_S, ended, refused

WAIT_S = 40.0 * PATIENCE
SMALL = TrainConfig(
    environment=EnvironmentConfig("tests.tiny:Corridor-v0"),
    service=ServiceConfig(agents=1, max_agents=1, envs_per_agent=8),
    scheduler=SchedulerConfig(scheduler="off"),
)


class Clock:
    """A clock, in seconds, that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Still:
    """A stand-in for the service. A test sets its progress in the schedules."""

    def __init__(self) -> None:
        self.progress = lambda: 0.0

    def waits(self) -> str:
        return "who waits for whom"


def watched(config: TrainConfig = SMALL, refused: float = 0.0) -> tuple[Watch, Still, Clock]:
    service, clock = Still(), Clock()
    watch = Watch(
        service,
        steps=config.run.steps,
        optimizer=config.scheduled_optimizer,
        max_refused_updates=config.learning.max_refused_updates,
        updates_per_batch=config.service.updates_per_batch,
        is_scheduled=config.scheduler.scheduler != "off",
        refused=refused,
        clock=clock,
    )
    return watch, service, clock


def snapshot(**counts: float) -> Snapshot:
    return Snapshot(0.0, counts)


# Standstill


def test_a_run_in_which_nothing_moves_says_so_after_a_minute_and_then_less_often() -> None:
    watch, _, clock = watched()
    said = []
    for clock.now_s in range(0, 400, 5):
        said += [(clock.now_s, line) for line in watch.events(snapshot(steps=8.0))]
    assert [time_s for time_s, _ in said] == [STILL_S, 2 * STILL_S, 4 * STILL_S]
    assert "no environment step and no update for 60 s: who waits for whom" in said[0][1]
    for clock.now_s in range(400, 600, 5):
        assert not list(watch.events(snapshot(steps=clock.now_s)))
    for clock.now_s in range(600, 800, 5):
        assert not list(watch.events(snapshot(steps=595.0, updates=clock.now_s))), "it learns"


def test_a_service_whose_agents_are_stopped_says_that_they_owe_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    backend.configure(1, 0)
    service = build_service(SMALL, spaces(SMALL.environment))
    try:
        service.agents.resize(1)  # it starts, but its steps are taken only from a running service
        assert "0 of 1 agents have made a step" in service.waits()
        service.start()
        until(service, lambda: service.plays())
        for agent in psutil.Process().children():
            os.kill(agent.pid, signal.SIGSTOP)
        until(service, lambda: "no agent sends its next step" in service.waits())
        assert "--agent-timeout-s 60" in service.waits()
    finally:
        for agent in psutil.Process().children():
            os.kill(agent.pid, signal.SIGCONT)
        assert service.stop(STOP_S) == []


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ([], "samples await training, a batch takes at least 80"),
        (["--algorithm", "dqn"], "the next update is due at"),
    ],
    ids=["a3c", "dqn"],
)
def test_a_service_whose_learning_stands_still_says_that_acting_waits_for_it(
    algorithm: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    backend.configure(1, 0)
    config = SMALL
    if "dqn" in algorithm:
        small = replace(SMALL.replay, replay_steps=500, replay_min_steps=200, update_size=50)
        config = replace(SMALL, algorithm="dqn", replay=small)
    service = build_service(config, spaces(config.environment))
    service._trainers.resize = lambda count: None  # type: ignore[method-assign]
    try:
        service.start()
        until(service, lambda: service.plays() and words in service.waits())
        assert "catches up" in service.waits()
    finally:
        assert service.stop(STOP_S) == []


def until(service: Service, holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline_s, service.waits()
        service.tend()
        time.sleep(0.05)


def test_a_group_larger_than_the_largest_batch_is_refused_where_it_would_wait_forever() -> None:
    given = ["--preset", "dqn-pictures", "--agents", "1", "--envs-per-agent", "1024"]
    done = ended("train", "--game", "CartPole-v1", *given)
    assert done.returncode == 2
    assert "slack_steps 256 < 515: a prediction of 512 steps" in done.stderr


def test_a_lockstep_that_could_never_fill_a_batch_is_refused() -> None:
    service = ServiceConfig(agents=1, groups=1, envs_per_agent=1, lockstep=True)
    with pytest.raises(ValueError, match="make 40 before they wait for an update"):
        replace(SMALL, service=service)
    given = ["--game", "CartPole-v1", "--algorithm", "ppo", "--lockstep", "--agents", "1"]
    given += ["--groups", "1", "--envs-per-agent", "8", "--scheduler", "off"]
    said = refused("train", *given)
    assert "make 1152 before they wait for an update" in said, "one lane has two segments first"


# Numbers that are not finite


def test_skipped_updates_are_reported_but_not_every_time() -> None:
    watch, _, clock = watched()
    assert not list(watch.events(snapshot(updates=3.0)))
    (line,) = watch.events(snapshot(updates=3.0, refused_updates=2.0))
    assert "2 updates left out, 2 in all" in line
    clock.now_s = 10.0
    assert not list(watch.events(snapshot(updates=4.0, refused_updates=5.0)))
    clock.now_s = 31.0
    (line,) = watch.events(snapshot(updates=4.0, refused_updates=6.0))
    assert "4 updates left out, 6 in all" in line


def test_a_resumed_run_says_nothing_of_updates_that_were_left_out_before() -> None:
    watch, _, _ = watched(refused=7.0)
    assert not list(watch.events(snapshot(refused_updates=7.0)))
    (line,) = watch.events(snapshot(refused_updates=9.0))
    assert "2 updates left out, 9 in all" in line


@pytest.mark.parametrize(
    "algorithm",
    [
        ["--optimizer", "rmsprop"],
        ["--algorithm", "dqn", "--replay-min-steps", "500", "--update-size", "100"],
    ],
    ids=["a3c", "dqn"],
)
def test_a_run_whose_weights_explode_ends_and_keeps_its_last_good_checkpoint(
    algorithm: list[str], tmp_path: Path
) -> None:
    given = [*CORRIDOR, *algorithm, "--learning-rate", "3e38", "--max-refused-updates", "20"]
    given += ["--checkpoint-every-s", "0.2", "--clip-norm", "0"]
    done = ended(*given, "--seconds", "60", "--runs-dir", str(tmp_path), "--name", "mine")
    assert done.returncode == 1, done.stdout
    said = re.search(r"ga3c: (\d+) updates in a row were left out", done.stderr.splitlines()[-1])
    assert said
    assert int(said[1]) >= 20
    assert "Traceback" not in done.stderr
    result = json.loads((tmp_path / "mine" / "result.json").read_text())
    assert result["ended"] == "failed"
    assert result["refused_updates"] >= 20
    newest, damaged = checkpoints.newest(tmp_path / "mine" / "checkpoints")
    assert newest is not None
    assert damaged == []
    for name, array in newest.arrays.items():
        assert np.isfinite(array).all(), name


def test_actions_that_are_not_finite_end_a_run_in_one_line(tmp_path: Path) -> None:
    given = ["train", "--game", "tests.tiny:Reach-v0", "--envs-per-agent", "8", "--agents", "1"]
    given += ["--algorithm", "dpg", "--replay-min-steps", "500", "--update-size", "100"]
    done = ended(*given, "--learning-rate", "3e38", "--seconds", "60", "--runs-dir", str(tmp_path))
    assert done.returncode == 1, done.stdout
    words = "ga3c: the network's actions are not finite: none can be played; a smaller --learning"
    assert words in done.stderr
    assert "Traceback" not in done.stderr


# Schedules


def test_the_horizon_of_schedules_follows_the_runs_steps() -> None:
    open_ended = OptimizerConfig().scheduled(None)
    assert open_ended.schedule_steps == 10_000_000
    assert open_ended.learning_rate_end == pytest.approx(7e-5), "it learns on"
    limited = OptimizerConfig().scheduled(50_000_000)
    assert (limited.schedule_steps, limited.learning_rate_end) == (50_000_000, 0.0)
    shorter = OptimizerConfig(schedule_steps=1000).scheduled(5000)
    assert (shorter.schedule_steps, shorter.learning_rate_end) == (1000, pytest.approx(7e-5))
    own = OptimizerConfig(schedule_steps=1000, learning_rate_end=0.0).scheduled(5000)
    assert (own.schedule_steps, own.learning_rate_end) == (1000, 0.0)
    constant = OptimizerConfig(learning_rate_end="constant").scheduled(5000)
    assert constant.rate_at(1.0) == constant.learning_rate
    config = replace(SMALL, run=RunConfig(steps=700))
    assert config.scheduled_optimizer.schedule_steps == 700


def test_the_learning_rate_is_linear_until_the_schedules_end() -> None:
    optimizer = OptimizerConfig(learning_rate=1e-3, learning_rate_end=2e-4)
    rates = [optimizer.rate_at(progress) for progress in (0.0, 0.25, 1.0, 3.0)]
    assert rates == pytest.approx([1e-3, 8e-4, 2e-4, 2e-4])


@pytest.mark.parametrize(
    ("end", "words"), [(0.0, "0 from now on, so nothing more is learned"), (1e-5, "learning goes")]
)
def test_the_end_of_the_schedules_is_reported_once(end: float, words: str) -> None:
    config = replace(SMALL, optimizer=OptimizerConfig(schedule_steps=100, learning_rate_end=end))
    watch, service, _ = watched(config)
    service.progress = lambda: 0.99
    assert not list(watch.events(snapshot()))
    service.progress = lambda: 1.0
    (line,) = watch.events(snapshot())
    assert "ended after 100 steps" in line
    assert words in line
    assert not list(watch.events(snapshot()))
    resumed, service, _ = watched(config)
    service.progress = lambda: 1.5
    assert [*resumed.events(snapshot())] == [line], "once in each session"


def test_the_end_of_the_schedules_is_not_reported_for_a_constant_learning_rate() -> None:
    constant = OptimizerConfig(learning_rate=1e-3, learning_rate_end=1e-3, schedule_steps=100)
    watch, service, _ = watched(replace(SMALL, optimizer=constant))
    service.progress = lambda: 2.0
    assert not list(watch.events(snapshot()))


def test_a_run_resumed_with_more_steps_says_what_its_schedules_do(tmp_path: Path) -> None:
    names = ["--runs-dir", str(tmp_path), "--name", "mine"]
    assert ended(*CORRIDOR, "--steps", "1000", *names).returncode == 0
    before = load_config(tmp_path / "mine")
    assert before.scheduled_optimizer.schedule_steps == 1000
    done = ended("train", "--resume", str(tmp_path / "mine"), "--steps", "2000")
    assert done.returncode == 0, done.stderr
    assert "schedules now end at 2,000 steps, previously at 1,000: the learning rate" in done.stdout
    assert resumed_schedule(before.scheduled_optimizer, before.scheduled_optimizer, 1000) is None


# Policy lag


def window(lag: float) -> Window:
    counts = {"trained_samples": 100.0, "lag_updates": 100.0 * lag}
    return Window(snapshot(), Snapshot(1.0, counts))


def test_a_policy_lag_beyond_the_measured_one_is_reported_once() -> None:
    watch, _, _ = watched(replace(SMALL, scheduler=SchedulerConfig()))
    assert not list(watch.figures(window(MEASURED_LAG_UPDATES)))
    (line,) = watch.figures(window(200.0))
    assert "policy lag is 200 updates: a3c's default settings have 19" in line
    assert "--max-policy-lag" in line
    assert not list(watch.figures(window(300.0)))


def test_the_policy_lag_of_many_updates_a_batch_is_judged_by_batches() -> None:
    watch, _, _ = watched(PRESETS["ppo-vectors"])  # 64 updates per batch
    assert not list(watch.figures(window(64 * 7.0)))
    (line,) = watch.figures(window(64 * 7.5))
    assert "policy lag is 480 updates: those of 7.5 batches" in line
    assert "--max-policy-lag" not in line, "no scheduler runs"
