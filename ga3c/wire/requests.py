"""What the frontend queues for predictors, and what they answer."""

from typing import NamedTuple

import numpy as np

from agents.messages import Step
from ga3c.wire.peers import name_of


class Request(NamedTuple):
    """A group's step, which awaits its actions."""

    identity: str
    group: int
    sequence: int
    lanes: np.ndarray  # [n] int32
    step: Step
    came_s: float

    @property
    def agent(self) -> str:
        """The agent's readable name."""
        return name_of(self.identity)


class Reply(NamedTuple):
    """The actions for a request."""

    request: Request
    actions: np.ndarray  # [n] int32
