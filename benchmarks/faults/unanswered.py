"""The part of a service that admits peers stops: nobody gets in, and connected agents play on."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zmq

from agents import keys
from agents.actions import Actions
from agents.headers import Header, Kind
from agents.keys import Pair
from agents.link import Curve, Link, connect
from agents.messages import OUTCOME, Hello, Step
from agents.spaces import Spaces
from benchmarks.faults.case import RECOVERED, Bench, Case, Seen
from ga3c.runs.metrics import Metrics, Window
from ga3c.wire.doors import Listening
from ga3c.wire.frontend import Frontend
from ga3c.wire.queues import BatchQueue, Closed
from ga3c.wire.requests import Reply, Request

ENVS = 8
SPACES = Spaces((84, 84), "uint8", Actions(6), 1)
TOKEN = "a token"
REFUSED_MS, ADMITTED_MS = 1000, 10_000
WAIT_S = 20.0
QUICK_SHARE = 0.5  # in the quick form: three seconds on a busy machine are noisy


class Rig:
    """A frontend that other machines can reach, an agent that plays through it, and a predictor."""

    def __init__(self, directory: Path) -> None:
        self.service, self.host = keys.new(), keys.new()
        self.metrics = Metrics()
        self.requests: BatchQueue[Request] = BatchQueue(2 * ENVS, 0, ENVS, 0.0)
        door = Listening("tcp://127.0.0.1:*", self.service, {self.host.public: "host"})
        where = f"ipc://{directory}/agents"
        given = where, TOKEN, SPACES, 1, ENVS, self.requests, self.metrics
        self.frontend = Frontend(*given, listening=door)
        assert self.frontend.listening
        self.endpoint = self.frontend.listening.endpoint
        self.context = zmq.Context()
        self.frontend.peers.expect("good", np.arange(ENVS, dtype=np.int32)[None])
        self.frontend.peers.expect_of("good", "host")

    def answer(self) -> None:
        """Give actions for each step, until the queue is closed."""
        with contextlib.suppress(Closed):
            while True:
                for each in self.requests.get(0.2):
                    self.frontend.reply([Reply(each, np.zeros(ENVS, np.int32))])

    def play(self) -> None:
        """Send one step after another, until the context ends."""
        step = Step(np.zeros((ENVS, 84, 84), np.uint8), np.zeros(ENVS, OUTCOME))
        hello = Hello(TOKEN, SPACES.shape, SPACES.dtype, SPACES.actions, 1, ENVS)
        curve, sequence = Curve(self.service.public, *self.host), 0
        with contextlib.suppress(zmq.ZMQError):
            link = Link(self.context, self.endpoint, "good", TOKEN, curve, pack=True)
            link.greet(hello)
            while True:
                link.send(Header(Kind.STEP, 0, ENVS, sequence), step)
                link.receive()
                sequence += 1

    def comes_in(self, pair: Pair, within_ms: int) -> bool:
        """Whether a peer with this key pair is admitted."""
        peer = connect(self.context, self.endpoint, "late", "", Curve(self.service.public, *pair))
        events = peer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        admitted = bool(events.poll(within_ms))
        peer.disable_monitor()
        peer.close(linger=0)
        return admitted

    def pps(self, seconds: float) -> float:
        """Environment steps per second, over the next `seconds`."""
        start = self.metrics.snapshot()
        time.sleep(seconds)
        return Window(start, self.metrics.snapshot()).rate("messages") * ENVS


@contextlib.contextmanager
def _played(directory: Path) -> Iterator[Rig]:
    rig = Rig(directory)
    threads = [threading.Thread(target=work, daemon=True) for work in (rig.answer, rig.play)]
    rig.frontend.start()
    try:
        for thread in threads:
            thread.start()
        yield rig
    finally:
        rig.requests.close()
        rig.frontend.stop(WAIT_S)
        rig.context.destroy(linger=0)
        for thread in threads:
            thread.join(WAIT_S)


def _stop_authenticator(frontend: Frontend) -> None:
    """Make the frontend ignore the authenticator from its next request on."""
    doors = frontend._doors

    def unheard() -> None:  # in the frontend's thread, which owns both
        doors._poller.unregister(doors.authenticator.socket)

    doors.authenticator.answer = unheard  # type: ignore[method-assign]


def authenticator_stopped(bench: Bench) -> Seen:
    """Requests to admit a peer are no longer answered."""
    seen = Seen()
    with _played(bench.directory) as rig:
        until_s = time.monotonic() + WAIT_S
        while not rig.metrics.snapshot()["messages"] and time.monotonic() < until_s:
            time.sleep(0.1)
        seen.expect(rig.comes_in(rig.host, ADMITTED_MS), "an allowed peer was not admitted before")
        seconds = bench.scaled(20.0, 3.0)
        rig.pps(seconds)  # it is slower at first
        seen.pps_before = rig.pps(seconds)
        _stop_authenticator(rig.frontend)
        for pair in (rig.host, keys.new()):
            seen.expect(not rig.comes_in(pair, REFUSED_MS), "a peer was admitted without an answer")
            seen.injected += 1
        seen.pps_during = rig.pps(seconds)
    share = seen.pps_during / max(seen.pps_before, 1e-9)
    seen.note = f"{share:.0%} of PPS"
    seen.expect(share >= bench.scaled(RECOVERED, QUICK_SHARE), seen.note)
    return seen


CASES = (
    Case(
        "machines/authenticator stopped",
        "requests to admit a peer get no answer: no peer gets in, allowed or not, and connected "
        "agents play on",
        authenticator_stopped,
    ),
)
