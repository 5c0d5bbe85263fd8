"""A vector of n environments that step together: ALE's own C++ vector, or any Gymnasium id.

Actions in, `Step` out. What the back ends do differently (names, spaces, lives, autoreset's extra
step) ends here: every other module sees newest frames and outcomes only.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode

from agents.checks import check_finite, check_kind, check_shape
from agents.games import Game, check, fault, resolve
from agents.messages import OUTCOME, Step

SCREEN = (210, 160)  # height and width of an Atari game in colour, in pixels
SMALLEST_FLOAT_PICTURE = 20  # high and wide: what is smaller is a table of numbers
INT_LIMIT = 2**31  # the emulator counts frames and pixels in C++ integers below this


class UnfitSpaces(ValueError):
    """An environment whose actions or observations this system cannot learn from."""


class FailedEnvironment(RuntimeError):
    """An environment whose own code has raised; the message says what and where, in one line."""


def _check(valid: bool, otherwise: str) -> None:
    if not valid:
        raise ValueError(otherwise)


@dataclass(frozen=True)
class EnvironmentConfig:
    """What is played and how. All but `game` and `stack` concern Atari games only."""

    game: str = "Pong"
    """An Atari game by name (Pong, ms_pacman, ALE/Pong-v5) or a Gymnasium id (CartPole-v1)."""
    action_repeat: int = 4
    """Emulator frames for which one action is held: frames a step, whatever the id says."""
    sticky_actions: float | None = None
    """Probability a frame of repeating the last action; None: 0.25 for ALE/*-v5, else 0."""
    noop_max: int = 30
    """A game begins after fewer than this many idle emulator frames, drawn evenly."""
    fire_on_reset: bool = True
    """Press FIRE once where a game begins (not after a lost life), if the game has it."""
    max_pool: bool = True
    """Show the brighter of a step's last two emulator frames at each pixel."""
    life_loss_terminates: bool = True
    """A lost life ends the return that is learned; the game and its score go on."""
    full_action_space: bool = False
    """All 18 actions of the console, not only those that the game uses."""
    frame_cap: int = 108_000
    """Emulator frames after which a game is cut short (108,000 are 30 minutes)."""
    frame_size: int = 84
    """Height and width of a grey frame, in pixels."""
    pixels: Literal["uint8", "float32"] = "uint8"
    """How a frame crosses and is kept: bytes, or floats in [0, 1], four times as large."""
    stack: int | None = None
    """Newest observations that the model sees at once; None: 4 for [h, w] pictures, else 1."""

    def __post_init__(self) -> None:
        sticky, repeat, stack = self.sticky_actions, self.action_repeat, self.stack
        _check(repeat >= 1, f"action_repeat {repeat} < 1: no frame would be played")
        valid = sticky is None or 0 <= sticky < 1
        _check(valid, f"sticky_actions {sticky} not in [0, 1): no action would ever count")
        _check(self.noop_max >= 0, f"noop_max {self.noop_max} < 0: nothing to draw from")
        rule = f"< action_repeat {repeat}: no whole step would fit into a game"
        _check(self.frame_cap >= repeat, f"frame_cap {self.frame_cap} {rule}")
        _check(self.frame_size >= 1, f"frame_size {self.frame_size} < 1: frames would be empty")
        rule = "a frame must have fewer than 2**31 pixels, or the emulator could not count them"
        _check(self.frame_size**2 < INT_LIMIT, f"frame_size {self.frame_size}: {rule}")
        for name in ("frame_cap", "noop_max"):  # action_repeat is at most frame_cap
            rule = "must be below 2**31, or the emulator could not count so many frames"
            _check(getattr(self, name) < INT_LIMIT, f"{name} {getattr(self, name)}: {rule}")
        _check(stack is None or stack >= 1, f"stack {stack} < 1: the model would see nothing")

    @property
    def frames_per_step(self) -> int:
        """The action repeat of an Atari game; a step of any other environment is one frame."""
        return self.action_repeat if resolve(self.game).is_atari else 1


@dataclass(frozen=True)
class Spaces:
    """What an environment shows and how many actions it takes."""

    shape: tuple[int, ...]  # of one newest observation, without the stack
    dtype: str  # uint8 or float32
    num_actions: int
    stack: int  # observations that the service puts together

    @property
    def is_picture(self) -> bool:
        """Whether an observation is [h, w] or [h, w, c]: of bytes, or of so many floats."""
        if len(self.shape) not in (2, 3):
            return False
        return self.dtype == "uint8" or min(self.shape[:2]) >= SMALLEST_FLOAT_PICTURE


def make_vector(
    config: EnvironmentConfig, game: Game, num_envs: int, num_threads: int, rendered: bool = False
) -> Any:
    """Either back end: both answer alike, and spend one step on a reset after an end.

    Args: rendered: with colours: an Atari game's as its frames, others' by `render`.
    """
    if not game.is_atari:
        shown: dict[str, Any] = {"render_mode": "rgb_array"} if rendered else {}
        if gymnasium.spec(game.name).entry_point is None:
            return gymnasium.make_vec(game.name, num_envs, **shown)  # a vector of its own only
        options = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        return gymnasium.make_vec(
            game.name, num_envs, vectorization_mode="sync", vector_kwargs=options, **shown
        )
    height, width = SCREEN if rendered else (config.frame_size, config.frame_size)
    sticky = game.sticky_actions if config.sticky_actions is None else config.sticky_actions
    return AtariVectorEnv(
        game.name,
        num_envs,
        batch_size=0,
        num_threads=num_threads,
        thread_affinity_offset=-1,
        max_num_frames_per_episode=config.frame_cap,
        repeat_action_probability=sticky,
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
        # ALE's own life options lose ends: `episodic_life` restarts the whole game, and
        # `life_loss_info` hides a cut game where a life is lost in its last step.
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=config.fire_on_reset,
    )


def seeds_of(game: Game, seed: int, num_envs: int, first: int = 0) -> Any:
    """A seed for each environment, as its back end takes them: number `first` of `seed`, and on."""
    words = np.random.SeedSequence(seed).generate_state(first + num_envs)[first:] & 0x7FFFFFFF
    return words.astype(np.int64) if game.is_atari else words.tolist()


def _fit(config: EnvironmentConfig, game: Game, observation: Space, action: Space) -> Spaces:
    """The spaces of one environment of `game`. Raises UnfitSpaces."""
    if not isinstance(action, Discrete):
        raise UnfitSpaces(f"{config.game}: actions {action} are not Discrete: none could be drawn")
    if not isinstance(observation, Box) or not 1 <= len(observation.shape) <= 4:
        kind = f"{type(observation).__name__} {observation.shape}"
        rule = "are not a Box of 1 to 4 dimensions: no network takes them"
        raise UnfitSpaces(f"{config.game}: observations {kind} {rule}")
    shape = observation.shape[1:] if game.is_atari else observation.shape
    dtype = "uint8" if observation.dtype == np.uint8 else "float32"
    found = Spaces(shape, config.pixels if game.is_atari else dtype, int(action.n), 1)
    stack = config.stack or (4 if found.is_picture and len(shape) == 2 else 1)
    return replace(found, stack=stack)


def spaces(config: EnvironmentConfig) -> Spaces:
    """What the environments of `config` show and take, learned by making one of them.

    Raises ValueError if the game is not known, does not fit, or cannot be made, as where a package
    that it needs is missing.
    """
    with warnings.catch_warnings(record=True) as caught:
        try:
            environments = Environments(config, 1)
            environments.close()
        except FailedEnvironment as error:
            raise UnfitSpaces(str(error)) from error
    for each in caught:  # where an error is said, it is said alone
        warnings.showwarning(each.message, each.category, each.filename, each.lineno)
    return environments.spaces


class Environments:
    """`num_envs` environments that step together, for one thread.

    The frames and outcomes that it returns are new arrays at each call: they stay as they are.
    """

    def __init__(
        self, config: EnvironmentConfig, num_envs: int, num_threads: int = 1, first_number: int = 0
    ) -> None:
        """`num_threads` emulate Atari games; other environments step in the caller's thread.

        Errors name an environment by its number, from `first_number` on.
        """
        _check(num_envs >= 1, f"num_envs {num_envs} < 1: nothing would be played")
        _check(num_threads >= 1, f"num_threads {num_threads} < 1: nothing would step")
        self.num_envs = num_envs
        self._first_number = first_number
        self._game = check(config.game)
        self._name = config.game
        try:
            self._vector = make_vector(config, self._game, num_envs, num_threads)
        except (Exception, SystemExit) as error:
            raise self._failure(error) from error
        action = self._vector.single_action_space
        self.spaces = _fit(config, self._game, self._vector.single_observation_space, action)
        self._first_action = int(action.start)
        self._watches_lives = self._game.is_atari and config.life_loss_terminates
        self._clear()

    def _clear(self) -> None:
        self._lives = np.zeros(self.num_envs, np.int32)
        self._returns = np.zeros(self.num_envs, np.float64)
        self._lengths_steps = np.zeros(self.num_envs, np.int32)
        self._finished = np.ones(self.num_envs, np.bool_)  # so that what comes next is a first

    def reset(self, seed: int | None, first: int = 0) -> Step:
        """Begin a game everywhere; the same `seed` (>= 0) begins the same games.

        None goes on with the random numbers of before: no ROM is loaded anew, which takes seconds.

        Args: first: which of the seed's games environment 0 plays; the others play those after it.
        """
        seeds = None if seed is None else seeds_of(self._game, seed, self.num_envs, first)
        try:
            frames, info = self._vector.reset(seed=seeds)
        except (Exception, SystemExit) as error:
            raise self._failure(error) from error
        self._clear()
        nothing = np.zeros(self.num_envs, np.bool_)
        return self._outcome(frames, np.zeros(self.num_envs), nothing, nothing, info)

    def step(self, actions: np.ndarray) -> Step:
        """Take `actions`, int32 [n]. Where the last step `finished`, a game begins instead."""
        if actions.view(np.uint32).max() >= self.spaces.num_actions:  # negative ones are huge
            rule = f"outside 0..{self.spaces.num_actions - 1}"
            raise ValueError(f"actions {actions.tolist()} {rule}: the emulator would hang")
        if self._first_action:
            actions = actions + self._first_action
        try:
            answer = self._vector.step(actions)
        except (Exception, SystemExit) as error:
            raise self._failure(error) from error
        return self._outcome(*answer)

    def _failure(self, error: BaseException) -> FailedEnvironment:
        return FailedEnvironment(f"{self._name}: {fault(error)}")

    def _outcome(
        self,
        frames: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> Step:
        """Both back ends' answer as a Step, with the counts of whole games. Raises InvalidStep."""
        named = {"reward": rewards, "terminated": terminated, "truncated": truncated}
        for name, values in named.items():
            check_shape(self._game.name, name, values, (self.num_envs,))
        first, finished = self._finished, terminated | truncated
        self._lengths_steps += 1
        self._lengths_steps[first] = 0
        self._returns += rewards
        self._returns[first] = 0
        outcomes = np.zeros(self.num_envs, OUTCOME)
        outcomes["reward"] = np.where(first, 0, rewards)
        outcomes["first"] = first
        if self._watches_lives:
            terminated = terminated | self._lost_life(info["lives"], first)
        outcomes["terminated"] = terminated
        outcomes["truncated"] = truncated & ~terminated
        check_finite(self._game.name, "reward", outcomes["reward"], self._first_number)
        if finished.any():
            outcomes["finished"] = finished
            outcomes["episode_return"][finished] = self._returns[finished]
            outcomes["episode_length"][finished] = self._lengths_steps[finished]
            returns = outcomes["episode_return"]
            check_finite(self._game.name, "episode's return", returns, self._first_number)
        self._finished = finished
        return Step(self._newest(frames), outcomes)

    def _lost_life(self, lives: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Where a life was lost and the game goes on: the last one is the emulator's to tell."""
        lost = (lives < self._lives) & (lives > 0) & ~first
        self._lives = lives
        return lost

    def _newest(self, frames: np.ndarray) -> np.ndarray:
        if self._game.is_atari:
            frames = frames[:, 0]  # the vector's stack of one
            if self.spaces.dtype == "float32":
                return frames * np.float32(1 / 255)
            return frames
        game, dtype = self._game.name, self.spaces.dtype
        check_shape(game, "observation", frames, (self.num_envs, *self.spaces.shape))
        check_kind(game, "observation", frames, dtype)
        frames = frames.astype(dtype, copy=False)
        if dtype == "float32":
            check_finite(game, "observation", frames, self._first_number)
        return frames

    def close(self) -> None:
        """Free the environments and the emulator's threads."""
        self._vector.close()
        self._vector = None
