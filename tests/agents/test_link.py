"""A real agent whose connection fails: no step is lost, played twice or taken twice.

This also holds for encrypted connections, which other machines use.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zmq

from agents.environments import EnvironmentConfig, spaces
from agents.keys import Pair
from agents.launchers import Exit, LocalLauncher
from agents.link import Curve, connect
from agents.worker import Task
from ga3c.runs.metrics import Metrics
from ga3c.wire.doors import Listening
from ga3c.wire.frontend import Frontend
from ga3c.wire.queues import BatchQueue
from ga3c.wire.requests import Reply, Request
from tests.commands import wait_for
from tests.relay import Relay

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0  # for what must happen; generous, since only a failing test waits this long
TOKEN = "a token"
GROUPS, ENVS = 2, 3
LEDGER = EnvironmentConfig(game="tests.tiny:Ledger-v0")


class Rig:
    """An agent that reaches its frontend through a relay; the test itself answers its steps."""

    def __init__(self, launcher: LocalLauncher, encrypted: bool = False) -> None:
        self.launcher = launcher
        ours, theirs = pair(), pair()
        door = Listening("tcp://127.0.0.1:*", ours, {theirs.public: "atlas"})
        self._curve = Curve(ours.public, *theirs) if encrypted else None
        self.requests: BatchQueue[Request] = BatchQueue(100, 1, ENVS, 0.0)
        self.metrics = Metrics()
        self.frontend = Frontend(
            *("tcp://127.0.0.1:*", TOKEN, spaces(LEDGER), GROUPS, ENVS, self.requests),
            metrics=self.metrics,
            listening=door if encrypted else None,
        )
        self.frontend.start()
        self.relay = Relay(
            listens.endpoint if (listens := self.frontend.listening) else self.frontend.endpoint
        )
        self._random = np.random.default_rng(0)
        self.taken: list[list[Request]] = [[] for _ in range(GROUPS)]
        self.actions: list[list[np.ndarray]] = [[] for _ in range(GROUPS)]

    def start(self, game: EnvironmentConfig = LEDGER) -> None:
        lanes = np.arange(GROUPS * ENVS, dtype=np.int32).reshape(GROUPS, ENVS)
        self.frontend.peers.expect("agent", lanes)
        self.frontend.peers.expect_of("agent", "atlas" if self._curve else "")
        task = Task("agent", self.relay.endpoint, TOKEN, GROUPS, ENVS, 1, game)
        self.launcher.start(replace(task, curve=self._curve))

    def take(self) -> Request:
        requests = self.requests.get(LIMIT_S)
        assert requests, "the agent does not play on"
        (request,) = requests
        self.taken[request.group].append(request)
        return request

    def answer(self, request: Request) -> None:
        actions = self._random.integers(0, 3, ENVS).astype(np.int32)
        self.actions[request.group].append(actions)
        self.frontend.reply([Reply(request, actions)])

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.answer(self.take())

    @property
    def repeated(self) -> float:
        return self.metrics.snapshot()["repeated_steps"]

    def check(self) -> None:
        """Check that each action was played once, in order, and each step was taken once."""
        counts = self.metrics.snapshot().counts
        assert not [name for name in counts if name.startswith("rejected")], counts
        for taken, actions in zip(self.taken, self.actions, strict=True):
            assert [request.sequence for request in taken] == list(range(len(taken)))
            lines = np.stack([request.step.frames for request in taken])  # [t, n, 4]
            firsts = np.stack([request.step.outcomes["first"] for request in taken])
            for t in range(1, len(taken)):
                goes_on = firsts[t] == 0
                np.testing.assert_array_equal(
                    lines[t, goes_on, 2], lines[t - 1, goes_on, 2] + 1, "a step of the episode"
                )
                np.testing.assert_array_equal(lines[t, goes_on, 3], actions[t - 1][goes_on])
                np.testing.assert_array_equal(
                    lines[t, ~goes_on, 1], lines[t - 1, ~goes_on, 1] + 1, "an episode"
                )


def pair() -> Pair:
    public, secret = zmq.curve_keypair()
    return Pair(public.decode(), secret.decode())


@pytest.fixture
def encrypted() -> bool:
    return False


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, encrypted: bool) -> Iterator[Rig]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    launcher = LocalLauncher()
    rig = Rig(launcher, encrypted)
    with rig.relay:
        yield rig
        launcher.stop(LIMIT_S)
    assert rig.frontend.stop(LIMIT_S)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_connections_that_are_cut_at_any_moment_cost_no_step(rig: Rig) -> None:
    rig.start()
    random = np.random.default_rng(1)
    for _ in range(6):
        rig.play(int(random.integers(20, 200)))
        rig.relay.cut()
        time.sleep(random.uniform(0.0, 0.3))
        rig.relay.mend()
    rig.play(200)
    assert rig.relay.cuts >= 6
    assert rig.repeated > 0
    rig.check()


def test_an_answer_that_is_lost_is_repeated(rig: Rig) -> None:
    rig.start()
    rig.play(20)
    requests = [rig.take() for _ in range(GROUPS)]
    rig.relay.cut()
    for request in requests:
        rig.answer(request)
    time.sleep(0.2)  # the frontend sends them to a connection that is gone
    assert rig.requests.size == 0
    rig.relay.mend()
    rig.play(100)
    assert rig.repeated >= GROUPS
    rig.check()


def test_an_agent_reconnects_after_a_silent_outage_of_the_network(rig: Rig) -> None:
    """Neither side is told that the connection is dead; both notice missing heartbeats."""
    rig.start()
    rig.play(50)
    requests = [rig.take() for _ in range(GROUPS)]
    rig.relay.freeze()
    for request in requests:
        rig.answer(request)
    wait_for(rig.relay.is_called, LIMIT_S)  # the agent has given the connection up
    rig.relay.mend()
    rig.play(100)
    assert rig.repeated >= GROUPS
    rig.check()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_an_agent_reconnects_though_the_service_still_holds_its_old_connection(rig: Rig) -> None:
    """A router has lost the connection, and told the agent but not the service.

    So it is on one machine if the service was stopped, and has not read what the agent sent.
    """
    rig.start()
    for _ in range(3):
        rig.play(50)
        rig.relay.forget()
    rig.play(50)
    rig.check()


def test_the_first_connection_is_noticed_however_late_one_asks(rig: Rig) -> None:
    """Otherwise, the first reconnection would be taken for it, and nothing be resent."""
    context = zmq.Context()
    try:
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED
        socket = connect(context, rig.frontend.endpoint, "agent", TOKEN, events=events)
        socket.send(b"a message that waits for the connection")
        assert socket.get_monitor_socket().poll(int(1000 * LIMIT_S))
    finally:
        context.destroy(linger=0)


def test_a_program_that_an_environment_starts_reads_none_of_the_agents_tasks(rig: Rig) -> None:
    rig.start(replace(LEDGER, game="tests.tiny:Reading-v0"))
    rig.play(10)
    rig.check()


def test_a_retired_agent_rests_though_the_order_was_lost(rig: Rig) -> None:
    rig.start()
    rig.play(20)
    rig.relay.cut()
    rig.frontend.retire("agent")
    time.sleep(0.2)
    rig.relay.mend()
    deadline_s = time.monotonic() + LIMIT_S
    while rig.frontend.peers.knows("agent"):
        assert time.monotonic() < deadline_s, "it has not confirmed that it rests"
        time.sleep(0.01)
    rig.check()


def test_an_agent_that_fails_before_its_hello_is_reported_with_what_it_printed(rig: Rig) -> None:
    """It sends no failure message, which the service would refuse before the hello; the refusal
    would look like the reason why the agent ended.
    """
    rig.start(EnvironmentConfig(game="tests.tiny:Unmade-v0"))
    ends: list[Exit] = []
    wait_for(lambda: bool(ends.extend(rig.launcher.reap()) or ends), LIMIT_S)
    assert "there is no floor" in ends[0].log
    counts = rig.metrics.snapshot().counts
    assert not [name for name in counts if name.startswith("rejected")], counts
