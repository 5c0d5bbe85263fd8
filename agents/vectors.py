"""The two back ends that step n environments together: ALE's own C++ vector, and Gymnasium's."""

import contextlib
from collections.abc import Sequence
from functools import partial
from numbers import Real
from typing import Any

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import FlattenObservation

from agents.config import OF_OTHERS, EnvironmentConfig
from agents.games import Game
from agents.messages import NOT_SAID

SUCCESS = ("is_success", "success")  # keys in infos, of Gymnasium-Robotics and of Meta-World
SCREEN = (210, 160)  # height and width of an Atari game in colour, in pixels


def check_given(config: EnvironmentConfig, game: Game) -> None:
    """Raises ValueError if an Atari game is given a setting of other environments."""
    for setting in OF_OTHERS:
        if game.is_atari and getattr(config, setting):
            raise ValueError(f"{config.game} takes no {setting}: it is an Atari game")


def make_vector(
    config: EnvironmentConfig, game: Game, num_envs: int, num_threads: int, rendered: bool = False
) -> Any:
    """A vector from the game's back end. Both kinds share an interface and reset in an extra step.

    Args: rendered: in colour: as the frames of an Atari game, otherwise through `render`.
    """
    if not game.is_atari:
        given = config.keywords | ({"render_mode": "rgb_array"} if rendered else {})
        if gymnasium.spec(game.name).entry_point is None:
            made = gymnasium.make_vec(game.name, num_envs, **given)  # exists only as a vector
            mode = made.metadata.get("autoreset_mode")
            if mode != AutoresetMode.NEXT_STEP:
                made.close()
                raise ValueError(
                    f"autoreset_mode {mode} in its metadata: must be AutoresetMode.NEXT_STEP, or "
                    "the last frame of a game would be taken for the first one of the next"
                )
            return made
        options = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        return gymnasium.make_vec(
            game.name,
            num_envs,
            vectorization_mode="sync",
            vector_kwargs=options,
            wrappers=(flat, partial(OnlyNumbers, keys=(*SUCCESS, *config.info_keys))),
            **given,
        )
    height, width = SCREEN if rendered else (config.frame_size, config.frame_size)
    return AtariVectorEnv(
        game.name,
        num_envs,
        batch_size=0,
        num_threads=num_threads,
        thread_affinity_offset=-1,
        max_num_frames_per_episode=config.frame_cap,
        repeat_action_probability=config.stickiness,
        full_action_space=config.full_action_space,
        continuous=False,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=height,
        img_width=width,
        grayscale=not rendered,
        stack_num=1,
        frameskip=config.action_repeat,
        maxpool=config.max_pool,
        noop_max=config.noop_max,
        # ALE's own life options hide the ends of games: `episodic_life` restarts the whole game,
        # and `life_loss_info` hides a truncation if a life is lost in the same step.
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=config.fire_on_reset,
    )


def flat(environment: Any) -> Any:
    """The environment with Box observations; Gymnasium flattens all others.

    A Discrete observation becomes one-hot; the parts of a Tuple or Dict become one vector.

    Raises ValueError if a part cannot be turned into numbers.
    """
    space = environment.observation_space
    if isinstance(space, Box):
        return environment
    with contextlib.suppress(NotImplementedError):  # a space that Gymnasium does not know
        wrapped = FlattenObservation(environment)
        if isinstance(wrapped.observation_space, Box):  # not with a Sequence or a Graph in it
            return wrapped
    raise ValueError(
        f"observations {space} have a part that cannot be turned into numbers: drop it with a "
        "wrapper, such as gymnasium.wrappers.FilterObservation"
    )


class OnlyNumbers(gymnasium.Wrapper):
    """The environment, with only the numbers of some keys in its info, which `numbers` reads.

    Gymnasium's vector merges the infos of all environments, and fails if they differ.
    """

    def __init__(self, env: Any, keys: Sequence[str]) -> None:
        super().__init__(env)
        self._keys = keys

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """The first observation of a game."""
        return self._only_numbers(self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> Any:
        """One step."""
        return self._only_numbers(self.env.step(action))

    def _only_numbers(self, answer: Any) -> Any:
        """The answer with that info. A malformed one is left to the checks that follow."""
        if not (isinstance(answer, tuple) and isinstance(answer[-1], dict)):
            return answer
        info = answer[-1]
        said = {key: info[key] for key in self._keys if isinstance(info.get(key), Real | np.bool_)}
        return (*answer[:-1], {key: float(value) for key, value in said.items()})


def numbers(info: dict[str, Any], keys: Sequence[str], num_envs: int) -> np.ndarray:
    """The numbers in a vector's info, float32 [n, keys]; nan where there is none, or it is inf."""
    found = np.full((num_envs, len(keys)), np.nan, np.float32)
    for column, key in enumerate(keys):
        value = np.asarray(info.get(key))
        if value.shape == (num_envs,) and value.dtype.kind in "biuf":
            said = info.get(f"_{key}", np.ones(num_envs, np.bool_))  # mask of who reported it
            with np.errstate(over="ignore"):  # a number beyond float32 becomes inf
                found[said, column] = value[said]
    found[np.isinf(found)] = np.nan
    return found


def reported(info: dict[str, Any], keys: Sequence[str], finished: np.ndarray) -> np.ndarray | None:
    """The numbers under the info keys where an episode has `finished` [n], else nan, [n, keys].

    None if there are no keys.
    """
    if not keys:
        return None
    found = np.full((len(finished), len(keys)), np.nan, np.float32)
    if finished.any():
        found[finished] = numbers(info, keys, len(finished))[finished]
    return found


def successes(info: dict[str, Any], num_envs: int) -> np.ndarray:
    """Whether a vector's info says that each environment has succeeded: 1, 0 or NOT_SAID, [n]."""
    said = numbers(info, SUCCESS, num_envs)
    none = np.isnan(said).all(axis=1)
    return np.where(none, NOT_SAID, (said > 0).any(axis=1)).astype(np.float32)


def seeds_of(game: Game, seed: int, num_envs: int, first: int = 0) -> Any:
    """One seed for each environment, from number `first` of `seed` on, in the back end's type.

    An id that exists only as a vector takes one seed, and seeds its environments itself.
    """
    words = np.random.SeedSequence(seed).generate_state(first + num_envs)[first:] & 0x7FFFFFFF
    if not game.is_atari and gymnasium.spec(game.name).entry_point is None:
        return int(words[0])
    return words.astype(np.int64) if game.is_atari else words.tolist()
