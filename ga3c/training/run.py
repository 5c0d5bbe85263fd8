"""One training run, from configuration to result."""

import sys
from functools import partial
from typing import IO

from agents.environments import Spaces
from agents.games import resolve
from agents.launchers import LocalLauncher
from ga3c import backend
from ga3c.runs.directory import RunDirectory
from ga3c.runs.metrics import Window
from ga3c.service.scheduler import Scheduler
from ga3c.service.service import STOP_TIMEOUT_S, Service
from ga3c.service.threads import RunFailed
from ga3c.service.wiring import build_service
from ga3c.settings.checks import WrongInput
from ga3c.settings.presets import described
from ga3c.settings.scheduler import Counts
from ga3c.settings.train import TrainConfig
from ga3c.training import progress
from ga3c.training.evaluating import TICK_S, Evaluations
from ga3c.training.interrupts import Interrupts
from ga3c.training.keeping import Keeper, write_trace
from ga3c.training.restoring import restore, take_weights
from ga3c.training.results import ASKED, INTERRUPTED, Outcome, ending, figures, finished
from ga3c.training.start import OnFigures, Start
from ga3c.training.tuning import build_scheduler, words
from ga3c.training.view import view
from ga3c.training.watch import Watch


def train(start: Start, interrupts: Interrupts, launcher: LocalLauncher) -> Outcome:
    """Train until a limit is reached, `interrupts` receives a signal, or something fails.

    Raises:
        WrongInput: if the settings do not fit the environment or the run; nothing was started.
        RunFailed: if the run cannot go on; everything has been stopped.
    """
    config, spaces, path, on_figures = start
    backend.configure(config.service.intra_op_threads, config.run.seed)
    try:
        tell = partial(print, "ga3c:", flush=True)
        service = build_service(config, spaces, tell=tell, launcher=launcher)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    try:
        begun = ""
        if config.learning.initial_weights and not config.run.resume:
            begun = take_weights(config.learning.initial_weights, service)
        try:
            directory = RunDirectory(config, path)
        except OSError as error:
            raise WrongInput(f"run {path} cannot be used: {error.strerror or error}") from error
        run = Run(config, spaces, service, directory, interrupts, on_figures)
        try:
            if begun:
                directory.log(begun)
            run.prepare()
            return run.go()
        finally:
            run.close()
    finally:
        service.stop(STOP_TIMEOUT_S)


def _in_words(spaces: Spaces, config: TrainConfig) -> str:
    """Observations and actions as ga3c sees them, so that the user can spot a misreading."""
    kind = "pictures" if spaces.is_picture else "vectors"
    stacked = f", the newest {spaces.stack} stacked" if spaces.stack > 1 else ""
    words = f"observations {spaces.shape} {spaces.dtype}, {kind}{stacked}; actions {spaces.actions}"
    clip = config.learning.reward_clip
    if clip and not resolve(config.environment.game).is_atari:
        words += f"; rewards clipped to [-{clip:g}, {clip:g}] (--reward-clip 0 turns this off)"
    return words


