"""Evaluates now and then while a run goes on: in a thread and in environments of its own."""

import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from agents.environments import Spaces
from ga3c.config import TrainConfig
from ga3c.evaluation import PROTOCOLS, evaluate, record
from ga3c.policy import Policy

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
        self.failure = ""
        """The traceback of an evaluation that failed."""

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
        config = self._config
        protocol = PROTOCOLS[config.evaluate_protocol]
        started_s = time.monotonic()
        try:
            games = evaluate(
                self._policy,
                self._environment,
                protocol,
                config.evaluate_episodes,
                config.evaluate_episodes,
                SEED,
                stop=self._stop,
            )
        except Exception:
            self.failure = traceback.format_exc()
            return
        if len(games) == config.evaluate_episodes:
            named = protocol.named(config.evaluate_protocol, self._environment, "newest")
            seconds = time.monotonic() - started_s
            entry = record(games, int(state["steps"]), named, SEED, seconds)
            self._done.append(Evaluated(entry, arrays, state))
