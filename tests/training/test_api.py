"""GA3C from Python: the command's settings, runs that leave nothing behind, policies that act."""

import contextlib
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import WrapperSpec

import ga3c
from agents.registrations import NotFound, handed_over
from ga3c import backend
from ga3c.api import _wanted
from ga3c.command.parse import TrainArguments, parse
from ga3c.settings.service import ServiceConfig
from tests.commands import BEGIN_S, ROOT, STOP_S, Command, assert_nothing_is_left, children
from tests.leaks import descriptors
from tests.tiny import Corridor

GAME = "tests.tiny:Corridor-v0"
SMALL: dict[str, Any] = {
    "game": GAME,
    "algorithm": "a3c",
    "agents": 1,
    "max_agents": 1,
    "envs_per_agent": 4,
    "scheduler": "off",
    "training_batch_min": 20,
}


@pytest.mark.parametrize("mine", ["agents.py", "agents/__init__.py"])
def test_a_package_that_hides_the_agents_is_named(tmp_path: Path, mine: str) -> None:
    (tmp_path / mine).parent.mkdir(exist_ok=True)
    (tmp_path / mine).touch()
    done = subprocess.run(
        [sys.executable, "-c", "import ga3c"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (
        f"package agents is {tmp_path / mine}, which hides {ROOT}" in done.stderr.splitlines()[-1]
    )


def test_importing_ga3c_loads_no_framework() -> None:
    program = "import sys, ga3c; ga3c.TrainConfig, ga3c.train; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "ga3c.settings.train" in loaded
    assert not {"keras", "tensorflow", "jax"} & loaded


def test_an_unknown_name_in_ga3c_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'ga3c' has no attribute 'trian'"):
        _ = ga3c.trian  # type: ignore[attr-defined]
    assert {"train", "load", "TrainConfig"} <= set(dir(ga3c))


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({}, []),
        ({"game": "CartPole-v1"}, ["--game", "CartPole-v1"]),
        ({"game": GAME, "algorithm": "dqn"}, ["--game", GAME, "--algorithm", "dqn"]),
        ({"preset": "default", "game": GAME}, ["--preset", "default", "--game", GAME]),
        (
            {"game": GAME, "steps": 1e6},
            ["--game", GAME, "--steps", "1000000"],
        ),
        (
            {"preset": "paper", "steps": np.int64(7), "seconds": 3, "runs_dir": "here"},
            ["--preset", "paper", "--steps", "7", "--seconds", "3", "--runs-dir", "here"],
        ),
        (
            {"algorithm": "dqn", "double": False, "learning_rate_end": None},
            ["--algorithm", "dqn", "--no-double", "--learning-rate-end", "None"],
        ),
    ],
)
def test_settings_are_those_of_the_command(settings: dict[str, Any], arguments: list[str]) -> None:
    wanted, known = _wanted(None, settings)
    assert wanted == parse(arguments, TrainArguments, "test").settings
    assert known is None


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown setting": ({"agnets": 2}, "'agnets': did you mean agents"),
    "wrong type": ({"agents": "two"}, "agents 'two': must be a whole number"),
    "a number with a point": ({"steps": 1.5}, r"steps 1\.5: must be a whole number"),
    "setting of another algorithm": ({"clip_ratio": 0.1}, "clip_ratio has no effect on .* a3c"),
    "what only the command prints": ({"json": True}, "json has no effect on ga3c.train"),
    "unknown choice": ({"algorithm": "sac"}, "must be a3c or ppo or dqn or dpg, or"),
    "unknown preset": ({"preset": "fastest"}, "preset 'fastest': must be one of"),
    "settings that do not fit": ({"agents": 3, "max_agents": 2}, "agents 3"),
    "preset of another algorithm": ({"preset": "paper", "algorithm": "dqn"}, "algorithm dqn"),
    "misspelt game": ({"game": "Pogn"}, "unknown game 'Pogn'.*Pong"),
    "no run": ({"resume": "nowhere"}, "run nowhere"),
    "network": ({"network": "tests.own_nets:of_rank_3"}, "must be .n, k."),
    "too little replay": (
        {"algorithm": "dqn", "replay_steps": 2000, "replay_min_steps": 3000},
        "3000 > ",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_settings_fail_in_one_line_and_start_nothing(fault: str, tmp_path: Path) -> None:
    settings, words = WRONG[fault]
    with pytest.raises(ValueError, match=words) as error:
        ga3c.train(**{"runs_dir": tmp_path / "runs", "steps": 50, **SMALL, **settings})
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()
    assert children() == set()


def test_arguments_of_an_environment_may_be_a_dict() -> None:
    given = {"map_name": "8x8", "is_slippery": False, "desc": None}
    wanted, _ = _wanted(None, {"game": "FrozenLake-v1", "env_args": given})
    assert wanted.environment.keywords == given


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.bool_(False), False),
        (np.int64(3), 3),
        (np.float64(9.8), 9.8),
        (float("-inf"), float("-inf")),
        (Path("/maps/one"), "/maps/one"),
        ([1, "info", (2.5, None)], [1, "info", (2.5, None)]),
        ("nan", "nan"),
    ],
)
def test_arguments_of_an_environment_reach_it_as_they_were(given: Any, kept: Any) -> None:
    wanted, _ = _wanted(None, {"game": "Pong", "env_args": {"it": given}})
    found = wanted.environment.keywords["it"]
    assert found == kept and type(found) is type(kept)


