"""What an environment shows and takes, and whether this system can learn from it."""

from dataclasses import dataclass, replace

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from agents.config import EnvironmentConfig
from agents.games import Game

SMALLEST_FLOAT_PICTURE = 20  # high and wide: what is smaller is a table of numbers


class UnfitSpaces(ValueError):
    """An environment whose actions or observations this system cannot learn from."""


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


def fit(config: EnvironmentConfig, game: Game, observation: Space, action: Space) -> Spaces:
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
