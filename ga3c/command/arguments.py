"""The names of a command's arguments, and one-line messages about wrong ones."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import tyro

from agents.spelling import meant

HELP_ALL = "--help-all"
HELP = frozenset(("-h", "--help", HELP_ALL))
NEAR = 3  # the most commands or options to suggest
ELSEWHERE = {"env": "game", "env_id": "game", "total_timesteps": "steps", "gamma": "discount"}
ELSEWHERE |= {"n_envs": "envs_per_agent", "num_envs": "envs_per_agent", "n_steps": "t_max"}
ELSEWHERE |= {"num_steps": "t_max", "n_epochs": "passes", "update_epochs": "passes"}
ELSEWHERE |= {"ent_coef": "entropy_weight", "vf_coef": "value_weight", "gae_lambda": "trace_decay"}
ELSEWHERE |= {"clip_range": "clip_ratio", "clip_coef": "clip_ratio", "max_grad_norm": "clip_norm"}
ELSEWHERE |= {"buffer_size": "replay_steps", "learning_starts": "replay_min_steps"}
ELSEWHERE |= {"net_arch": "network", "policy_kwargs": "network", "env_kwargs": "env_args"}
ELSEWHERE |= {"info_keywords": "info_keys"}
"""What other libraries call our settings."""
_POWER = re.compile(r"\d+(\.\d+)?[eE]\+?\d+")  # 1e6: a whole number as people write it


def options(kind: type[Any]) -> dict[str, Any]:
    """The types of all options of a configuration `kind` by name, such as `--steps`."""
    return {"--" + name.replace("_", "-"): hint for name, hint in _settings(kind)}


def _settings(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    hints, marked = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        hint = hints[each.name]
        if tyro.conf.Suppress in get_args(marked[each.name]):
            continue
        if is_dataclass(hint) and isinstance(hint, type):
            yield from _settings(hint)
        else:
            yield each.name, hint


def at_home(arguments: list[str]) -> list[str]:
    """The arguments with `~` expanded, also after `=`, where shells leave it alone."""

    def whole(found: re.Match[str]) -> str:
        return (found[1] or "") + os.path.expanduser(found[2])

    return [re.sub(r"^(--[\w-]+=)?(~(?=/|$))", whole, each) for each in arguments]


def with_whole_numbers(arguments: list[str], kind: type[Any]) -> list[str]:
    """The arguments with `1e6` written out where a whole number is expected."""
    hints = options(kind)
    whole = {name for name, hint in hints.items() if int in (hint, *get_args(hint))}
    found, name = [], ""
    for argument in arguments:
        if not argument.startswith("--"):
            found.append(_whole(argument) if name in whole else argument)
            name = name if get_origin(hints.get(name)) is tuple else ""  # else it has its value
            continue
        name, has_value, value = argument.partition("=")
        found.append(f"{name}={_whole(value)}" if has_value and name in whole else argument)
    return found


def check_paths(arguments: list[str], kind: type[Any]) -> None:
    """Raises ValueError if an option's path is empty, which Python takes for the current folder."""
    hints = options(kind)
    for before, argument in pairwise(["", *arguments]):
        option, equals, value = argument.partition("=") if argument else (before, "=", "")
        if equals and not value and Path in (hints.get(option), *get_args(hints.get(option))):
            raise ValueError(f"{option}: its value is empty; leave it out, or give a path")


def _whole(text: str) -> str:
    if _POWER.fullmatch(text) and float(text).is_integer():
        return str(int(float(text)))
    return text


def near(name: str, known: Iterable[str], most: int = 2, longer: bool = False) -> str:
    """A "did you mean" question with the `known` names most similar to `name`; "" if none is.

    Args: most: how many names at most; longer: those that contain `name` come first.
    """
    known = [each for each in known if each != name]  # it would have been accepted
    ours = ELSEWHERE.get(name.removeprefix("--").replace("-", "_"), "")
    if name.startswith("--"):
        ours = "--" + ours.replace("_", "-")
    if ours in known:
        return meant(name, (), first=[ours])
    containing = [each for each in known if name in each] if longer else []
    return meant(name, known, most, containing)


def unknown(given: Iterable[str], known: Iterable[str], all_options: str) -> str:
    """One line about arguments that the command does not have.

    Args: known: its options; all_options: the command that lists them.
    """
    for argument in given:
        if argument.startswith("-"):
            name = argument.partition("=")[0]
            hint = near(name, known, NEAR, longer=True)
            return f"unknown option {name}: {hint}{all_options} lists all options"
    stray = " ".join(given)
    hint = ""
    if "--game" in known and _is_game(stray):
        hint = f"did you mean --game {stray}? "
    return f"{stray!r} belongs to no option: {hint}{all_options} lists all options"


def _is_game(name: str) -> bool:
    from agents.games import resolve

    try:
        resolve(name)
    except ValueError:
        return False
    return True