@pytest.mark.parametrize("given", [len, float("nan"), np.zeros(3), object()])
def test_arguments_of_an_environment_that_no_file_can_hold_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"env_args it=.*must be a number, text"):
        _wanted(None, {"game": "Pong", "env_args": {"it": given}})


def test_a_config_that_is_not_a_trainconfig_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a TrainConfig; pass single settings as game='P"):
        ga3c.train("Pong")  # type: ignore[arg-type]


def test_an_on_figures_that_cannot_be_called_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match="on_figures 3: must be a function"):
        ga3c.train(**SMALL, on_figures=3, runs_dir=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"learning": {"discount": 0.9}}, r"learning \{'discount': 0.9\}: must be settings, as"),
        (
            {"run": replace(ga3c.TrainConfig().run, plain="yes")},
            "plain 'yes': must be true or false",
        ),
        ({"environment": replace(ga3c.TrainConfig().environment, game=3)}, "game 3: must be text"),
    ],
)
def test_a_config_of_wrong_types_is_refused(part: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ga3c.train(replace(ga3c.TrainConfig(), **part))
    config = ga3c.TrainConfig()
    assert _wanted(config, {}) == (config, None), "all others are taken as they are"


def test_another_framework_than_the_one_keras_has_loaded_is_refused() -> None:
    other = "jax" if backend.FRAMEWORK == "tensorflow" else "tensorflow"
    with pytest.raises(ValueError, match=f"backend {other}: Keras has been loaded with"):
        ga3c.train(**SMALL, backend=other, steps=50)


def test_runs_leave_nothing_but_their_directories(tmp_path: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    ga3c.train(**SMALL, steps=100, runs_dir=tmp_path, name="first")  # loads what stays loaded
    threads, open_before = set(threading.enumerate()), descriptors()
    run = ga3c.train(**SMALL, steps=400, runs_dir=tmp_path, name="second")
    assert set(threading.enumerate()) <= threads
    assert children() == set()
    assert not {each for each in descriptors() - open_before if str(tmp_path) in each[1]}
    assert len(descriptors() - open_before) <= len(open_before - descriptors())
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "latest", "second"]
    assert run.path == tmp_path / "second"
    assert run.result == json.loads((run.path / "result.json").read_text())
    assert run.result["ended"] == "400 steps done"
    assert run.result["steps"] >= 400


def test_a_run_of_a_config_goes_on_with_more_steps(tmp_path: Path) -> None:
    service = ServiceConfig(agents=1, max_agents=1, envs_per_agent=4, training_batch_min=20)
    config = ga3c.TrainConfig(service=service)
    given = {"scheduler": "off", "runs_dir": tmp_path, "name": "mine"}
    run = ga3c.train(config, game=GAME, steps=100, **given)
    kept = json.loads((run.path / "config.json").read_text())
    assert kept["network"]["separate_value"] is False, "as in the config, not as in a preset"
    assert kept["service"]["envs_per_agent"] == 4
    again = ga3c.train(resume=run.path, steps=run.result["steps"] + 200)
    assert again.path == run.path
    made = again.result["steps"]
    assert made >= run.result["steps"] + 200
    with pytest.raises(ValueError, match="steps done already"):
        ga3c.train(resume=run.path, steps=made)
    last = ga3c.train(resume=run.path, steps=made + 100)
    assert last.result["steps"] >= made + 100, "nobody holds the directory's lock"


def test_training_leaves_the_callers_random_state_alone(tmp_path: Path) -> None:
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    ga3c.train(**SMALL, steps=50, runs_dir=tmp_path)
    assert (random.random(), np.random.random()) == expected


def test_training_works_in_another_thread(tmp_path: Path) -> None:
    runs: list[ga3c.Run] = []
    given = {**SMALL, "steps": 100, "runs_dir": tmp_path}
    thread = threading.Thread(target=lambda: runs.append(ga3c.train(**given)))
    thread.start()
    thread.join(BEGIN_S)
    assert runs[0].result["ended"] == "100 steps done"


def test_a_run_that_fails_raises_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ga3c.RunFailed, match="the corridor has fallen in"):
        ga3c.train(**{**SMALL, "game": "tests.tiny:Fallen-v0"}, runs_dir=tmp_path, name="mine")
    assert children() == set()
    assert json.loads((tmp_path / "mine" / "result.json").read_text())["ended"] == "failed"


