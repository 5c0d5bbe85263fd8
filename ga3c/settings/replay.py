"""Settings of the replay, and of how acting and learning wait for each other."""

from dataclasses import dataclass
from typing import Literal

from ga3c.settings.checks import check_count, not_negative


@dataclass(frozen=True)
class ReplayConfig:
    """The replay, and what learning draws from it. --experience says where the replay is kept."""

    n_step: int = 3
    """Steps of a return before it bootstraps (Sutton 1988): 1 is the original DQN."""
    batch_size: int = 32
    """Transitions in one update."""
    target_period: int = 500
    """Updates between two copies of the weights to the target network. --pacing target-period does
    not use this setting: it copies the weights at the end of each period."""
    replay_steps: int = 200_000
    """Steps that the replay keeps, of all environments together: the newest ones, but see
    eviction."""
    replay_min_steps: int = 10_000
    """Steps that are played before learning begins."""
    eviction: Literal["fifo", "priority"] = "fifo"
    """What leaves a full replay: the oldest steps, or for each new step another one, drawn in
    proportion to a power, eviction_exponent, of its last error (Ape-X DPG, Horgan et al. 2018).
    priority is for vectors only: it keeps whole transitions, each with both of its observations."""
    eviction_exponent: float = -0.4
    """Exponent of the error with --eviction priority; 0 evicts uniformly."""
    replay_draws: Literal["uniform", "prioritised"] = "uniform"
    """prioritised draws a step in proportion to a power, priority_exponent, of its last error
    (Schaul et al. 2016)."""
    first_priority: Literal["largest", "acting"] = "largest"
    """Priority of a step that was never drawn: the largest error seen so far (Schaul et al. 2016),
    or the step's own error by the values that acting had (Ape-X, Horgan et al. 2018)."""
    replay_repeats: bool = True
    """A batch may hold a step more than once."""
    priority_exponent: float = 0.6
    """Alpha: exponent of the error in prioritised draws; 0 draws uniformly."""
    importance_exponent: float = 0.4
    """Beta: how far importance weights correct for prioritised draws at the start; 1 is fully."""
    importance_exponent_end: float = 1.0
    """Beta at the end of the schedule."""
    update_size: int = 1000
    """New steps are added to the replay, and can be drawn, once there are this many of them. Not
    used by --pacing target-period, which adds them at the end of each period."""
    save_replay: bool = False
    """Keep the replay in every checkpoint. Without it a resumed run first plays replay_min_steps
    with the policy that it has learned, and then continues to learn."""

    def __post_init__(self) -> None:
        counts = ("n_step", "batch_size", "target_period")
        check_count(self, *counts, "replay_steps", "replay_min_steps", "update_size")
        not_negative(self, "priority_exponent", "importance_exponent", "importance_exponent_end")
        if self.eviction_exponent > 0:
            raise ValueError(
                f"eviction_exponent {self.eviction_exponent:g}: must be at most 0, or the "
                "transitions with the largest errors would be evicted first"
            )
        if self.eviction == "priority" and self.replay_steps >= 2**31:
            raise ValueError(
                f"replay_steps {self.replay_steps} >= {2**31} with eviction priority: its slots "
                "are numbered with 32 bits; keep fewer steps"
            )
        if self.replay_min_steps > self.replay_steps:
            raise ValueError(
                f"replay_min_steps {self.replay_min_steps} > replay_steps {self.replay_steps}: "
                "learning would never begin"
            )

    @property
    def has_first_priorities(self) -> bool:
        """Whether a step's first priority is its own error, from what acting keeps."""
        has_priorities = self.replay_draws == "prioritised" or self.eviction == "priority"
        return has_priorities and self.first_priority == "acting"


@dataclass(frozen=True)
class PacingConfig:
    """How acting and learning wait for each other if learning draws from a replay."""

    pacing: Literal["ratio", "target-period", "free"] = "ratio"
    """ratio: one update every steps_per_update steps; the side that is ahead waits. free: neither
    waits for the other, once replay_min_steps are played (Ape-X). target-period:
    acting uses the target's weights, which change every period_steps steps, while learning makes
    the period's updates; then each waits for the other to finish (Concurrent Training, Daley and
    Amato 2021)."""
    steps_per_update: float = 4.0
    """Environment steps per update."""
    slack_steps: int = 256
    """Most steps that acting may be ahead of learning, with --pacing ratio."""
    period_steps: int = 10_000
    """Environment steps in a period of --pacing target-period."""

    def __post_init__(self) -> None:
        check_count(self, "slack_steps", "period_steps")
        if self.steps_per_update <= 0:
            raise ValueError(
                f"steps_per_update {self.steps_per_update}: must be above 0, or acting would wait "
                "forever"
            )
        if self.pacing == "target-period" and self.period_steps < self.steps_per_update:
            raise ValueError(
                f"period_steps {self.period_steps} < steps_per_update {self.steps_per_update:g}: "
                "no period would have an update"
            )

    @property
    def updates_per_period(self) -> int:
        """Updates in a period of --pacing target-period."""
        return int(self.period_steps / self.steps_per_update)
