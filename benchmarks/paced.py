"""The tests' ledger of steps, at a pace that a clock sets.

A run of it is as fast on a busy machine as on a quiet one, so that what a fault costs can be told.
"""

import time
from typing import Any

import gymnasium

STEP_S = 0.001


class Paced(gymnasium.Wrapper):
    """Each step takes STEP_S, and no core."""

    def step(self, action: Any) -> Any:
        time.sleep(STEP_S)
        return self.env.step(action)


def paced_ledger() -> gymnasium.Env:
    """An observation is [number of the environment, episode, step, action before]."""
    return Paced(gymnasium.make("tests.tiny:Ledger-v0").unwrapped)


gymnasium.register("PacedLedger-v0", "benchmarks.paced:paced_ledger")
