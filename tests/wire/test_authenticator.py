"""Who may connect: strangers are shut out before any message of theirs is read or buffered."""

import contextlib
import random
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from agents.link import SERVICE_OPTIONS, connect, name_of, new_identity
from agents.machine import raise_descriptor_limit
from tests.damage import ENVS, HELLO, NUM_ACTIONS
from tests.wire.test_frontend import (
    LIMIT_S,
    UNHEARD_MS,
    Agent,
    Rig,
    endpoint_of,
    lanes_of,
    wait_until,
)

MIB = 1 << 20
SOON_MS = 1500
MORE, LONG, COMMAND = 0x01, 0x02, 0x04  # flags of a ZMTP 3 frame
UNSIGNED = b"\x01\x00"  # how a ZMTP 1 peer begins: with an empty identity


def greeting(mechanism: bytes, version: int = 3) -> bytes:
    """The first 64 bytes of a ZMTP 3 peer, or the 12 of a ZMTP 2 peer and its empty identity."""
    signature = b"\xff" + bytes(8) + b"\x7f"
    if version == 2:
        return signature + b"\x01\x05" + b"\x00\x00"
    return signature + b"\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)


def command(body: bytes) -> bytes:
    return bytes([COMMAND, len(body)]) + body


def shown(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


READY = command(b"\x05READY" + shown(b"Socket-Type", b"DEALER") + shown(b"Identity", b"agent"))
PASSWORD = command(b"\x05HELLO\x05agent\x07guessed")
HANDSHAKES = {
    "no password": greeting(b"NULL") + READY,
    "a wrong password": greeting(b"PLAIN") + PASSWORD,
    "no answer to what is asked": greeting(b"PLAIN") + READY,
    "another mechanism": greeting(b"CURVE"),
    "ZMTP 2": greeting(b"", version=2),
    "ZMTP 1": UNSIGNED,
}


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(endpoint_of("tcp", None))
    yield rig
    rig.close()


def assert_serves(rig: Rig, index: int = 0) -> None:
    agent = rig.welcome(f"good {index}", index)
    agent.step()
    rig.answer(rig.take())
    assert len(agent.receive().actions) == ENVS
    assert rig.all_rejected() == 0


@pytest.mark.parametrize("handshake", HANDSHAKES)
def test_a_strangers_endless_message_is_not_held(rig: Rig, handshake: str) -> None:
    host, port = rig.frontend.endpoint.removeprefix("tcp://").split(":")
    before = psutil.Process().memory_info().rss
    frame = bytes([MORE | LONG]) + struct.pack(">Q", MIB // 2) + bytes(MIB // 2)
    with socket.create_connection((host, int(port)), LIMIT_S) as stranger:
        stranger.sendall(HANDSHAKES[handshake])
        with pytest.raises(ConnectionError):
            for _ in range(400):
                stranger.sendall(frame)
    assert psutil.Process().memory_info().rss - before < 50 * MIB
    assert_serves(rig)


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
@pytest.mark.parametrize("password", [None, "guessed", HELLO.token + "\0", "x" * 255])
def test_a_peer_without_the_token_sends_and_receives_nothing(
    tmp_path: Path, transport: str, password: str | None
) -> None:
    rig = Rig(endpoint_of(transport, tmp_path))
    try:
        rig.frontend.peers.expect("agent", lanes_of(0))
        stranger = Agent(rig.context, "agent", password)
        rig.agents.append(stranger)
        stranger.socket.setsockopt(zmq.SNDTIMEO, 0)  # it may be refused before it can send
        stranger.socket.connect(rig.frontend.endpoint)
        with contextlib.suppress(zmq.Again):
            stranger.hello()  # this contains the right token
            stranger.step()
        assert not stranger.hears(UNHEARD_MS)
        assert rig.requests.size == rig.all_rejected() == 0
        agent = rig.agent("agent")  # the stranger has not taken its identity
        agent.hello()
        agent.step()
        assert rig.take().identity == "agent"
    finally:
        rig.close()


def test_an_agents_own_connection_is_accepted(rig: Rig) -> None:
    rig.frontend.peers.expect("agent", lanes_of(0))
    agent = Agent(rig.context, "unused")
    agent.socket = connect(rig.context, rig.frontend.endpoint, "agent", HELLO.token)
    agent.hello()
    agent.step()
    rig.answer(rig.take(), [NUM_ACTIONS - 1] * ENVS)
    assert agent.receive().actions == [NUM_ACTIONS - 1] * ENVS


def test_a_part_beyond_every_legitimate_size_closes_its_connection(rig: Rig) -> None:
    agent = rig.welcome("too long")
    # The monitor has a name of its own: pyzmq would name it after a file descriptor, and that
    # name may already be taken in this context.
    agent.socket.monitor("inproc://too-long", zmq.EVENT_DISCONNECTED)
    with rig.context.socket(zmq.PAIR) as monitor:
        monitor.connect("inproc://too-long")
        agent.send([bytes(2 * MIB)])
        assert monitor.poll(int(1000 * LIMIT_S))
        agent.socket.disable_monitor()
    assert_serves(rig)


def test_identities_cannot_be_predicted() -> None:
    identities = {new_identity("agent-0.0") for _ in range(100)}
    assert len(identities) == 100
    assert {name_of(identity) for identity in identities} == {"agent-0.0"}
    suffixes = [identity.removeprefix("agent-0.0#") for identity in identities]
    assert {len(suffix) for suffix in suffixes} == {16}
    # A counter, a time or a process id would leave some digits nearly the same in all of them.
    assert all(len(set(digits)) > 8 for digits in zip(*suffixes, strict=True))
    seeded = set()
    for _ in range(2):
        random.seed(1)  # Python's own generator can be predicted, so it must not be used
        seeded.add(new_identity("agent-0.0"))
    assert len(seeded) == 2


def test_the_authenticator_answers_many_at_once(rig: Rig) -> None:
    agents = [Agent(rig.context, f"agent-{index}") for index in range(50)]
    for index, agent in enumerate(agents):
        rig.frontend.peers.expect(f"agent-{index}", lanes_of(index % 4))
        agent.socket.connect(rig.frontend.endpoint)
        agent.hello()
    wait_until(lambda: len(rig.frontend.peers._welcomed) == 50)
    rig.agents += agents


def test_idle_strangers_are_cut_off_and_cost_the_agents_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half send nothing, half only part of a greeting. They get less time than in a run."""
    soon = {zmq.HANDSHAKE_IVL: SOON_MS}
    options = tuple((option, soon.get(option, value)) for option, value in SERVICE_OPTIONS)
    monkeypatch.setattr("ga3c.wire.sockets.SERVICE_OPTIONS", options)
    rig = Rig(endpoint_of("tcp", None))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptor_limit()
    idle = min(2000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
    address = rig.frontend.endpoint.removeprefix("tcp://").split(":")
    try:
        with contextlib.ExitStack() as stack:
            strangers = []
            for number in range(idle):
                stranger = socket.create_connection((address[0], int(address[1])), LIMIT_S)
                strangers.append(stack.enter_context(stranger))
                stranger.sendall(greeting(b"PLAIN")[: 40 * (number % 2)])
            assert_serves(rig)
            for stranger in strangers:
                assert _is_cut_off(stranger)
            assert_serves(rig, index=1)
    finally:
        rig.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _is_cut_off(stranger: socket.socket) -> bool:
    """Wait until the stranger is cut off. Raises TimeoutError if it is not."""
    try:
        while stranger.recv(100):
            pass
    except ConnectionResetError:
        pass
    return True