class Run:
    """A run, new or resumed, until its end. Owned by the main thread."""

    def __init__(
        self,
        config: TrainConfig,
        spaces: Spaces,
        service: Service,
        directory: RunDirectory,
        interrupts: Interrupts,
        on_figures: OnFigures | None = None,
    ) -> None:
        self._config, self._on_figures = config, on_figures
        self._interrupts, self._spaces = interrupts, spaces
        self._service = service
        self._first = self._last = service.snapshot()
        self._begun = self._asked = False  # a step was seen; on_figures asked to end
        self._evaluations: Evaluations | None = None
        self._directory = directory
        self._view = view(config.run, config.environment.game)
        self._keeper = Keeper(
            config.checkpoints, service, directory, interrupts=interrupts, say=self._say
        )

    def prepare(self) -> None:
        """Restore the newest checkpoint of a resumed run, or write the first one of a new run.

        Raises WrongInput or RunFailed if the run cannot go on.
        """
        service, config = self._service, self._config
        game = f"{config.environment.game}, seed {config.run.seed}, in {self._directory.path}"
        self._say(game)
        if not config.run.resume:
            self._say(described(config))
        self._say(_in_words(self._spaces, config))
        service.kept.keep_actions(self._directory.path)
        if config.run.resume:
            restore(config, service, self._directory.path, self._say)
        if tracked := self._directory.begin(service.pacing.steps):
            self._say(tracked)
        self._keeper.begin()
        if not config.run.resume:
            self._keeper.keep()
        self._watch = Watch(
            service,
            steps=config.run.steps,
            optimizer=config.scheduled_optimizer,
            max_refused_updates=config.learning.max_refused_updates,
            updates_per_batch=config.service.updates_per_batch,
            is_scheduled=config.scheduler.scheduler != "off",
            refused=service.snapshot()["refused_updates"],
        )
        self._scheduler = build_scheduler(config, service, self._directory.path)
        if config.evaluation.evaluate_every:
            self._evaluations = Evaluations(
                config,
                self._spaces,
                service=service,
                directory=self._directory,
                keeper=self._keeper,
                say=self._say,
            )

    def go(self) -> Outcome:
        """Play and learn until something ends the run, then write its checkpoint and its result."""
        service, config, interrupts = self._service, self._config, self._interrupts
        reason, fault = "failed", ""
        try:
            counts = self._scheduler.counts if self._scheduler else config.service.counts
            envs = f"{config.service.envs_per_agent} environments each"
            self._say(f"starting agent processes: {counts.agents}, {envs}")
            service.start(counts)
            reason = self._loop()
        except Exception as error:
            fault = str(error) if isinstance(error, RunFailed) else repr(error)
            self._directory.log(f"ga3c: {fault}")
            raise
        finally:
            counts = service.counts
            rest = Window(self._last, service.snapshot())
            short = min(1.0, config.run.progress_every_s / 2)  # rates over less mean little
            if self._begun and (rest.seconds >= short or self._last is self._first):
                self._show(rest, counts)
            service.tally.end()
            keeper = self._keeper
            stuck = service.stop(STOP_TIMEOUT_S, keeper.hurry(stops=True), keeper.stop_s)
            result = {"ended": reason, **figures(config, service, counts)}
            if fault:
                first, *others = fault.strip().splitlines()
                result["error"] = ": ".join([first, *others[-1:]])  # the last line is the cause
            kept = keeper.keep()
            failed = reason == "failed"
            if self._evaluations and not self._evaluations.end(interrupts, failed, STOP_TIMEOUT_S):
                stuck = [*stuck, "evaluator"]
            result["evaluations_failed"] = int(service.snapshot()["evaluations_failed"])
            if "best_evaluation" in (newest := service.metrics.newest()):  # also from the final one
                result["best_evaluation"] = round(newest["best_evaluation"], 5)
            if stuck:
                self._say(f"did not end in time: {', '.join(stuck)}", sys.stderr)
            self._view.close()
            last = f"ga3c: {ending(reason, self._directory.path, kept, result['updates'])}"
            self._directory.log(last)
            print(last, flush=True)
            self._directory.finish(result)
            write_trace(config, service)
        return Outcome(result, kept, stuck)

    def close(self) -> None:
        """Restore the terminal, and release the run's directory for other processes."""
        self._view.close()
        self._directory.close()

    def _loop(self) -> str:
        """Tend the service until something ends the run. Returns the reason for the end."""
        self._first = self._last = self._service.snapshot()
        while not self._interrupts.first.wait(TICK_S):
            self.tick()
            if reason := ASKED if self._asked else finished(self._config, self._service):
                return reason
        return INTERRUPTED

    def tick(self) -> None:
        """Tend the service, and do what is due: tune, log, show, write a checkpoint, evaluate."""
        service = self._service
        for event in (*service.tend(), *self._watch.events(service.snapshot())):
            line, _, details = event.partition("\n")
            self._say(line, sys.stderr)
            if details:  # what an agent wrote before it died
                self._directory.log(details)
        if self._scheduler:
            self._tune(self._scheduler)
        self._directory.episodes(service.tally.take_episodes())
        now = service.snapshot()
        if not self._begun and service.tally.has_begun:
            self._begun = True
            self._say(f"first steps after {now.time_s - self._first.time_s:.1f} s")
            self._first = self._last = now
        if self._begun and now.time_s - self._last.time_s >= self._config.run.progress_every_s:
            window = Window(self._last, now)
            values = self._show(window, service.counts)
            self._asked = bool(self._on_figures and self._on_figures(values))
            for event in self._watch.figures(window):
                self._say(event, sys.stderr)
            self._last = now
        self._keeper.keep_if_due(service.pacing.steps)
        if self._evaluations:
            self._evaluations.tend(service.pacing.steps)

    def _tune(self, scheduler: Scheduler) -> None:
        if self._evaluations and self._evaluations.is_busy:
            scheduler.disturb()
        if decision := scheduler.tick():
            self._say(f"scheduler: {words(decision)}")

    def _show(self, window: Window, counts: Counts) -> progress.Values:
        service = self._service
        queued = service.requests.size, service.segments.size
        made = progress.figures(window, service.metrics, service.tally, counts, *queued)
        values = {**made, **progress.explored(service)}
        self._directory.metrics(values)
        self._directory.log(progress.line(values))
        self._view.show(values)
        return values

    def _say(self, text: str, to: IO[str] | None = None) -> None:
        self._directory.log(f"ga3c: {text}")
        self._view.say(text, to)
