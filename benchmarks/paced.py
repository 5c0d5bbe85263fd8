"""The tests' ledger of steps, paced by the clock.

It runs as fast on a busy machine as on a quiet one, so that the cost of a fault can be measured.
"""

import time
from typing import Any

import gymnasium

STEP_S = 0.001


class Paced(gymnasium.Wrapper):
    """Each step sleeps for STEP_S, without using a core."""

    def step(self, action: Any) -> Any:
        time.sleep(STEP_S)
        return self.env.step(action)


def paced_ledger() -> gymnasium.Env:
    """An observation is [environment number, episode, step, previous action]."""
    return Paced(gymnasium.make("tests.tiny:Ledger-v0").unwrapped)


gymnasium.register("PacedLedger-v0", "benchmarks.paced:paced_ledger")
