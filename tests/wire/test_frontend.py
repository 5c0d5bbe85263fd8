"""The frontend over real sockets: who is heard, what is queued, and where the answers go."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from agents import messages, packing
from agents.actions import Actions
from agents.environments import Spaces
from agents.link import received
from agents.messages import Header, Hello, Kind, Step
from ga3c.runs.metrics import Metrics
from ga3c.wire.frontend import Frontend
from ga3c.wire.queues import BatchQueue, Closed
from ga3c.wire.requests import Reply, Request
from ga3c.wire.sockets import SPARE_MESSAGES
from tests import leaks
from tests.damage import (
    ENVS,
    GROUPS,
    HELLO,
    NUM_ACTIONS,
    SHAPE,
    Damaged,
    damaged_messages,
    make_step,
    whole_messages,
)

LANES = 4 * GROUPS * ENVS
LIMIT_S = 20.0  # for what must happen; generous, since only a failing test waits this long
UNHEARD_MS = 100  # how long to watch for what must not happen
SPACES = Spaces(shape=SHAPE, dtype="uint8", actions=Actions(NUM_ACTIONS), stack=1)


def wait_until(happened: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    deadline_s = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < deadline_s, "it has not happened in time"
        time.sleep(0.002)


def lanes_of(index: int) -> np.ndarray:
    """The lanes of the agent in place `index`, int32 [GROUPS, ENVS]."""
    first = index * GROUPS * ENVS
    return np.arange(first, first + GROUPS * ENVS, dtype=np.int32).reshape(GROUPS, ENVS)


class Answer(NamedTuple):
    """What an agent received."""

    kind: Kind
    group: int
    sequence: int
    actions: list[int]


class Agent:
    """A DEALER socket that talks as an agent does, or as no agent should."""

    def __init__(
        self,
        context: zmq.Context,
        identity: str | bytes,
        password: str | None = HELLO.token,
    ) -> None:
        self.socket = context.socket(zmq.DEALER)
        if password is not None:
            self.socket.setsockopt(zmq.PLAIN_USERNAME, b"agent")
            self.socket.setsockopt(zmq.PLAIN_PASSWORD, password.encode())
        name = identity.encode() if isinstance(identity, str) else identity
        self.socket.setsockopt(zmq.IDENTITY, name)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 0)

    def connect(self, endpoint: str) -> None:
        """Connect, and wait for the handshake, in which the other side learns who this is."""
        monitor = self.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self.socket.connect(endpoint)
        assert monitor.poll(int(1000 * LIMIT_S)), "no connection"
        recv_monitor_message(monitor)
        self.socket.disable_monitor()

    def hello(self, hello: Hello = HELLO) -> None:
        self.socket.send_multipart(messages.encode_hello(hello))

    def step(
        self,
        group: int = 0,
        sequence: int = 0,
        step: Step | None = None,
        envs: int = ENVS,
        waited_s: float = 0.0,
        stepped_s: float = 0.0,
    ) -> Step:
        step = step or make_step(seed=100 * group + sequence)
        header = Header(Kind.STEP, group, envs, sequence, waited_s, stepped_s)
        self.socket.send_multipart(messages.encode_step(header, step))
        return step

    def send(self, parts: list[bytes]) -> None:
        self.socket.send_multipart(parts or [b""])

    def hears(self, within_ms: int) -> bool:
        return bool(self.socket.poll(within_ms))

    def receive(self) -> Answer:
        assert self.hears(int(1000 * LIMIT_S)), "no answer"
        parts = received(self.socket)
        assert not self.socket.get(zmq.RCVMORE), "libzmq may abort an agent between two parts"
        header = messages.decode_header(parts[0])
        actions = (
            messages.decode_actions(parts, Actions(NUM_ACTIONS)).tolist()
            if header.kind == Kind.ACTIONS
            else []
        )
        return Answer(header.kind, header.group, header.sequence, actions)


class Rig:
    """A frontend, its queue and counters, and agents that talk to it."""

    def __init__(self, endpoint: str, metrics: Metrics | None = None) -> None:
        self.requests: BatchQueue[Request] = BatchQueue(LANES, 1, ENVS, 0.0)
        self.metrics = metrics or Metrics()
        self.frontend = Frontend(
            endpoint, HELLO.token, SPACES, GROUPS, ENVS, self.requests, self.metrics
        )
        self.context = zmq.Context()
        self.agents: list[Agent] = []  # otherwise their sockets would be closed
        self.frontend.start()

    def agent(self, identity: str | bytes) -> Agent:
        """An agent that is connected, but that the frontend is not told to expect."""
        agent = Agent(self.context, identity)
        agent.connect(self.frontend.endpoint)
        self.agents.append(agent)
        return agent

    def welcome(self, identity: str, index: int = 0) -> Agent:
        """An agent that is expected and has said hello."""
        self.frontend.peers.expect(identity, lanes_of(index))
        agent = self.agent(identity)
        agent.hello()
        return agent

    def take(self) -> Request:
        """The next request."""
        (request,) = self.requests.get(LIMIT_S)
        return request

    def answer(self, request: Request, actions: list[int] | None = None) -> None:
        self.frontend.reply([Reply(request, np.array(actions or [0] * ENVS, np.int32))])

    def rejected(self, reason: str) -> float:
        return self.metrics.snapshot()[f"rejected:{reason}"]

    def all_rejected(self) -> float:
        counts = self.metrics.snapshot().counts
        return sum(count for name, count in counts.items() if name.startswith("rejected:"))

    def close(self) -> None:
        self.agents.clear()
        self.context.destroy(linger=0)
        assert self.frontend.stop(LIMIT_S)


@contextlib.contextmanager
def predictor(rig: Rig) -> Iterator[None]:
    """Answers every request with its sequence number, modulo the number of actions."""
    stop = threading.Event()

    def predict() -> None:
        while not stop.is_set():
            for request in rig.requests.get(0.05):
                rig.answer(request, [request.sequence % NUM_ACTIONS] * ENVS)

    thread = threading.Thread(target=predict)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LIMIT_S)


def endpoint_of(transport: str, directory: Path | None) -> str:
    return f"ipc://{directory}/agents" if transport == "ipc" else "tcp://127.0.0.1:*"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(endpoint_of("ipc", tmp_path))
    yield rig
    rig.close()


@pytest.fixture(params=["ipc", "tcp"])
def any_rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """A rig over each of the two transports."""
    rig = Rig(endpoint_of(request.param, tmp_path))
    yield rig
    rig.close()


def test_few_messages_are_kept_for_a_peer_that_does_not_read(rig: Rig) -> None:
    deaf = Agent(rig.context, "deaf")
    deaf.socket.setsockopt(zmq.RCVHWM, 1)
    deaf.connect(rig.frontend.endpoint)
    for _ in range(1000):
        rig.frontend.send("deaf", [bytes(100_000)])
    agent = rig.welcome("agent")  # still served after all that
    agent.step()
    rig.answer(rig.take(), [0] * ENVS)
    agent.receive()
    kept, least = 0, GROUPS + SPARE_MESSAGES
    while deaf.socket.poll(int(1000 * LIMIT_S) if kept < least else 1000):
        deaf.socket.recv()
        kept += 1
    assert least <= kept < 2 * least
    rig.agents.append(deaf)


def test_steps_are_queued_as_they_were_sent(any_rig: Rig) -> None:
    agents = [any_rig.welcome(f"agent-{index}", index) for index in range(2)]
    sent = {}
    for index, agent in enumerate(agents):
        for group in range(GROUPS):
            step = make_step(seed=10 * index + group)
            sent[f"agent-{index}", group] = agent.step(group, step=step), lanes_of(index)[group]
    for _ in range(len(sent)):
        request = any_rig.take()
        step, lanes = sent.pop((request.identity, request.group))
        assert request.sequence == 0
        assert request.lanes.tolist() == lanes.tolist()
        assert request.step.frames.dtype == np.uint8
        np.testing.assert_array_equal(request.step.frames, step.frames)
        np.testing.assert_array_equal(request.step.outcomes, step.outcomes)
    assert any_rig.all_rejected() == 0


def test_a_step_with_packed_frames_is_unpacked_and_queued(rig: Rig) -> None:
    agent, step = rig.welcome("agent"), make_step()
    header = messages.encode_header(Header(Kind.PACKED, 0, ENVS))
    frames = step.frames.data.cast("B")
    for bad in (frames, packing.packed(frames[:-1]), b""):
        agent.send([header, step.outcomes.tobytes(), bytes(bad)])
    agent.send([header, step.outcomes.tobytes(), packing.packed(frames)])
    assert rig.take().step.frames.tobytes() == step.frames.tobytes()
    assert rig.rejected("packed") == 2
    assert rig.rejected("packed size") == 1


def test_actions_reach_the_agent_and_group_that_asked(any_rig: Rig) -> None:
    agents = {f"agent-{index}": any_rig.welcome(f"agent-{index}", index) for index in range(3)}
    for sequence in range(3):
        for agent in agents.values():
            for group in range(GROUPS):
                agent.step(group, sequence)
        requests = [any_rig.take() for _ in range(len(agents) * GROUPS)]
        replies = [  # in another order, and all at once
            Reply(request, (request.lanes + sequence) % NUM_ACTIONS) for request in requests[::-1]
        ]
        any_rig.frontend.reply(replies)
        for index, agent in enumerate(agents.values()):
            answers = sorted(agent.receive() for _ in range(GROUPS))
            for group, answer in enumerate(answers):
                actions = (lanes_of(index)[group] + sequence) % NUM_ACTIONS
                assert answer == Answer(Kind.ACTIONS, group, sequence, actions.tolist())


def test_the_endpoint_is_one_that_agents_can_connect_to(tmp_path: Path) -> None:
    rig = Rig(endpoint_of("tcp", tmp_path))
    assert not rig.frontend.endpoint.endswith("*")
    rig.close()


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (replace(HELLO, token="another token"), "stranger"),
        (replace(HELLO, token=""), "stranger"),
        (replace(HELLO, token=HELLO.token + "\0"), "stranger"),
        (replace(HELLO, token="\ud800"), "stranger"),
        (replace(HELLO, shape=(2, 3)), "hello fields"),
        (replace(HELLO, shape=(*SHAPE, 1)), "hello fields"),
        (replace(HELLO, dtype="float32"), "hello fields"),
        (replace(HELLO, actions=Actions(NUM_ACTIONS + 1)), "hello fields"),
        (replace(HELLO, groups=GROUPS + 1), "hello fields"),
        (replace(HELLO, envs_per_group=ENVS - 1), "hello fields"),
        (replace(HELLO, envs_per_group=0), "hello counts"),
    ],
)
def test_a_wrong_hello_is_counted_and_its_steps_are_not_heard(
    rig: Rig, hello: Hello, reason: str
) -> None:
    rig.frontend.peers.expect("agent", lanes_of(0))
    agent = rig.agent("agent")
    agent.hello(hello)
    agent.step()
    wait_until(lambda: rig.rejected("no hello") == 1)
    assert rig.rejected(reason) == 1
    assert rig.all_rejected() == 2
    agent.hello()  # a correct hello is still accepted
    agent.step()
    assert rig.take().identity == "agent"
    assert rig.all_rejected() == 2


@pytest.mark.parametrize(
    ("identity", "reason"),
    [("agent-2", "stranger"), ("agent-1 ", "stranger"), (b"\xff\xfe", "identity")],
)
def test_an_unexpected_identity_is_not_heard_whatever_it_knows(
    rig: Rig, identity: str | bytes, reason: str
) -> None:
    rig.frontend.peers.expect("agent-1", lanes_of(0))
    stranger = rig.agent(identity)
    stranger.hello()
    wait_until(lambda: rig.rejected(reason) == 1)
    stranger.step()
    wait_until(lambda: rig.all_rejected() == 2)
    assert rig.requests.size == 0


def test_a_step_before_the_hello_is_not_heard(rig: Rig) -> None:
    rig.frontend.peers.expect("agent", lanes_of(0))
    rig.agent("agent").step()
    wait_until(lambda: rig.rejected("no hello") == 1)
    assert rig.requests.size == 0
    assert rig.frontend.peers.faults() == {}, "its hello may have been lost with a connection"


def test_a_second_hello_changes_nothing(rig: Rig) -> None:
    agent = rig.welcome("agent")
    agent.step()
    rig.answer(rig.take())
    agent.receive()
    agent.hello()
    agent.step(sequence=1)
    assert rig.take().sequence == 1
    assert rig.all_rejected() == 0


@pytest.mark.parametrize("kind", ["actions", "retire"])
def test_messages_of_the_service_are_rejected_from_an_agent(rig: Rig, kind: str) -> None:
    agent = rig.welcome("agent")
    agent.send(whole_messages()[kind])
    wait_until(lambda: rig.rejected("kind") == 1)
    assert rig.requests.size == 0


@pytest.mark.parametrize("sequence", [1, 2, 2**32 - 1])
def test_a_step_out_of_sequence_is_dropped_and_the_right_one_taken(rig: Rig, sequence: int) -> None:
    agent = rig.welcome("agent")
    agent.step(sequence=sequence)
    wait_until(lambda: rig.rejected("sequence") == 1)
    assert rig.requests.size == 0
    agent.step()
    assert rig.take().sequence == 0


def test_a_repeated_step_is_not_taken_again_and_its_answer_is_repeated(rig: Rig) -> None:
    agent = rig.welcome("agent")
    agent.step()
    agent.step()
    wait_until(lambda: rig.metrics.snapshot()["repeated_steps"] == 1)
    rig.answer(rig.take(), [1, 2, 3])
    assert agent.receive() == (Kind.ACTIONS, 0, 0, [1, 2, 3])
    assert not agent.hears(UNHEARD_MS), "one answer, as the first was not sent before"
    for _ in range(2):
        agent.step()
        assert agent.receive() == (Kind.ACTIONS, 0, 0, [1, 2, 3])
    assert rig.requests.size == 0
    agent.step(sequence=1)
    agent.step(sequence=1)
    assert rig.take().sequence == 1
    wait_until(lambda: rig.metrics.snapshot()["repeated_steps"] == 4)
    assert not agent.hears(UNHEARD_MS), "the answer to the step before is not repeated any more"
    agent.step()  # the previous step, which can no longer be repeated
    wait_until(lambda: rig.rejected("sequence") == 1)
    assert rig.all_rejected() == 1


def test_steps_before_the_answer_are_dropped_for_that_group_only(rig: Rig) -> None:
    agent = rig.welcome("agent")
    first = agent.step()
    agent.step(step=make_step(seed=7))  # the same sequence number, as if resent
    agent.step(sequence=1)  # the next step, too early
    agent.step(group=1)
    requests = [rig.take(), rig.take()]
    assert [request.group for request in requests] == [0, 1]
    assert requests[0].step.frames.tobytes() == first.frames.tobytes()
    assert rig.rejected("sequence") == rig.all_rejected() == 1
    rig.answer(requests[0])
    assert agent.receive().sequence == 0
    agent.step(sequence=1)
    assert (rig.take().sequence, rig.requests.size) == (1, 0)


@pytest.mark.parametrize("group", [GROUPS, 4095, 4096, 0xFFFF])
def test_a_group_out_of_range_is_dropped(rig: Rig, group: int) -> None:
    agent = rig.welcome("agent")
    agent.step(group=group)
    wait_until(lambda: rig.rejected("counts") == 1)
    agent.step(group=GROUPS - 1)
    assert rig.take().group == GROUPS - 1


@pytest.mark.parametrize("envs", [0, ENVS - 1, ENVS + 1])
def test_a_step_of_another_number_of_environments_is_dropped(rig: Rig, envs: int) -> None:
    agent = rig.welcome("agent")
    step = make_step(max(envs, 1))
    agent.step(step=Step(step.frames[:envs], step.outcomes[:envs]), envs=envs) if envs else (
        agent.send([messages.encode_header(Header(Kind.STEP)), b"", b""])
    )
    wait_until(lambda: rig.rejected("counts") == 1)
    assert rig.requests.size == 0


def every_nth(n: int) -> list[Damaged]:
    return list(damaged_messages(1))[::n]


def test_a_good_agent_is_served_while_others_send_damaged_messages(any_rig: Rig) -> None:
    vandals = [
        any_rig.agent("a stranger"),
        any_rig.agent(b"\x80 no text"),
        any_rig.welcome("vandal", 1),  # it is welcome, so some of its messages may be accepted
    ]
    any_rig.frontend.peers.expect("no hello yet", lanes_of(2))
    vandals.append(any_rig.agent("no hello yet"))
    good = any_rig.welcome("good")
    with predictor(any_rig):
        for sequence, damaged in enumerate(every_nth(7)):
            for vandal in vandals:
                vandal.send(damaged.parts)
            if sequence % 10 == 0:
                good.step(sequence=sequence // 10)
                answer = good.receive()
                assert answer.sequence == sequence // 10, damaged.how
                assert answer.actions == [sequence // 10 % NUM_ACTIONS] * ENVS
    assert sequence > 400
    wait_until(lambda: any_rig.all_rejected() > 3 * 400)
    assert any_rig.frontend.alive
    reasons = {name for name in any_rig.metrics.snapshot().counts if name.startswith("rejected")}
    assert len(reasons) > 10


def test_a_good_agents_own_damaged_messages_do_not_move_its_sequence(rig: Rig) -> None:
    agent = rig.welcome("agent")
    step = whole_messages(group=0, sequence=0)["step"]
    for part in range(3):
        for cut in (0, 1, len(step[part]) - 1):
            agent.send([*step[:part], step[part][:cut], *step[part + 1 :]])
    wait_until(lambda: rig.all_rejected() == 9)
    agent.send(step)
    request = rig.take()
    assert request.step.frames.tobytes() == step[2]
    assert request.step.outcomes.tobytes() == step[1]


def test_a_reply_to_an_agent_that_has_gone_does_not_matter(any_rig: Rig) -> None:
    gone = any_rig.welcome("gone", 0)
    here = any_rig.welcome("here", 1)
    gone.step()
    request = any_rig.take()
    gone.socket.close(linger=0)
    for _ in range(3):  # the last two answer a request that is already answered
        any_rig.answer(request)
    any_rig.frontend.peers.forget("gone")
    any_rig.answer(request)
    here.step()
    any_rig.answer(any_rig.take(), [3, 1, 2])
    assert here.receive().actions == [3, 1, 2]
    assert any_rig.frontend.alive


def test_a_successors_step_waits_until_the_old_request_is_answered(rig: Rig) -> None:
    old = rig.welcome("old")
    old.step()
    request = rig.take()
    old.socket.close(linger=0)
    rig.frontend.peers.forget("old")
    successor = rig.welcome("successor")
    step = successor.step(step=make_step(seed=5))
    successor.step(group=1)
    assert rig.take().group == 1, "another group's lanes are free"
    assert rig.requests.size == 0, "the lanes are still with a predictor"
    successor.step(sequence=1)  # too early: its first step is still parked
    wait_until(lambda: rig.rejected("sequence") == 1)
    rig.answer(request)
    parked = rig.take()
    assert (parked.identity, parked.group, parked.sequence) == ("successor", 0, 0)
    assert parked.lanes.tolist() == request.lanes.tolist()
    assert parked.step.frames.tobytes() == step.frames.tobytes()
    rig.answer(parked, [1, 2, 3])
    assert successor.receive() == Answer(Kind.ACTIONS, 0, 0, [1, 2, 3])
    successor.step(sequence=1)
    assert rig.take().sequence == 1


def test_lanes_are_never_with_two_predictors_through_many_successions(rig: Rig) -> None:
    held = None
    for generation in range(5):
        agent = rig.welcome(f"agent.{generation}")
        agent.step()
        if held is None:
            held = rig.take()
        wait_until(lambda g=generation: rig.metrics.snapshot()["messages"] == g + 1)  # type: ignore[misc]
        assert rig.requests.size == 0
        agent.socket.close(linger=0)
        if generation < 4:
            rig.frontend.peers.forget(f"agent.{generation}")
    assert held is not None
    rig.answer(held)
    assert rig.take().identity == "agent.4"
    assert rig.requests.size == 0


def test_a_duplicate_identity_cannot_take_over_the_replies(tmp_path: Path) -> None:
    """By TCP it could, as agents reconnect there; but it would need the unguessable identity."""
    with contextlib.closing(Rig(endpoint_of("ipc", tmp_path))) as rig:
        agent = rig.welcome("agent")
        agent.step()
        request = rig.take()
        thief = rig.agent("agent")
        thief.hello()
        thief.step(group=1)
        rig.answer(request, [3, 2, 1])
        assert agent.receive().actions == [3, 2, 1]
        agent.step(sequence=1)
        rig.answer(rig.take(), [2, 2, 2])
        assert agent.receive().actions == [2, 2, 2]
        assert not thief.hears(UNHEARD_MS)
        assert rig.requests.size == 0, "nor was the duplicate heard"


def test_retire_reaches_the_agent_after_its_actions(any_rig: Rig) -> None:
    agents = [any_rig.welcome(f"agent-{index}", index) for index in range(2)]
    for agent in agents:
        agent.step()
    for request in (any_rig.take(), any_rig.take()):
        any_rig.answer(request)
    any_rig.frontend.retire("agent-1")
    any_rig.frontend.retire("nobody")
    assert [agent.receive().kind for agent in agents] == [Kind.ACTIONS] * 2
    assert agents[1].receive().kind == Kind.RETIRE
    assert not agents[0].hears(0)


def test_a_retired_agent_is_known_until_it_says_that_it_rests(rig: Rig) -> None:
    agent = rig.welcome("agent")
    agent.step()
    rig.answer(rig.take())
    agent.receive()
    rig.frontend.retire("agent")
    assert agent.receive().kind == Kind.RETIRE
    agent.step(sequence=1)  # sent before the order to retire arrived
    wait_until(lambda: rig.frontend.silent(0.0) == ["agent"])
    assert rig.frontend.peers.knows("agent")
    agent.send(whole_messages()["retire"])
    wait_until(lambda: not rig.frontend.peers.knows("agent"))
    assert rig.frontend.silent(0.0) == []
    assert rig.all_rejected() == rig.requests.size == 0


def test_a_forgotten_agent_is_heard_no_longer(rig: Rig) -> None:
    agent = rig.welcome("agent")
    agent.step()
    rig.answer(rig.take())
    agent.receive()
    assert rig.frontend.peers.forget("agent") == ""
    agent.step(sequence=1)
    wait_until(lambda: rig.rejected("no hello") == 1)
    agent.hello()
    wait_until(lambda: rig.rejected("stranger") == 1)
    assert rig.requests.size == 0
    assert rig.frontend.peers.forget("agent") == rig.frontend.peers.forget("nobody") == ""


def test_last_words_are_given_once_to_whoever_forgets_the_agent(rig: Rig) -> None:
    agent = rig.welcome("agent")
    agent.send(messages.encode_failure("Traceback: first"))
    agent.send(messages.encode_failure("Traceback: last \u2620"))
    agent.step()
    rig.take()
    assert rig.frontend.peers.forget("agent") == "Traceback: last \u2620"
    assert rig.frontend.peers.forget("agent") == ""


def test_a_strangers_last_words_are_not_heard(rig: Rig) -> None:
    rig.agent("stranger").send(messages.encode_failure("lies"))
    wait_until(lambda: rig.rejected("no hello") == 1)
    assert rig.frontend.peers.forget("stranger") == ""


def test_the_agents_times_are_summed(rig: Rig) -> None:
    agent = rig.welcome("agent")
    agent.step(group=0, waited_s=0.5, stepped_s=2.0)
    agent.step(group=1, waited_s=0.25, stepped_s=4.0)
    rig.take(), rig.take()
    counts = rig.metrics.snapshot()
    assert counts["messages"] == 2
    assert math.isclose(counts["agents_waiting_s"], 0.75)
    assert math.isclose(counts["agents_busy_s"], 6.0)


def test_silent_names_only_agents_that_owe_a_step(rig: Rig) -> None:
    owing = rig.welcome("owing", 0)
    waiting = rig.welcome("waiting", 1)
    for agent in (owing, waiting):
        agent.step()
    first, second = rig.take(), rig.take()
    assert rig.frontend.silent(0.0) == [], "both await their actions"
    rig.answer(first if first.identity == "owing" else second)
    owing.receive()
    wait_until(lambda: rig.frontend.silent(0.0) == ["owing"])
    assert rig.frontend.silent(3600.0) == [], "it has not owed it for so long"
    rig.frontend.peers.forget("owing")
    assert rig.frontend.silent(0.0) == []


def test_an_agent_owes_a_step_from_its_answer_on_only(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it waited for the answer, and whoever asks in the moment of the answer."""
    found: list[list[str]] = []
    heard = rig.frontend.peers.heard

    def asked(identity: str) -> None:
        found.append(rig.frontend.silent(0.5))
        heard(identity)
        found.append(rig.frontend.silent(0.5))

    rig.welcome("agent").step()
    request = rig.take()
    time.sleep(0.6)
    monkeypatch.setattr(rig.frontend.peers, "heard", asked)
    rig.answer(request)
    wait_until(lambda: len(found) == 2)
    assert found == [[], []]


