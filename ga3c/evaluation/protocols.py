"""Evaluation protocols: how games are played. Their settings are kept with every score."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from agents.actions import Actions
from agents.environments import EnvironmentConfig
from agents.games import check
from ga3c.runs import records
from ga3c.runs.finding import EVALUATIONS
from ga3c.runs.kept_config import CONFIG
from ga3c.settings.checks import check_count, check_share
from ga3c.settings.run import STEP_CAP, ProtocolName

_ARGUMENT = re.compile(r" (?=[^\W\d]\w*=)")  # the space before an argument
OF_GAMES = ("noop_max", "sticky_actions", "frame_cap")  # None: as in training


@dataclass(frozen=True)
class Protocol:
    """How games are played. noop_max, sticky_actions and frame_cap apply to Atari games only."""

    policy: Literal["sample", "greedy", "epsilon"] = "sample"
    """sample draws actions from the policy; greedy takes the most probable action; epsilon is
    greedy except for a share of uniformly random actions."""
    epsilon: float = 0.05
    """Share of uniformly random actions, with --policy epsilon."""
    noop_max: int | None = None
    """Each game starts with a random number of no-op frames below this; None: as in training."""
    sticky_actions: float | None = None
    """Probability per frame of repeating the last action; None: as in training."""
    frame_cap: int | None = None
    """Emulator frames after which a game is cut short; None: as in training."""
    step_cap: int = STEP_CAP
    """Environment steps after which any game is cut short; its score so far counts."""

    def __post_init__(self) -> None:
        self.environment(EnvironmentConfig(action_repeat=1))  # checks the values passed on to it
        check_count(self, "step_cap")
        check_share(self, "epsilon")

    def environment(self, trained: EnvironmentConfig) -> EnvironmentConfig:
        """The training environment under this protocol. A lost life does not end a game."""
        given = {name: getattr(self, name) for name in OF_GAMES}
        whole = replace(trained, sticky_actions=trained.stickiness, life_loss_terminates=False)
        return replace(whole, **{name: v for name, v in given.items() if v is not None})

    def as_played(self, is_greedy: bool) -> "Protocol":
        """This protocol with its policy as it is in effect.

        Args: is_greedy: whether the policy has one action only, so that sampling would play that.
        """
        return replace(self, policy="greedy") if is_greedy and self.policy == "sample" else self

    def check_fits(self, name: str, trained: EnvironmentConfig, actions: Actions) -> None:
        """Raises ValueError if this protocol, called `name`, cannot play that environment."""
        self.environment(trained)
        if name == "control" and not actions.is_continuous:
            raise ValueError(
                "protocol control: is for continuous actions, but those of the game are "
                f"{actions}: choose another"
            )
        if actions.is_continuous and self.policy != "greedy":
            remedy = "leave --policy out" if name == "control" else "choose the protocol control"
            raise ValueError(
                f"policy {self.policy}: actions of {actions} have no probabilities, and are played "
                f"without noise: {remedy}"
            )

    def changes(self, name: str, is_greedy: bool = False) -> dict[str, Any]:
        """The settings that differ from those of the protocol `name`."""
        own, unchanged = (asdict(each.as_played(is_greedy)) for each in (self, PROTOCOLS[name]))
        return {key: value for key, value in own.items() if value != unchanged[key]}

    def named(
        self, name: str, trained: EnvironmentConfig, weights: str, is_greedy: bool = False
    ) -> dict[str, Any]:
        """All settings, with the protocol's name, which says if a setting was changed.

        Args:
            weights: newest, best or chosen. It is kept because the best of several evaluations is
                not a typical one.
            is_greedy: as in `as_played`; that sampling is greedy then, is no change.
        """
        played = self.as_played(is_greedy)
        is_changed = self.changes(name, is_greedy)
        kept: dict[str, Any] = {"name": f"{name}, changed" if is_changed else name}
        kept |= {"weights": weights, "policy": played.policy}
        if played.policy == "epsilon":
            kept["epsilon"] = played.epsilon
        if check(trained.game).is_atari:
            games = self.environment(trained)
            kept |= {each: getattr(games, each) for each in OF_GAMES}
            kept |= {"life_loss_ends": False, "fire_on_reset": games.fire_on_reset}
            kept["action_set"] = "full" if games.full_action_space else "minimal"
            kept["action_repeat"] = games.action_repeat
        elif trained.env_args:  # with different arguments it may be a different game
            kept["env_args"] = trained.arguments
        return {**kept, "step_cap": self.step_cap}


def fitting(name: ProtocolName, actions: Actions) -> ProtocolName:
    """`name`, except that control replaces trained, which samples, for continuous actions."""
    return "control" if name == "trained" and actions.is_continuous else name


PROTOCOLS = {
    # As in training, so that the score is what training reported, but a lost life ends no game.
    "trained": Protocol("sample"),
    # GA3C: 30 games, each with its seed, sticky actions as in Gym at that time, 100,000 steps, and
    # a few no-ops (unverified: its code filled the first stack with them).
    "paper": Protocol("sample", noop_max=17, sticky_actions=0.25, frame_cap=400_000),
    # Mnih et al. 2015: up to 30 no-ops, epsilon 0.05, five minutes a game.
    "nature": Protocol("epsilon", epsilon=0.05, noop_max=31, sticky_actions=0.0, frame_cap=18_000),
    # Machado et al. 2018: sticky actions are the only randomness of the game.
    "machado": Protocol("sample", noop_max=0, sticky_actions=0.25, frame_cap=18_000),
    # Horgan et al. 2018: up to 30 no-ops; 50,000 frames, the cap of its training games. The
    # evaluation policy is not stated: here it has an epsilon of its ladder, 0.4^7 (unverified).
    "apex": Protocol("epsilon", epsilon=0.00164, noop_max=31, sticky_actions=0.0, frame_cap=50_000),
    # Continuous actions without noise (Lillicrap et al. 2016; Horgan et al. 2018).
    "control": Protocol("greedy"),
}


def evaluations(path: Path) -> list[dict[str, Any]]:
    """The evaluations of the run in `path`, oldest first, each with its complete protocol.

    Without a protocol a score means nothing: such entries are left out.
    """
    algorithm = records.whole(path / CONFIG).get("algorithm")
    return [
        {**entry, "protocol": whole_protocol(protocol, algorithm)}
        for entry in records.read(path / EVALUATIONS)
        if isinstance(protocol := entry.get("protocol"), dict) and "name" in protocol
    ]


def whole_protocol(protocol: Mapping[str, Any], algorithm: str | None) -> dict[str, Any]:
    """A protocol that an earlier version may have kept, as it would be kept today.

    Games recorded before `step_cap` existed ended below it. env_args were kept as they were given,
    and the policy of a run of dqn as sampled, though it is greedy.
    """
    whole = {**protocol, "step_cap": protocol.get("step_cap", STEP_CAP)}
    if algorithm == "dqn" and whole.get("policy") == "sample":
        whole["policy"] = "greedy"
    if "env_args" in whole:
        with contextlib.suppress(ValueError, TypeError):  # what is no argument today stays
            given = tuple(_ARGUMENT.split(whole["env_args"]))
            whole["env_args"] = EnvironmentConfig(env_args=given).arguments
    return whole
