"""A vector of n environments that step together: ALE's own C++ vector, or any Gymnasium id.

It takes actions and returns a `Step`. This module hides the differences between the back ends
(names, spaces, lives, autoreset's extra step); others see only the newest frames and outcomes.
"""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from agents.checks import InvalidStep, check_finite, check_interface, check_kind, check_shape
from agents.config import EnvironmentConfig
from agents.cuts import FirstGames
from agents.games import check, fault
from agents.messages import OUTCOME, Step
from agents.spaces import Spaces, UnfitSpaces, fit, own_actions
from agents.vectors import check_given, make_vector, reported, seeds_of, successes

__all__ = [
    "EnvironmentConfig",
    "Environments",
    "FailedEnvironment",
    "Spaces",
    "UnfitSpaces",
    "spaces",
]


class FailedEnvironment(RuntimeError):
    """An environment's own code raised. The message says what and where, in one line."""


def spaces(config: EnvironmentConfig, tried: bool = True) -> Spaces:
    """The observations and actions of the configured environment, found by making one.

    Args: tried: whether to take a first step too.

    Raises ValueError if the game is unknown, does not fit this system, cannot be made (because a
    package is missing, for example), or fails in that step.
    """
    # What an environment prints is not part of a command's output.
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(sys.stderr):
        try:
            environments = Environments(config, 1)
            try:
                if tried:
                    environments.try_out()
            except (FailedEnvironment, InvalidStep):
                with contextlib.suppress(FailedEnvironment):  # report the first error
                    environments.close()
                raise
            environments.close()
        except (FailedEnvironment, InvalidStep) as error:
            raise UnfitSpaces(str(error)) from error
    for each in caught:  # warnings are shown only if no error was raised
        warnings.showwarning(each.message, each.category, each.filename, each.lineno)
    return environments.spaces


