"""Environments: names, spaces, and whether every flag is right, mostly on real games."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from ale_py import roms
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import AtariPreprocessing

from agents.actions import Actions
from agents.checks import InvalidStep
from agents.environments import (
    EnvironmentConfig,
    Environments,
    FailedEnvironment,
    UnfitSpaces,
    spaces,
)
from agents.extras import missing
from agents.games import Game, UnfitRom, UnknownGame, check, fault, resolve
from agents.messages import Step
from agents.vectors import successes


class Counter(gymnasium.Env):
    """Observes its step count as float64; actions are 3 and 4, and the reward is the action."""

    observation_space = Box(-1, 99, (2,), np.float64)
    action_space = Discrete(2, start=3)

    def __init__(self, **options: object) -> None:
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2), {}

    def step(self, action):
        self.steps += 1
        return np.full(2, self.steps, np.float64), float(action), self.steps == 5, False, {}


class Picture(Counter):
    """A small colour picture."""

    observation_space = Box(0, 255, (8, 6, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((8, 6, 3), np.uint8), {}

    def step(self, action):
        _, *rest = super().step(action)
        return np.full((8, 6, 3), self.steps, np.uint8), *rest


class Scalar(Counter):
    """Observations are a single number, with no dimensions."""

    observation_space = Box(0, 1, (), np.float32)


for _class in (Counter, Picture, Scalar):
    gymnasium.register(f"Test{_class.__name__}-v0", _class, max_episode_steps=7)
gymnasium.register("Tetris-v0", Counter)  # also the name of an Atari game


def play(
    config: EnvironmentConfig, steps: int, num_envs: int = 1, seed: int = 0, actions_seed: int = 0
) -> Iterator[Step]:
    """The steps of random play; the first one comes from the reset."""
    environments = Environments(config, num_envs)
    draw = np.random.default_rng(actions_seed)
    yield environments.reset(seed)
    for _ in range(steps):
        yield environments.step(environments.spaces.actions.random(draw, num_envs))
    environments.close()


def test_environments_that_are_closed_say_so_and_may_be_closed_again() -> None:
    environments = Environments(EnvironmentConfig("CartPole-v1"), 1)
    environments.reset(0)
    environments.close()
    environments.close()
    for use in (lambda: environments.reset(0), lambda: environments.step(np.zeros(1, np.int32))):
        with pytest.raises(ValueError, match="CartPole-v1: these environments are closed"):
            use()


def flags(steps: list[Step], name: str, env: int = 0) -> np.ndarray:
    """One outcome of one environment, over time."""
    return np.array([step.outcomes[name][env] for step in steps])


@pytest.mark.parametrize(
    "name", ["Pong", "pong", "PONG", "ALE/Pong-v5", "PongNoFrameskip-v4", "Pong-v4", "Pong-v0"]
)
def test_every_spelling_of_pong_resolves(name):
    assert resolve(name)[:2] == ("pong", True)


@pytest.mark.parametrize(
    "name", ["MsPacman", "ms_pacman", "ms-pacman", "ALE/MsPacman-v5", "MsPacmanNoFrameskip-v4"]
)
def test_every_spelling_of_ms_pacman_resolves(name):
    assert resolve(name)[:2] == ("ms_pacman", True)


@pytest.mark.parametrize("name", ["CartPole-v1", "Blackjack-v1", "Tetris-v0"])
def test_registered_gymnasium_ids_are_no_atari_games(name):
    assert resolve(name)[:2] == (name, False)


def test_module_prefix_is_imported_and_dropped(tmp_path, monkeypatch):
    text = "import gymnasium\ngymnasium.register('Prefixed-v0', 'gymnasium.envs:CartPoleEnv')\n"
    (tmp_path / "their_games.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve("their_games:Prefixed-v0").name == "Prefixed-v0"


@pytest.mark.parametrize(
    "name,near",
    [
        ("Pnog", "Pong"),
        ("ALE/Pnog-v5", "Pong"),
        ("PongDeterministic-v4", "Pong"),
        ("cartpole", "CartPole-v1"),
        ("CartPole-v9", "CartPole-v1"),
        ("tests.tiny:Corridr-v0", "tests.tiny:Corridor-v0"),
    ],
)
def test_unknown_name_suggests_the_nearest(name, near):
    with pytest.raises(
        UnknownGame, match=f"^unknown game '{name}': did you mean .*{near}"
    ) as error:
        check(name)
    assert "\n" not in str(error.value)


def test_a_module_given_with_its_py_suffix_is_refused_with_a_hint():
    with pytest.raises(UnknownGame, match=r"\(a module is named without \.py\)"):
        resolve("tests.tiny.py:Corridor-v0")


@pytest.mark.parametrize("name", ["", "ALE/", "a/b/c-v0", "zzzzzz", ":x", "combat"])
def test_a_name_that_resembles_no_game_is_refused_with_how_games_are_named(name):
    with pytest.raises(UnknownGame, match="Atari games by name"):
        resolve(name)


@pytest.mark.parametrize(
    "text,words",
    [
        ("import gymnasium\nnmpy.zeros(3)", r"NameError: name 'nmpy' .*their_fault.py, line 2\)"),
        ("def f(:\n", r"SyntaxError: .*their_fault.py, line 1\)"),
        ("import sys\nsys.exit('needs a display')", "SystemExit: needs a display"),
        ("import no_such_library", "No module named 'no_such_library'"),
    ],
)
def test_an_error_in_an_imported_module_is_reported(text, words, tmp_path, monkeypatch):
    (tmp_path / "their_fault.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    rule = f"unknown game 'their_fault:A-v0': module their_fault cannot be imported: {words}"
    with pytest.raises(UnknownGame, match=rule) as error:
        resolve("their_fault:A-v0")
    assert "\n" not in str(error.value)
    assert "their_fault" not in sys.modules


def test_a_module_that_is_not_found_is_reported_with_what_to_do():
    with pytest.raises(UnknownGame) as error:
        resolve("my_games:Maze-v0")
    assert str(error.value) == (
        "unknown game 'my_games:Maze-v0': module my_games cannot be imported: there is no "
        "my_games.py or folder my_games here: run ga3c where it is, or name that folder in "
        "PYTHONPATH"
    )
    with pytest.raises(UnknownGame) as error:
        resolve("tests.my_games:Maze-v0")
    assert str(error.value).endswith("cannot be imported: No module named 'tests.my_games'")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "Box2D is not installed, you can install it by run `pip install swig` followed by ...",
            missing("Box2D", "box2d"),
        ),
        ("MuJoCo is not installed, run ...", missing("MuJoCo", "control")),
        ("No module named 'mujoco_py'", "No module named 'mujoco_py'"),
    ],
)
def test_a_package_that_gymnasium_misses_is_reported_with_our_extra(words, line):
    assert fault(gymnasium.error.DependencyNotInstalled(words)) == line


class Strange(gymnasium.Env):
    """A correct environment, except for the error that `fault` names."""

    observation_space, action_space = Box(0, 1, (4,), np.float32), Discrete(2)

    def __init__(self, fault: str) -> None:
        self.fault = fault
        if fault == "seedless":
            self.reset = lambda: (self.observation, {})  # type: ignore[method-assign]
        if fault == "kind":
            self.observation_space = Box(0, 1, (4,), np.uint8)

    @property
    def observation(self):
        return np.zeros(5 if self.fault == "shape" else 4, np.float32)

    def reset(self, *, seed=None, options=None):
        if self.fault == "reset":
            raise KeyError("level 9")
        return self.observation if self.fault == "bare" else (self.observation, {})

    def step(self, action):
        if self.fault == "step":
            raise ValueError("no such wall")
        reward = {"reward": float("nan"), "text": "ten", "list": [1.0]}.get(self.fault, 0.0)
        ends = (False,) if self.fault == "four" else (False, False)
        return self.observation, reward, *ends, {}


for _limit in (None, 9):  # with a limit, Gymnasium's wrapper unpacks what `step` returns
    gymnasium.register(
        f"TestStrange{_limit or ''}-v0", Strange, max_episode_steps=_limit, disable_env_checker=True
    )


@pytest.mark.parametrize("name", ["TestStrange-v0", "TestStrange9-v0"])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("shape", r"observation of shape \(5,\): must be \(4,\), as its space declares"),
        ("kind", "observation of float32: must be uint8, as its space declares, or .*"),
        ("seedless", "reset does not take both seed and options: must be reset.self, .*"),
        ("bare", r"reset returned a ndarray: must be \(observation, info\)"),
        ("four", r"step returned 4 values: must be \(observation, reward, terminated, .*"),
        ("reward", "reward of environment 0 is nan: must be finite in float32, .*"),
        ("text", "step returned the reward 'ten': must be one number"),
        ("list", r"step returned the reward \[1.0\]: must be one number"),
        ("reset", r"KeyError: 'level 9' \(.*test_environments.py, line \d+\)"),
        ("step", r"ValueError: no such wall \(.*test_environments.py, line \d+\)"),
    ],
)
def test_a_faulty_environment_is_refused_in_one_line_before_a_run(name, fault, words):
    with pytest.raises(UnfitSpaces, match=f"^{name}: {words}$"):
        spaces(EnvironmentConfig(name, env_args=(f"fault={fault}",)))


def test_an_argument_that_the_constructor_does_not_take_is_refused_without_a_traceback():
    with pytest.raises(UnfitSpaces, match=r"^TestStrange-v0: TypeError: .*'size'$"):
        spaces(EnvironmentConfig("TestStrange-v0", env_args=("fault=none", "size=9")))


class Mended(gymnasium.Wrapper):
    """Adapts an environment with an older API to the current one."""

    def reset(self, *, seed=None, options=None):
        return self.env.reset()


gymnasium.register(
    "TestMended-v0",
    lambda: Mended(Strange("seedless")),
    disable_env_checker=True,
    order_enforce=False,
)


def test_a_wrapper_may_give_an_environment_the_right_form():
    assert spaces(EnvironmentConfig("TestMended-v0")).shape == (4,)


def test_an_environment_without_a_fault_is_accepted():
    assert spaces(EnvironmentConfig("TestStrange9-v0", env_args=("fault=no",))).shape == (4,)


def test_an_id_that_a_module_does_not_register_is_refused_with_the_nearest():
    line = "unknown game 'tests.tiny:Coridor-v0': did you mean tests.tiny:Corridor-v0.*registers"
    with pytest.raises(UnknownGame, match=line):
        resolve("tests.tiny:Coridor-v0")


@pytest.mark.parametrize(
    "name,probability",
    [
        *[("ALE/Pong-v5", 0.25), ("Pong-v0", 0.25), ("pongnoframeskip-V0", 0.25)],
        *[("Pong", 0.0), ("pong", 0.0), ("Pong-v4", 0.0), ("PongNoFrameskip-v4", 0.0)],
    ],
)
def test_sticky_actions_default_to_what_the_name_says(name, probability):
    assert resolve(name) == Game("pong", True, probability)
    if (known := gymnasium.registry.get(name)) is not None:
        assert known.kwargs["repeat_action_probability"] == probability, "as Gymnasium's"


def test_sticky_actions_of_the_name_reach_the_emulator():
    def last_frames(game: str, sticky: float | None) -> np.ndarray:
        config = EnvironmentConfig(game, sticky_actions=sticky)
        return [step.frames for step in play(config, 60)][-1]

    by_name, asked = last_frames("ALE/Pong-v5", None), last_frames("Pong", 0.25)
    np.testing.assert_array_equal(by_name, asked)
    assert (by_name != last_frames("ALE/Pong-v5", 0.0)).any()


def test_fire_is_pressed_at_the_start_only_where_it_is_asked_for():
    """In Breakout, there is no ball until FIRE is pressed."""
    begun = [
        next(play(EnvironmentConfig("Breakout", noop_max=0, fire_on_reset=fires), 0)).frames
        for fires in (True, False)
    ]
    assert (begun[0] != begun[1]).any()


def test_sticky_actions_are_drawn_independently_in_each_environment():
    """Without a seed, ALE takes the clock's current second, the same for all environments."""
    config = EnvironmentConfig("Breakout", sticky_actions=0.25)
    assert config.needs_seeds
    assert not EnvironmentConfig("Breakout", sticky_actions=0.0).needs_seeds
    environments = Environments(replace(config, noop_max=0), 6)
    environments.reset(0)
    for number in range(60):
        step = environments.step(np.full(6, 2 + number % 2, np.int32))
    assert len({frame.tobytes() for frame in step.frames}) == 6


