"""Evaluations during a run: started when due, recorded when finished."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from agents.environments import Spaces
from ga3c.evaluation.evaluator import SEED, Evaluator
from ga3c.evaluation.protocols import evaluations, whole_protocol
from ga3c.runs import checkpoints
from ga3c.runs.checkpoints import BEST
from ga3c.runs.directory import RunDirectory
from ga3c.service.service import Service
from ga3c.service.threads import Deadline
from ga3c.settings.train import TrainConfig
from ga3c.training.interrupts import Interrupts
from ga3c.training.keeping import READ_TIMEOUT_S, Keeper, Say

TICK_S = 0.2
RETRY_S = 5.0  # between two attempts to write the best weights


class Evaluations:
    """Evaluates a run's weights every --evaluate-every steps and keeps the best weights.

    Owned by the main thread.
    """

    def __init__(
        self,
        config: TrainConfig,
        spaces: Spaces,
        *,
        service: Service,
        directory: RunDirectory,
        keeper: Keeper,
        say: Say,
    ) -> None:
        made = (e["steps"] for e in evaluations(directory.path) if e.get("seed") == SEED)
        self._evaluator = Evaluator(config, spaces, max(made, default=0))
        self._algorithm = config.algorithm
        self._service = service
        self._directory = directory
        self._keeper = keeper
        self._say = say
        self._told = False  # whether it has been said that the evaluation is stuck
        self._record: dict[str, Any] | None = None  # the entry of the best evaluation
        self._best: tuple[Any, dict[str, Any]] | None = None  # its weights, until written
        self._retry_s = 0.0  # when to try to write them again
        if kept := checkpoints.newest(directory.path / BEST)[0]:  # of a resumed run
            self._record = kept.state["evaluation"]
            service.metrics.set(best_evaluation=self._record["mean"])

    @property
    def is_busy(self) -> bool:
        """Whether an evaluation is in progress."""
        return self._evaluator.is_busy

    @property
    def _goes_on(self) -> bool:
        """Whether an evaluation is in progress and not stuck."""
        return self.is_busy and not self._evaluator.is_stuck

    def tend(self, steps: float) -> None:
        """Record evaluations that have finished, and start another if it is due."""
        self._note()
        is_stuck = self._evaluator.is_stuck
        if is_stuck and not self._told:
            silent = f"no step for {self._evaluator.patience_s:g} s"
            rule = "none will be started until it ends"
            self._say(f"an evaluation has made {silent}: {rule}", sys.stderr)
        self._told = is_stuck
        due = self._evaluator.due(steps)
        if due and (found := self._service.kept.read(READ_TIMEOUT_S, experience=False)):
            self._evaluator.begin(*found)

    def end(self, interrupts: Interrupts, failed: bool, timeout_s: float) -> bool:
        """Finish evaluations that are in progress or due, unless the run failed or is interrupted.

        Then stop the evaluator. Returns False if it does not stop within `timeout_s`, or soon after
        a second signal.
        """
        while not interrupts.first.is_set() and not failed:
            self.tend(self._service.pacing.steps)
            if not self._goes_on:
                break
            self._say("an evaluation is still running; Ctrl-C skips it")
            while self._goes_on and not interrupts.first.wait(TICK_S):
                pass
        ended = self._evaluator.stop(Deadline(timeout_s, interrupts.second.is_set))
        self._retry_s = 0.0
        self._note()
        return ended

    def _note(self) -> None:
        """Record the scores of finished evaluations, keep the best weights, report failures."""
        for failure in self._evaluator.take_failures():
            self._service.metrics.add(evaluations_failed=1)
            self._directory.log(failure)
            reason = failure.splitlines()[-1]
            self._say(f"an evaluation failed; log.txt has the traceback: {reason}", sys.stderr)
        for entry, arrays, state in self._evaluator.take():
            if self._is_best(entry):
                self._record, self._best = entry, (arrays, {**state, "evaluation": entry})
                self._retry_s = 0.0
            self._directory.evaluation(entry)
            self._say(f"evaluated: {entry['mean']:.2f} after {entry['steps']:,} steps")
        if self._best and time.monotonic() >= self._retry_s:
            if self._keeper.keep_best(*self._best):
                self._service.metrics.set(best_evaluation=self._best[1]["evaluation"]["mean"])
                self._best = None
            self._retry_s = time.monotonic() + RETRY_S

    def _is_best(self, entry: Mapping[str, Any]) -> bool:
        if (before := self._record) is None:
            return True
        old, new = (whole_protocol(each["protocol"], self._algorithm) for each in (before, entry))
        return old != new or entry["mean"] > before["mean"]
