"""A second copy of a game, in full colour, played with the same seed and the same actions."""

import contextlib
import math
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from ale_py import ALEInterface, roms
from gymnasium.spaces import Discrete, Space

from agents.config import EnvironmentConfig
from agents.games import Game, check, fault
from agents.spaces import own_actions
from agents.vectors import make_vector, seeds_of

EMULATOR_FRAMES_PER_S = 60
# Gymnasium draws many games with pygame. It needs no screen for that, and would complain of none.
WITHOUT_SCREEN = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}


class NoPictures(ValueError):
    """An environment that cannot be rendered; the message says why."""


class Pictures:
    """One environment that returns its pictures. For one thread.

    Raises NoPictures.
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self._game = check(config.game)
        for name, value in WITHOUT_SCREEN.items():
            os.environ.setdefault(name, value)
        with _refusing(config.game), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing rgb_array: the error says it too
            self._vector: Any = make_vector(config, self._game, 1, 1, rendered=True)
        self.per_second = EMULATOR_FRAMES_PER_S / config.action_repeat
        """Pictures per second of play."""
        if not self._game.is_atari:
            self.per_second = float(self._vector.metadata.get("render_fps", 30))
        self._action_space = self._vector.single_action_space
        self.actions = _action_names(self._game, config.full_action_space, self._action_space)
        """The name of each action."""

    def reset(self, seed: int) -> np.ndarray:
        """Start the game of `Environments(config, 1).reset(seed)`. Its picture, [h, w, 3] uint8."""
        frames, _ = self._vector.reset(seed=seeds_of(self._game, seed, 1))
        return self._seen(frames)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Take the action, [1, *shape]. The picture after it, [h, w, 3] uint8."""
        return self._seen(self._vector.step(own_actions(self._action_space, actions))[0])

    def close(self) -> None:
        """Close the environment."""
        self._vector.close()

    def _seen(self, frames: np.ndarray) -> np.ndarray:
        if self._game.is_atari:
            return np.ascontiguousarray(frames[0, 0])
        with _refusing(self._game.name):
            return np.asarray(self._vector.render()[0], np.uint8)


@contextlib.contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:  # a package is missing, or there is no render_mode
        raise NoPictures(f"{name} cannot be rendered: {fault(error)}") from error


def _action_names(game: Game, full: bool, space: Space) -> list[str]:
    if not game.is_atari:
        count = space.n if isinstance(space, Discrete) else math.prod(space.shape or ())
        return [f"action {number}" for number in range(count)]
    emulator = ALEInterface()
    emulator.loadROM(str(roms.get_rom_path(game.name)))
    actions = emulator.getLegalActionSet() if full else emulator.getMinimalActionSet()
    return [action.name.lower() for action in actions]
