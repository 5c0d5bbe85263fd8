"""Settings of the replay, and of how acting and learning wait for each other."""

from dataclasses import dataclass
from typing import Literal

from ga3c.settings.checks import check_count, not_negative


@dataclass(frozen=True)
class ReplayConfig:
    """The replay buffer and how it is sampled. --experience says where it is stored."""

    n_step: int = 3
    """Steps of a return before it bootstraps (n-step returns, Sutton 1988); 1: the original DQN."""
    batch_size: int = 32
    """Transitions per update."""
    target_period: int = 500
    """Updates between copies of the weights to the target network. Not used by --pacing
    target-period, which copies them at the end of each period."""
    replay_steps: int = 200_000
    """Capacity of the replay in steps, over all environments together. It keeps the newest ones,
    but see eviction."""
    replay_min_steps: int = 10_000
    """Environment steps played before learning begins."""
    eviction: Literal["fifo", "priority"] = "fifo"
    """What leaves a full replay. fifo: the oldest steps. priority: for each new step another one,
    drawn in proportion to its last error to the power of eviction_exponent (Ape-X DPG, Horgan et
    al. 2018); for vectors only, as it stores whole transitions, with both observations."""
    eviction_exponent: float = -0.4
    """Exponent of the error with --eviction priority; 0 evicts uniformly."""
    replay_draws: Literal["uniform", "prioritised"] = "uniform"
    """prioritised draws steps in proportion to their last error to the power of priority_exponent
    (Schaul et al. 2016)."""
    first_priority: Literal["largest", "acting"] = "largest"
    """Priority of a step not drawn yet. largest: the largest error so far (Schaul et al. 2016).
    acting: its own error, from the values computed when acting (Ape-X, Horgan et al. 2018)."""
    replay_repeats: bool = True
    """Allow the same step more than once in a batch."""
    priority_exponent: float = 0.6
    """Alpha: exponent of the error in prioritised draws; 0 draws uniformly."""
    importance_exponent: float = 0.4
    """Beta at the start: how far importance weights correct prioritised draws; 1: fully."""
    importance_exponent_end: float = 1.0
    """Beta at the end of the schedule."""
    update_size: int = 1000
    """New steps enter the replay, where they can be drawn, once this many have accumulated. Not
    used by --pacing target-period, which adds them at the end of each period."""
    save_replay: bool = False
    """Save the replay in every checkpoint. Otherwise a resumed run first plays replay_min_steps
    with its trained policy before it goes on learning."""

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
        """Whether a step's first priority is its own error, from values recorded when acting."""
        has_priorities = self.replay_draws == "prioritised" or self.eviction == "priority"
        return has_priorities and self.first_priority == "acting"


@dataclass(frozen=True)
class PacingConfig:
    """How acting and learning wait for each other, for algorithms that learn from a replay."""

    pacing: Literal["ratio", "target-period", "free"] = "ratio"
    """ratio: one update every steps_per_update steps; the side that is ahead waits. free: neither
    waits for the other once replay_min_steps have been played (Ape-X). target-period: acting uses
    the target network, which changes every period_steps steps, while learning makes the period's
    updates; then each waits for the other to finish (Concurrent Training, Daley and Amato 2021)."""
    steps_per_update: float = 4.0
    """Environment steps per update."""
    slack_steps: int = 256
    """Maximum steps by which acting may be ahead of learning, with --pacing ratio."""
    period_steps: int = 10_000
    """Environment steps per period, with --pacing target-period."""

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
    def updates_per_period(self) -> float:
        """Updates in a period of --pacing target-period, on average."""
        return self.period_steps / self.steps_per_update