ENDLESS = """
import signal, ga3c
try:
    ga3c.train(**{settings!r}, runs_dir={runs!r}, name="mine", progress_every_s=0.5)
except KeyboardInterrupt:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print("interrupted, and goes on")
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, -15)])
def test_a_signal_ends_the_run_and_is_then_raised_in_the_program(
    command: Callable[..., Command], tmp_path: Path, number: int, code: int
) -> None:
    runs = tmp_path / "runs"
    run = command(program=ENDLESS.format(settings=SMALL, runs=str(runs)))
    run.until_steps_are_made()
    run.process.send_signal(number)
    assert run.wait(STOP_S) == code, run.err
    assert_nothing_is_left(run)
    assert json.loads((runs / "mine" / "result.json").read_text())["ended"] == "interrupted"
    assert ("interrupted, and goes on" in run.out) == (number == signal.SIGINT)


STUCK = """
import threading, ga3c, ga3c.training.run
from ga3c.learning.model import Model

stuck = threading.Event()

def learn_and_break(self, *given, **more):
    if self.updates:  # a stop waits longer for the first update, which is compiled
        stuck.set()
        threading.Event().wait()
    return learn(self, *given, **more)

learn, Model.learn = Model.learn, learn_and_break
ga3c.training.run.finished = lambda *_: "it is stuck" if stuck.is_set() else None
try:
    ga3c.train(**{settings!r}, runs_dir={runs!r})
except ga3c.RunFailed as error:
    print("the program goes on:", error)
"""


@pytest.mark.slow
def test_a_thread_that_never_returns_does_not_end_the_program(
    command: Callable[..., Command], tmp_path: Path
) -> None:
    program = STUCK.format(settings=SMALL, runs=str(tmp_path / "runs"))
    run = command(program=program)
    assert run.wait(BEGIN_S) == 0, run.err
    assert "the program goes on:" in run.out
    assert "did not end in time: trainers" in run.out


# Policies


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> ga3c.Run:
    """A run that has learned the corridor."""
    runs = tmp_path_factory.mktemp("runs")
    # `steps` is six times what learning takes; over so few steps, the schedules hardly advance.
    limits = {"score": 0.9, "steps": 25_000, "schedule_steps": 10_000_000, "seconds": 180}
    given = {**SMALL, **limits, "seed": 1, "envs_per_agent": 16}
    return ga3c.train(**given, runs_dir=runs, name="corridor")


def test_a_policy_plays_what_it_has_learned(trained: ga3c.Run) -> None:
    policy = trained.load()
    assert policy.steps == trained.result["steps"]
    assert policy.path == trained.path
    assert policy.config.environment.game == GAME
    rewards = []
    with policy.make_environments(4, seed=3) as environments:
        assert (environments.num_envs, environments.num_actions) == (4, 2)
        observations = environments.reset()
        assert observations.shape == (4, 7)
        for _ in range(30):
            actions = policy.act(observations, greedy=True)
            step = environments.step(actions)
            assert not (step.terminated & step.truncated).any()
            rewards += step.rewards[step.terminated].tolist()
            observations = step.observations
    assert rewards
    assert set(rewards) == {1.0}, "the right end each time"


def test_a_policy_plays_in_an_environment_that_its_user_steps(trained: ga3c.Run) -> None:
    environment = gymnasium.make(GAME)
    player, scores = trained.load().player(environment), []
    for game in range(100):
        observation, _ = environment.reset(seed=game)
        player.reset()
        ended = cut = False
        while not (ended or cut):
            action = player.act(observation)
            observation, reward, ended, cut, _ = environment.step(action)
        scores.append(float(reward))
    # Training ends at a mean score of 0.9, which is one loss in twenty games. At that rate, 20
    # losses in 100 games, a mean of 0.6, have a probability of 1e-7. Random play has a mean of 0
    # with a standard deviation of 0.1.
    assert np.mean(scores) > 0.6, scores
    with pytest.raises(ValueError, match=r"observation of shape \(3,\) .*must be \(7,\) float32"):
        player.act(observation[:3])
    with pytest.raises(ValueError, match=r"actions 0\.\.3: must be 0\.\.1, as in training"):
        trained.load().player(gymnasium.make("FrozenLake-v1"))


def test_a_player_stacks_pictures_as_training_does(tmp_path: Path) -> None:
    catch = ga3c.train(**{**SMALL, "game": "tests.tiny:Catch-v0"}, steps=200, runs_dir=tmp_path)
    policy, environment = catch.load(), gymnasium.make("tests.tiny:Catch-v0")
    player, (picture, _) = policy.player(environment), environment.reset(seed=1)
    stack = np.stack([picture] * 4, axis=-1)[None]
    for _ in range(3):
        assert player.act(picture, greedy=True) == policy.act(stack, greedy=True)[0]
        picture, *_ = environment.step(0)
        stack = np.concatenate([stack[..., 1:], picture[None, ..., None]], axis=-1)
    for wrong in (picture.T[None], picture.astype(np.float32)):
        with pytest.raises(ValueError, match=r"must be .* uint8, as in training"):
            player.act(wrong)


def test_actions_values_and_probabilities_have_shapes_and_types(trained: ga3c.Run) -> None:
    policy = trained.load()
    observations = np.eye(7)[1:6]  # float64, as users often have them
    probabilities, values = policy.probabilities(observations), policy.value(observations)
    assert (probabilities.shape, probabilities.dtype) == ((5, 2), np.float32)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert (values.shape, values.dtype) == ((5,), np.float32)
    actions = policy.act(observations)
    assert (actions.shape, actions.dtype) == ((5,), np.int32)
    greedy = policy.act(observations, greedy=True)
    np.testing.assert_array_equal(greedy, probabilities.argmax(axis=1))


def test_a_seed_repeats_the_draws_of_a_policy(trained: ga3c.Run) -> None:
    policy = trained.load()
    observations = np.zeros((200, 7), np.float32)  # never seen in training, so the policy is unsure
    first, again, other = (policy.act(observations, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (policy.act(observations) != policy.act(observations)).any()


def test_equal_seeds_make_equal_environments_and_a_reset_others(tmp_path: Path) -> None:
    run = ga3c.train(**{**SMALL, "game": "tests.tiny:Catch-v0"}, steps=50, runs_dir=tmp_path)
    policy = run.load()
    seen = []
    for seed in (1, 1, 2):
        with policy.make_environments(3, seed) as environments:
            seen.append(environments.reset())
            other = environments.reset()
    assert seen[0].shape == (3, 20, 20, 4), "pictures are stacked"
    np.testing.assert_array_equal(seen[0], seen[1])
    assert (seen[0] != seen[2]).any()
    assert (other != seen[2]).any()
    with pytest.raises(ValueError, match="type float64: must be uint8"):
        policy.act(seen[0] / 255)


@pytest.mark.parametrize(
    ("observations", "words"),
    [
        (np.zeros((2, 3), np.float32), r"shape \(2, 3\): must be \(n, 7\)"),
        (np.zeros(7, np.float32), r"shape \(7,\)"),
        (np.zeros((0, 7), np.float32), "at least 1"),
        (np.zeros((1, 7), np.complex64), "type complex64: must be float32"),
        (np.full((1, 7), np.nan, np.float32), "not finite"),
    ],
)
def test_observations_unlike_those_of_training_are_refused(
    trained: ga3c.Run, observations: np.ndarray, words: str
) -> None:
    policy = trained.load()
    for use in (policy.act, policy.value, policy.probabilities):
        with pytest.raises(ValueError, match=words):
            use(observations)


@pytest.mark.parametrize("actions", [[0], [0.0, 1.0], [0, 2], [0, -1]])
def test_actions_that_cannot_be_taken_are_refused(trained: ga3c.Run, actions: list) -> None:
    with trained.load().make_environments(2) as environments:
        environments.reset()
        with pytest.raises(ValueError, match="actions"):
            environments.step(actions)


def test_a_checkpoint_is_chosen_by_its_steps(trained: ga3c.Run) -> None:
    first = ga3c.load(str(trained.path), 0)
    assert first.steps == 0
    assert ga3c.load(trained).steps > 0
    with pytest.raises(ValueError, match="checkpoint 3: the run has newest"):
        trained.load(3)
    with pytest.raises(ValueError, match="run nowhere"):
        ga3c.load("nowhere")


def test_a_run_is_evaluated_by_a_named_protocol(
    trained: ga3c.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    random.seed(5)
    expected = random.random()
    random.seed(5)
    scores = trained.evaluate(episodes=3, seed=1, protocol="machado")
    assert random.random() == expected, "the program's own random numbers go on"
    assert len(scores["scores"]) == scores["episodes"] == 3
    assert scores["mean"] == pytest.approx(sum(scores["scores"]) / 3)
    assert scores["protocol"]["name"] == "machado" and scores["seed"] == 1
    lines = (trained.path / "evaluations.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["scores"] == scores["scores"], "it is kept"
    assert "over 3 games" in capsys.readouterr().out
    assert ga3c.evaluate(trained.path, episodes=1.0)["protocol"]["name"] == "trained"
    for options, words in (
        ({"protocol": "papers"}, "protocol 'papers': must be one of trained, paper"),
        ({"episodes": 0}, "episodes 0"),
        ({"checkpoint": 7}, "checkpoint 7: the run has newest"),
        ({"episodes": "3"}, "episodes '3': must be a whole number"),
        ({"at_once": 2.5}, "at_once 2.5: must be a whole number"),
        ({"seed": None}, "seed None: must be a whole number"),
        ({"runs_dir": None}, "runs_dir None: must be a path"),
        ({"pretrained": 3}, "pretrained 3: must be"),
    ):
        with pytest.raises(ValueError, match=words):
            trained.evaluate(**options)


def test_on_figures_is_called_with_the_figures_and_can_end_the_run(tmp_path: Path) -> None:
    seen = []

    def watch(figures: Mapping[str, Any]) -> bool:
        seen.append(figures["steps"])
        return len(seen) >= 3 and seen[-1] > 0

    given = {"runs_dir": tmp_path, "progress_every_s": 0.05, **SMALL}
    run = ga3c.train(on_figures=watch, **given)
    assert len(seen) >= 3 and seen == sorted(seen) and 0 < seen[-1] <= run.result["steps"]
    assert not [steps for steps in seen[2:-1] if steps], "it went on after it was told to end"
    assert run.result["ended"] == "ended by on_figures"
    assert list((run.path / "checkpoints").glob(f"*{run.result['steps']}"))

    def fail(figures: Mapping[str, Any]) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ga3c.train(on_figures=fail, name="failed", **given)
    failed = json.loads((tmp_path / "failed" / "result.json").read_text())
    assert (failed["ended"], failed["error"]) == ("failed", "KeyError('mine')")
    assert children() == set()


def test_a_run_goes_on_when_its_output_pipe_is_broken(tmp_path: Path) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    broken = Broken()
    with contextlib.redirect_stdout(broken):
        run = ga3c.train(steps=500, runs_dir=tmp_path, progress_every_s=0.05, **SMALL)
        assert sys.stdout is broken
    assert run.result["ended"] and run.result["steps"] >= 500


def test_a_run_is_resumed_by_its_object_or_its_number(tmp_path: Path) -> None:
    first = ga3c.train(steps=200, runs_dir=tmp_path, **SMALL)
    for named in (first, 1):
        wanted, known = _wanted(None, {"resume": named, "runs_dir": tmp_path, "steps": 300})
        assert known is not None and known.path == first.path
        assert wanted.run.steps == 300
        assert wanted.run.trust == (named is first), "this program has begun it"
    config = replace(wanted, run=replace(wanted.run, name="again", resume=None))
    again = ga3c.train(config=config)
    assert again.path.name == "again" and again.result["steps"] >= 300


def test_a_pretrained_policy_is_loaded_by_its_game() -> None:
    policy = ga3c.load(pretrained="Pong")
    assert policy.config.environment.game.lower() == "pong"
    with pytest.raises(ValueError, match="pretrained Pnog: did you mean pong"):
        ga3c.load(pretrained="Pnog")
    with pytest.raises(ValueError, match="give one"):
        ga3c.load("mine", pretrained="Pong")


# Environments that the program has registered


SCRIPT = """
import argparse, multiprocessing, sys
import gymnasium, ga3c
from gymnasium.envs.registration import WrapperSpec
from tests.tiny import Corridor

