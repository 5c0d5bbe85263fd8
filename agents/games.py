"""Finds the game with a given name, and checks that it can be played on this machine."""

import difflib
import functools
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import gymnasium
from ale_py import registration, roms

from agents import control
from agents.extras import missing

# Patterns of Atari games' names, with the sticky actions that each implies, as Gymnasium's ids do.
_ATARI = (
    (re.compile(r"ALE/(\w+)-v5", re.IGNORECASE), 0.25),
    (re.compile(r"(\w+?)(NoFrameskip)?-v0", re.IGNORECASE), 0.25),
    (re.compile(r"(\w+?)(NoFrameskip)?-v4", re.IGNORECASE), 0.0),
    (re.compile(r"([\w-]+)"), 0.0),
)
JAX_IDS = ("phys2d/", "tabular/")  # Gymnasium's environments that need the following packages
NEEDED_BY_JAX_IDS = ("jax", "flax")
EXTRAS = {"Box2D": "box2d", "MuJoCo": "control"}  # of ga3c, by the package that is missing
OURS = (Path(__file__).parent, Path(__file__).parents[1] / "ga3c")
GYMNASIUM = Path(gymnasium.__file__).parent
IMPORTLIB = Path(importlib.__file__).parent
LIBRARIES = (Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib")))
_TWO_PLAYERS = {"combat", "joust", "maze_craze", "warlords"}  # excluded: there is no second player


class UnknownGame(ValueError):
    """A name is neither that of an Atari game nor a Gymnasium id."""


class UnfitRom(ValueError):
    """The ROM file of an Atari game is missing or damaged."""


class Game(NamedTuple):
    """The game that a name stands for."""

    name: str  # an ALE rom id (`ms_pacman`) or a Gymnasium id
    is_atari: bool
    sticky_actions: float  # what the name implies: 0.25 for ALE/*-v5 and *-v0, otherwise 0


@functools.cache
def atari_roms() -> dict[str, str]:
    """The rom ids of all Atari games that one player can play, by plain name."""
    return {control.plain(rom): rom for rom in roms.get_all_rom_ids() if rom not in _TWO_PLAYERS}


def _resolve_atari(name: str) -> Game | None:
    known = gymnasium.registry.get(name)
    if known is not None and not str(known.entry_point).startswith("ale_py"):
        return None  # a user's own Breakout-v0, for example
    for pattern, sticky_actions in _ATARI:
        match = pattern.fullmatch(name)
        rom = match and atari_roms().get(control.plain(match[1]))
        if rom:
            return Game(rom, True, sticky_actions)
    return None


def resolve(name: str) -> Game:
    """The game called `name`. Imports the module of `module:Id-v0`. Raises UnknownGame."""
    module, _, gymnasium_id = name.rpartition(":")
    if not module and (atari := _resolve_atari(name)):
        return atari
    try:
        if module:
            imported(module)
    except ValueError as error:
        raise UnknownGame(f"unknown game {name!r}: {error}") from error
    try:
        if gymnasium_id.startswith(control.NAMESPACE):
            gymnasium_id = control.register(gymnasium_id) or gymnasium_id
    except control.MissingPackage as error:
        raise UnknownGame(f"game {name!r}: {error}") from error
    try:
        gymnasium.spec(gymnasium_id)
    except gymnasium.error.Error as error:
        raise UnknownGame(_unknown(name)) from error
    return Game(gymnasium_id, False, 0.0)


def check_found(module: str) -> None:
    """Raises ValueError if there is no such module. Its outermost package is not loaded for it."""
    top = module.partition(".")[0]
    if top.isidentifier() and top not in sys.modules and importlib.util.find_spec(top) is None:
        raise ValueError(
            f"module {module} cannot be imported: there is no {top}.py or folder {top} here: run "
            "ga3c where it is, or name that folder in PYTHONPATH"
        )


def imported(module: str) -> ModuleType:
    """A module that the user wrote. Raises ValueError with one line if it cannot be imported."""
    check_found(module)
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # it may raise anything
        hint = " (a module is named without .py)" if module.endswith(".py") else ""
        raise ValueError(f"module {module} cannot be imported{hint}: {fault(error)}") from error


def fault(error: BaseException) -> str:
    """One line: what an environment's own code raised, and where in its author's file."""
    text = " ".join(str(error).split())
    if error.__cause__ and "was raised from the environment creator" in text:
        return fault(error.__cause__)  # Gymnasium re-raises it as the same type
    if isinstance(error, gymnasium.error.DependencyNotInstalled):
        for package, extra in EXTRAS.items():
            if text.lower().startswith(f"{package.lower()} is not installed"):
                return missing(package, extra)
    if isinstance(error, gymnasium.error.Error):
        return text  # the message names what is missing
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {text}"  # the text holds file and line
    where = _theirs(error)
    if isinstance(error, ImportError):
        return f"{text}{where}"
    return f"{type(error).__name__}: {text}{where}"


def _theirs(error: BaseException) -> str:
    """The last file and line of the author's own code that led to the error; empty if none."""
    frames = traceback.extract_tb(error.__traceback__)
    # Theirs may be installed, too.
    for others in ((*OURS, *LIBRARIES), (*OURS, GYMNASIUM, IMPORTLIB)):
        theirs = [
            each
            for each in frames
            if Path(each.filename).is_absolute()
            and not set(others) & set(Path(each.filename).parents)
        ]
        if theirs:
            return f" ({theirs[-1].filename}, line {theirs[-1].lineno})"
    return ""


def _unknown(name: str) -> str:
    """One line that says that `name` is unknown, and suggests similar names."""
    choices = "Atari games by name (Pong, MsPacman) or any Gymnasium id (CartPole-v1)"
    module, colon, rest = name.rpartition(":")
    if module:
        names = [i for i, spec in gymnasium.registry.items() if _is_of(module, spec.entry_point)]
        none = "" if names else ", and it seems to register none"
        choices = f"after the colon comes an id that {module} registers with Gymnasium{none}"
    elif name.startswith(control.NAMESPACE):
        names, choices = control.tasks(), "tasks are named as dm_control/walker-walk"
    else:
        names = [registration.rom_id_to_name(rom) for rom in atari_roms().values()]
        names += [i for i, s in gymnasium.registry.items() if "ale_py" not in str(s.entry_point)]
    if not all(map(importlib.util.find_spec, NEEDED_BY_JAX_IDS)):
        names = [name for name in names if not name.startswith(JAX_IDS)]
    by_lower = {n.lower(): n for n in names}
    core = rest.lower()
    if not module:
        core = re.sub(r"^ale/|(noframeskip|deterministic)?(-v\d+)?$", "", core)
    near = [f"{module}{colon}{by_lower[n]}" for n in difflib.get_close_matches(core, by_lower)]
    meant = f"did you mean {', '.join(near)}? " if near else ""
    return f"unknown game {name!r}: {meant}{choices}"


def _is_of(module: str, entry_point: Any) -> bool:
    """Whether an environment is of the same package as `module`."""
    package = module.partition(".")[0]
    place = entry_point if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    return str(place).partition(":")[0].partition(".")[0] == package


def check(name: str) -> Game:
    """The game called `name`, after checking its ROM file without loading it.

    Raises UnknownGame or UnfitRom. Without this check, a damaged file would make the emulator end
    the process.
    """
    game = resolve(name)
    if game.is_atari:
        folder = Path(os.environ.get("ALE_ROMS_DIR") or Path(roms.__file__).parent)
        path = folder / f"{game.name}.bin"
        try:
            roms.get_rom_path(game.name)  # checks the MD5 sum
        except OSError as error:
            fault = "damaged (its MD5 sum is wrong)" if path.is_file() else "missing"
            message = f"ROM file of {game.name!r} at {path} is {fault}: it cannot be played"
            raise UnfitRom(message) from error
    return game


def are_same(one: str, other: str) -> bool:
    """Whether two names stand for the same game. Raises what `check` raises.

    The same id in two modules is two games, but `check` ignores the module.
    """
    modules = {name.rpartition(":")[0] for name in (one, other)}
    return len(modules) == 1 and check(one) == check(other)
