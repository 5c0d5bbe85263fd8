"""A run's settings as stored in `config.json`, in this format and in all earlier ones.

`format` is the format's number; format 1 had none. Unknown and missing keys are reported:
otherwise their values would silently differ from those that the run had.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agents.games import UnknownGame, resolve
from ga3c.settings.train import TrainConfig

CONFIG = "config.json"
NOT_LEARNED_FROM = ("format", "preset", "run", "hosts", "checkpoints", "evaluation")
"""Settings and sections that learning does not depend on."""
OF_REPLAY = (
    *("pacing", "steps_per_update", "period_steps", "replay_min_steps", "n_step", "discount"),
    *("replay_steps", "update_size", "slack_steps", "eviction", "replay_draws"),
    *("first_priority", "priority_exponent", "eviction_exponent", "pixels"),
)
LANES = "agents x envs_per_agent"
"""Settings that the counts, rows and priorities of a saved replay depend on."""
FORMAT = 14
# Where settings of older formats are now. The first two moved during format 1.
TO_FORMAT_3 = {
    "a3c.discount": "learning.discount",
    "a3c.reward_clip": "learning.reward_clip",
    "a3c.t_max": "service.t_max",
    "dqn.n_step": "replay.n_step",
    "dqn.batch_size": "replay.batch_size",
    "dqn.target_period": "replay.target_period",
}
# Settings that files of a format lack; for format 1, that some files lack. Their default, or their
# value in `BEFORE`, is what every run did then. So it is for whole sections that format 1 may lack.
NEWER: dict[int, set[str]] = {
    1: {
        "environment.pixels",
        "evaluation.evaluate_step_cap",
        "learning.max_refused_updates",
        "network.precision",
        "optimizer.momentum",
        "optimizer.rms_centered",
        "run.plain",
        "run.resume",
        "run.trace",
        "scheduler.max_memory_mb",
        "scheduler.max_policy_lag",
        "service.backend",
        "service.lockstep",
        "service.synchronized",
        "network.separate_value",
        "network.value_scale",
        "network.pixel_scale",
        "dqn.dueling_gradient_scale",
        "dqn.loss_reduction",
    },
    2: {"learns_from"},
    3: {
        "service.passes",
        "service.minibatch",
        "service.stagger_steps",
        "ppo.clip_ratio",
        "dqn.exploration",
        "dqn.ladder_base",
        "dqn.ladder_exponent",
        "replay.first_priority",
    },
    4: {"network.layer_norm", "dqn.ladder_rungs", "environment.env_args"},
    5: {"run.track"},
    6: {
        "dpg.noise",
        "dpg.action_gradient_clip",
        "dpg.actor_units",
        "dpg.critic_units",
        "network.normalize_observations",
        "network.follow_rewards",
        "replay.eviction",
        "replay.eviction_exponent",
    },
    7: {"hosts.listen", "hosts.key", "hosts.allow", "hosts.agents_here"},
    8: {"hosts.launcher", "hosts.ray_address", "hosts.compress"},
    9: {"run.trust"},
    10: {"learning.initial_weights"},
    11: {"network.units"},
    12: {"environment.info_keys"},
    13: set(),
}
BEFORE = {"network.layer_norm": False}
UNREADABLE = (OSError, ValueError, TypeError, AttributeError, RecursionError)
"""What reading a damaged or foreign file raises."""


class KeptConfig(NamedTuple):
    """The settings of a run, and where they differ from its file."""

    config: TrainConfig
    notes: list[str]  # a line for each kind of difference


def to_json(config: TrainConfig) -> dict[str, Any]:
    """The content of `config.json`, as JSON values."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(config), default=str))
    return {"format": FORMAT, **values}


def load_config(path: Path) -> TrainConfig:
    """The settings of the run in `path`. Raises ValueError if they cannot be read."""
    return read_config(path).config


