"""One training run, from configuration to result."""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from agents.environments import Spaces
from ga3c import backend
from ga3c.evaluation.chosen import BEST
from ga3c.evaluation.evaluator import Evaluator
from ga3c.interrupts import Interrupts
from ga3c.runs import checkpoints, dashboard
from ga3c.runs.checkpoints import Checkpoints
from ga3c.runs.directory import RunDirectory
from ga3c.runs.finding import evaluations, whole_protocol
from ga3c.runs.kept_config import load_config
from ga3c.runs.metrics import Window
from ga3c.runs.tally import ROLLING_EPISODES
from ga3c.runs.watch import Watch, resumed_schedule
from ga3c.service.annealer import Decision
from ga3c.service.scheduler import Scheduler
from ga3c.service.service import Service
from ga3c.service.threads import RunFailed
from ga3c.service.wiring import build_service
from ga3c.settings.checks import WrongInput
from ga3c.settings.presets import described
from ga3c.settings.scheduler import Counts
from ga3c.settings.train import TrainConfig

TICK_S = 0.2
STOP_TIMEOUT_S = 8.0
READ_TIMEOUT_S = 1.0  # for an update that will not end
WRITING_S = 5.0  # between two lines about a checkpoint that is being written


def train(config: TrainConfig, found: Spaces, path: Path) -> int:
    """Run until a limit, a signal or a failure. Returns the exit code: 0, or 130 after a signal.

    With `config.run.resume` the run that `path` holds goes on.

    Raises:
        WrongInput: if the settings do not fit the environment or the run; nothing was started.
        RunFailed: if the run cannot go on; everything has been stopped.
    """
    interrupts = Interrupts()
    interrupts.listen()
    backend.configure(config.service.intra_op_threads, config.run.seed)
    try:
        service = build_service(config, found, tell=lambda line: print(f"ga3c: {line}", flush=True))
    except ValueError as error:
        raise WrongInput(str(error)) from error
    try:
        try:
            directory = RunDirectory(config, path)
        except OSError as error:
            raise WrongInput(f"run {path} cannot be used: {error}") from error
        run = Run(config, found, service, directory, interrupts)
        try:
            run.prepare()
            return run.go()
        finally:
            run.close()
    finally:
        service.stop(STOP_TIMEOUT_S)


