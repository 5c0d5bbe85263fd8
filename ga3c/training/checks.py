"""Checks of a run that come before the tensor framework is loaded, which takes seconds."""

from pathlib import Path

from agents.games import check_found
from ga3c.runs import checkpoints, records
from ga3c.runs.checkpoints import FOLDER
from ga3c.runs.durable import is_writable
from ga3c.runs.finding import RESULT, is_running
from ga3c.settings.checks import is_own
from ga3c.settings.train import TrainConfig

STEPS_DONE, TIME_PASSED = "steps done", "s have passed"  # how these reasons for an end end


def check_own_parts(config: TrainConfig) -> None:
    """Raises ValueError if the module of an own network or algorithm is not found."""
    for setting, part in (("network", config.network.network), ("algorithm", config.algorithm)):
        if is_own(part):
            try:
                check_found(part.partition(":")[0])
            except ValueError as error:
                raise ValueError(f"{setting} {part}: {error}") from error


def check_resumable(path: Path, config: TrainConfig) -> None:
    """Raises ValueError if the run in `path` cannot go on with these settings.

    Its score is compared with the limit only when it has been restored.
    """
    if is_running(path):
        raise ValueError(f"run {path}: another process uses it: wait until it ends, or stop it")
    if not is_writable(path):
        raise ValueError(f"run {path}: its folder cannot be written to, so it cannot be resumed")
    result, limits = records.whole(path / RESULT), config.run
    reason = str(result.get("ended"))
    made = (result.get("steps", 0), limits.steps), (result.get("seconds", 0.0), limits.seconds)
    reached = any(limit is not None and done >= limit for done, limit in made)
    if reached and reason.endswith((STEPS_DONE, TIME_PASSED)):
        checkpoint, _ = checkpoints.newest(path / FOLDER)
        # If the newest is damaged, the run goes back to an earlier one.
        if checkpoint and checkpoint.steps == result.get("steps"):
            raise ValueError(nothing_left(path, reason))


def nothing_left(path: Path, reason: str) -> str:
    """The message that the run in `path` cannot be resumed as it has reached a limit."""
    return (
        f"run {path}: {reason} already, so nothing is left to do: give a larger --steps, which "
        "replaces the other limits, or a larger --seconds or --score"
    )