@pytest.mark.parametrize("fault", ["missing", "damaged", "empty"])
def test_a_missing_or_damaged_rom_is_refused_in_one_line(fault, tmp_path, monkeypatch):
    rom = tmp_path / "pong.bin"
    if fault != "missing":
        shutil.copy(Path(roms.__file__).parent / "pong.bin", rom)
        rom.write_bytes(rom.read_bytes()[:-1] if fault == "damaged" else b"")
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    word = "missing" if fault == "missing" else "damaged"
    with pytest.raises(UnfitRom, match=f"'pong' at {rom} is {word}") as error:
        Environments(EnvironmentConfig("Pong"), 1)
    assert "\n" not in str(error.value)


def test_games_whose_packages_are_missing_are_not_suggested():
    with pytest.raises(UnknownGame) as error:
        spaces(EnvironmentConfig("phys2d/CartPol-v1"))
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(
    "game,shape,dtype,num_actions,stack,is_picture",
    [
        ("Pong", (84, 84), "uint8", 6, 4, True),
        ("CartPole-v1", (4,), "float32", 2, 1, False),
        ("TestCounter-v0", (2,), "float32", 2, 1, False),
        ("TestPicture-v0", (8, 6, 3), "uint8", 2, 1, True),
    ],
)
def test_spaces_follow_from_the_environment(game, shape, dtype, num_actions, stack, is_picture):
    found = spaces(EnvironmentConfig(game))
    assert (found.shape, found.dtype, found.actions.count) == (shape, dtype, num_actions)
    assert (found.stack, found.is_picture) == (stack, is_picture)


