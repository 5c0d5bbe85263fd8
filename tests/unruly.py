"""Environments that misbehave, for tests. Their ids are `tests.unruly:NAME`."""

import threading
import time
from typing import Any

import gymnasium
import numpy as np

from tests.tiny import Corridor


def _is_evaluated() -> bool:
    """Whether an evaluation during training is stepping: it alone has a thread of its own."""
    return threading.current_thread() is not threading.main_thread()


class Endless(Corridor):
    """Its games never end; each step's reward is 0.5."""

    def step(self, action: np.int64) -> Any:
        return self._see(), 0.5, False, False, {}


class Nameless(Endless):
    """From its third step on, its rewards are NaN."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def step(self, action: np.int64) -> Any:
        self._steps += 1
        seen, reward, *ends = super().step(action)
        return seen, reward if self._steps < 3 else np.nan, *ends


class Unevaluated(Corridor):
    """The first evaluation in a process raises RuntimeError, the second SystemExit."""

    failures = 0

    def step(self, action: np.int64) -> Any:
        if _is_evaluated() and Unevaluated.failures < 2:
            Unevaluated.failures += 1
            if Unevaluated.failures == 1:
                raise RuntimeError("not while it is evaluated")
            raise SystemExit("nor now")
        return super().step(action)


class Slow(Endless):
    """Each step of an evaluation takes 0.1 s."""

    def step(self, action: np.int64) -> Any:
        time.sleep(0.1 if _is_evaluated() else 0.0)
        return super().step(action)


class Hanging(Corridor):
    """The first step of an evaluation never returns."""

    def step(self, action: np.int64) -> Any:
        time.sleep(1e6 if _is_evaluated() else 0.0)
        return super().step(action)


gymnasium.register("Hanging-v0", "tests.unruly:Hanging")
gymnasium.register("Endless-v0", "tests.unruly:Endless")
gymnasium.register("Nameless-v0", "tests.unruly:Nameless", max_episode_steps=20)
gymnasium.register("Unevaluated-v0", "tests.unruly:Unevaluated", max_episode_steps=20)
gymnasium.register("Slow-v0", "tests.unruly:Slow")
