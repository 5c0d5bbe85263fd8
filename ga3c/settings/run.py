"""Settings of when a run ends, what it writes, and how it is evaluated."""

import math
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

from ga3c.settings.checks import above_zero, check_count, check_file, check_seed

ProtocolName = Literal["trained", "paper", "nature", "machado", "apex", "control"]
STEP_CAP = 100_000  # default limit of a game in an evaluation, in environment steps


@dataclass(frozen=True)
class CheckpointConfig:
    """The checkpoints that a run writes, to resume from (--resume) and to evaluate."""

    checkpoint_every_s: float = 300.0
    """Seconds between checkpoints. One more is written when the run ends."""
    checkpoint_every_steps: int | None = None
    """Environment steps between additional checkpoints; None: only those by seconds."""
    keep_checkpoints: int = 3
    """Number of newest checkpoints to keep."""
    milestone_steps: int | None = None
    """Never delete the first checkpoint at or after each multiple of this many steps. None: no
    checkpoint is kept permanently."""

    def __post_init__(self) -> None:
        above_zero(self, "checkpoint_every_s", "checkpoint_every_steps", "milestone_steps")
        if self.keep_checkpoints < 2:
            raise ValueError(
                f"keep_checkpoints {self.keep_checkpoints}: must be at least 2, or there would be "
                "none to go back to if the newest is damaged"
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation during the run, in separate environments. The best weights are kept."""

    evaluate_every: int | None = None
    """Environment steps between evaluations; None: no evaluations."""
    evaluate_episodes: int = 10
    """Games per evaluation."""
    evaluate_protocol: ProtocolName = "trained"
    """How the games are played: see ga3c evaluate --help."""
    evaluate_step_cap: int = STEP_CAP
    """Environment steps after which a game is cut short; its score so far counts."""

    def __post_init__(self) -> None:
        check_count(self, "evaluate_every", "evaluate_episodes", "evaluate_step_cap")


@dataclass(frozen=True)
class RunConfig:
    """When a run ends, what it prints, and where it writes."""

    steps: int | None = None
    """Stop after this many environment steps (not frames); a reset counts as one."""
    seconds: float | None = None
    """Stop after this many seconds, including those before a resume, as with --steps."""
    score: float | None = None
    """Stop when the mean score of the last 100 training episodes reaches this value and every
    environment has finished one; with --exploration ladder, only those of the environments with
    the lowest third of the epsilons count."""
    seed: int = 0
    """Seed for initial weights, actions and environments. Atari games seed themselves unless
    actions are sticky or --lockstep or --synchronized is given: seeding loads each ROM twice."""
    json: bool = False
    """Print the run's results as one JSON object on the last line."""
    plain: bool = False
    """Print plain lines even if the terminal could show a live view."""
    progress_every_s: float = 5.0
    """Seconds between progress lines."""
    trace: Path | None = None
    """File for a trace of the newest events, for ui.perfetto.dev: what each part did, and when."""
    resume: Path | None = None
    """Continue this run from its newest checkpoint: its directory, its name in --runs-dir, or its
    number in `ga3c runs`. The run keeps its settings, except those given as further arguments. A
    new --steps also replaces its --seconds and --score."""
    trust: bool = False
    """With --resume: import the modules that the run names even if this user did not start it on
    this machine."""
    runs_dir: Path = Path("runs")
    """Directory in which each run gets its own subdirectory."""
    name: str | None = None
    """Name of the run directory; the default is {game}__{algorithm}__{seed}__{time}."""

    track: Literal["wandb", "mlflow"] | None = None
    """Also log settings and metrics to Weights & Biases or MLflow, which read variables of their
    own: WANDB_PROJECT, WANDB_MODE=offline, MLFLOW_TRACKING_URI. None: only to the run's files."""

    def __post_init__(self) -> None:
        for name in ("steps", "seconds"):
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                raise ValueError(f"{name} {limit}: must be above 0, or the run would end at once")
        if self.name is not None and not _stays_inside(self.name):
            raise ValueError(
                f"name {self.name!r}: must name a folder in runs_dir, without .., or the run would "
                "be written elsewhere; --runs-dir chooses another place"
            )
        above_zero(self, "progress_every_s")
        check_file("trace", self.trace)
        check_seed(self.seed)

    @property
    def limit_steps(self) -> float:
        """The environment steps after which the run ends; infinite without --steps."""
        return math.inf if self.steps is None else self.steps


def _stays_inside(name: str) -> bool:
    """Whether a path of this name, relative to a folder, stays strictly below that folder."""
    path = PurePath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts
