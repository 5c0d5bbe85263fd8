"""Evaluates at intervals during a run, in its own thread and environments."""

import threading
import time
import traceback
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from agents.environments import Spaces
from ga3c.evaluation.games import Game, evaluate, record
from ga3c.evaluation.policy import Policy
from ga3c.evaluation.protocols import PROTOCOLS, fitting
from ga3c.service.agents import SLOWEST_MAKE_S
from ga3c.service.threads import Deadline
from ga3c.settings.train import TrainConfig

SEED = 2**31  # never a seed of `ga3c evaluate`, so that it does not replay games that chose `best`


class Evaluated(NamedTuple):
    """A finished evaluation, and the state that was evaluated."""

    entry: dict[str, Any]  # of evaluations.jsonl
    arrays: Mapping[str, np.ndarray]
    state: Mapping[str, Any]


class Evaluator:
    """Runs one evaluation at a time, of the weights when it begins. Owned by the main thread."""

    def __init__(self, config: TrainConfig, spaces: Spaces, steps: float) -> None:
        """Build it on the main thread, because it builds a network.

        Args: steps: the run's steps at its last evaluation.
        """
        self._environment = config.environment
        self._config = config.evaluation
        self._name = fitting(self._config.evaluate_protocol, spaces.actions)
        self._policy = Policy(config, spaces)
        protocol = replace(PROTOCOLS[self._name], step_cap=self._config.evaluate_step_cap)
        self._protocol = protocol.as_played(self._policy.is_greedy)
        self._next_steps = self._after(steps)
        self._stop = threading.Event()
        self._stepped_s = 0.0
        make_s = SLOWEST_MAKE_S * self._config.evaluate_episodes
        self.patience_s = config.service.agent_timeout_s + make_s
        """An evaluation that makes no step for this long is stuck."""
        self._thread: threading.Thread | None = None
        self._done: list[Evaluated] = []
        self._failures: list[str] = []

    @property
    def is_busy(self) -> bool:
        """Whether an evaluation is running."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_stuck(self) -> bool:
        """Whether an evaluation is running and has made no step for `patience_s`."""
        return self.is_busy and time.monotonic() - self._stepped_s > self.patience_s

    def due(self, steps: float) -> bool:
        """Whether an evaluation is due and none is running."""
        return steps >= self._next_steps and not self.is_busy

    def begin(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        """Start evaluating a state that `Kept.read` returned."""
        self._next_steps = self._after(state["steps"])
        self._policy.load(arrays)
        self._stepped_s = time.monotonic()
        self._thread = threading.Thread(
            target=self._evaluate, args=(arrays, state), name="evaluator", daemon=True
        )
        self._thread.start()

    def take(self) -> list[Evaluated]:
        """The evaluations that finished since the last call."""
        return [self._done.pop(0) for _ in range(len(self._done))]

    def take_failures(self) -> list[str]:
        """The tracebacks of the evaluations that failed since the last call."""
        return [self._failures.pop(0) for _ in range(len(self._failures))]

    def stop(self, deadline: Deadline) -> bool:
        """Stop a running evaluation; False if it does not end in time."""
        self._stop.set()
        return self._thread is None or deadline.joins(self._thread)

    def _goes_on(self, steps: int, ended: Collection[Game]) -> bool:
        """Whether to go on; called before each step."""
        self._stepped_s = time.monotonic()
        return not self._stop.is_set()

    def _after(self, steps: float) -> float:
        every = self._config.evaluate_every
        return (steps // every + 1) * every if every else float("inf")

    def _evaluate(self, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
        try:
            if entry := self._play(int(state["steps"])):
                self._done.append(Evaluated(entry, arrays, state))
        except BaseException:  # an environment may even raise SystemExit
            self._failures.append(traceback.format_exc())

    def _play(self, steps: int) -> dict[str, Any] | None:
        """An entry of evaluations.jsonl; None if the evaluation was stopped."""
        episodes = self._config.evaluate_episodes
        started_s = time.monotonic()
        games = evaluate(
            self._policy,
            self._environment,
            self._protocol,
            episodes=episodes,
            at_once=episodes,
            seed=SEED,
            watch=self._goes_on,
        )
        if len(games) < episodes:
            return None
        greedy = self._policy.is_greedy
        named = self._protocol.named(self._name, self._environment, "newest", greedy)
        return record(
            games,
            steps=steps,
            protocol=named,
            seed=SEED,
            at_once=episodes,
            seconds=time.monotonic() - started_s,
        )
