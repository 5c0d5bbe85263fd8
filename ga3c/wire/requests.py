"""The requests that the frontend queues for predictors, and the predictors' replies."""

from typing import NamedTuple

import numpy as np

from agents.link import name_of
from agents.messages import Step


class Request(NamedTuple):
    """A step of a group of environments, awaiting actions."""

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
    actions: np.ndarray  # [n, *shape], as `agents.actions.Actions` says


class Message(NamedTuple):
    """A message that some thread asks the frontend to send."""

    identity: str
    parts: list[bytes]
