"""How an agent begins: what it sends first, and how its games are seeded."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agents import worker
from agents.environments import EnvironmentConfig, Environments
from agents.headers import Header
from agents.messages import Hello, Step
from agents.worker import Task

TASK = Task("me", "ipc://nowhere", "token", 2, 3, 7, EnvironmentConfig("CartPole-v1"))


class Recorder:
    """Stands in for a link, and records what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def greet(self, hello: Hello) -> None:
        self.sent.append(hello)

    def send(self, header: Header, step: Step) -> None:
        self.sent.append(header.group)


def begun(task: Task) -> np.ndarray:
    """The first frames of an agent with new environments."""
    frames = []

    class Frames(Recorder):
        def send(self, header: Header, step: Step) -> None:
            frames.append(step.frames)

    worker.begin(Frames(), task, [])  # type: ignore[arg-type]
    return np.stack(frames)


def test_the_first_group_begins_to_play_before_the_second_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Recorder()

    def made(*given: Any, **named: Any) -> Environments:
        link.sent.append("made")
        return Environments(*given, **named)

    monkeypatch.setattr(worker, "Environments", made)
    worker.begin(link, TASK, [])  # type: ignore[arg-type]
    first, hello, *others = link.sent
    assert first == "made"
    assert isinstance(hello, Hello)
    assert others == [0, "made", 1]


def test_environments_of_an_earlier_task_are_not_made_again() -> None:
    groups: list[Environments] = []
    worker.begin(Recorder(), TASK, groups)  # type: ignore[arg-type]
    kept, link = list(groups), Recorder()
    worker.begin(link, TASK, groups)  # type: ignore[arg-type]
    assert groups == kept
    assert link.sent[1:] == [0, 1]


def test_equal_seeds_start_equal_games_and_no_seed_starts_others() -> None:
    assert (begun(TASK) == begun(TASK)).all()
    unseeded = replace(TASK, seed=None)
    assert (begun(unseeded) != begun(unseeded)).any()


def test_atari_games_that_are_not_seeded_differ() -> None:
    environments = [Environments(EnvironmentConfig("Pong", sticky_actions=0.5), 3) for _ in "ab"]
    actions = np.random.default_rng(0).integers(6, size=(80, 3), dtype=np.int32)
    for each in environments:
        each.reset(None)
    frames = [np.stack([each.step(one).frames for one in actions]) for each in environments]
    assert (frames[0] != frames[1]).any()
    assert (frames[0][:, 0] != frames[0][:, 1]).any()


def test_atari_games_that_are_not_seeded_begin_twice_as_fast() -> None:
    """They do not reload the ROM. CPU time is compared, which other processes do not affect."""
    environments = Environments(EnvironmentConfig("Pong"), 8)

    def seconds(seed: int | None) -> float:
        began_s = time.process_time()
        environments.reset(seed)
        return time.process_time() - began_s

    assert seconds(None) < 0.5 * seconds(3)
