"""One training run, from configuration to result."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from agents.environments import Spaces
from ga3c import backend, dashboard
from ga3c.config import TrainConfig
from ga3c.metrics import ROLLING_EPISODES, Window
from ga3c.runs import RunDirectory
from ga3c.scheduler import Counts, Decision, Scheduler
from ga3c.service import Service

TICK_S = 0.2
STOP_TIMEOUT_S = 8.0
SAME_WISH_S = 0.5
WEIGHTS_TIMEOUT_S = 1.0  # for an update that will not end


class WrongInput(ValueError):
    """What the user asked for cannot be done; the message says why in one line."""


class Interrupts:
    """SIGINT, SIGTERM, SIGHUP: the first ends the run, a later one cuts its clean stop short.

    One that comes within a moment is the same wish: make hands on what its whole group was sent.
    """

    def __init__(self) -> None:
        self.first = threading.Event()
        self.second = threading.Event()
        self._first_s = 0.0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.first.is_set():
            self._first_s = time.monotonic()
            self.first.set()
        elif time.monotonic() > self._first_s + SAME_WISH_S:
            self.second.set()


def train(config: TrainConfig, found: Spaces, path: Path) -> int:
    """Run until a limit, a signal or a failure. Returns the exit code: 0, or 130 after a signal.

    Raises:
        WrongInput: if the settings do not fit the environment; nothing has been started.
        RunFailed: if the run cannot go on; everything has been stopped.
    """
    interrupts = Interrupts()
    backend.configure(config.service.intra_op_threads, config.run.seed)
    try:
        service = Service(config, found)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    try:
        try:
            run = RunDirectory(config, path)
        except OSError as error:
            raise WrongInput(f"run {path} cannot be made: {error}") from error
        return _train(config, service, run, interrupts)
    finally:
        service.stop(STOP_TIMEOUT_S)


def _train(config: TrainConfig, service: Service, run: RunDirectory, interrupts: Interrupts) -> int:
    print(f"ga3c: {config.environment.game}, seed {config.run.seed}, in {run.path}")
    print(dashboard.LEGEND, flush=True)
    scheduler = _scheduler(config, service, run)
    first = service.metrics.snapshot()
    reason = "failed"
    try:
        service.start()
        reason = _loop(config, service, run, scheduler, interrupts)
    finally:
        counts = service.counts
        stuck = service.stop(STOP_TIMEOUT_S, interrupts.second)
        window = Window(first, service.metrics.snapshot())
        result = {"ended": reason, **_result(config, service, counts, window)}
        run.episodes(service.metrics.take_episodes())
        weights = service.model.weights(WEIGHTS_TIMEOUT_S)
        run.finish(weights, result)
        _write_trace(config, service)
    without = "" if weights else " without its weights: an update did not end"
    print(f"ga3c: {reason}; kept in {run.path}{without}", flush=True)
    if config.run.json:
        print(json.dumps(result), flush=True)
    if stuck:
        print(f"ga3c: did not end in time: {', '.join(stuck)}", file=sys.stderr, flush=True)
        os._exit(130 if interrupts.first.is_set() else 1)  # no thread can hold this up
    return 130 if interrupts.first.is_set() else 0


def _write_trace(config: TrainConfig, service: Service) -> None:
    if service.trace is None or config.run.trace is None:
        return
    try:
        service.trace.write(config.run.trace)
    except OSError as error:  # the run itself is kept already
        print(f"ga3c: no trace: {error}", file=sys.stderr, flush=True)


def _loop(
    config: TrainConfig,
    service: Service,
    run: RunDirectory,
    scheduler: Scheduler | None,
    interrupts: Interrupts,
) -> str:
    """Tend the service until something ends the run. Returns what did."""
    last = service.metrics.snapshot()
    while not interrupts.first.wait(TICK_S):
        for event in service.tend():
            print(f"ga3c: {event}", file=sys.stderr, flush=True)
        decision = scheduler.tick() if scheduler else None
        if decision:
            _say(decision)
        run.episodes(service.metrics.take_episodes())
        now = service.metrics.snapshot()
        if now.time_s - last.time_s >= config.run.progress_every_s:
            values = dashboard.figures(
                Window(last, now),
                service.metrics,
                service.counts,
                service.requests.size,
                service.segments.size,
            )
            run.metrics(values)
            print(dashboard.line(values), flush=True)
            last = now
        if reason := _finished(config, service):
            return reason
    return "interrupted"


def _finished(config: TrainConfig, service: Service) -> str | None:
    limits, metrics = config.run, service.metrics
    if limits.steps is not None and metrics.total("steps") >= limits.steps:
        return f"{limits.steps} steps done"
    if limits.seconds is not None and metrics.seconds >= limits.seconds:
        return f"{limits.seconds:g} seconds passed"
    if limits.score is not None and metrics.episodes >= ROLLING_EPISODES:
        mean = metrics.score_mean()
        if mean >= limits.score:
            return f"mean score {mean:.2f} of the last {ROLLING_EPISODES} episodes reached"
    return None


def _scheduler(config: TrainConfig, service: Service, run: RunDirectory) -> Scheduler | None:
    if config.scheduler.scheduler == "off":
        return None
    return Scheduler(
        config.scheduler,
        config.service.counts,
        config.service.most,
        config.run.seed,
        service,
        run.path / "scheduler.jsonl",
    )


def _say(decision: Decision) -> None:
    verdict = "kept" if decision.accepted else "undone" + ", to try again" * (decision.wins > 0)
    kept, tried = decision.figures_kept.rate, decision.figures_tried.rate
    print(
        f"ga3c: scheduler: {_counts(decision.kept)} made {kept:.0f} samples/s, "
        f"{_counts(decision.tried)} {tried:.0f}: {verdict}",
        flush=True,
    )


def _counts(counts: Counts) -> str:
    return f"NT {counts.trainers} NP {counts.predictors} NA {counts.agents}"


def _result(
    config: TrainConfig, service: Service, counts: Counts, window: Window
) -> dict[str, Any]:
    """The figures of the whole run, from the first agent's start to the last one's end."""
    values = dashboard.figures(window, service.metrics, counts, 0, 0)
    return {
        **values,
        "game": config.environment.game,
        "seed": config.run.seed,
        "frames": int(window.end["steps"]) * config.environment.action_repeat,
        "trained_samples_per_s": values["tps"],
        "policy_lag_mean": values["policy_lag"],
        "agent_deaths": int(window.end["agent_deaths"]),
        "rejected_messages": {
            name.removeprefix("rejected:"): int(count)
            for name, count in window.end.counts.items()
            if name.startswith("rejected:")
        },
    }
