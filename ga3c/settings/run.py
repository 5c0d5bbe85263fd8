"""When a run ends, what it keeps of itself, and how it is evaluated meanwhile."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ga3c.settings.checks import check_count, check_file, check_seed

ProtocolName = Literal["paper", "nature", "machado"]
STEP_CAP = 100_000  # of an evaluation's game, unless another is asked for


@dataclass(frozen=True)
class CheckpointConfig:
    """What a run keeps of itself, to go on from (--resume) and to evaluate."""

    checkpoint_every_s: float = 300.0
    """Seconds between checkpoints; there is one more at the end."""
    checkpoint_every_steps: int | None = None
    """Environment steps between checkpoints, besides."""
    keep_checkpoints: int = 3
    """Newest checkpoints that are kept."""
    milestone_steps: int | None = None
    """The first checkpoint beyond each multiple of so many steps is kept for good."""

    def __post_init__(self) -> None:
        for name in ("checkpoint_every_s", "checkpoint_every_steps", "milestone_steps"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} {value}: must be above 0")
        if self.keep_checkpoints < 2:
            raise ValueError(
                f"keep_checkpoints {self.keep_checkpoints}: must be at least 2, or there would be "
                "none to go back to if the newest is damaged"
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation while the run goes on, in environments of its own; the best weights are kept."""

    evaluate_every: int | None = None
    """Environment steps between evaluations; None: there is none."""
    evaluate_episodes: int = 10
    """Games of an evaluation."""
    evaluate_protocol: ProtocolName = "paper"
    """How they are played: see ga3c evaluate --help."""
    evaluate_step_cap: int = STEP_CAP
    """Environment steps after which a game is cut short: it counts with its score so far."""

    def __post_init__(self) -> None:
        if self.evaluate_every is not None and self.evaluate_every < 1:
            raise ValueError(f"evaluate_every {self.evaluate_every}: must be at least 1 step")
        for name in ("evaluate_episodes", "evaluate_step_cap"):
            check_count(self, name)


@dataclass(frozen=True)
class RunConfig:
    """When a run ends, and what it leaves."""

    steps: int | None = None
    """Stop after so many environment steps (not frames)."""
    seconds: float | None = None
    """Stop after so many seconds."""
    score: float | None = None
    """Stop when the mean score of the last 100 training episodes reaches this."""
    seed: int = 0
    """Seed of environments, first weights and actions."""
    json: bool = False
    """Print the run's figures as one JSON object in the last line."""
    plain: bool = False
    """Print lines also where a terminal could show a live view."""
    progress_every_s: float = 5.0
    """Seconds between progress lines."""
    trace: Path | None = None
    """File for a trace of the newest events, for ui.perfetto.dev: who does what, and when."""
    resume: Path | None = None
    """Go on with this run, by its directory or its name there, from its newest checkpoint. Its
    settings hold; every other argument changes one of them, such as a larger --steps."""
    runs_dir: Path = Path("runs")
    """Where run directories are made."""
    name: str | None = None
    """Name of the run directory; the default is {game}__{algorithm}__{seed}__{time}."""

    def __post_init__(self) -> None:
        for name in ("steps", "seconds"):
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                raise ValueError(f"{name} {limit}: must be above 0, or the run would end at once")
        if self.progress_every_s <= 0:
            raise ValueError(f"progress_every_s {self.progress_every_s}: must be above 0")
        check_file("trace", self.trace)
        check_seed(self.seed)