class Run:
    """A run from its first or next step to its end; the main thread's."""

    def __init__(
        self,
        config: TrainConfig,
        spaces: Spaces,
        service: Service,
        directory: RunDirectory,
        interrupts: Interrupts,
    ) -> None:
        self._config = config
        self._interrupts = interrupts
        self._spaces = spaces
        self._service = service
        self._last = service.snapshot()
        self._evaluator: Evaluator | None = None
        self._directory = directory
        self._view = dashboard.view(config)
        keep = config.checkpoints
        self._checkpoints = Checkpoints(
            directory.path / "checkpoints",
            keep.keep_checkpoints,
            keep.checkpoint_every_s,
            keep.checkpoint_every_steps,
            keep.milestone_steps,
        )

    def prepare(self) -> None:
        """Take over what the run has reached, if it is resumed, else keep its first weights.

        Raises WrongInput or RunFailed if it cannot go on.
        """
        service, config = self._service, self._config
        game = f"{config.environment.game}, seed {config.run.seed}, in {self._directory.path}"
        self._say(f"ga3c: {game}")
        if not config.run.resume:
            self._say(f"ga3c: {described(config)}")
        service.keep_actions(self._directory.path)
        if config.run.resume:
            self._restore()
        steps, tally = service.pacing.steps, service.tally
        self._directory.begin(steps, tally.episodes)
        self._checkpoints.begin(tally.seconds, steps)
        if not config.run.resume:
            self._keep()
        self._watch = Watch(config, service)
        self._scheduler = _scheduler(config, service, self._directory.path)
        if config.evaluation.evaluate_every:
            noted = evaluations(self._directory.path)
            last = max((entry["steps"] for entry in noted), default=0)
            self._evaluator = Evaluator(config, self._spaces, last)

    def _restore(self) -> None:
        checkpoint, damaged = checkpoints.newest(self._directory.path / "checkpoints")
        for each in damaged:
            self._say(f"ga3c: damaged, so the one before it is used: {each}", sys.stderr)
        if checkpoint is None:
            raise RunFailed(
                f"run {self._directory.path} has no whole checkpoint: it cannot go on; "
                "a new run would begin anew"
            )
        try:
            self._service.restore(checkpoint)
        except ValueError as error:
            raise WrongInput(f"{checkpoint.path} does not fit the settings: {error}") from error
        if reason := _finished(self._config, self._service):
            raise WrongInput(
                f"run {self._directory.path}: {reason} already, so nothing is left to do: give a "
                "larger --steps, --seconds or --score"
            )
        self._check_refill(int(checkpoint.state["steps"]))
        checkpoints.set_aside(checkpoint)
        steps = int(checkpoint.state["steps"])
        self._say(f"ga3c: goes on from {steps:,} steps")
        if line := resumed_schedule(load_config(self._directory.path), self._config, steps):
            self._say(f"ga3c: {line}")

    def _check_refill(self, steps: int) -> None:
        """Raises WrongInput if the run would end before the replay is full enough to learn from."""
        pacing, limit = self._service.pacing, self._config.run.steps
        if pacing.missing_steps and limit is not None and limit - steps <= pacing.missing_steps:
            raise WrongInput(
                f"steps {limit}: the run has made {steps} and learns on after "
                f"{pacing.missing_steps} more, which fill its replay anew, as --save-replay did "
                "not keep it: it would end before its next update; give more --steps"
            )

    def go(self) -> int:
        """Play and learn until something ends the run. Returns the exit code."""
        service, config, interrupts = self._service, self._config, self._interrupts
        first = service.metrics.snapshot()
        reason = "failed"
        kept = False
        try:
            service.start(self._scheduler.counts if self._scheduler else config.service.counts)
            reason = self._loop()
        finally:
            counts = service.counts
            stuck = service.stop(STOP_TIMEOUT_S, interrupts.second)
            kept = self._keep()
            window = Window(first, service.metrics.snapshot())
            result = {"ended": reason, **_result(config, service, counts, window)}
            if self._evaluator and not self._end(self._evaluator):
                stuck = [*stuck, "evaluator"]
            result["evaluations_failed"] = int(service.snapshot()["evaluations_failed"])
            self.close()
            self._directory.log(f"ga3c: {reason}")
            print(f"ga3c: {reason}; kept in {self._directory.path}", flush=True)
            self._directory.finish(result)
            _write_trace(config, service)
        if config.run.json:
            print(json.dumps(result), flush=True)
        if stuck:
            print(f"ga3c: did not end in time: {', '.join(stuck)}", file=sys.stderr, flush=True)
            os._exit(130 if interrupts.first.is_set() else 1)  # no thread can hold this up
        if interrupts.first.is_set():
            return 130
        return 0 if kept else 1

    def _end(self, evaluator: Evaluator) -> bool:
        """Let evaluations that go on or are due come to their end, unless the run was cut short."""
        interrupts = self._interrupts
        while not interrupts.first.is_set() and sys.exc_info()[0] is None:
            self._evaluate(evaluator, self._service.pacing.steps)
            if not evaluator.is_busy:
                break
            self._say("ga3c: an evaluation goes on; Ctrl-C leaves it out")
            while evaluator.is_busy and not interrupts.first.wait(TICK_S):
                pass
        ended = evaluator.stop(STOP_TIMEOUT_S)
        self._note(evaluator)
        return ended

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._view.close()

    def _loop(self) -> str:
        """Tend the service until something ends the run. Returns what did."""
        self._last = self._service.snapshot()
        while not self._interrupts.first.wait(TICK_S):
            self.tick()
            if reason := _finished(self._config, self._service):
                return reason
        return "interrupted"

    def tick(self) -> None:
        """Tend the service, and do what is due: tune, note, show, keep, evaluate."""
        service = self._service
        for event in (*service.tend(), *self._watch.events(service.snapshot())):
            self._say(f"ga3c: {event}", sys.stderr)
        if self._scheduler:
            self._tune(self._scheduler)
        self._directory.episodes(service.tally.take_episodes())
        now = service.snapshot()
        if now.time_s - self._last.time_s >= self._config.run.progress_every_s:
            window = Window(self._last, now)
            self._show(window)
            for event in self._watch.figures(window):
                self._say(f"ga3c: {event}", sys.stderr)
            self._last = now
        if self._checkpoints.due(service.tally.seconds, service.pacing.steps):
            self._keep()
        if self._evaluator:
            self._evaluate(self._evaluator, service.pacing.steps)

    def _tune(self, scheduler: Scheduler) -> None:
        if self._evaluator and self._evaluator.is_busy:
            scheduler.disturb()
        if decision := scheduler.tick():
            self._say(f"ga3c: scheduler: {_words(decision)}")

    def _evaluate(self, evaluator: Evaluator, steps: float) -> None:
        """Note evaluations that are done, begin another when it is due."""
        self._note(evaluator)
        due = evaluator.due(steps)
        if due and (found := self._service.read(READ_TIMEOUT_S, experience=False)):
            evaluator.begin(*found)

    def _note(self, evaluator: Evaluator) -> None:
        """Keep the best weights and the scores of evaluations that are done; say what failed."""
        for failure in evaluator.take_failures():
            self._service.metrics.add(evaluations_failed=1)
            self._directory.log(failure)
            reason = failure.splitlines()[-1]
            self._say(f"ga3c: an evaluation failed; log.txt has where: {reason}", sys.stderr)
        best = self._directory.path / BEST
        for entry, arrays, state in evaluator.take():
            kept, _ = checkpoints.newest(best)
            before = kept.state["evaluation"] if kept else None
            if (
                before is None
                or whole_protocol(before["protocol"]) != entry["protocol"]
                or entry["mean"] > before["mean"]
            ):
                state = {**state, "evaluation": entry}
                self._write(partial(checkpoints.write_best, best, arrays, state))
            self._directory.evaluation(entry)
            self._say(f"ga3c: evaluated: {entry['mean']:.2f} after {entry['steps']:,} steps")

    def _show(self, window: Window) -> None:
        service = self._service
        values = dashboard.figures(
            window,
            service.metrics,
            service.tally,
            service.counts,
            service.requests.size,
            service.segments.size,
        )
        self._directory.metrics(values)
        self._directory.log(dashboard.line(values))
        self._view.show(values)

    def _say(self, line: str, to: IO[str] | None = None) -> None:
        self._directory.log(line)
        self._view.say(line, to)

    def _keep(self) -> bool:
        """Write a checkpoint; False, and a line that says why, if that cannot be."""
        tally = self._service.tally
        seconds = tally.seconds

        def write() -> None:
            found = self._service.read(READ_TIMEOUT_S)
            self._directory.episodes(tally.take_episodes())  # up to those steps
            if found is None:
                raise checkpoints.NotWritten("an update did not end")
            self._checkpoints.save(seconds, *found, self._writing())

        if self._write(write):
            return True
        self._checkpoints.postpone(seconds)
        return False

    def _writing(self) -> checkpoints.Progress:
        """Tells how far a large checkpoint is, and gives it up at a second signal."""
        interrupts, heard = self._interrupts, self._interrupts.first.is_set()
        said_s = time.monotonic()

        def progress(done: int, total: int) -> None:
            nonlocal heard, said_s
            if interrupts.second.is_set():
                raise checkpoints.NotWritten("a second signal came; the one before it is kept")
            now_s = time.monotonic()
            if (interrupts.first.is_set() and not heard) or now_s > said_s + WRITING_S:
                heard, said_s = interrupts.first.is_set(), now_s
                hint = "; Ctrl-C again leaves it out" if heard else ""
                part = f"{done / total:.0%} of {total / 2e9:.2f} GB"
                self._say(f"ga3c: writing a checkpoint: {part}{hint}")

        return progress

    def _write(self, write: Callable[[], object]) -> bool:
        try:
            write()
        except (OSError, checkpoints.NotWritten) as error:
            self._say(f"ga3c: no checkpoint: {error}", sys.stderr)
            return False
        return True