parser = argparse.ArgumentParser()
parser.add_argument("--each", type=float, default=0.0)
each = parser.parse_args().each

class Mine(Corridor):
    def __init__(self, bonus):
        super().__init__()
        self.bonus = bonus

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        info = {{"winner": 1 if terminated else None}}
        return observation, reward + sum(self.bonus["some"] + (each,)), terminated, truncated, info

class Shaped(gymnasium.RewardWrapper):
    def __init__(self, env, more):
        super().__init__(env)
        self.more = more

    def reward(self, reward):
        return reward + sum(self.more + (0.0,))

gymnasium.register(
    "Mine-v0",
    {entry},
    max_episode_steps=20,
    kwargs={{"bonus": {{"some": (1.0, 1.0)}}}},
    additional_wrappers=(WrapperSpec("Shaped", "__main__:Shaped", {{"more": (100.0,)}}),),
)

def train():
    run = ga3c.train(game="Mine-v0", **{settings!r}, steps=500, runs_dir="runs")
    print("done", run.load().probabilities([[0.0] * 7]).shape, int(run.result["score_mean_100"]))

{guard}
    {how}
"""
GUARD = 'if __name__ == "__main__":'
IN_POOL = """pool = multiprocessing.get_context("spawn").Pool(1)
    pool.apply(train)
    pool.close()
    pool.join()"""
SETTINGS = {name: value for name, value in SMALL.items() if name != "game"}


def run_script(directory: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "mine.py").write_text(text)
    return subprocess.run(
        [sys.executable, *(arguments or ["mine.py"])],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BEGIN_S,
    )


def script(entry: str = "Mine", guard: str = GUARD, how: str = "train()") -> str:
    return SCRIPT.format(entry=entry, guard=guard, how=how, settings=SETTINGS)


@pytest.mark.parametrize("how", ["train()", IN_POOL])
@pytest.mark.parametrize("entry", ["Mine", '"__main__:Mine"', "lambda bonus: Mine(bonus)"])
def test_agents_know_what_a_script_registers(tmp_path: Path, entry: str, how: str) -> None:
    """Agents also get its tuples, wrappers and command-line arguments. A lambda is refused."""
    done = run_script(tmp_path, script(entry, how=how), "mine.py", "--each", "1000")
    if entry.startswith("lambda"):
        assert done.returncode == 1
        assert "environment Mine-v0: agents" in done.stderr
        assert "put it into a module" in done.stderr
        assert not (tmp_path / "runs").exists()
    else:
        assert done.returncode == 0, done.stderr
        assert (found := re.search(r"done \(1, 2\) (\d+)", done.stdout)), done.stdout
        assert int(found[1]) >= 3 * 1102 - 1, "three steps of a game or more"


def test_agents_know_what_a_module_that_is_run_registers(tmp_path: Path) -> None:
    done = run_script(tmp_path, script(), "-m", "mine")
    assert done.returncode == 0, done.stderr


def test_agents_know_what_a_folder_that_is_run_registers(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(script())
    done = run_script(tmp_path, "", "folder")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("how", [["mine.py"], ["-m", "mine"]])
def test_a_program_that_exits_when_agents_load_it_fails_with_the_reason(
    tmp_path: Path, how: list[str]
) -> None:
    done = run_script(tmp_path, script() + "\nsys.exit(3)\n", *how)
    assert done.returncode == 1
    assert "mine.py for its environment, and it exits (3)" in done.stderr


@pytest.mark.parametrize("how", [["mine.py"], ["-m", "mine"]])
def test_a_program_without_a_main_guard_fails_with_a_remedy(tmp_path: Path, how: list[str]) -> None:
    done = run_script(tmp_path, script(guard="if True:"), *how)
    assert done.returncode == 1
    assert 'put it under `if __name__ == "__main__":`' in done.stderr


def test_an_environment_defined_in_a_notebook_is_refused(tmp_path: Path) -> None:
    done = run_script(tmp_path, "", "-c", script())
    assert done.returncode == 1
    assert "defined in a notebook" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


class Furnished(Corridor):
    """A corridor that takes any keyword arguments."""

    def __init__(self, **furniture: Any) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("entry", "kwargs", "words"),
    [
        (lambda: Corridor(), {}, "put it into a module"),
        (Furnished, {"carpet": np.zeros(2)}, "not JSON serializable"),
        (Furnished, {"doors": {1: 2.0}}, "keys must be text"),
    ],
)
def test_an_environment_that_agents_cannot_recreate_is_refused(
    entry: Any, kwargs: dict[str, Any], words: str, tmp_path: Path
) -> None:
    gymnasium.register("Untold-v0", entry, kwargs=kwargs)
    try:
        with pytest.raises(ValueError, match=words):
            ga3c.train(**{**SMALL, "game": "Untold-v0"}, steps=50, runs_dir=tmp_path / "runs")
    finally:
        gymnasium.registry.pop("Untold-v0")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [
        (WrapperSpec("Lost", "__main__:Lost", {}), "put it into a module"),
        (WrapperSpec("Told", "tests.tiny:Told", {"of": {1: 0.5}}), "keys must be text"),
    ],
)
def test_wrappers_that_agents_cannot_recreate_are_refused(
    wrapper: WrapperSpec, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such wrappers are refused even if every process can make the environment without them."""
    entry = "gymnasium.envs.classic_control:CartPoleEnv"
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", None, raising=False)
    gymnasium.register("Wrapped-v0", entry, additional_wrappers=(wrapper,))
    try:
        with pytest.raises(NotFound, match=words):
            handed_over("Wrapped-v0")
    finally:
        gymnasium.registry.pop("Wrapped-v0")


def test_an_environment_registered_by_hand_reaches_the_agents(tmp_path: Path) -> None:
    gymnasium.register("ByHand-v0", Corridor, max_episode_steps=5)
    try:
        run = ga3c.train(**{**SMALL, "game": "ByHand-v0"}, steps=200, runs_dir=tmp_path)
    finally:
        gymnasium.registry.pop("ByHand-v0")
    rows = (run.path / "episodes.csv").read_text().splitlines()[1:]
    assert max(int(row.split(",")[3]) for row in rows) == 5, "its own limit of steps"
