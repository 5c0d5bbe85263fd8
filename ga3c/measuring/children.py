"""Code that runs in child processes while a part is measured. It imports no tensor framework."""

import os
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
from agents.launchers import NUMBER
from agents.link import connect, received
from agents.messages import Header, Hello, Kind, Step

START_TIMEOUT_S = 60.0
WARM_UP_CALLS = 3


def rate(
    work: Callable[[], int], seconds: float, clock: Callable[[], float] = time.monotonic
) -> float:
    """Units of work per second of `clock`, after a warm-up. A call of `work` returns its units."""
    for _ in range(WARM_UP_CALLS):
        work()
    until_s = time.monotonic() + seconds
    started, units = clock(), 0
    while time.monotonic() < until_s:
        units += work()
    return units / (clock() - started)


def play_alone(
    number: int,
    config: EnvironmentConfig,
    envs: int,
    seconds: float,
    barrier: Barrier,
    answer: Connection,
) -> None:
    """Step `envs` environments with random actions once all processes are ready; send the rate.

    Args: number: of this process, as agents have one.
    """
    os.environ[NUMBER] = str(number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
    environments = Environments(config, envs)
    environments.reset(0)
    random = np.random.default_rng(0)
    actions = [environments.spaces.actions.random(random, envs) for _ in range(256)]
    turn = iter(range(sys.maxsize))
    barrier.wait(START_TIMEOUT_S)
    answer.send(rate(lambda: len(environments.step(actions[next(turn) % 256]).outcomes), seconds))


def send_steps(endpoint: str, identity: str, token: str, spaces: Spaces, envs: int) -> None:
    """Send steps of one group to the frontend forever, each after the answer to the last one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
    socket = connect(zmq.Context(), endpoint, identity, token)
    socket.setsockopt(zmq.RCVTIMEO, int(1000 * START_TIMEOUT_S))  # ends if the parent has died
    hello = Hello(token, spaces.shape, spaces.dtype, spaces.actions, 1, envs)
    socket.send_multipart(messages.encode_hello(hello))
    frames = np.zeros((envs, *spaces.shape), spaces.dtype)
    step = Step(frames, np.zeros(envs, messages.OUTCOME))
    for sequence in range(sys.maxsize):
        header = Header(Kind.STEP, 0, envs, sequence)
        socket.send_multipart(messages.encode_step(header, step), copy=False)
        messages.decode_actions(received(socket), spaces.actions)
