"""Agents leave nothing behind when they end, even if their environments start processes."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from agents.environments import EnvironmentConfig
from agents.launchers import PREPARED, LocalLauncher
from agents.worker import Task
from tests.agents.test_launchers import LIMIT_S, playing, reaped, runs, wait_until

FIRST = f"{PREPARED}0"


def simulators(folder: Path, *more: str) -> EnvironmentConfig:
    return EnvironmentConfig("tests.simulators:Simulator-v0", (f"folder={str(folder)!r}", *more))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "simulators"
    folder.mkdir()
    return folder


@pytest.fixture
def launcher(folder: Path) -> Iterator[LocalLauncher]:
    """A launcher. After the test, it is stopped and any remaining simulators are killed."""
    launcher = LocalLauncher()
    yield launcher
    launcher.stop(LIMIT_S)
    for pid in filter(runs, started(folder)):
        os.kill(pid, signal.SIGKILL)


def started(folder: Path) -> list[int]:
    """The ids of the processes that environments have started."""
    return [int(file.name) for file in folder.iterdir() if file.suffix == ""]


def closed(folder: Path) -> list[int]:
    """The process ids of the environments that were closed."""
    return [int(file.stem) for file in folder.iterdir() if file.suffix == ".closed"]


@pytest.fixture
def processes(launcher: LocalLauncher, folder: Path) -> list[int]:
    """The process ids of an agent's environments, while the agent waits for its first task."""
    return prepared(launcher, folder)


def prepared(launcher: LocalLauncher, folder: Path, *more: str) -> list[int]:
    launcher.prepare(1, Task("", "", "token", 1, 3, None, simulators(folder, *more)))
    agent = psutil.Process(launcher.pid(FIRST))
    wait_until(lambda: len(started(folder)) == 3 and agent.status() == psutil.STATUS_SLEEPING)
    return started(folder)


@pytest.mark.parametrize("how", [LocalLauncher.stop, lambda launcher, _: launcher.end(FIRST)])
def test_an_agent_closes_its_environments_when_its_input_ends(
    launcher: LocalLauncher,
    processes: list[int],
    folder: Path,
    how: Callable[[LocalLauncher, float], None],
) -> None:
    how(launcher, LIMIT_S)
    wait_until(lambda: not any(map(runs, processes)))
    assert sorted(closed(folder)) == sorted(processes)


def test_processes_started_by_a_frozen_agents_environments_are_killed_with_it(
    launcher: LocalLauncher, processes: list[int], folder: Path
) -> None:
    os.kill(launcher.pid(FIRST) or 0, signal.SIGSTOP)
    launcher.kill(FIRST)
    wait_until(lambda: not any(map(runs, processes)))
    assert reaped(launcher).code == -signal.SIGKILL
    assert not closed(folder)


def test_processes_started_by_a_dead_agents_environments_are_killed_when_it_is_reaped(
    launcher: LocalLauncher, processes: list[int]
) -> None:
    os.kill(launcher.pid(FIRST) or 0, signal.SIGSEGV)
    assert reaped(launcher).code == -signal.SIGSEGV
    wait_until(lambda: not any(map(runs, processes)))


def test_an_agent_closes_its_environments_when_it_fails(
    launcher: LocalLauncher, folder: Path, tmp_path: Path
) -> None:
    with playing(tmp_path, launcher, simulators(folder)) as rig:
        rig.start("agent")
        rig.answer(rig.take(), action=1000)
        assert "action range" in reaped(launcher).log
    assert sorted(closed(folder)) == sorted(started(folder))


def test_environments_that_hang_as_they_close_do_not_hold_up_an_agents_end(
    launcher: LocalLauncher, folder: Path
) -> None:
    processes = prepared(launcher, folder, "hangs=True")
    launcher.end(FIRST)
    assert reaped(launcher).code == 1, "by itself"
    wait_until(lambda: not any(map(runs, processes)))


def test_environments_that_hang_as_they_close_do_not_hold_up_the_end_of_an_agent_that_fails(
    launcher: LocalLauncher, folder: Path, tmp_path: Path
) -> None:
    """`hangs` is set after `playing`, which makes and closes an environment in this process."""
    with playing(tmp_path, launcher, simulators(folder)) as rig:
        rig.config = simulators(folder, "hangs=True")
        rig.start("agent")
        rig.answer(rig.take(), action=1000)
        assert "action range" in reaped(launcher).log
    wait_until(lambda: not any(map(runs, started(folder))))