def _write_trace(config: TrainConfig, service: Service) -> None:
    if service.trace is None or config.run.trace is None:
        return
    try:
        service.trace.write(config.run.trace)
    except OSError as error:  # the run itself is kept already
        print(f"ga3c: no trace: {error}", file=sys.stderr, flush=True)


def _finished(config: TrainConfig, service: Service) -> str | None:
    limits, tally, pacing = config.run, service.tally, service.pacing
    if limits.steps is not None and pacing.steps >= limits.steps and pacing.is_settled:
        return f"{limits.steps} steps done"
    if limits.seconds is not None and tally.seconds >= limits.seconds:
        return f"{limits.seconds:g} seconds passed"
    if limits.score is not None and tally.episodes >= ROLLING_EPISODES:
        mean = tally.score_mean()
        if mean >= limits.score:
            return f"mean score {mean:.2f} of the last {ROLLING_EPISODES} episodes reached"
    return None


def _scheduler(config: TrainConfig, service: Service, path: Path) -> Scheduler | None:
    if config.scheduler.scheduler == "off":
        return None
    return Scheduler(
        config.scheduler,
        config.service.counts,
        config.service.most,
        config.run.seed,
        service,
        path / "scheduler.jsonl",
        lambda: service.tally.seconds,
    )


def _words(decision: Decision) -> str:
    verdict = "kept" if decision.accepted else "undone" + ", to try again" * (decision.wins > 0)
    kept, tried = decision.figures_kept.rate, decision.figures_tried.rate
    return (
        f"{_counts(decision.kept)} made {kept:.0f} samples/s, "
        f"{_counts(decision.tried)} {tried:.0f}: {verdict}"
    )


def _counts(counts: Counts) -> str:
    return f"NT {counts.trainers} NP {counts.predictors} NA {counts.agents}"


def _result(
    config: TrainConfig, service: Service, counts: Counts, window: Window
) -> dict[str, Any]:
    """The figures of the whole run, from the first agent's start to the last one's end."""
    values = dashboard.figures(window, service.metrics, service.tally, counts, 0, 0)
    return {
        **values,
        "game": config.environment.game,
        "seed": config.run.seed,
        "frames": int(window.end["steps"]) * config.environment.frames_per_step,
        "trained_samples_per_s": values["tps"],
        "policy_lag_mean": values["policy_lag"],
        "agent_deaths": int(window.end["agent_deaths"]),
        "refused_updates": int(window.end["refused_updates"]),
        "rejected_messages": {
            name.removeprefix("rejected:"): int(count)
            for name, count in window.end.counts.items()
            if name.startswith("rejected:")
        },
    }