class Environments:
    """`num_envs` environments that step together. Use them from one thread.

    Every call returns new arrays of frames and outcomes; later calls do not change them.
    """

    def __init__(
        self,
        config: EnvironmentConfig,
        num_envs: int,
        num_threads: int = 1,
        first_number: int = 0,
        stagger_steps: int = 0,
    ) -> None:
        """`num_threads` threads emulate Atari games; other games step in the caller's thread.

        Args:
            first_number: the number of the first environment, for error messages.
            stagger_steps: first games are cut short after up to this many steps; Atari only.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs {num_envs} < 1: nothing would be played")
        if num_threads < 1:
            raise ValueError(f"num_threads {num_threads} < 1: nothing would step")
        self.num_envs = num_envs
        self._first_number = first_number
        self._game = check(config.game)
        self._name = config.game
        self._vector: Any = None
        check_given(config, self._game)
        with self._blamed():
            self._vector = make_vector(config, self._game, num_envs, num_threads)
        action = self._vector.single_action_space
        observation = self._vector.single_observation_space
        self.spaces = fit(config, self._game, observation, action)
        self._declared = (num_envs, *observation.shape)  # before a table becomes a vector
        self._action_space = action
        self._cuts = FirstGames(num_envs, stagger_steps if self._game.is_atari else 0)
        self._watches_lives = self._game.is_atari and config.life_loss_terminates
        self._clear()

    def _clear(self) -> None:
        self._lives = np.zeros(self.num_envs, np.int32)
        self._returns = np.zeros(self.num_envs, np.float64)
        self._lengths_steps = np.zeros(self.num_envs, np.int32)
        self._finished = np.ones(self.num_envs, np.bool_)  # so that the next step is a first one
        self._cut = np.zeros(self.num_envs, np.bool_)  # games that ended because we cut them

    def reset(self, seed: int | None, first: int = 0) -> Step:
        """Start a game in every environment. The same `seed` (>= 0) starts the same games.

        With None, random generators continue (seeded by the system at first), and no ROM is
        reloaded, which would take as long as making the environment.

        Args: first: the seed's game number for environment 0; the others play the next ones.
        """
        self._check_open()
        seeds = None if seed is None else seeds_of(self._game, seed, self.num_envs, first)
        with self._blamed():
            frames, info = self._vector.reset(seed=seeds)
        self._clear()
        self._cuts.begin(seed)
        nothing = np.zeros(self.num_envs, np.bool_)
        return self._outcome(frames, np.zeros(self.num_envs), nothing, nothing, info)

    def step(self, actions: np.ndarray) -> Step:
        """Take `actions` [n, *shape]. Where the last step `finished`, reset instead."""
        self._check_open()
        if not self.spaces.actions.are_valid(actions):
            rule = "the emulator would hang" if self._game.is_atari else "none could be taken"
            raise ValueError(f"actions {actions.tolist()} outside {self.spaces.actions}: {rule}")
        with self._blamed():
            answer = self._vector.step(own_actions(self._action_space, actions))
            if self._cut.any():
                answer = self._restarted(*answer)
        return self._outcome(*answer)

    def _restarted(
        self,
        frames: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """The vector's answer, after restarting the games that we cut, which it kept playing."""
        cut = self._cut
        begun, begun_info = self._vector.reset(options={"reset_mask": cut})
        frames, lives = frames.copy(), info["lives"].copy()
        frames[cut], lives[cut] = begun[cut], begun_info["lives"][cut]
        return frames, rewards, terminated & ~cut, truncated & ~cut, {"lives": lives}

    def try_out(self) -> None:
        """Take a first step, so that a bug in a user's environment shows before a run starts.

        Does nothing for Atari games. Raises FailedEnvironment or InvalidStep.
        """
        if self._game.is_atari:
            return
        with self._blamed():
            for environment in getattr(self._vector, "envs", ()):  # some ids exist only as a vector
                check_interface(self._name, environment)
        self.reset(0)
        self.step(self.spaces.actions.random(np.random.default_rng(0), self.num_envs))

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        """Turn whatever the environment's own code raises into a FailedEnvironment."""
        try:
            yield
        except InvalidStep:
            raise
        except (Exception, SystemExit) as error:
            raise FailedEnvironment(f"{self._name}: {fault(error)}") from error

    def _outcome(
        self,
        frames: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> Step:
        """A back end's answer as a Step, with episodes' returns and lengths. Raises InvalidStep."""
        named = {"reward": rewards, "terminated": terminated, "truncated": truncated}
        for name, values in named.items():
            check_shape(self._game.name, name, values, (self.num_envs,))
        self.info = info  # of the last step, as the back end says it
        terminated, truncated = (np.asarray(each, np.bool_) for each in (terminated, truncated))
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
        self._cut = self._cuts.due(self._lengths_steps, finished)
        outcomes["terminated"] = terminated
        outcomes["truncated"] = (truncated | self._cut) & ~terminated
        check_finite(self._game.name, "reward", outcomes["reward"], self._first_number)
        if finished.any():
            outcomes["finished"] = finished
            outcomes["episode_return"][finished] = self._returns[finished]
            outcomes["episode_length"][finished] = self._lengths_steps[finished]
            outcomes["success"][finished] = successes(info, self.num_envs)[finished]
            returns = outcomes["episode_return"]
            check_finite(self._game.name, "episode's return", returns, self._first_number)
        self._finished = finished | self._cut
        infos = reported(info, self.spaces.info_keys, finished)
        return Step(self._newest(frames), outcomes, infos)

    def _lost_life(self, lives: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Where a life was lost but the game goes on. The emulator reports the loss of the last."""
        lost = (lives < self._lives) & (lives > 0) & ~first
        self._lives = lives
        return lost

    def _newest(self, frames: np.ndarray) -> np.ndarray:
        if self._game.is_atari:
            frames = frames[:, 0]  # drops the vector's stack dimension of size 1
            if self.spaces.dtype == "float32":
                return frames * np.float32(1 / 255)
            return frames
        game, dtype = self._game.name, self.spaces.dtype
        check_shape(game, "observation", frames, self._declared)
        check_kind(game, "observation", frames, dtype)
        frames = frames.astype(dtype, copy=False).reshape(-1, *self.spaces.shape)
        if dtype == "float32":
            check_finite(game, "observation", frames, self._first_number)
        return frames

    def close(self) -> None:
        """Free the environments and the emulator's threads. A second call does nothing.

        Raises FailedEnvironment.
        """
        vector, self._vector = self._vector, None
        with self._blamed():
            if vector is not None:
                vector.close()

    def _check_open(self) -> None:
        if self._vector is None:
            raise ValueError(f"{self._name}: these environments are closed")