def test_an_agent_on_another_machine_has_one_name(rig: Rig) -> None:
    named: list[str] = []
    rig.frontend._on_step = lambda agent, header, came_s: named.append(agent)
    agent = rig.welcome("agent-0.0#1")
    wait_until(lambda: rig.frontend.peers.welcomed("agent-0.0#1") is not None)
    rig.frontend.peers.welcomed("agent-0.0#1").user = "box"  # type: ignore[union-attr]
    agent.step()
    request = rig.take()
    assert named == [request.agent] == ["agent-0.0 on box"], "rows of its spans and its arrows"


def test_an_agent_that_plays_recorded_steps_again_has_played_none_yet(rig: Rig) -> None:
    rig.frontend.peers.expect("good", lanes_of(0), played=1000)
    agent = rig.agent("good")
    agent.hello()
    wait_until(lambda: rig.frontend.peers.welcomed("good") is not None)
    assert not rig.frontend.peers.has_played("good")
    for sequence in (1000, 1001):
        agent.step(0, sequence)
        rig.answer(rig.take())
        agent.receive()  # as agents do: a step before the last one's answer is refused
    assert rig.frontend.peers.has_played("good")


def test_silent_names_an_agent_that_said_hello_and_no_more(rig: Rig) -> None:
    rig.welcome("agent")
    wait_until(lambda: rig.frontend.silent(0.0) == ["agent"])