@pytest.mark.parametrize(
    ("game", "env_args", "size", "actions"),
    [
        ("FrozenLake-v1", (), 16, 4),
        ("FrozenLake-v1", ("map_name=8x8", "is_slippery=False"), 64, 4),
        ("CliffWalking-v1", (), 48, 4),
        ("Blackjack-v1", ("natural=True",), 45, 2),
        ("Taxi-v4", (), 500, 6),
    ],
)
def test_discrete_observations_become_one_hot_vectors(game, env_args, size, actions):
    config = EnvironmentConfig(game, env_args=env_args)
    found = spaces(config)
    assert (found.shape, found.dtype, found.actions.count) == ((size,), "float32", actions)
    assert not found.is_picture
    environments = Environments(config, 3)
    step = environments.reset(0)
    parts = 3 if game == "Blackjack-v1" else 1  # each is one-hot
    np.testing.assert_array_equal(step.frames.sum(axis=1), parts)
    for _ in range(5):
        step = environments.step(np.zeros(3, np.int32))
        assert set(np.unique(step.frames)) <= {0.0, 1.0}
    environments.close()


def test_arguments_reach_the_constructor():
    sure = Environments(EnvironmentConfig("FrozenLake-v1", env_args=("is_slippery=False",)), 8)
    sure.reset(0)
    right = np.full(8, 2, np.int32)
    places = {int(frame.argmax()) for frame in sure.step(right).frames}
    assert places == {1}, "no one slips"
    sure.close()


@pytest.mark.parametrize(
    ("pair", "keywords"),
    [
        ("size=8", {"size": 8}),
        ("share=0.5", {"share": 0.5}),
        ("wet=False", {"wet": False}),
        ("name=8x8", {"name": "8x8"}),
        ("map=['SF','FG']", {"map": ["SF", "FG"]}),
        ("text=a=b", {"text": "a=b"}),
        ("nothing=None", {"nothing": None}),
        ("odd={[]: 1}", {"odd": "{[]: 1}"}),
        ("deep=" + 5000 * "(", {"deep": 5000 * "("}),
    ],
)
def test_constructor_arguments_are_parsed_as_python_literals(pair, keywords):
    assert EnvironmentConfig(env_args=(pair,)).keywords == keywords


@pytest.mark.parametrize("word", ["false", "true", "TRUE"])
def test_booleans_in_another_spelling_than_pythons_are_refused(word):
    with pytest.raises(ValueError, match=f"is_slippery={word}: write {word.capitalize()}, or"):
        EnvironmentConfig(env_args=(f"is_slippery={word}",))
    text = EnvironmentConfig(env_args=(f'is_slippery="{word}"',))
    assert text.keywords == {"is_slippery": word}


@pytest.mark.parametrize("pair", ["size", "=3", "a b=3", "--size=3"])
def test_malformed_constructor_arguments_are_refused(pair):
    with pytest.raises(ValueError, match="must be key=value"):
        EnvironmentConfig(env_args=(pair,))


def test_an_argument_that_the_constructor_does_not_take_is_refused_in_one_line():
    with pytest.raises(UnfitSpaces, match=r"^FrozenLake-v1: .*colour"):
        spaces(EnvironmentConfig("FrozenLake-v1", env_args=("colour=red",)))
    with pytest.raises(ValueError, match="Pong takes no env_args"):
        spaces(EnvironmentConfig("Pong", env_args=("mode=1",)))


class Grid(gymnasium.Env):
    """A picture of 10 x 10 booleans in several channels, as in MinAtar's games."""

    observation_space = gymnasium.spaces.Box(0, 1, (10, 10, 4), np.bool_)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random((10, 10, 4)) < 0.1, {}

    def step(self, action):
        return self.np_random.random((10, 10, 4)) < 0.1, float(action), False, False, {}


gymnasium.register("TestGrid-v0", Grid, max_episode_steps=20)


def test_a_small_picture_of_several_channels_is_a_picture():
    found = spaces(EnvironmentConfig("TestGrid-v0"))
    assert (found.shape, found.dtype, found.stack) == ((10, 10, 4), "float32", 1)
    assert found.is_picture
    environments = Environments(EnvironmentConfig("TestGrid-v0"), 2)
    assert set(np.unique(environments.reset(0).frames)) == {0.0, 1.0}
    environments.close()


def test_spaces_follow_the_configuration():
    found = spaces(EnvironmentConfig("Pong", full_action_space=True, frame_size=42, stack=2))
    assert (found.shape, found.actions.count, found.stack) == ((42, 42), 18, 2)


@pytest.mark.parametrize(
    "game,reason",
    [
        ("tests.tiny:Unbounded-v0", "no finite bounds"),
        ("TestScalar-v0", "of 1 to 4 dimensions"),
    ],
)
def test_unfit_spaces_are_refused_in_one_line(game, reason):
    with pytest.raises(UnfitSpaces, match=f"^{game}: .*{reason}") as error:
        spaces(EnvironmentConfig(game))
    assert "\n" not in str(error.value)


class Unmade(Counter):
    """Its constructor raises an error."""

    def __init__(self) -> None:
        raise RuntimeError("no level\n9")


class Unsteady(Counter):
    """Fails at its third step."""

    def step(self, action):
        if self.steps == 2:
            raise IndexError("beyond the wall")
        return super().step(action)


