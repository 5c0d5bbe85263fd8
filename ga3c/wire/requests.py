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
    user: str = ""  # the owner of the agent's key; empty on this machine

    @property
    def agent(self) -> str:
        """The agent's readable name, and the owner of its key if it is on another machine."""
        return f"{name_of(self.identity)} on {self.user}" if self.user else name_of(self.identity)


class Reply(NamedTuple):
    """The actions for a request."""

    request: Request
    actions: np.ndarray  # [n, *shape], as `agents.actions.Actions` says


class Message(NamedTuple):
    """A message that some thread asks the frontend to send."""

    identity: str
    parts: list[bytes]
