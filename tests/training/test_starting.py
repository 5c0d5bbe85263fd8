"""Agents create their environments while the tensor framework is being loaded."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.environments import EnvironmentConfig, Spaces, spaces
from agents.launchers import LocalLauncher
from agents.worker import Task
from ga3c.settings.machine import CORES
from ga3c.settings.run import RunConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import HostsConfig, ServiceConfig
from ga3c.settings.train import TrainConfig
from ga3c.training import starting
from ga3c.training.starting import _prepare, prepared
from tests.commands import FRESH, Command, assert_nothing_is_left

LIMIT_S = 200.0
TWO = ServiceConfig(agents=2, max_agents=2, envs_per_agent=4)
PONG = TrainConfig(service=TWO, environment=EnvironmentConfig("Pong"))
OTHERS = HostsConfig(listen="tcp://127.0.0.1:*", key=Path("key"), allow=(Path("key.pub"),))
LOCKSTEP = replace(TWO, agents=1, max_agents=1, groups=1, lockstep=True)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (PONG, min(2, CORES)),
        (replace(PONG, service=replace(TWO, agents=9000, max_agents=9000)), CORES),
        (replace(PONG, run=RunConfig(resume=Path("run"))), 1),
        (replace(PONG, environment=EnvironmentConfig("CartPole-v1")), 0),
        (replace(PONG, service=LOCKSTEP, scheduler=SchedulerConfig(scheduler="off")), 0),
        (replace(PONG, hosts=OTHERS), 0),
    ],
    ids=["Atari", "too many", "resumed", "seeded", "repeatable", "also elsewhere"],
)
def test_agents_are_prepared_only_for_unseeded_games_here(config: TrainConfig, count: int) -> None:
    launcher = LocalLauncher()
    try:
        _prepare(launcher, config)
        assert len(launcher) == count
    finally:
        launcher.stop(0.0)


def test_a_prepared_agent_makes_the_games_of_the_run() -> None:
    tasks: list[Task] = []
    launcher: Any = SimpleNamespace(prepare=lambda count, task: tasks.append(task))
    _prepare(launcher, replace(PONG, service=replace(TWO, stagger_steps=70)))
    (task,) = tasks
    assert (task.environment, task.envs_per_group, task.stagger_steps) == (PONG.environment, 2, 70)


def test_an_environment_that_takes_long_to_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, creating it takes until the warning appears, so a busy machine does not matter."""
    said, is_said = list[str](), threading.Event()

    def complain(line: str) -> None:
        said.append(line)
        is_said.set()

    def made(config: EnvironmentConfig) -> Spaces:
        assert is_said.wait(LIMIT_S)
        return spaces(config)

    monkeypatch.setattr(starting, "SLOW_S", 0.05)
    monkeypatch.setattr(starting.streams, "complain", complain)
    monkeypatch.setattr(starting, "spaces", made)
    game = EnvironmentConfig("CartPole-v1")
    prepared(TrainConfig(environment=game, run=RunConfig(runs_dir=tmp_path)), None)
    assert said == ["CartPole-v1: still starting, or in its first step, after 0.05 s"]


def test_an_environment_that_is_made_at_once_causes_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()
    monkeypatch.setattr(starting.streams, "complain", said.append)
    game = EnvironmentConfig("CartPole-v1")
    prepared(TrainConfig(environment=game, run=RunConfig(runs_dir=tmp_path)), None)
    assert said == []
    timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers)


def test_a_run_that_is_refused_while_its_agents_are_prepared_leaves_none(tmp_path: Path) -> None:
    """The run is refused when its network is built, after the framework has been loaded."""
    given = ["train", "--game", "Pong", "--frame-size", "16", "--network", "small"]
    command = Command(tmp_path, given, FRESH)
    assert command.wait(LIMIT_S) == 2
    assert command.err.startswith("ga3c: ")
    assert len(command.err.splitlines()) == 1
    assert_nothing_is_left(command)
