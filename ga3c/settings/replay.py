"""What learning draws from, and who waits for whom."""

from dataclasses import dataclass
from typing import Literal

from ga3c.settings.checks import check_count, not_negative


@dataclass(frozen=True)
class ReplayConfig:
    """What learning draws, and from what. The replay lives where --experience says."""

    n_step: int = 3
    """Steps of a return before it bootstraps (Sutton 1988): 1 is the original DQN."""
    batch_size: int = 32
    """Transitions of an update."""
    target_period: int = 500
    """Updates between two copies of the weights to the target network. With --pacing target-period
    they are copied where acting and learning meet, and this setting is not used."""
    replay_steps: int = 200_000
    """Newest steps of all environments that are kept and drawn from."""
    replay_min_steps: int = 10_000
    """Steps that are played before learning begins."""
    replay_draws: Literal["uniform", "prioritised"] = "uniform"
    """prioritised draws a step in proportion to its last error (Schaul et al. 2016)."""
    replay_repeats: bool = True
    """A batch may hold a step more than once."""
    priority_exponent: float = 0.6
    """Alpha: how much the error counts; 0 draws uniformly."""
    importance_exponent: float = 0.4
    """Beta: how far weights make up for that at the start."""
    importance_exponent_end: float = 1.0
    """The same at the end of the schedule."""
    update_size: int = 1000
    """New steps wait until they are so many, and can then be drawn."""
    save_replay: bool = False
    """Keep the replay in every checkpoint. Else a resumed run plays replay_min_steps first, as it
    has learned to, before it learns on."""

    def __post_init__(self) -> None:
        counts = ("n_step", "batch_size", "target_period")
        for name in (*counts, "replay_steps", "replay_min_steps", "update_size"):
            check_count(self, name)
        not_negative(self, "priority_exponent", "importance_exponent", "importance_exponent_end")
        if self.replay_min_steps > self.replay_steps:
            raise ValueError(
                f"replay_min_steps {self.replay_min_steps} > replay_steps {self.replay_steps}: "
                "learning would never begin"
            )
        if self.update_size > self.replay_min_steps:
            raise ValueError(
                f"update_size {self.update_size} > replay_min_steps {self.replay_min_steps}: "
                "there would be nothing to draw when learning begins"
            )


@dataclass(frozen=True)
class PacingConfig:
    """Who waits for whom, where learning draws from a replay."""

    pacing: Literal["ratio", "target-period"] = "ratio"
    """ratio: an update every steps_per_update steps, either side waits. target-period: acting uses
    the target's weights, which change each period_steps steps, while learning makes that period's
    updates; then they meet (Concurrent Training, Daley and Amato 2021)."""
    steps_per_update: float = 4.0
    """Environment steps for each update."""
    slack_steps: int = 256
    """Steps that acting may be ahead of learning, with --pacing ratio."""
    period_steps: int = 10_000
    """Steps between two meetings, with --pacing target-period."""

    def __post_init__(self) -> None:
        for name in ("slack_steps", "period_steps"):
            check_count(self, name)
        if self.steps_per_update <= 0:
            raise ValueError(
                f"steps_per_update {self.steps_per_update}: must be above 0, or acting would wait "
                "forever"
            )
        if self.period_steps < self.steps_per_update:
            raise ValueError(
                f"period_steps {self.period_steps} < steps_per_update {self.steps_per_update:g}: "
                "no period would have an update"
            )

    @property
    def updates_per_period(self) -> int:
        """Updates between two meetings."""
        return int(self.period_steps / self.steps_per_update)