def test_silent_does_not_name_an_agent_whose_step_is_parked(rig: Rig) -> None:
    rig.welcome("old").step()
    rig.take()
    rig.frontend.peers.forget("old")
    rig.welcome("successor").step()
    wait_until(lambda: rig.metrics.snapshot()["messages"] == 2)
    assert rig.frontend.silent(0.0) == []


def test_silent_names_an_agent_that_never_said_hello(rig: Rig) -> None:
    rig.frontend.peers.expect("hangs while it starts", lanes_of(0))
    time.sleep(0.01)
    assert rig.frontend.silent(0.0) == ["hangs while it starts"]


def test_an_agent_has_its_patience_until_every_group_is_made(rig: Rig) -> None:
    rig.frontend.peers.expect("agent", lanes_of(0), patience_s=3600.0)
    agent = rig.agent("agent")
    agent.hello()
    for group in range(GROUPS):
        time.sleep(0.01)
        assert rig.frontend.silent(0.0) == [], "it makes this group"
        agent.step(group=group)
        rig.answer(rig.take())
        agent.receive()
    wait_until(lambda: rig.frontend.silent(0.0) == ["agent"])
    assert rig.frontend.silent(1800.0) == []


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
@pytest.mark.parametrize("busy", [False, True])
def test_stop_leaves_no_thread_and_no_descriptor(
    tmp_path: Path, transport: str, busy: bool
) -> None:
    threads, descriptors = leaks.threads(), leaks.descriptors()
    rig = Rig(endpoint_of(transport, tmp_path))
    agent = rig.welcome("agent")
    agent.step()
    request = rig.take()
    if busy:  # a request waits, and an answer is on its way
        agent.step(group=1)
        rig.answer(request)
    assert leaks.threads() - threads
    assert leaks.descriptors() - descriptors
    assert rig.frontend.stop(LIMIT_S)
    assert not rig.frontend.alive
    agent.socket.close(linger=0)
    rig.context.destroy(linger=0)
    wait_until(lambda: not leaks.descriptors() - descriptors)
    wait_until(lambda: not leaks.threads() - threads)


