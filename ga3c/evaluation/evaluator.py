"""Evaluates now and then while a run goes on: in a thread and in environments of its own."""

import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from agents.environments import Spaces
from ga3c.evaluation.games import evaluate, record
from ga3c.evaluation.policy import Policy
from ga3c.evaluation.protocols import PROTOCOLS
from ga3c.settings.train import TrainConfig

SEED = 2**31  # no seed of `ga3c evaluate`: its games are others than those that chose the best


class Evaluated(NamedTuple):
    """A finished evaluation, and what was evaluated."""

    entry: dict[str, Any]  # of evaluations.jsonl
    arrays: Mapping[str, np.ndarray]
    state: Mapping[str, Any]


class Evaluator:
    """One evaluation at a time, of weights as they were when it began. The main thread's."""

    def __init__(self, config: TrainConfig, spaces: Spaces, steps: float) -> None:
        """`steps`: at the last evaluation so far. Make it on the main thread: it has a network."""
        self._environment = config.environment
        self._config = config.evaluation
        self._policy = Policy(config, spaces)
        self._next_steps = self._after(steps)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._done: list[Evaluated] = []
        self._failures: list[str] = []

    @property
    def is_busy(self) -> bool:
        """Whether an evaluation goes on."""
        return self._thread is not None and self._thread.is_alive()

    def due(self, steps: float) -> bool:
        """Whether it is time for one, and none goes on."""
        return steps >= self._next_steps and not self.is_busy

    def begin(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Evaluate what `Service.read` gave."""
        self._next_steps = self._after(state["steps"])
        self._policy.load(arrays)
        self._thread = threading.Thread(
            target=self._evaluate, args=(arrays, state), name="evaluator", daemon=True
        )
        self._thread.start()

    def take(self) -> list[Evaluated]:
        """What has been evaluated since the last call."""
        return [self._done.pop(0) for _ in range(len(self._done))]

    def take_failures(self) -> list[str]:
        """The tracebacks of evaluations that have failed since the last call."""
        return [self._failures.pop(0) for _ in range(len(self._failures))]

    def stop(self, timeout_s: float) -> bool:
        """Give up what goes on; False if it does not end in time."""
        self._stop.set()
        if self._thread:
            self._thread.join(timeout_s)
        return not self.is_busy

    def _after(self, steps: float) -> float:
        every = self._config.evaluate_every
        return (steps // every + 1) * every if every else float("inf")

    def _evaluate(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        try:
            if entry := self._play(int(state["steps"])):
                self._done.append(Evaluated(entry, arrays, state))
        except BaseException:  # an environment may raise SystemExit as well
            self._failures.append(traceback.format_exc())

    def _play(self, steps: int) -> dict[str, Any] | None:
        """An entry of evaluations.jsonl; None if the evaluation was given up."""
        config, episodes = self._config, self._config.evaluate_episodes
        known = PROTOCOLS[config.evaluate_protocol]
        protocol = replace(known, step_cap=config.evaluate_step_cap)
        started_s = time.monotonic()
        games = evaluate(
            self._policy, self._environment, protocol, episodes, episodes, SEED, stop=self._stop
        )
        if len(games) < episodes:
            return None
        named = protocol.named(config.evaluate_protocol, self._environment, "newest")
        return record(games, steps, named, SEED, episodes, time.monotonic() - started_s)
