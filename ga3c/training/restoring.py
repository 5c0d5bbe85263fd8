"""Restores earlier learning into a new service: the run's own, or another run's weights."""

import sys
from pathlib import Path
from typing import IO

from ga3c.learning import weights
from ga3c.learning.layers import measured_by
from ga3c.runs import checkpoints
from ga3c.runs.checkpoints import FOLDER, Checkpoint
from ga3c.runs.kept_config import CONFIG, changes, load_config
from ga3c.service.service import Service
from ga3c.service.threads import RunFailed
from ga3c.settings.checks import WrongInput
from ga3c.settings.train import TrainConfig
from ga3c.training.checks import nothing_left
from ga3c.training.keeping import Say
from ga3c.training.results import finished
from ga3c.training.view import Plain
from ga3c.training.watch import resumed_schedule

OF_SCHEDULES = ("optimizer.schedule_steps", "optimizer.learning_rate_end")  # said in words


def restore(config: TrainConfig, service: Service, path: Path, say: Say) -> None:
    """Restore the newest intact checkpoint of the run in `path`, to resume the run from it.

    Raises:
        RunFailed: if the run has no intact checkpoint.
        WrongInput: if it does not fit the settings, or nothing is left to do.
    """
    checkpoint = _newest(path / FOLDER, say)
    if checkpoint is None:
        raise RunFailed(f"run {path} has no whole checkpoint to resume from; start a new one")
    try:
        note = service.kept.restore(checkpoint)
    except ValueError as error:
        raise WrongInput(f"{checkpoint.path} does not fit the settings: {error}") from error
    if reason := finished(config, service):
        raise WrongInput(nothing_left(path, reason))
    _check_refill(config, service, checkpoint.steps)
    checkpoints.set_aside(checkpoint)
    say(f"goes on from {checkpoint.steps:,} steps")
    if note:
        say(note)
    before = load_config(path)
    if line := resumed_schedule(
        before.scheduled_optimizer, config.scheduled_optimizer, checkpoint.steps
    ):
        say(line)
    others = {n: pair for n, pair in changes(before, config).items() if n not in OF_SCHEDULES}
    if others:
        pairs = (f"{name} {new} instead of {old}" for name, (old, new) in others.items())
        say(f"settings that differ from now on: {', '.join(pairs)}")


def take_weights(path: Path, service: Service) -> str:
    """Initialize the network with the weights of another run's newest intact checkpoint.

    Args: path: that run's directory, or the folder with its best weights.

    Returns the lines that it printed. Raises WrongInput if there is none, or if they do not fit.
    """
    folder = path / FOLDER if (path / CONFIG).is_file() else path
    lines: list[str] = []

    def say(text: str, to: IO[str] | None = None) -> None:
        lines.append(f"ga3c: {text}")
        Plain().say(text, to)

    checkpoint = _newest(folder, say)
    if checkpoint is None:
        raise WrongInput(f"initial_weights: {folder} has no whole checkpoint")
    model = service.model
    try:
        weights.restore({"weights": model.network.weights}, checkpoint.arrays)
    except ValueError as error:
        raise WrongInput(
            f"initial_weights: those of {checkpoint.path} do not fit this run's network: {error}"
        ) from error
    for layer in measured_by(model.network):
        layer.adapt()
    model.copy_target()
    say(f"begins with the weights of {checkpoint.path}")
    return "\n".join(lines)


def _newest(folder: Path, say: Say) -> Checkpoint | None:
    checkpoint, damaged = checkpoints.newest(folder)
    for each in damaged:
        say(each, sys.stderr)
    return checkpoint


def _check_refill(config: TrainConfig, service: Service, steps: int) -> None:
    """Raises WrongInput if the run would end before the replay is full enough to learn from."""
    missing, limit = service.pacing.missing_steps, config.run.steps
    if missing and limit is not None and limit - steps <= missing:
        raise WrongInput(
            f"steps {limit}: the run has made {steps} and needs {missing} more to refill its "
            "replay, which --save-replay did not keep: it would end before its next update; give "
            "more --steps"
        )
