"""The settings of an environment."""

import ast
import re
from dataclasses import dataclass, fields
from typing import Any, Literal

from agents.games import resolve

OF_OTHERS = ("env_args", "info_keys")  # settings that Atari games do not take
MAX_INFOS = 64
_KEY = re.compile(r"[A-Za-z0-9]+(?:[./_ -][A-Za-z0-9]+)*")
INT_LIMIT = 2**31  # the emulator counts frames and pixels in C++ ints, which must stay below this


def _check(valid: bool, otherwise: str) -> None:
    if not valid:
        raise ValueError(otherwise)


@dataclass(frozen=True)
class EnvironmentConfig:
    """The game and its rules. All but game, env_args, info_keys and stack are for Atari games."""

    game: str = "Pong"
    """An Atari game by name (Pong, ms_pacman, ALE/Pong-v5), a Gymnasium id (CartPole-v1), a task of
    the Control Suite (dm_control/walker-walk), or an id that your module registers (module:Id-v0).
    """
    env_args: tuple[str, ...] = ()
    """Arguments of the environment's constructor, each as key=value; the value is a Python number,
    True, False or text. Not for Atari games. Example: --env-args map_name=8x8 is_slippery=False."""
    info_keys: tuple[str, ...] = ()
    """Keys of numbers in the info of an episode's last step. Their means over the last 100 episodes
    are shown and kept with the score. Not for Atari games. Example: --info-keys coins distance."""
    action_repeat: int = 4
    """Emulator frames per step, all with the same action, whatever the game's id says."""
    sticky_actions: float | None = None
    """Probability per frame of repeating the last action; None: as the name says, which is 0.25 for
    ALE/Pong-v5 and Pong-v0, and 0 for Pong and Pong-v4."""
    noop_max: int = 30
    """Each game starts with a random number of no-op emulator frames, uniform in [0, x)."""
    fire_on_reset: bool = True
    """Press FIRE once at the start of a game (not after a lost life), if the game has it."""
    max_pool: bool = True
    """Take the pixel-wise maximum of a step's last two emulator frames."""
    life_loss_terminates: bool = True
    """Treat a lost life as the end of an episode in learning; the game and its score go on."""
    full_action_space: bool = False
    """Use all 18 actions of the console, not only those that the game uses."""
    frame_cap: int = 108_000
    """Emulator frames after which a game is cut short (108,000 is 30 minutes)."""
    frame_size: int = 84
    """Height and width of the greyscale frames, in pixels."""
    pixels: Literal["uint8", "float32"] = "uint8"
    """How frames are sent and stored: bytes, or floats in [0, 1], four times as large."""
    stack: int | None = None
    """Newest observations stacked as the model's input; None: 4 for [h, w] pictures, else 1."""

    def __post_init__(self) -> None:
        for name in OF_OTHERS:
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has no tuples
        self.keywords  # noqa: B018  raises ValueError if one is not key=value
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
        for key in self.info_keys:  # trackers take no others, and Gymnasium uses _key for itself
            rule = "must be letters and digits, with single . - / _ or spaces between them"
            _check(bool(_KEY.fullmatch(key)), f"info_keys {key!r}: {rule}")
        keys = self.info_keys
        rule = f"must be at most {MAX_INFOS} different keys, each of which is a figure of the run"
        valid = len(set(keys)) == len(keys) <= MAX_INFOS
        _check(valid, f"info_keys {' '.join(keys)}: {rule}")
        _check(stack is None or stack >= 1, f"stack {stack} < 1: the model would see nothing")

    @property
    def keywords(self) -> dict[str, Any]:
        """`env_args` as keyword arguments. Raises ValueError if one is not key=value."""
        found = {}
        for pair in self.env_args:
            name, has_value, text = pair.partition("=")
            rule = "must be key=value with the name of a constructor's argument"
            _check(bool(has_value) and name.isidentifier(), f"env_args {pair}: {rule}")
            try:
                found[name] = ast.literal_eval(text)
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                rule = f"write {text.capitalize()}, or {name}='\"{text}\"' for the text"
                _check(text.lower() not in ("true", "false"), f"env_args {pair}: {rule}")
                found[name] = text
        return found

    @property
    def arguments(self) -> str:
        """`env_args` in one form, whatever their order and quotes: sorted, as Python values."""
        return " ".join(f"{name}={value!r}" for name, value in sorted(self.keywords.items()))

    @property
    def without_effect(self) -> frozenset[str]:
        """The settings that have no effect because the game is not an Atari game."""
        if resolve(self.game).is_atari:
            return frozenset()
        return frozenset(each.name for each in fields(self)) - {"game", "stack", *OF_OTHERS}

    @property
    def stickiness(self) -> float:
        """`sticky_actions`, or what the game's id implies."""
        given = self.sticky_actions
        return resolve(self.game).sticky_actions if given is None else given

    @property
    def needs_seeds(self) -> bool:
        """Whether games are seeded in every run, which makes Atari games slower to create.

        Unseeded Atari games seed themselves from the clock, in whole seconds. That is enough for
        no-ops at their start, but all games created in the same second would share sticky actions.
        """
        return not resolve(self.game).is_atari or self.stickiness > 0

    @property
    def frames_per_step(self) -> int:
        """The action repeat of an Atari game; 1 for any other environment."""
        return self.action_repeat if resolve(self.game).is_atari else 1
