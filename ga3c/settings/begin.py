"""Finds the settings that a run starts from, given the preset, algorithm and game."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any, Literal

from agents.environments import EnvironmentConfig, spaces
from agents.games import resolve
from ga3c.settings import choices
from ga3c.settings.checks import is_own
from ga3c.settings.presets import OF_LANES, OURS, PRESETS, for_lanes
from ga3c.settings.train import TrainConfig

Kind = Literal["pictures", "vectors", "control"]
"""Kinds of tasks; control means continuous actions and vector observations."""

DEFAULT_ALGORITHMS: dict[Kind, str] = {"pictures": "ppo", "vectors": "ppo", "control": "dpg"}
"""The algorithm for each kind of task if the user names none."""
BEGIN = ("preset", "algorithm", "game", "learns_from", *OF_LANES)
"""The settings that, together with env_args, determine what a run starts from."""


def begun_with(given: Mapping[str, Any]) -> TrainConfig:
    """The settings that a run starts from, determined by `BEGIN` and env_args in `given`.

    Raises ValueError as `preset_of` does.
    """
    preset, algorithm, game, learns_from, *lanes = map(given.get, BEGIN)
    env_args = tuple(given.get("env_args", ()))
    return for_lanes(preset_of(preset, algorithm, game, learns_from, env_args=env_args), *lanes)


def preset_of(
    name: str | None,
    algorithm: str | None,
    game: str | None,
    learns_from: Any = None,
    *,
    env_args: tuple[str, ...] = (),
) -> TrainConfig:
    """The settings that a run starts from, before other arguments change them.

    They are those of the preset called `name`, or else those for the algorithm and kind of game. A
    user's own algorithm gets those of dqn (dpg for continuous actions) if it learns from a replay,
    otherwise those of a3c. Arguments that are not given are None.

    Raises ValueError if the arguments contradict each other, or the game cannot be played.
    """
    if name in PRESETS:
        found = PRESETS[name]
        if algorithm not in (None, found.algorithm):
            if is_own(algorithm):
                own = preset_of(None, algorithm, game, learns_from, env_args=env_args)
                if own.preset == name:
                    return own
            raise ValueError(
                f"algorithm {algorithm} with preset {name}: must be {found.algorithm}, which "
                "the preset uses"
            )
        return found
    kind = kind_of(game or EnvironmentConfig().game, env_args)
    if algorithm is None:
        algorithm = DEFAULT_ALGORITHMS[kind]
    if f"{algorithm}-{kind}" in OURS:
        return OURS[f"{algorithm}-{kind}"]
    by_replay = choices.learns_from(algorithm, learns_from) == "replay"
    like = ("dpg" if kind == "control" else "dqn") if by_replay else "a3c"
    return replace(OURS[f"{like}-{kind}"], algorithm=algorithm, learns_from=learns_from)


def preset_like(config: TrainConfig) -> TrainConfig:
    """What a run with these settings started from. Raises ValueError as `preset_of` does."""
    played, begun = config.environment, PRESETS.get(config.preset)
    name = config.preset if begun and begun.algorithm == config.algorithm else None
    given = (name, config.algorithm, played.game, config.learns_from)
    return preset_of(*given, env_args=played.env_args)


def kind_of(game: str, env_args: tuple[str, ...] = ()) -> Kind:
    """The kind of `game`, as in the names of the presets for it.

    Environments other than Atari games are created once to find out.

    Raises ValueError if the game is unknown or cannot be played.
    """
    if resolve(game).is_atari:
        return "pictures"
    found = spaces(EnvironmentConfig(game, env_args), tried=False)  # the run will try it
    if found.is_picture:
        return "pictures"
    return "control" if found.actions.is_continuous else "vectors"


def given_values(arguments: list[str], name: str) -> tuple[str, ...]:
    """The values that the command line gives for the last option `name`, up to the next option."""
    split = [argument.partition("=") for argument in arguments]
    at = [i for i, (option, *_) in enumerate(split) if option.replace("_", "-") == name]
    if not at:
        return ()
    _, equals, first = split[at[-1]]
    after = takewhile(lambda argument: not argument.startswith("--"), arguments[at[-1] + 1 :])
    return (*([first] if equals else []), *after)


def given_value(arguments: list[str], name: str) -> str | None:
    """The value that the command line gives for the last option `name`; None if there is none."""
    found = next(iter(given_values(arguments, name)), None)
    return None if found == "None" else found
