"""Continuous actions: their bounds, and the tasks of DeepMind's Control Suite."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from dm_control import suite
from gymnasium.spaces import Box

from agents import control
from agents.actions import Actions
from agents.config import EnvironmentConfig
from agents.environments import Environments, spaces
from agents.extras import missing
from agents.games import UnknownGame, resolve
from agents.pictures import Pictures
from agents.spaces import UnfitSpaces, own_actions
from tests.commands import LIGHT, ROOT, refused

TASK = "dm_control/cartpole-swingup"


def test_actions_are_mapped_to_the_environments_bounds() -> None:
    space = Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0]), dtype=np.float32)
    given = np.array([[-1, -1], [0, 0], [1, 1], [0.5, -0.5]], np.float32)
    expected = [[-2, 0], [0, 5], [2, 10], [1, 2.5]]
    np.testing.assert_allclose(own_actions(space, given), expected)
    assert all(space.contains(action) for action in own_actions(space, given))
    square = Box(-1, 3, (2, 2), np.float64)
    found = own_actions(square, np.zeros((5, 4), np.float32))
    assert (found.shape, found.dtype) == ((5, 2, 2), np.float64)
    np.testing.assert_array_equal(found, 1.0)


@pytest.mark.parametrize("value", [1.0001, -2.0, np.nan, np.inf])
def test_an_action_outside_the_bounds_is_refused_before_the_environment(value: float) -> None:
    environments = Environments(EnvironmentConfig("Pendulum-v1"), 2)
    environments.reset(0)
    with pytest.raises(ValueError, match=r"outside 1 numbers in \[-1, 1\]"):
        environments.step(np.array([[0.0], [value]], np.float32))
    environments.close()


def test_continuous_steps_match_gymnasiums() -> None:
    reference = gymnasium.make("Pendulum-v1")
    environments = Environments(EnvironmentConfig("Pendulum-v1"), 1)
    assert environments.spaces.actions == Actions(0, 1)
    frame, _ = reference.reset(seed=seed_of(0))
    np.testing.assert_array_equal(environments.reset(0).frames[0], frame)
    random = np.random.default_rng(0)
    for _ in range(150):
        action = environments.spaces.actions.random(random, 1)
        frame, reward, *_ = reference.step(2.0 * action[0])
        step = environments.step(action)
        np.testing.assert_array_equal(step.frames[0], frame)
        assert step.outcomes["reward"][0] == np.float32(reward)
    reference.close()
    environments.close()


def seed_of(seed: int) -> int:
    return int(np.random.SeedSequence(seed).generate_state(1)[0] & 0x7FFFFFFF)


def test_actions_without_finite_bounds_are_refused() -> None:
    with pytest.raises(UnfitSpaces, match="have no finite bounds"):
        spaces(EnvironmentConfig("tests.tiny:Unbounded-v0"))


@pytest.mark.parametrize(
    "name", [TASK, "dm_control/cartpole_swingup", "dm_control/Cartpole-Swingup-v0"]
)
def test_a_task_is_found_by_other_spellings_of_its_name(name: str) -> None:
    assert resolve(name).name == TASK


def test_an_unknown_task_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownGame, match="did you mean dm_control/walker-walk"):
        resolve("dm_control/walker-wolk")


def test_all_tasks_are_named_and_have_several_actions() -> None:
    names = control.tasks()
    assert len(names) == len(suite.ALL_TASKS)
    assert {"dm_control/humanoid-stand", "dm_control/ball_in_cup-catch"} <= set(names)
    assert spaces(EnvironmentConfig("dm_control/humanoid-stand")).actions == Actions(0, 21)


def test_a_task_matches_the_suites_step_by_step_and_is_cut_at_its_time_limit() -> None:
    reference = suite.load("cartpole", "swingup")
    reference.task.random.seed(seed_of(3))
    environments = Environments(EnvironmentConfig(TASK), 1)
    random = np.random.default_rng(0)
    answer, step = reference.reset(), environments.reset(3)
    for length in range(1, 1001):
        action = environments.spaces.actions.random(random, 1)
        answer, step = reference.step(action[0]), environments.step(action)
        seen = np.concatenate([np.ravel(each) for each in answer.observation.values()])
        np.testing.assert_array_equal(step.frames[0], seen.astype(np.float32))
        assert step.outcomes["reward"][0] == np.float32(answer.reward)
        assert answer.last() == (length == 1000) == bool(step.outcomes["finished"][0])
    assert (step.outcomes["truncated"][0], step.outcomes["terminated"][0]) == (1, 0)
    assert step.outcomes["episode_length"][0] == 1000
    environments.close()


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_reachers_shoulder_angle_is_wrapped_to_one_turn_by_default(wrapped: bool) -> None:
    args = () if wrapped else ("wrap_angles=False",)
    environments = Environments(EnvironmentConfig("dm_control/reacher-easy", args), 1)
    reference = suite.load("reacher", "easy")
    reference.task.random.seed(seed_of(3))
    action = np.array([[1.0, 0.0]], np.float32)  # keeps turning the shoulder the same way
    answer, step = reference.reset(), environments.reset(3)
    farthest = 0.0
    for _ in range(300):
        shoulder, *others = np.concatenate([np.ravel(each) for each in answer.observation.values()])
        seen, *seen_others = step.frames[0]
        np.testing.assert_allclose(seen_others, others, rtol=1e-6)
        turns = (shoulder - seen) / (2 * np.pi)
        assert turns == pytest.approx(round(turns) if wrapped else 0, abs=1e-6)
        assert abs(seen) < 3.15 or not wrapped
        farthest = max(farthest, abs(shoulder))
        answer, step = reference.step(action[0]), environments.step(action)
    assert farthest > 2 * np.pi  # the suite's own angle exceeds one turn
    environments.close()


def test_equal_seeds_give_equal_episodes_and_others_differ() -> None:
    environments = Environments(EnvironmentConfig(TASK), 2)
    frames = [environments.reset(seed).frames for seed in (1, 1, 2)]
    np.testing.assert_array_equal(frames[0], frames[1])
    assert (frames[0] != frames[2]).any()
    assert (frames[0][0] != frames[0][1]).any()
    environments.close()


def test_a_suite_that_finds_no_opengl_is_reported_with_the_reason() -> None:
    """As on cluster nodes whose profile sets MUJOCO_GL; dm_control raises other errors there."""
    program = "from agents.control import tasks; tasks()"
    environment = {**os.environ, "MUJOCO_GL": "nonsense"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "agents.control.MissingPackage: dm_control cannot be imported: " in done.stderr
    assert "(MUJOCO_GL is nonsense)" in done.stderr


def test_a_missing_package_is_reported_with_the_command_that_installs_it(tmp_path: Path) -> None:
    """A sitecustomize module patches importlib.util.find_spec, so dm_control seems missing."""
    hide = "import importlib.util\nfind = importlib.util.find_spec\n"
    hide += (
        "importlib.util.find_spec = lambda n, p=None: None if n == 'dm_control' else find(n, p)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(hide)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "ga3c", "train", "--game", TASK],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert missing("dm_control", "control") in line


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--algorithm", "dqn", "--game", "Pendulum-v1"], "chooses the best of a finite number"),
        (["--algorithm", "dpg"], "needs continuous actions"),
        (["--preset", "apex-dpg", "--game", "CartPole-v1"], "needs continuous actions"),
    ],
)
def test_an_algorithm_that_does_not_take_the_actions_is_refused(
    given: list[str], words: str, tmp_path: Path
) -> None:
    short = ["--seconds", "1", "--runs-dir", str(tmp_path)]  # in case a run starts after all
    assert words in refused("train", *given, *LIGHT, *short)


@pytest.mark.parametrize("game", ["Pendulum-v1", "CarRacing-v3"])
def test_a_game_with_continuous_actions_is_rendered(game: str) -> None:
    pictures = Pictures(EnvironmentConfig(game))
    pictures.reset(0)
    actions = np.full((1, len(pictures.actions)), 0.5, np.float32)
    assert pictures.step(actions).ndim == 3
    pictures.close()