gymnasium.register("TestUnmade-v0", Unmade)
gymnasium.register("TestUnsteady-v0", Unsteady)


@pytest.mark.parametrize(
    "game,reason",
    [
        ("phys2d/CartPole-v1", "No module named '(jax|flax)'"),
        ("GymV21Environment-v0", "shimmy"),
        ("Hopper-v3", "gymnasium-robotics"),
        ("TestUnmade-v0", r"RuntimeError: no level 9 \(.*test_environments.py, line \d+\)"),
    ],
)
def test_an_environment_that_cannot_be_made_is_refused_in_one_line(game, reason, recwarn):
    with pytest.raises(UnfitSpaces, match=f"^{game}: .*{reason}") as error:
        spaces(EnvironmentConfig(game))
    assert "\n" not in str(error.value)
    assert not recwarn.list, "what is said beside it"


def space_of(shape, high, dtype=np.uint8, low=0):
    class Given(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(low, high, shape, dtype)
        action_space = gymnasium.spaces.Discrete(2)

    gymnasium.register("TestGivenSpace-v0", Given)
    try:
        return spaces(EnvironmentConfig("TestGivenSpace-v0"), tried=False)
    finally:
        del gymnasium.registry["TestGivenSpace-v0"]


@pytest.mark.parametrize(
    "shape", [(4, 84, 84), (3, 64, 64), (1, 84, 84), (9, 84, 84), (12, 84, 84), (3, 10, 10)]
)
def test_pictures_with_channels_first_are_refused(shape):
    with pytest.raises(UnfitSpaces, match="seem to have their channels or stacked frames first"):
        space_of(shape, 255)
    assert space_of((*shape[1:], shape[0]), 255).is_picture


@pytest.mark.parametrize("dtype,high", [(np.uint8, 255), (np.float32, 1)])
def test_stacked_colour_pictures_are_refused(dtype, high):
    with pytest.raises(UnfitSpaces, match="seem to be several pictures: give only the newest one"):
        space_of((4, 84, 84, 3), high, dtype)
    assert not space_of((4, 3, 3, 2), 1, np.float32).is_picture
    for shape in ((5, 20, 20, 2), (10, 60, 60)):  # tables of numbers
        assert not space_of(shape, np.inf, np.float32, -np.inf).is_picture
    assert not space_of((8, 8, 8, 3), 255).is_picture


class Mission(gymnasium.Space):
    """A space of text, as in MiniGrid, which Gymnasium cannot turn into numbers."""


@pytest.mark.parametrize(
    "mission", [Mission(), gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3))]
)
def test_observations_that_cannot_be_numbers_are_refused_with_a_remedy(mission):
    class Wordy(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict(
            seen=gymnasium.spaces.Box(0, 1, (3,)), mission=mission
        )
        action_space = gymnasium.spaces.Discrete(2)

    gymnasium.register(f"Test{type(mission).__name__}-v0", Wordy)
    with pytest.raises(UnfitSpaces, match=r"mission.*cannot be turned into num.*FilterObservation"):
        spaces(EnvironmentConfig(f"Test{type(mission).__name__}-v0"))


def test_empty_observations_are_refused():
    with pytest.raises(
        UnfitSpaces, match=r"Box \(0,\) are not a Box of 1 to 4 dimensions, or are empty"
    ):
        space_of((0,), 1)


def test_boolean_bytes_are_not_scaled_as_pixels():
    assert space_of((10, 10, 4), 1).dtype == "float32"
    assert space_of((10, 10, 4), 1).is_picture
    assert space_of((10, 10, 4), 2).dtype == space_of((7,), 255).dtype == "uint8"
    assert space_of((7,), 1).dtype == "float32"


def test_pictures_of_floats_up_to_255_are_refused():
    with pytest.raises(UnfitSpaces, match="are float32 up to 255: give bytes"):
        space_of((64, 64, 3), 255, np.float32)
    assert space_of((64, 64, 3), 1, np.float32).is_picture
    assert not space_of((7,), 255, np.float32).is_picture


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(-np.inf, np.inf, np.float32), (0, 65535, np.uint16), (-5, 1, np.float64)],
)
@pytest.mark.parametrize("shape", [(60, 30), (24, 24, 3)])
def test_tables_of_numbers_are_vectors(shape, low, high, dtype):
    found = space_of(shape, high, dtype, low)
    assert (found.shape, found.dtype) == ((np.prod(shape),), "float32")
    assert space_of(shape, 1, np.float32, -1).is_picture


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium warns of the wrong shape, too
def test_a_table_is_flattened_row_by_row_and_its_shape_is_checked():
    class Table(gymnasium.Env):
        observation_space = Box(-np.inf, np.inf, (30, 20), np.float32)
        action_space = Discrete(2)
        seen = np.arange(600, dtype=np.float32).reshape(30, 20)

        def reset(self, *, seed=None, options=None):
            return self.seen, {}

        def step(self, action):
            return self.seen.T if action else self.seen, 0.0, False, False, {}

    gymnasium.register("TestTable-v0", Table)
    try:
        environments = Environments(EnvironmentConfig("TestTable-v0"), 2)
        step = environments.reset(0)
        np.testing.assert_array_equal(step.frames, np.tile(np.arange(600), (2, 1)))
        with pytest.raises(FailedEnvironment):
            environments.step(np.array([0, 1], np.int32))
    finally:
        del gymnasium.registry["TestTable-v0"]


def test_floats_with_channels_first_are_refused_whatever_their_bounds():
    with pytest.raises(UnfitSpaces, match="seem to have their channels or stacked frames first"):
        space_of((4, 84, 84), np.inf, np.float32, -np.inf)


