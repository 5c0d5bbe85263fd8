"""How many agents, predictors and trainers there are, and how these counts are tuned."""

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Counts(NamedTuple):
    """How many of each."""

    agents: int
    predictors: int
    trainers: int


@dataclass(frozen=True)
class SchedulerConfig:
    """How the counts are tuned while the run goes on."""

    scheduler: Literal["anneal", "random", "off"] = "anneal"
    """anneal tries other counts of agents, predictors and trainers; random is the paper's walk,
    which keeps whatever did no harm in one window; off leaves the counts fixed."""
    settle_s: float = 5.0
    """Seconds between a change and the window that measures it."""
    window_s: float = 15.0
    """Seconds of a window; every window is of this length."""
    wins: int = 2
    """Times in a row that a setting must win, measured anew each time, before it is kept."""
    margin: float = 0.03
    """Relative gain of rate that a change must show: about the noise of a window."""
    temperature: float = 0.01
    """Relative lack of that gain which is accepted with probability 1/e at first."""
    cooling: float = 0.8
    """Factor of the temperature after each decision."""
    patience: float = 4.0
    """After all neighbours were rejected, the time between proposals grows by this factor."""
    max_policy_lag: float | None = None
    """Mean policy lag, in updates, beyond which no setting wins but one with less of it."""
    max_memory_mb: float | None = None
    """Resident memory of the service and its agents, in MiB: no agent is added that would go
    beyond it, and no setting wins that did."""

    def __post_init__(self) -> None:
        if self.wins < 1:
            raise ValueError(f"wins {self.wins}: must be at least 1, or anything would be kept")
        if self.margin < 0:
            raise ValueError(f"margin {self.margin}: must be at least 0, or losses would be kept")
        for name in ("window_s", "temperature", "max_policy_lag", "max_memory_mb"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} {value}: must be above 0")
        if self.settle_s < 0 or not 0 < self.cooling <= 1 or self.patience < 1:
            raise ValueError(
                "settle_s must be at least 0, cooling in (0, 1] and patience at least 1: given "
                f"{self.settle_s}, {self.cooling}, {self.patience}"
            )
