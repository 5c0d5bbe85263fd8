"""How evaluation games are played: every setting has a name, and is kept with the score."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from agents.environments import EnvironmentConfig
from agents.games import check
from ga3c.settings.checks import check_count
from ga3c.settings.run import STEP_CAP


@dataclass(frozen=True)
class Protocol:
    """How evaluation games are played. All but policy and step_cap concern Atari games only."""

    policy: Literal["sample", "greedy", "epsilon"] = "sample"
    """sample draws actions from the policy, greedy takes the likeliest, epsilon does that but for
    a share of actions drawn evenly."""
    epsilon: float = 0.05
    """That share."""
    noop_max: int = 0
    """A game begins after fewer than this many idle emulator frames."""
    sticky_actions: float = 0.0
    """Probability a frame of repeating the last action."""
    frame_cap: int = 108_000
    """Emulator frames after which a game is cut short."""
    step_cap: int = STEP_CAP
    """Environment steps after which any game is cut short: it counts with its score so far."""

    def __post_init__(self) -> None:
        self.environment(EnvironmentConfig())  # which has the rules of what it takes
        check_count(self, "step_cap")
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon {self.epsilon}: must be in [0, 1]: it is a share")

    def environment(self, trained: EnvironmentConfig) -> EnvironmentConfig:
        """As `trained` on, played by this protocol: a lost life does not end a game."""
        return replace(
            trained,
            noop_max=self.noop_max,
            sticky_actions=self.sticky_actions,
            frame_cap=self.frame_cap,
            life_loss_terminates=False,
        )

    def named(self, name: str, trained: EnvironmentConfig, weights: str) -> dict[str, Any]:
        """Every setting, with the name if none of them was changed.

        Args: weights: newest, best or chosen: the best of several evaluations is no average one.
        """
        actions = "full" if trained.full_action_space else "minimal"
        fixed: dict[str, Any] = {"life_loss_ends": False, "fire_on_reset": trained.fire_on_reset}
        fixed |= {"action_set": actions, "action_repeat": trained.action_repeat}
        if check(trained.game).is_atari:
            kept = {**asdict(self), **fixed}
        else:
            kept = {"policy": self.policy}
        if self.policy != "epsilon":
            kept.pop("epsilon", None)
        kept.pop("step_cap", None)  # it comes last, as in `runs.evaluations`
        known = name if PROTOCOLS[name] == self else f"{name}, changed"
        return {"name": known, "weights": weights, **kept, "step_cap": self.step_cap}


PROTOCOLS = {
    # GA3C: 30 games, own seeds, sticky actions of that date's gym, 100,000 steps; a few no-ops
    # (unverified: its code filled the first stack with them)
    "paper": Protocol("sample", noop_max=17, sticky_actions=0.25, frame_cap=400_000),
    # Mnih et al. 2015: up to 30 no-ops, epsilon 0.05, five minutes a game
    "nature": Protocol("epsilon", epsilon=0.05, noop_max=31, frame_cap=18_000),
    # Machado et al. 2018: sticky actions are the only randomness of the game
    "machado": Protocol("sample", sticky_actions=0.25, frame_cap=18_000),
}
