"""Settings that would change nothing are refused: what their user meant would not be done."""

from dataclasses import fields

from ga3c.command.help import check_effect
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import OF_SEGMENTS
from ga3c.settings.train import OWN_SECTIONS, UNREAD, TrainConfig

BY_CHOICE = {
    ("run", "resume", None): {"trust"},
    ("evaluation", "evaluate_every", None): {"evaluate_episodes", "evaluate_step_cap"},
    ("scheduler", "scheduler", "off"): {e.name for e in fields(SchedulerConfig)} - {"scheduler"},
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
    ("service", "synchronized", True): {"prediction_batch_min", "prediction_wait_s"},
    ("hosts", "launcher", "local"): {"ray_address"},
    ("pacing", "pacing", "ratio"): {"period_steps"},
    ("pacing", "pacing", "free"): {"steps_per_update", "slack_steps", "period_steps"},
    ("pacing", "pacing", "target-period"): {"slack_steps", "target_period"},
}
"""By section, setting and value: the settings that are not read with it."""


def without_effect(config: TrainConfig) -> dict[str, frozenset[str]]:
    """The settings that would change nothing, by what they have no effect on."""
    every = set[str]().union(*OWN_SECTIONS.values())
    sections = every - OWN_SECTIONS.get(config.algorithm, set())  # of its user's own: none
    if not config.learns_from_replay:
        sections |= {"replay", "pacing"}
    unread = {each.name for name in sections for each in fields(getattr(config, name))}
    if config.learns_from_replay:
        unread |= OF_SEGMENTS
    unread |= UNREAD.get(config.algorithm, set())
    game, of_atari = config.environment.game, config.environment.without_effect
    if of_atari:
        of_atari |= {"stagger_steps"}
    chosen = {
        f"{name} {value}" if value else f"a run without {name}": frozenset(idle)
        for (section, name, value), idle in BY_CHOICE.items()
        if getattr(getattr(config, section), name) == value
    }
    if not config.hosts.others_may_play:
        chosen["a run that no other machine may join"] = frozenset({"agents_here", "compress"})
    return {f"algorithm {config.algorithm}": frozenset(unread), f"game {game}": of_atari, **chosen}


def check_effects(config: TrainConfig, arguments: list[str]) -> None:
    """Raises ValueError if one of the command's `arguments` has no effect with this `config`."""
    for what, settings in without_effect(config).items():
        check_effect(arguments, settings, what, "ga3c train --help-all")
