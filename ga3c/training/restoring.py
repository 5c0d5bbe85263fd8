"""What a service begins with that was learned before: by the run itself, or by another one."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from ga3c.learning import weights
from ga3c.runs import checkpoints
from ga3c.runs.checkpoints import Checkpoint
from ga3c.runs.kept_config import load_config
from ga3c.service.service import Service
from ga3c.service.threads import RunFailed
from ga3c.settings.checks import WrongInput
from ga3c.settings.train import TrainConfig
from ga3c.training.results import finished
from ga3c.training.watch import resumed_schedule

Say = Callable[[str, IO[str] | None], None]
"""Shows a line, on standard output if no other stream is given."""


def restore(config: TrainConfig, service: Service, path: Path, say: Say) -> None:
    """Restore the newest whole checkpoint of the run in `path`, which goes on from there.

    Raises:
        RunFailed: if the run has no whole checkpoint.
        WrongInput: if it does not fit the settings, or nothing is left to do.
    """
    checkpoint = _newest(path, say)
    if checkpoint is None:
        raise RunFailed(f"run {path} has no whole checkpoint: it cannot go on; start a new one")
    try:
        service.restore(checkpoint)
    except ValueError as error:
        raise WrongInput(f"{checkpoint.path} does not fit the settings: {error}") from error
    if reason := finished(config, service):
        raise WrongInput(
            f"run {path}: {reason} already, so nothing is left to do: give larger --steps, which "
            "replace the other ends, or a larger --seconds or --score"
        )
    steps = int(checkpoint.state["steps"])
    _check_refill(config, service, steps)
    checkpoints.set_aside(checkpoint)
    say(f"ga3c: goes on from {steps:,} steps", None)
    before = load_config(path).scheduled_optimizer
    if line := resumed_schedule(before, config.scheduled_optimizer, steps):
        say(f"ga3c: {line}", None)


def take_weights(path: Path, service: Service) -> None:
    """Begin with the network's weights in the newest whole checkpoint of the run in `path`.

    Raises WrongInput if it has none, or if they do not fit the network.
    """
    checkpoint = _newest(path, _show)
    if checkpoint is None:
        raise WrongInput(f"initial_weights: run {path} has no whole checkpoint")
    model = service.model
    try:
        weights.restore({"weights": model.network.weights}, checkpoint.arrays)
    except ValueError as error:
        raise WrongInput(
            f"initial_weights: those of {checkpoint.path} do not fit this run's network: {error}"
        ) from error
    model.copy_target()
    steps = int(checkpoint.state["steps"])
    _show(f"ga3c: begins with the weights of {path}, after {steps:,} steps", None)


def _show(line: str, to: IO[str] | None) -> None:
    print(line, file=to, flush=True)


def _newest(path: Path, say: Say) -> Checkpoint | None:
    checkpoint, damaged = checkpoints.newest(path / "checkpoints")
    for each in damaged:
        say(f"ga3c: damaged, so the one before it is used: {each}", sys.stderr)
    return checkpoint


def _check_refill(config: TrainConfig, service: Service, steps: int) -> None:
    """Raises WrongInput if the run would end before the replay is full enough to learn from."""
    missing, limit = service.pacing.missing_steps, config.run.steps
    if missing and limit is not None and limit - steps <= missing:
        raise WrongInput(
            f"steps {limit}: the run has made {steps} and learns on after {missing} more, which "
            "fill its replay anew, as --save-replay did not keep it: it would end before its next "
            "update; give more --steps"
        )
