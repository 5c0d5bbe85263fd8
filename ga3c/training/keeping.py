"""Writes a run's checkpoints, and the weights with the best evaluation."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol

import numpy as np

from ga3c.runs import checkpoints
from ga3c.runs.checkpoints import Checkpoints
from ga3c.runs.directory import RunDirectory
from ga3c.service.service import Service
from ga3c.settings.run import CheckpointConfig
from ga3c.settings.train import TrainConfig
from ga3c.training.interrupts import Interrupts

READ_TIMEOUT_S = 1.0  # longest wait for an update to end before the weights are read
BATCH_TIMEOUT_S = 86_400.0  # the same in lockstep, for all updates of a batch
COMPILE_TIMEOUT_S = 120.0  # longest wait of a stop for the first update, which is compiled
PATIENCE_S = 2.0  # a stop that waits this long for an update says so
BATCH = (
    "lockstep: waiting for all updates of a batch, because no checkpoint can hold a part of them; "
    "Ctrl-C again ends the run at its last checkpoint"
)
COMPILING = (
    "waiting for the first predictions and the first update, which are being compiled; Ctrl-C "
    "again ends the run at its last checkpoint"
)
WRITING_S = 5.0  # seconds between progress lines while a checkpoint is written


class Say(Protocol):
    """Shows an event and logs it; the default stream is standard output."""

    def __call__(self, text: str, to: IO[str] | None = None) -> None: ...


class Keeper:
    """Writes checkpoints when they are due, and reports why if one cannot be written.

    Owned by the main thread.
    """

    def __init__(
        self,
        keep: CheckpointConfig,
        service: Service,
        directory: RunDirectory,
        *,
        interrupts: Interrupts,
        say: Say,
    ) -> None:
        self._service = service
        self._directory = directory
        self._interrupts = interrupts
        self._say = say
        self._failure = ""  # the error of the last attempt, if it failed
        self._updates = 0  # when this process began
        self._checkpoints = Checkpoints(directory.path / checkpoints.FOLDER, keep)

    def begin(self) -> None:
        """Start counting time and steps to the next checkpoint."""
        self._updates = self._service.model.updates
        self._checkpoints.begin(self._service.tally.seconds, self._service.pacing.steps)

    def keep_if_due(self, steps: float) -> None:
        """Write a checkpoint if one is due."""
        if self._checkpoints.due(self._service.tally.seconds, steps):
            self.keep()

    def keep(self) -> bool:
        """Write a checkpoint. Returns False, and reports why, if it cannot be written."""
        tally = self._service.tally
        seconds = tally.seconds

        def write() -> None:
            timeout_s = BATCH_TIMEOUT_S if self._service.config.lockstep else READ_TIMEOUT_S
            found = self._service.kept.read(timeout_s, hurry=self.hurry(stops=False))
            self._directory.episodes(tally.take_episodes())  # all up to this checkpoint
            if found is None:
                raise checkpoints.NotWritten("an update did not end")
            self._checkpoints.save(seconds, *found, self._writing())
            self._prune_best()

        if self._write(write):
            return True
        self._checkpoints.postpone(seconds)
        return False

    @property
    def stop_s(self) -> float:
        """How long a stop waits for a batch's updates in lockstep, or for the first update."""
        if self._service.config.lockstep:
            return BATCH_TIMEOUT_S
        return COMPILE_TIMEOUT_S if self._service.model.updates == self._updates else 0.0

    def hurry(self, stops: bool) -> Callable[[], bool]:
        """A function that says whether a second signal has come, which cuts all waiting short.

        It also tells the user what a stop waits for, once it has waited for a while.

        Args: stops: whether the run is at its end; otherwise it is once a first signal has come.
        """
        interrupts, said, began_s = self._interrupts, False, time.monotonic()

        def second() -> bool:
            nonlocal said
            waits = time.monotonic() > began_s + PATIENCE_S and self.stop_s
            if waits and not said and (stops or interrupts.first.is_set()):
                said = True
                self._say(BATCH if self._service.config.lockstep else COMPILING)
            return interrupts.second.is_set()

        return second

    def keep_best(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> bool:
        """Write the weights with the best evaluation so far into the folder for them.

        Returns False, and reports why, if they cannot be written.
        """

        def write() -> None:
            checkpoints.write_best(self._directory.path / checkpoints.BEST, arrays, state)
            self._prune_best()

        return self._write(write)

    def _prune_best(self) -> None:
        path = self._directory.path
        checkpoints.prune_best(path / checkpoints.BEST, path / checkpoints.FOLDER)

    def _writing(self) -> checkpoints.Progress:
        """A callback that prints the progress of a large checkpoint; a second signal aborts it."""
        interrupts, heard = self._interrupts, self._interrupts.first.is_set()
        said_s = time.monotonic()

        def progress(done: int, total: int) -> None:
            nonlocal heard, said_s
            if interrupts.second.is_set():
                raise checkpoints.NotWritten("a second signal came; the previous one is kept")
            now_s = time.monotonic()
            if (interrupts.first.is_set() and not heard) or now_s > said_s + WRITING_S:
                heard, said_s = interrupts.first.is_set(), now_s
                hint = "; Ctrl-C again skips it" if heard else ""
                part = f"{done / total:.0%} of {total / 2e9:.2f} GB"
                self._say(f"writing a checkpoint: {part}{hint}")

        return progress

    def _write(self, write: Callable[[], object]) -> bool:
        try:
            self._directory.check()
            write()
        except (OSError, checkpoints.NotWritten) as error:
            if str(error) != self._failure:  # retried every few seconds, so say it once
                self._say(f"no checkpoint: {error}", sys.stderr)
            self._failure = str(error)
            return False
        if self._failure:
            self._say("checkpoints are written again")
        self._failure = ""
        return True


def write_trace(config: TrainConfig, service: Service) -> None:
    """Write the run's trace, if it has one, to the file given by --trace."""
    if service.trace is None or config.run.trace is None:
        return
    try:
        service.trace.write(config.run.trace)
    except OSError as error:  # not fatal: the run's checkpoint and result are already written
        print(f"ga3c: no trace: {error}", file=sys.stderr, flush=True)
