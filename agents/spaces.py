"""An environment's observations and actions, and whether this system can learn from them."""

import math
from dataclasses import dataclass, replace

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

from agents.actions import Actions
from agents.config import EnvironmentConfig
from agents.games import Game

SMALLEST_FLOAT_PICTURE = 20  # height and width; a smaller [h, w] of floats is a table
BYTES = 255  # the largest byte
SMALLEST_CHANNELS = 5  # height and width of the smallest picture of several channels
MOST_COMBINED = 1024  # combinations of all parts of an action, learned as one choice


class UnfitSpaces(ValueError):
    """An environment has actions or observations that this system cannot learn from."""


@dataclass(frozen=True)
class Spaces:
    """The observations and actions of an environment."""

    shape: tuple[int, ...]  # shape of one newest observation, without the stack
    dtype: str  # uint8 or float32
    actions: Actions
    stack: int  # number of newest observations that the service stacks
    info_keys: tuple[str, ...] = ()  # of the numbers that it reports at the end of an episode

    @property
    def is_picture(self) -> bool:
        """Whether an observation is [h, w] or [h, w, c] bytes, or floats of sufficient size."""
        if len(self.shape) not in (2, 3):
            return False
        if self.dtype == "uint8":
            return True
        least = SMALLEST_FLOAT_PICTURE if len(self.shape) == 2 else SMALLEST_CHANNELS
        return min(self.shape[:2]) >= least


def fit(config: EnvironmentConfig, game: Game, observation: Space, action: Space) -> Spaces:
    """The spaces of one environment of `game`. Raises UnfitSpaces if they do not fit."""
    sizes = observation.shape or ()
    if not (isinstance(observation, Box) and 1 <= len(sizes) <= 4 and min(sizes) > 0):
        kind = f"{type(observation).__name__} {observation.shape}"
        rule = "are not a Box of 1 to 4 dimensions, or are empty: no network takes them"
        raise UnfitSpaces(f"{config.game}: observations {kind} {rule}")
    shape = observation.shape[1:] if game.is_atari else observation.shape
    is_bytes = observation.dtype == np.uint8 and observation.high.max() > 1  # not just 0 and 1
    bound = np.abs(np.stack([observation.low, observation.high]).astype(float)).max()
    if rule := _misplaced(shape, is_bytes, bound):
        raise UnfitSpaces(f"{config.game}: observations {shape} {rule}")
    dtype = "uint8" if is_bytes else "float32"
    found = Spaces(shape, config.pixels if game.is_atari else dtype, actions_of(config, action), 1)
    if found.is_picture and dtype == "float32":
        if observation.high.max() == BYTES:
            rule = f"are {observation.dtype} up to 255: give bytes (uint8), or floats from 0 to 1"
            raise UnfitSpaces(f"{config.game}: observations {shape} {rule}")
        if bound > 1:
            found = replace(found, shape=(int(np.prod(shape)),))  # a table of numbers of any size
    stack = config.stack or (4 if found.is_picture and len(shape) == 2 else 1)
    return replace(found, stack=stack, info_keys=config.info_keys)


def _misplaced(shape: tuple[int, ...], is_bytes: bool, bound: float) -> str:
    """What is wrong with pictures whose frames or channels do not come last; empty if nothing."""
    if len(shape) < 3:
        return ""
    is_wide = min(shape[1:3]) >= SMALLEST_FLOAT_PICTURE
    is_picture = is_bytes or bound in (1, BYTES)  # other values may be a table of any size
    if len(shape) == 4 and is_picture and is_wide:
        return "seem to be several pictures: give only the newest one, and use --stack"
    seems = is_bytes or (is_wide and (is_picture or shape[0] < SMALLEST_CHANNELS))
    if len(shape) == 3 and seems and 2 * shape[0] <= min(shape[1:]):
        return (
            "seem to have their channels or stacked frames first: give [height, width, channels], "
            "or only the newest frame, [height, width], and use --stack"
        )
    return ""


def actions_of(config: EnvironmentConfig, space: Space) -> Actions:
    """The actions of an environment. Raises UnfitSpaces if they cannot be learned."""
    if isinstance(space, Discrete):
        return Actions(int(space.n))
    if isinstance(space, MultiDiscrete | MultiBinary):
        count = math.prod(_sizes(space))
        if count > MOST_COMBINED:
            rule = f"have {count} combinations: at most {MOST_COMBINED} are learned, as one choice"
            raise UnfitSpaces(f"{config.game}: actions {space} {rule}")
        return Actions(count)
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        rule = (
            "are neither Discrete, MultiDiscrete or MultiBinary nor a Box of floats: none could "
            "be drawn"
        )
        raise UnfitSpaces(f"{config.game}: actions {space} {rule}")
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = space.high - space.low  # also infinite where it overflows float32
    if not np.isfinite(sizes).all():
        rule = "have no finite bounds: it is undefined how large an action should be"
        raise UnfitSpaces(f"{config.game}: actions {space} {rule}")
    return Actions(0, int(np.prod(space.shape)))


def _sizes(space: MultiDiscrete | MultiBinary) -> list[int]:
    """How many values each part of an action has."""
    if isinstance(space, MultiBinary):
        return [2] * math.prod(space.shape)
    return space.nvec.ravel().tolist()


def own_actions(space: Space, actions: np.ndarray) -> np.ndarray:
    """The actions [n, *shape] of `Actions`, in the form that an environment of this space takes."""
    if isinstance(space, Discrete):
        return (actions.astype(np.int64) + int(space.start)).astype(space.dtype)
    if isinstance(space, MultiDiscrete | MultiBinary):  # a number encodes a choice for each part
        parts = np.stack(np.unravel_index(actions, _sizes(space)), axis=-1)
        parts = parts.reshape(-1, *space.shape).astype(space.dtype)
        return parts + space.start if isinstance(space, MultiDiscrete) else parts
    assert isinstance(space, Box)  # `fit` accepts no others
    low, high = space.low, space.high
    middle, half = (low + high) / 2, (high - low) / 2
    actions = actions.reshape(-1, *space.shape)
    return np.clip(middle + actions * half, low, high).astype(space.dtype)