class NeverEnding(Metrics):
    """Sends two more damaged messages for each dropped one, so that some are always waiting."""

    sender: Agent | None = None

    def reject(self, reason: str) -> None:
        super().reject(reason)
        sender = self.sender
        if sender is not None:  # in the frontend's thread, now the socket's only user
            sender.send([b"no header"])
            sender.send([b"no header"])


def test_stop_ends_in_time_while_messages_go_on_coming(tmp_path: Path) -> None:
    metrics = NeverEnding()
    rig = Rig(endpoint_of("ipc", tmp_path), metrics)
    sender = rig.agent("stranger")
    metrics.sender = sender
    rig.agent("another stranger").send([b"no header"])
    wait_until(lambda: rig.rejected("header size") > 1000)
    stopped = rig.frontend.stop(LIMIT_S / 2)
    metrics.sender = None
    if not stopped:
        rig.frontend.stop(LIMIT_S)
    rig.context.destroy(linger=0)
    assert stopped


def test_a_closed_queue_ends_the_thread(rig: Rig) -> None:
    agent = rig.welcome("agent")
    rig.requests.close()
    agent.step()
    wait_until(lambda: not rig.frontend.alive)
    with pytest.raises(Closed):
        rig.take()


def test_a_strangers_megabytes_are_dropped_as_they_come(rig: Rig) -> None:
    stranger = rig.agent("stranger")
    for _ in range(5):
        stranger.send([whole_messages()["step"][0], bytes(1_000_000)])
    wait_until(lambda: rig.rejected("no hello") == 5)
    assert rig.requests.size == 0