def read_config(path: Path) -> KeptConfig:
    """The settings of the run in `path`, with notes for the user.

    Raises ValueError if they cannot be read.
    """
    try:
        values = json.loads((path / CONFIG).read_bytes())
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
        number = values.pop("format", 1)
        if number not in range(1, FORMAT + 1):
            raise ValueError(
                f"format {number!r}: must be 1 to {FORMAT}; another version of ga3c wrote it"
            )
        if number < 3:
            _move(values, TO_FORMAT_3)
        if number < 11:
            _quote_truth(values)
        if number < 13:
            _without_sticky_actions(values)
        if number < 14:
            _constant_schedules(values)
        _fill(values, _newer(number))
        config = msgspec.convert(values, TrainConfig, dec_hook=lambda kind, value: kind(value))
    except UNREADABLE as error:  # msgspec's errors are ValueErrors
        raise ValueError(f"run {path}: its {CONFIG} cannot be read: {error}") from error
    return KeptConfig(config, list(_notes(path, values, config, number)))


def _move(values: dict[str, Any], moved: Mapping[str, str]) -> None:
    """Move settings of an older format to where they are in this one."""
    for old, new in moved.items():
        (old_section, name), (section, _) = old.split("."), new.split(".")
        if name in values.get(old_section, {}):
            values.setdefault(section, {})[name] = values[old_section].pop(name)


def _quote_truth(values: dict[str, Any]) -> None:
    """Quote `key=false` in env_args: it used to be a string, and is refused as input today."""
    environment = values.get("environment", {})
    environment["env_args"] = [
        re.sub(r"=(?!True$|False$)((?i:true|false))$", r"='\1'", pair)
        for pair in environment.get("env_args", ())
    ]


def _without_sticky_actions(values: dict[str, Any]) -> None:
    """Say that a game such as Pong-v0 had no sticky actions: its name implies them today."""
    environment = values.get("environment", {})
    game = str(environment.get("game"))
    if environment.get("sticky_actions") is None and re.fullmatch(r"\w+-v0", game, re.IGNORECASE):
        with contextlib.suppress(UnknownGame):
            if resolve(game).is_atari:
                environment["sticky_actions"] = 0.0


def _constant_schedules(values: dict[str, Any]) -> None:
    """Say that a schedule was constant where it ended as it began: a new start then is its end."""
    for section, name, word in (
        ("optimizer", "learning_rate", "constant"),
        ("a3c", "entropy_weight", None),
    ):
        part = values.get(section, {})
        if part.get(f"{name}_end") is not None and part[f"{name}_end"] == part.get(name):
            part[f"{name}_end"] = word


def _newer(number: int) -> set[str]:
    """The settings that were added after format `number`."""
    return {key for older in range(number, FORMAT) for key in NEWER[older]}


def _fill(values: dict[str, Any], newer: set[str]) -> None:
    """Give settings that the file's format lacks their old value, where the default differs."""
    for key in newer & set(BEFORE):
        section, name = key.split(".")
        values.setdefault(section, {}).setdefault(name, BEFORE[key])


def _notes(
    path: Path, values: Mapping[str, Any], config: TrainConfig, number: int
) -> Iterator[str]:
    known, given = dict(leaves(asdict(config))), dict(leaves(values))
    if unknown := sorted(given.keys() - known.keys()):
        yield f"{path / CONFIG} has unknown settings, which are ignored: " + ", ".join(unknown)
    missing = known.keys() - given.keys() - _newer(number)
    if number == 1:
        missing = {key for key in missing if key.partition(".")[0] in values}
    if missing:
        found = (f"{key} {known[key]}" for key in sorted(missing))
        yield f"{path / CONFIG} lacks settings, which are assumed to be: " + ", ".join(found)


def changes(before: TrainConfig, now: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """The settings that learning depends on and that differ, by full name: before and now."""
    old, new = learned_from(before), learned_from(now)
    return {name: (old[name], new[name]) for name in old if old[name] != new[name]}


def learned_from(config: TrainConfig) -> dict[str, Any]:
    """The settings that learning depends on, by full name.

    Schedules are given as they run, whatever determines their length.
    """
    parts = {**to_json(config), "optimizer": asdict(config.scheduled_optimizer)}
    return dict(leaves({n: part for n, part in parts.items() if n not in NOT_LEARNED_FROM}))


def replay_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings in `OF_REPLAY` and `LANES`, by name."""
    parts = (config.pacing, config.replay, config.learning, config.environment)
    known = {name: value for part in parts for name, value in asdict(part).items()}
    return {name: known[name] for name in OF_REPLAY} | {LANES: config.max_lanes}


def leaves(values: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of all sections by their full names, such as `run.seed`."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{section}{name}.")
        else:
            yield section + name, value
