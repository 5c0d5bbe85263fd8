"""Rules for settings. Each error gives the value, the rule, and what would happen otherwise."""

import functools
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

MAX_INTRA_OP_THREADS = 1024  # TensorFlow aborts or hangs with tens of thousands of threads


_OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(\(.*\))?", re.DOTALL)


class WrongInput(ValueError):
    """What the user asked for cannot be done; the message says why in one line."""


def is_own(name: str) -> bool:
    """Whether `name` refers to the user's own code: module:name or module:name(key=value, ...)."""
    return _OWN.fullmatch(name) is not None


def without_arguments(name: str) -> str:
    """`module:name` of `module:name(key=value, ...)`; any other name as it is."""
    return name.partition("(")[0]


def no_effect(setting: str, what: str) -> str:
    """The error message for a setting that has no effect on `what`."""
    return f"{setting} has no effect on {what}: leave it out"


def not_negative(config: object, *names: str) -> None:
    """Raises ValueError if one of these settings is below 0."""
    _check(config, names, lambda value: value >= 0, "must be at least 0")


def above_zero(config: object, *names: str) -> None:
    """Raises ValueError if one of these settings is not above 0."""
    _check(config, names, lambda value: value > 0, "must be above 0")


def check_share(config: object, *names: str) -> None:
    """Raises ValueError if one of these settings is not in [0, 1]."""
    _check(config, names, lambda value: 0 <= value <= 1, "must be in [0, 1]")


def check_count(config: object, *names: str) -> None:
    """Raises ValueError if one of these settings is below 1."""
    _check(config, names, lambda value: value >= 1, "must be at least 1")


def _check(config: object, names: Iterable[str], holds: Callable[[Any], bool], rule: str) -> None:
    """Raises ValueError if one of these settings breaks a rule; None passes where allowed."""
    kind: Any = type(config)
    for name in names:
        value = getattr(config, name)
        if value is None and name in _optional(kind):
            continue
        if value is None or not holds(value):
            raise ValueError(f"{name} {value}: {rule}")


@functools.cache
def _optional(kind: type) -> set[str]:
    """The settings of a dataclass that may be None."""
    return {name for name, hint in get_type_hints(kind).items() if NoneType in get_args(hint)}


def check_threads(intra_op_threads: int) -> None:
    """Raises ValueError if the tensor framework would not start with this number of threads."""
    if not 1 <= intra_op_threads <= MAX_INTRA_OP_THREADS:
        raise ValueError(
            f"intra_op_threads {intra_op_threads}: must be between 1 and {MAX_INTRA_OP_THREADS}, "
            "or the tensor framework would not start"
        )


def check_slack(slack_steps: int, largest_batch: int, steps_per_update: float) -> None:
    """Raises ValueError if acting and learning could wait for each other forever.

    Acting waits if a prediction would put it more than `slack_steps` ahead of learning. Learning
    waits while acting is less than x = `steps_per_update` steps ahead: at most x - 1 if x is whole.
    """
    behind = steps_per_update - 1 if steps_per_update == int(steps_per_update) else steps_per_update
    if slack_steps < largest_batch + behind:
        raise ValueError(
            f"slack_steps {slack_steps} < {largest_batch + behind:g}: a prediction of "
            f"{largest_batch} steps would wait for an update, and the update for more of the "
            f"{steps_per_update:g} steps that it takes, forever; give a larger --slack-steps or "
            "smaller groups (--groups, --envs-per-agent)"
        )


def check_file(name: str, path: Path | None) -> None:
    """Raises ValueError if `path` is given but no file could be written there."""
    if path is None:
        return
    file = path.absolute()
    fits = os.access(file, os.W_OK) if file.is_file() else file.parent.is_dir()
    if file.is_dir() or not fits or not os.access(file.parent, os.W_OK):
        raise ValueError(f"{name} {path}: must be a file in a writable directory")


def check_picture(name: str, path: Path | None) -> None:
    """Raises ValueError if `path` is given but no picture could be written there."""
    check_file(name, path)
    if path is not None and path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{name} {path}: must end in .png, .svg or .pdf")


def check_seed(seed: int) -> None:
    """Raises ValueError if the random number generators would not accept the seed."""
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed {seed}: must be in [0, 2**31), as random generators need")


def check_queue(name: str, capacity: int, smallest: int, largest: int) -> None:
    """Raises ValueError if a queue's batch could never be complete."""
    if not 0 <= smallest <= largest <= capacity or largest < 1:
        raise ValueError(
            f"{name}_batch_min {smallest} and {name}_batch_max {largest} with a queue of "
            f"{capacity}: must be 0 <= min <= max <= queue, or no batch would ever be complete"
        )


def check_finite(part: Any) -> None:
    """Raises ValueError if a float in a configuration is infinite or NaN."""
    for each in fields(part):
        value = getattr(part, each.name)
        if is_dataclass(value):
            check_finite(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{each.name} {value}: must be a finite number")
