"""What runs in processes of its own while a part is measured: no tensor framework is imported."""

import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import numpy as np
import zmq

from agents import messages
from agents.environments import EnvironmentConfig, Environments, Spaces
from agents.messages import Header, Hello, Kind, Step

START_TIMEOUT_S = 60.0
WARM_UP_CALLS = 3


def rate(work: Callable[[], int], seconds: float) -> float:
    """Units of `work` a second, after a short warm-up; each call returns how many it did."""
    for _ in range(WARM_UP_CALLS):
        work()
    started_s, done = time.monotonic(), 0
    while time.monotonic() < started_s + seconds:
        done += work()
    return done / (time.monotonic() - started_s)


def play_alone(
    config: EnvironmentConfig, envs: int, seconds: float, barrier: Barrier, answer: Connection
) -> None:
    """Step `envs` environments at random once all have begun; send the rate."""
    environments = Environments(config, envs)
    environments.reset(0)
    random = np.random.default_rng(0)
    actions = random.integers(0, environments.spaces.num_actions, (256, envs), np.int32)
    turn = iter(range(sys.maxsize))
    barrier.wait(START_TIMEOUT_S)
    answer.send(rate(lambda: len(environments.step(actions[next(turn) % 256]).outcomes), seconds))


def send_steps(endpoint: str, identity: str, token: str, found: Spaces, envs: int) -> None:
    """Send one group's steps to the frontend, each when the last has been answered, for ever."""
    socket = zmq.Context().socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity.encode())
    socket.setsockopt(zmq.RCVTIMEO, int(1000 * START_TIMEOUT_S))  # should its parent be gone
    socket.connect(endpoint)
    hello = Hello(token, found.shape, found.dtype, found.num_actions, 1, envs)
    socket.send_multipart(messages.encode_hello(hello))
    frames = np.zeros((envs, *found.shape), found.dtype)
    step = Step(frames, np.zeros(envs, messages.OUTCOME))
    for sequence in range(sys.maxsize):
        header = Header(Kind.STEP, 0, envs, sequence)
        socket.send_multipart(messages.encode_step(header, step), copy=False)
        messages.decode_actions(socket.recv_multipart(), found.num_actions)