def test_action_bounds_whose_range_overflows_float32_are_refused():
    class Boundless(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Box(-3.4e38, 3.4e38, (2,), np.float32)

    gymnasium.register("TestBoundless-v0", Boundless)
    with pytest.raises(UnfitSpaces, match="have no finite bounds"):
        spaces(EnvironmentConfig("TestBoundless-v0"), tried=False)


class Unclosed(gymnasium.Env):
    """Its `close` fails, because the window to close was never opened."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    window = None

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self):
        self.window.quit()


gymnasium.register("TestUnclosed-v0", Unclosed)


def test_an_error_while_an_environment_is_closed_is_reported_with_its_line():
    words = r"^TestUnclosed-v0: AttributeError: .*quit.*test_environments.py, line \d+\)$"
    with pytest.raises(UnfitSpaces, match=words):
        spaces(EnvironmentConfig("TestUnclosed-v0"))


def test_an_environments_first_error_is_reported_and_not_a_later_one(monkeypatch):
    monkeypatch.setattr(Unclosed, "step", lambda self, action: 1 / 0)
    with pytest.raises(UnfitSpaces, match="ZeroDivisionError"):
        spaces(EnvironmentConfig("TestUnclosed-v0"))


def test_an_environment_that_fails_while_it_is_played_is_reported_with_its_line():
    config = EnvironmentConfig("TestUnsteady-v0")
    words = r"^TestUnsteady-v0: IndexError: beyond the wall \(.*test_environments.py, line \d+\)$"
    with pytest.raises(FailedEnvironment, match=words):
        list(play(config, 5))


@pytest.mark.parametrize("name", ["frame_cap", "noop_max", "frame_size"])
def test_numbers_beyond_the_emulators_int32_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} 3000000000: .* 2\\*\\*31"):
        EnvironmentConfig(**{name: 3_000_000_000})


@pytest.mark.parametrize(
    "values",
    [
        {"action_repeat": 0},
        {"sticky_actions": 1.0},
        {"sticky_actions": -0.1},
        {"sticky_actions": float("nan")},
        {"noop_max": -1},
        {"frame_cap": 3},
        {"frame_size": 0},
        {"stack": 0},
    ],
)
def test_a_setting_out_of_range_is_refused_with_its_value_and_consequence(values):
    ((name, value),) = values.items()
    with pytest.raises(ValueError, match=rf"^{name} {value} .*: \w+"):
        EnvironmentConfig(**values)


def test_no_environments_or_threads_are_refused():
    with pytest.raises(ValueError, match="num_envs 0"):
        Environments(EnvironmentConfig(), 0)
    with pytest.raises(ValueError, match="num_threads 0"):
        Environments(EnvironmentConfig(), 1, 0)


@pytest.mark.parametrize("action", [-1, 6])
def test_action_out_of_range_is_refused_before_the_emulator(action):
    environments = Environments(EnvironmentConfig(), 2)
    environments.reset(0)
    with pytest.raises(ValueError, match=r"outside 0\.\.5"):
        environments.step(np.array([0, action], np.int32))
    environments.close()


def test_lost_life_terminates_without_reset():
    steps = list(play(EnvironmentConfig("Breakout"), 800))
    lost = (flags(steps, "terminated") == 1) & (flags(steps, "finished") == 0)
    assert lost.sum() >= 8  # two games of five lives; losing the last one ends the game
    assert not flags(steps, "first")[1:][lost[:-1]].any()


def test_life_loss_terminates_false_terminates_at_game_over_only():
    config = EnvironmentConfig("Breakout", life_loss_terminates=False)
    steps = list(play(config, 800))
    terminated = flags(steps, "terminated")
    assert terminated.sum() >= 2
    np.testing.assert_array_equal(terminated, flags(steps, "finished"))


@pytest.mark.parametrize("game, frames", [("Pong", 3), ("ALE/Pong-v5", 3), ("CartPole-v1", 1)])
def test_only_atari_games_repeat_actions(game, frames):
    assert EnvironmentConfig(game, action_repeat=3).frames_per_step == frames


def test_life_loss_option_changes_nothing_but_terminated():
    with_lives = list(play(EnvironmentConfig("Breakout"), 400))
    without = list(play(EnvironmentConfig("Breakout", life_loss_terminates=False), 400))
    for one, other in zip(with_lives, without, strict=True):
        np.testing.assert_array_equal(one.frames, other.frames)
        for name in ("reward", "first", "finished", "episode_return", "episode_length"):
            np.testing.assert_array_equal(one.outcomes[name], other.outcomes[name])


def test_episode_return_and_length_span_lost_lives():
    steps = list(play(EnvironmentConfig("Breakout"), 800, num_envs=2))
    for env in range(2):
        rewards, first = flags(steps, "reward", env), flags(steps, "first", env)
        ends = np.flatnonzero(flags(steps, "finished", env))
        starts = np.flatnonzero(first)[: len(ends)]
        assert len(ends) >= 2
        for start, end in zip(starts, ends, strict=True):
            outcome = steps[end].outcomes[env]
            assert outcome["episode_return"] == rewards[start : end + 1].sum()
            assert outcome["episode_length"] == end - start
        unfinished = flags(steps, "finished", env) == 0
        assert not flags(steps, "episode_return", env)[unfinished].any()
    assert max(flags(steps, "episode_return")) > 0


def test_rewards_are_not_clipped():
    steps = play(EnvironmentConfig("MsPacman"), 150)
    assert max(step.outcomes["reward"][0] for step in steps) >= 10


@pytest.mark.parametrize("cap", [200, 201])
def test_frame_cap_truncates_and_a_first_follows(cap):
    steps = list(play(EnvironmentConfig("Pong", frame_cap=cap), 120))
    length = -(-cap // 4)
    assert list(np.flatnonzero(flags(steps, "truncated"))) == [length, 2 * length + 1]
    np.testing.assert_array_equal(flags(steps, "truncated"), flags(steps, "finished"))
    np.testing.assert_array_equal(flags(steps, "truncated")[:-1], flags(steps, "first")[1:])
    assert not flags(steps, "terminated").any()
    assert steps[length].outcomes["episode_length"][0] == length


def test_life_lost_in_the_last_step_before_the_cap_still_finishes():
    whole = list(play(EnvironmentConfig("Breakout"), 100))
    lost = int(np.flatnonzero(flags(whole, "terminated"))[0])
    cut = list(play(EnvironmentConfig("Breakout", frame_cap=4 * lost), lost + 1))
    outcome = cut[lost].outcomes[0]
    assert (outcome["terminated"], outcome["truncated"], outcome["finished"]) == (1, 0, 1)
    assert outcome["episode_length"] == lost
    assert cut[lost + 1].outcomes["first"][0] == 1


def test_first_frames_carry_no_reward_and_follow_the_end_of_a_game():
    steps = list(play(EnvironmentConfig("Breakout"), 800, num_envs=3))
    for env in range(3):
        first = flags(steps, "first", env) == 1
        assert first[0] and first.sum() >= 3
        assert not flags(steps, "reward", env)[first].any()
        np.testing.assert_array_equal(first[1:], flags(steps, "finished", env)[:-1] == 1)


def test_equal_seeds_give_equal_streams_and_others_differ():
    config = EnvironmentConfig("ALE/Breakout-v5")

    def stream(seed: int) -> np.ndarray:
        return np.stack([step.frames for step in play(config, 200, num_envs=2, seed=seed)])

    one = stream(7)
    np.testing.assert_array_equal(one, stream(7))
    assert (one != stream(8)).any()
    assert (one[:, 0] != one[:, 1]).any()


def test_reset_begins_anew_in_the_middle_of_games():
    environments = Environments(EnvironmentConfig("Breakout", frame_cap=400), 2)
    begin = environments.reset(3)
    for _ in range(30):
        environments.step(np.array([1, 2], np.int32))
    again = environments.reset(3)
    np.testing.assert_array_equal(begin.frames, again.frames)
    assert again.outcomes["first"].all()
    for _ in range(100):
        last = environments.step(np.zeros(2, np.int32))
    assert list(last.outcomes["episode_length"]) == [100, 100]
    environments.close()


@pytest.mark.parametrize("game", ["ALE/Breakout-v5", "CartPole-v1"])
def test_reset_without_a_seed_continues_the_random_stream(game):
    def begun(*seeds: int | None) -> list[np.ndarray]:
        environments = Environments(EnvironmentConfig(game), 2)
        frames = []
        for seed in seeds:
            environments.reset(seed)
            for _ in range(5):
                step = environments.step(np.array([1, 0], np.int32))
            frames.append(step.frames.astype(np.float32))
        environments.close()
        return frames

    once, twice, thrice = begun(3, None, None)
    assert (once != twice).any() or (twice != thrice).any()
    np.testing.assert_array_equal(begun(3, None)[1], twice)


def test_returned_arrays_stay_as_they_are():
    steps = play(EnvironmentConfig("Breakout"), 20)
    held = next(steps)
    frames, outcomes = held.frames.copy(), held.outcomes.copy()
    list(steps)
    np.testing.assert_array_equal(held.frames, frames)
    assert (held.outcomes == outcomes).all()


def test_cartpole_runs_as_float32():
    steps = list(play(EnvironmentConfig("CartPole-v1"), 100, num_envs=3))
    assert all(step.frames.shape == (3, 4) for step in steps)
    assert all(step.frames.dtype == np.float32 for step in steps)
    finished = flags(steps, "finished") == 1
    assert finished.any()
    np.testing.assert_array_equal(
        flags(steps, "episode_return")[finished], flags(steps, "episode_length")[finished]
    )


def test_actions_that_start_elsewhere_are_shifted():
    steps = list(play(EnvironmentConfig("TestCounter-v0"), 6))
    assert set(flags(steps, "reward")[1:6]) == {3.0, 4.0}
    assert list(flags(steps, "first")) == [1, 0, 0, 0, 0, 0, 1]
    assert list(flags(steps, "terminated")) == [0, 0, 0, 0, 0, 1, 0]
    assert steps[5].outcomes["episode_length"][0] == 5
    assert [float(step.frames[0, 0]) for step in steps] == [0, 1, 2, 3, 4, 5, 0]


@pytest.mark.parametrize(
    "space,count",
    [
        (gymnasium.spaces.MultiDiscrete([3, 4]), 12),
        (gymnasium.spaces.MultiDiscrete([3, 2], start=[1, -1]), 6),
        (gymnasium.spaces.MultiDiscrete([[2, 3], [2, 2]]), 24),
        (gymnasium.spaces.MultiBinary(3), 8),
        (gymnasium.spaces.MultiBinary([2, 2]), 16),
        (gymnasium.spaces.Discrete(3), 3),
        (gymnasium.spaces.Discrete(3, start=-1), 3),
        (gymnasium.spaces.Discrete(3, start=2**40), 3),
        (gymnasium.spaces.Discrete(3, dtype=np.int8), 3),
    ],
)
def test_several_discrete_choices_become_one_choice_among_all_combinations(space, count):
    taken = []

    class Choices(Counter):
        action_space = space

        def step(self, action):
            taken.append(np.array(action))
            assert action in space
            assert action.dtype == space.dtype, "or a product of it could overflow"
            return super().step(1)

    gymnasium.register("TestChoices-v0", Choices)
    try:
        environments = Environments(EnvironmentConfig("TestChoices-v0"), 1)
        assert environments.spaces.actions == Actions(count)
        for number in range(count):
            environments.reset(0)
            environments.step(np.array([number], np.int32))
        environments.close()
    finally:
        del gymnasium.registry["TestChoices-v0"]
    assert len({each.tobytes() for each in taken}) == count == len(taken)


def test_too_many_combinations_of_choices_are_refused():
    class Choices(Counter):
        action_space = gymnasium.spaces.MultiBinary(11)

    gymnasium.register("TestTooMany-v0", Choices)
    with pytest.raises(UnfitSpaces, match="2048 combinations: at most 1024"):
        spaces(EnvironmentConfig("TestTooMany-v0"))


def test_gymnasium_time_limit_truncates():
    gymnasium.register("TestShort-v0", Counter, max_episode_steps=3)
    steps = list(play(EnvironmentConfig("TestShort-v0"), 4))
    assert list(flags(steps, "truncated")) == [0, 0, 0, 1, 0]
    assert not flags(steps, "terminated").any()


class Saying(Counter):
    """Episodes of three steps. The last info is `said`; in earlier ones its keys are all True."""

    def __init__(self, **said: object) -> None:
        super().__init__()
        self._said, self._steps = said, 0

    def step(self, action):
        self._steps += 1
        last = self._steps % 3 == 0
        before = dict.fromkeys(self._said, True)
        return *super().step(action)[:2], last, False, self._said if last else before


@pytest.mark.parametrize(
    ("said", "success"),
    [
        ({"is_success": True}, 1),
        ({"is_success": np.bool_(False)}, 0),
        ({"success": np.float32(1)}, 1),
        ({"success": 0.0}, 0),
        ({"success": float("nan")}, -1),
        ({"is_success": "no"}, -1),
        ({"success": None, "distance": 0.1}, -1),
        ({"successes": 3}, -1),
    ],
)
def test_an_episode_has_succeeded_if_its_last_step_says_so(monkeypatch, said, success):
    spec = EnvSpec("TestSaying-v0", Saying, disable_env_checker=True, kwargs=said)
    monkeypatch.setitem(gymnasium.registry, "TestSaying-v0", spec)
    steps = list(play(EnvironmentConfig("TestSaying-v0"), 6))
    assert list(flags(steps, "finished")) == [0, 0, 0, 1, 0, 0, 0]
    assert list(flags(steps, "success")) == [0, 0, 0, success, 0, 0, 0]


@pytest.mark.parametrize(
    ("info", "success"),
    [
        ({}, [-1, -1]),
        ({"success": np.array([True, False])}, [1, 0]),
        ({"success": [0.0, 1.0], "_success": np.array([False, True])}, [-1, 1]),
        ({"is_success": np.array([1, 0]), "_is_success": np.array([True, False])}, [1, -1]),
        ({"success": True}, [-1, -1]),
        ({"success": np.array(["a", "b"])}, [-1, -1]),
        ({"success": np.array([None, True])}, [-1, -1]),
    ],
)
def test_success_in_the_infos_of_a_vector_environment_is_read_with_its_mask(info, success):
    assert successes(info, 2).tolist() == success


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ({"coins": 3}, 3.0),
        ({"coins": np.float64(0.5)}, 0.5),
        ({"coins": True}, 1.0),
        ({"coins": float("inf")}, None),
        ({"coins": 1e300}, None),
        ({"coins": "many"}, None),
        ({"coins": [3]}, None),
        ({"notes": 3}, None),
    ],
)
def test_numbers_in_the_info_of_an_episodes_last_step_are_reported(monkeypatch, said, number):
    spec = EnvSpec("TestSaying-v0", Saying, disable_env_checker=True, kwargs=said)
    monkeypatch.setitem(gymnasium.registry, "TestSaying-v0", spec)
    config = EnvironmentConfig("TestSaying-v0", info_keys=("before", "coins"))
    infos = np.array([step.infos[0] for step in play(config, 6)])
    assert infos.shape == (7, 2) and infos.dtype == np.float32
    last = np.nan if number is None else number
    np.testing.assert_array_equal(infos[:, 1], [np.nan] * 3 + [last] + [np.nan] * 3)
    assert np.isnan(infos[:, 0]).all()


def test_an_atari_game_takes_no_info_keys():
    with pytest.raises(ValueError, match="Pong takes no info_keys"):
        spaces(EnvironmentConfig("Pong", info_keys=("lives",)))


@pytest.mark.parametrize("keys", [("coins", "coins"), tuple(map(str, range(65)))])
def test_repeated_info_keys_and_more_than_64_are_refused(keys):
    assert spaces(EnvironmentConfig("CartPole-v1", info_keys=keys[:1])).info_keys == keys[:1]
    with pytest.raises(ValueError, match="must be at most 64 different keys"):
        EnvironmentConfig("CartPole-v1", info_keys=keys)


@pytest.mark.parametrize("key", ["", "_coins", "speed(m/s)", "a//b", "x[/m]", "a\nb", "größe"])
def test_info_keys_that_trackers_or_gymnasium_do_not_take_are_refused(key):
    EnvironmentConfig("CartPole-v1", info_keys=("speed m/s", "reward_forward", "x.y-2"))
    with pytest.raises(ValueError, match=r"info_keys .*must be letters and digits"):
        EnvironmentConfig("CartPole-v1", info_keys=(key,))


class Repeated(gymnasium.Wrapper):
    """Repeats each action `times` times, and returns only the last frame, without pooling."""

    def __init__(self, environment: gymnasium.Env, times: int) -> None:
        super().__init__(environment)
        self._times = times

    def step(self, action):
        gained = 0.0
        for _ in range(self._times):
            frame, reward, *ends, info = super().step(action)
            gained += float(reward)
            if any(ends):
                break
        return frame, gained, *ends, info


@pytest.mark.parametrize(
    ("game", "action_repeat", "max_pool"),
    [("Pong", 4, True), ("Breakout", 4, True), ("Pong", 3, True), ("Breakout", 4, False)],
)
def test_frames_equal_gymnasium_preprocessing_bit_for_bit(game, action_repeat, max_pool):
    skip = action_repeat if max_pool else 1
    reference = AtariPreprocessing(
        gymnasium.make(f"{game}NoFrameskip-v4"), noop_max=0, frame_skip=skip, screen_size=84
    )
    if not max_pool:
        reference = Repeated(reference, action_repeat)
    frame, _ = reference.reset(seed=0)
    assert isinstance(reference.action_space, Discrete)
    num_actions = int(reference.action_space.n)
    reward, over, ends = 0.0, False, 0
    config = EnvironmentConfig(game, noop_max=0, fire_on_reset=False, sticky_actions=0.0)
    config = replace(config, action_repeat=action_repeat, max_pool=max_pool)
    steps = play(config, 1100 * 4 // action_repeat, actions_seed=1)
    np.testing.assert_array_equal(next(steps).frames[0], frame)
    draw = np.random.default_rng(1)
    for step in steps:
        action = draw.integers(0, num_actions, 1, dtype=np.int32)[0]
        if over:
            (frame, _), reward, over = reference.reset(), 0.0, False
        else:
            frame, gained, terminated, truncated, _ = reference.step(action)
            reward, over = float(gained), terminated or truncated
        # Without pooling, a game's last frame is not compared: the emulator stops when the game
        # ends, and no action is chosen from that frame.
        if max_pool or not over:
            np.testing.assert_array_equal(step.frames[0], frame)
        outcome = step.outcomes[0]
        assert (outcome["reward"], outcome["finished"]) == (reward, over)
        ends += over
    assert ends >= 1
    reference.close()


class Vector(gymnasium.vector.VectorEnv):
    """An environment that exists only as a vector; its step returns `answer`."""

    metadata: ClassVar[dict[str, object]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, **answer: object) -> None:
        self.num_envs = num_envs
        self.single_observation_space = Box(0, 255, (3,), answer.pop("dtype", np.float32))
        self.single_action_space = Discrete(2)
        zeros = np.zeros(num_envs)
        self._answer = {
            "observation": np.zeros((num_envs, 3), self.single_observation_space.dtype),
            "reward": zeros,
            "terminated": zeros.astype(bool),
            "truncated": zeros.astype(bool),
        }
        self._first = self._answer["observation"]
        self._answer |= answer

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # Gymnasium expects one seed for the whole vector
        self.drawn = self.np_random.random()
        return self._first, {}

    def step(self, actions):
        return *self._answer.values(), {}


gymnasium.register("TestVector-v0", vector_entry_point=Vector)


def test_tables_of_a_vector_only_environment_are_flattened(monkeypatch) -> None:
    class Tables(Vector):
        def __init__(self, num_envs: int = 1) -> None:
            super().__init__(num_envs)
            self.single_observation_space = Box(-9, 9, (20, 30), np.float32)
            self._first = np.zeros((num_envs, 20, 30), np.float32)

    spec = EnvSpec("TestTables-v0", vector_entry_point=Tables)
    monkeypatch.setitem(gymnasium.registry, "TestTables-v0", spec)
    assert spaces(EnvironmentConfig("TestTables-v0"), tried=False).shape == (600,)


def test_a_vector_only_environment_is_seeded_by_one_number() -> None:
    config = EnvironmentConfig("TestVector-v0")
    assert spaces(config).shape == (3,)

    def drawn(seed: int, first: int) -> float:
        environments = Environments(config, 2)
        environments.reset(seed, first)
        return environments._vector.drawn

    assert drawn(0, 0) == drawn(0, 0)
    assert len({drawn(0, 0), drawn(1, 0), drawn(0, 2)}) == 3


@pytest.mark.parametrize(
    ("game", "words"),
    [
        ("Broken-observation", r"observation of environment 12 is nan at \[3\]: must be finite"),
        ("Broken-reward", "reward of environment 12 is nan: must be finite"),
        ("Broken-large-reward", "reward of environment 12 is inf: must be finite in float32"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_that_are_not_finite_are_refused_with_environment_and_field(game, words):
    environments = Environments(EnvironmentConfig(f"tests.tiny:{game}-v0"), 3, first_number=10)
    environments._vector.envs[0].unwrapped._at_step = 1000  # only the third one breaks early
    environments._vector.envs[1].unwrapped._at_step = 1000
    environments.reset(0)
    for _ in range(4):
        environments.step(np.zeros(3, np.int32))
    with pytest.raises(InvalidStep, match=f"{game}-v0: {words}"):
        environments.step(np.zeros(3, np.int32))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"observation": np.zeros((2, 4))}, r"observation of shape \(2, 4\): must be \(2, 3\)"),
        ({"observation": np.zeros((1, 3))}, r"observation of shape \(1, 3\): must be \(2, 3\)"),
        ({"dtype": np.uint8, "observation": np.zeros((2, 3))}, "float64: must be uint8"),
        ({"reward": np.zeros((2, 1))}, r"reward of shape \(2, 1\): must be \(2,\)"),
        ({"reward": 0.0}, r"reward of shape \(\): must be \(2,\)"),
        ({"terminated": np.zeros(3, bool)}, r"terminated of shape \(3,\): must be \(2,\)"),
        ({"truncated": False}, r"truncated of shape \(\): must be \(2,\)"),
    ],
)
def test_arrays_of_a_wrong_shape_or_kind_are_refused(monkeypatch, answer, words):
    monkeypatch.setattr(gymnasium.registry["TestVector-v0"], "kwargs", answer)
    environments = Environments(EnvironmentConfig("TestVector-v0"), 2)
    environments.reset(0)
    with pytest.raises(InvalidStep, match=words):
        environments.step(np.zeros(2, np.int32))


def test_flags_may_be_numbers(monkeypatch):
    ends = np.array([0, 1, 0], np.int8)
    answer = {"reward": np.ones(3), "terminated": ends, "truncated": np.zeros(3, np.int8)}
    monkeypatch.setattr(gymnasium.registry["TestVector-v0"], "kwargs", answer)
    environments = Environments(EnvironmentConfig("TestVector-v0"), 3)
    environments.reset(0)
    for _ in range(2):  # environment 1: a step that ends its game, then the reset
        step = environments.step(np.zeros(3, np.int32))
    assert step.outcomes["first"].tolist() == [0, 1, 0]
    assert environments._returns.tolist() == [2.0, 0.0, 2.0]


@pytest.mark.filterwarnings("ignore:.*missing AutoresetMode")
def test_a_vector_environment_with_another_autoreset_mode_is_refused(monkeypatch):
    for metadata in ({"autoreset_mode": AutoresetMode.SAME_STEP}, {}):
        monkeypatch.setattr(Vector, "metadata", metadata)
        with pytest.raises(FailedEnvironment, match=r"autoreset_mode .* must be .*NEXT_STEP"):
            Environments(EnvironmentConfig("TestVector-v0"), 2)


def test_first_games_are_cut_at_different_steps_and_later_games_are_whole() -> None:
    """Boxing's games have a fixed length, so without cuts they would all end together."""
    count, stagger, steps = 8, 40, 120
    config = EnvironmentConfig("Boxing", frame_cap=240, noop_max=0)  # games of 60 steps
    environments = Environments(config, count, stagger_steps=stagger)
    played = [environments.reset(5)]
    played += [environments.step(np.zeros(count, np.int32)) for _ in range(steps)]
    lengths = []
    for lane in range(count):
        firsts = np.flatnonzero(flags(played, "first", lane))
        ended = flags(played, "truncated", lane) == 1
        np.testing.assert_array_equal(np.flatnonzero(ended)[: len(firsts) - 1] + 1, firsts[1:])
        cut, whole = firsts[1] - 1, firsts[2] - firsts[1] - 1
        assert 1 <= cut <= stagger
        assert whole == 60
        assert not flags(played, "finished", lane)[cut], "a game that was cut is no episode"
        assert flags(played, "finished", lane)[firsts[2] - 1]
        assert flags(played, "episode_length", lane)[firsts[2] - 1] == 60
        assert flags(played, "reward", lane)[firsts[1]] == 0
        np.testing.assert_array_equal(
            played[firsts[1]].frames[lane], played[0].frames[lane], "a new game begins"
        )
        lengths.append(cut)
    parts = sorted((length - 1) * count // stagger for length in lengths)
    assert parts == list(range(count)), "spread evenly"
    again = Environments(config, count, stagger_steps=stagger)
    again.reset(5)
    for step in played[1:60]:
        np.testing.assert_array_equal(again.step(np.zeros(count, np.int32)).frames, step.frames)


def test_a_game_that_ends_before_its_cut_is_followed_by_whole_games() -> None:
    config = EnvironmentConfig("Boxing", frame_cap=40)  # games of 10 steps
    environments = Environments(config, 4, stagger_steps=10_000)
    environments.reset(1)
    ends = np.array(
        [environments.step(np.zeros(4, np.int32)).outcomes["finished"] for _ in range(44)]
    )
    np.testing.assert_array_equal(ends.sum(axis=0), 4)


def test_only_atari_games_are_cut() -> None:
    environments = Environments(EnvironmentConfig("TestCounter-v0"), 3, stagger_steps=4)
    environments.reset(1)
    truncated = [environments.step(np.zeros(3, np.int32)).outcomes["truncated"] for _ in range(6)]
    assert not np.any(truncated)
