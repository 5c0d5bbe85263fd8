"""Refuses settings that have no effect, because the user expects them to have one."""

from dataclasses import fields
from typing import Any

from agents.environments import Spaces, spaces
from ga3c.command.help import check_effect
from ga3c.command.line import WrongUse
from ga3c.settings.choices import TRAITS
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import OF_SEGMENTS
from ga3c.settings.train import TrainConfig

BY_CHOICE = {
    ("run", "resume", None): {"trust"},
    ("evaluation", "evaluate_every", None): {"evaluate_episodes", "evaluate_step_cap"},
    ("scheduler", "scheduler", "off"): {e.name for e in fields(SchedulerConfig)} - {"scheduler"},
    ("scheduler", "scheduler", "random"): {"margin", "wins", "temperature", "cooling", "patience"},
    ("optimizer", "optimizer", "adam"): {"rms_decay", "rms_centered", "rms_start", "momentum"},
    ("dqn", "exploration", "schedule"): {"ladder_base", "ladder_exponent", "ladder_rungs"},
    ("dqn", "exploration", "ladder"): {"epsilon_start", "epsilon_end", "epsilon_steps"},
    ("dqn", "dueling", False): {"dueling_gradient_scale"},
    ("replay", "eviction", "fifo"): {"eviction_exponent"},
    ("replay", "replay_draws", "uniform"): {
        "priority_exponent",
        "importance_exponent",
        "importance_exponent_end",
    },
    ("service", "synchronized", True): {
        "prediction_batch_min",
        "prediction_batch_max",
        "prediction_wait_s",
    },
    ("service", "lockstep", True): {"training_wait_s"},
    ("hosts", "launcher", "local"): {"ray_address"},
    ("pacing", "pacing", "ratio"): {"period_steps"},
    ("pacing", "pacing", "free"): {"steps_per_update", "slack_steps", "period_steps"},
    ("pacing", "pacing", "target-period"): {"slack_steps", "target_period", "update_size"},
}
"""By section, setting and value: the settings that are not read with this value."""


OF_PICTURES = frozenset({"padding", "center", "pixel_scale"})
OF_VECTORS = frozenset({"normalize_observations"})
OF_OUR_NETWORKS = frozenset({"padding", "layer_norm", "units"})


def without_effect(config: TrainConfig, found: Spaces) -> dict[str, frozenset[str]]:
    """The settings that have no effect, by what they have no effect on.

    Args: found: the observations and actions of the configured environment.
    """
    ours = TRAITS.get(config.algorithm)
    own = ours.sections if ours else frozenset[str]()
    sections = set[str]().union(*(traits.sections for traits in TRAITS.values())) - own
    if not config.learns_from_replay:
        sections |= {"replay", "pacing"}
    unread = {each.name for name in sections for each in fields(getattr(config, name))}
    if config.learns_from_replay:
        unread |= OF_SEGMENTS
    unread |= ours.unread if ours else set()
    game, of_atari = config.environment.game, config.environment.without_effect
    if of_atari:
        of_atari |= {"stagger_steps"}
    chosen = {
        f"{name} {value}" if value else f"a run without {name}": frozenset(idle)
        for (section, name, value), idle in BY_CHOICE.items()
        if getattr(getattr(config, section), name) == value
    }
    if config.hosts.others_may_play:
        chosen["a run that other machines may join"] = frozenset({"transport"})
    else:
        chosen["a run that no other machine may join"] = frozenset({"agents_here", "compress"})
    replay = config.replay
    if replay.replay_draws == "uniform" and replay.eviction == "fifo":
        chosen["a replay without priorities"] = frozenset({"first_priority"})
    if config.run.resume:
        chosen["a run that is resumed"] = frozenset({"initial_weights"})
    if found.is_picture:
        chosen["observations that are pictures"] = OF_VECTORS
    else:
        chosen["observations that are vectors"] = OF_PICTURES
    if config.network.is_own:  # only dueling and dpg heads have dense layers of ours
        normed = config.dqn.dueling or "dpg" in own or ours is None
        chosen["a network of your own"] = OF_OUR_NETWORKS - ({"layer_norm"} if normed else set())
    if "dpg" in own and config.network.network == "auto" and not found.is_picture:
        chosen["dpg without a torso (see --actor-units, --critic-units)"] = frozenset({"units"})
    if found.actions.is_continuous:
        chosen["continuous actions"] = frozenset({"log_epsilon"})
    return {f"algorithm {config.algorithm}": frozenset(unread), f"game {game}": of_atari, **chosen}


def check_effects(
    config: TrainConfig, found: Spaces, arguments: list[str], command: str = "ga3c train"
) -> None:
    """Raises ValueError if one of the command's `arguments` has no effect with this `config`.

    Args: found: as for `without_effect`.
    """
    for what, settings in without_effect(config, found).items():
        check_effect(arguments, settings, what, f"{command} --help-all")


def check_measured(config: Any, arguments: list[str], command: str) -> None:
    """Raises WrongUse if `config` describes a run and one of the arguments has no effect on it.

    Args: config: of any command; command: its name.
    """
    if isinstance(config, TrainConfig):
        try:
            found = spaces(config.environment, tried=False)
            check_effects(config, found, arguments, command)
        except ValueError as error:
            raise WrongUse(str(error)) from error
