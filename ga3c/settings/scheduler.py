"""The counts of agents, predictors and trainers, and the settings that tune them."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ga3c.settings.checks import above_zero


class Counts(NamedTuple):
    """The number of agents, predictors and trainers."""

    agents: int
    predictors: int
    trainers: int


@dataclass(frozen=True)
class SchedulerConfig:
    """How the counts of agents, predictors and trainers are tuned during the run."""

    scheduler: Literal["anneal", "random", "off"] = "anneal"
    """anneal tries other counts of agents, predictors and trainers; random is the paper's random
    walk, which keeps a change unless the rate fell in one window; off leaves the counts fixed."""
    settle_s: float = 5.0
    """Seconds between a change and the window that measures it."""
    window_s: float = 15.0
    """Length of each measurement window, in seconds."""
    wins: int = 2
    """Consecutive wins that new counts need before they are kept; each win is measured afresh."""
    margin: float = 0.03
    """Relative gain in training rate that new counts need to win: about the noise of one window."""
    temperature: float = 0.01
    """At the start, counts that miss the margin by this amount still win with probability 1/e."""
    cooling: float = 0.8
    """Factor on the temperature after each decision."""
    patience: float = 4.0
    """Each time all neighbouring counts have been rejected, the time between proposals grows by
    this factor."""
    max_policy_lag: float | None = None
    """Limit on the mean policy lag, in updates. Beyond it, new counts win only with less lag."""
    max_memory_mb: float | None = None
    """Limit on the resident memory of the service and its agents, in MiB. No agent is added that
    would exceed it. Beyond it, new counts win only if they use less memory."""

    def __post_init__(self) -> None:
        if self.wins < 1:
            raise ValueError(f"wins {self.wins}: must be at least 1, or anything would be kept")
        if self.margin < 0:
            raise ValueError(f"margin {self.margin}: must be at least 0, or losses would be kept")
        above_zero(self, "window_s", "temperature", "max_policy_lag", "max_memory_mb")
        if self.settle_s < 0 or not 0 < self.cooling <= 1 or self.patience < 1:
            raise ValueError(
                "settle_s must be at least 0, cooling in (0, 1] and patience at least 1: given "
                f"{self.settle_s}, {self.cooling}, {self.patience}"
            )
