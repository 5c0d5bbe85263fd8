"""What runs in processes of its own while a part is measured: no tensor framework is imported."""

import signal
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
from agents.worker import connect

START_TIMEOUT_S = 60.0
WARM_UP_CALLS = 3


def rate(
    work: Callable[[], int], seconds: float, clock: Callable[[], float] = time.monotonic
) -> float:
    """Units of `work` a second of `clock`, after a short warm-up; each call returns how many."""
    for _ in range(WARM_UP_CALLS):
        work()
    until_s = time.monotonic() + seconds
    started, done = clock(), 0
    while time.monotonic() < until_s:
        done += work()
    return done / (clock() - started)


def play_alone(
    config: EnvironmentConfig, envs: int, seconds: float, barrier: Barrier, answer: Connection
) -> None:
    """Step `envs` environments at random once all have begun; send the rate."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent
    environments = Environments(config, envs)
    environments.reset(0)
    random = np.random.default_rng(0)
    actions = random.integers(0, environments.spaces.num_actions, (256, envs), np.int32)
    turn = iter(range(sys.maxsize))
    barrier.wait(START_TIMEOUT_S)
    answer.send(rate(lambda: len(environments.step(actions[next(turn) % 256]).outcomes), seconds))


def send_steps(endpoint: str, identity: str, token: str, found: Spaces, envs: int) -> None:
    """Send one group's steps to the frontend, each when the last has been answered, for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent
    socket = connect(zmq.Context(), endpoint, identity, token)
    socket.setsockopt(zmq.RCVTIMEO, int(1000 * START_TIMEOUT_S))  # should its parent be gone
    hello = Hello(token, found.shape, found.dtype, found.num_actions, 1, envs)
    socket.send_multipart(messages.encode_hello(hello))
    frames = np.zeros((envs, *found.shape), found.dtype)
    step = Step(frames, np.zeros(envs, messages.OUTCOME))
    for sequence in range(sys.maxsize):
        header = Header(Kind.STEP, 0, envs, sequence)
        socket.send_multipart(messages.encode_step(header, step), copy=False)
        messages.decode_actions(socket.recv_multipart(), found.num_actions)
