"""Hosts, other machines that play for a service; in these tests, all are on this machine."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import zmq

from agents import keys, messages
from agents.actions import Actions
from agents.environments import EnvironmentConfig, spaces
from agents.headers import MOST_AGENTS, Header, Kind
from agents.host import Config as HostConfig
from agents.launchers import LocalLauncher
from agents.link import Curve, connect
from agents.messages import Hello, MessageError
from agents.notes import encode_note
from agents.orders import MOST_EXITS, MOST_WORDS, SILENT_S, Host
from agents.versions import OURS, versions
from agents.worker import Task
from ga3c.reports.listing import summary
from ga3c.runs.metrics import Metrics
from ga3c.service.agents import Agents
from ga3c.settings.service import ServiceConfig
from ga3c.wire.doors import Doors, Listening
from ga3c.wire.frontend import Frontend
from ga3c.wire.hosts import LOST, LOST_S, Hosts
from ga3c.wire.peers import Peers
from ga3c.wire.queues import BatchQueue
from ga3c.wire.reports import decode_report
from ga3c.wire.requests import Request
from ga3c.wire.settled import SETTLED_S
from tests.commands import (
    BEGIN_S,
    CORRIDOR,
    ROOT,
    STOP_S,
    Command,
    assert_nothing_is_left,
    refused,
    wait_for,
)

Start = Callable[..., Command]
TOKEN = "a token"
CARTPOLE = EnvironmentConfig(game="CartPole-v1")
PAUSE_S = 1 / 16  # between two reports of a host; a power of two, so that its sums are exact
HELLO = Hello(TOKEN, (4,), "float32", Actions(2), 1, 2)


def key(directory: Path, name: str) -> Path:
    if not (directory / name).exists():
        keys.run(keys.Config(directory / name))
    return directory / name


def listening(directory: Path, address: str = "tcp://127.0.0.1:*") -> list[str]:
    allowed = key(directory, "host").with_name("host.pub")
    ours = key(directory, "service")
    return ["--listen", address, "--key", str(ours), "--allow", str(allowed)]


def address_of(service: Command) -> str:
    service.until(lambda: "--connect" in service.out)
    found = re.search(r"--connect (\S+)", service.out)
    assert found
    return found[1]


def coming(directory: Path, address: str, name: str, by: str = "host") -> list[str]:
    theirs = key(directory, "service").with_name("service.pub")
    given = ["--connect", address, "--key", str(key(directory, by)), "--service", str(theirs)]
    return ["agents", *given, "--agents", "1", "--name", name, "--modules", "tests.tiny"]


def assert_secret_keys_are_nowhere_else(directory: Path, *commands: Command) -> None:
    """Check the arguments and environments of all processes, and all files but the keys' own."""
    own = [directory / name for name in ("service", "host")]
    secrets = [file.read_text().strip() for file in own]
    for process in (each for command in commands for each in command.survivors()):
        with contextlib.suppress(psutil.NoSuchProcess):
            told = [*process.cmdline(), *process.environ().values()]
            assert not any(secret in each for secret in secrets for each in told)
    files = [path for path in directory.rglob("*") if path.is_file() and path not in own]
    assert {"log.txt", "config.json", "meta.json"} <= {file.name for file in files}
    for file in files:
        assert not any(secret.encode() in file.read_bytes() for secret in secrets), file


@pytest.mark.slow
def test_hosts_play_for_one_service_after_another(command: Start, tmp_path: Path) -> None:
    """Play goes on after a host is killed and restarted, and after the service is restarted."""
    given = [*CORRIDOR, "--agents-here", "0", "--name", "mine", "--checkpoint-every-s", "1"]
    service = command(*given, *listening(tmp_path))
    address = address_of(service)
    hosts = [command(*coming(tmp_path, address, name)) for name in ("atlas", "boreas")]
    service.until_steps_are_made()
    service.until(lambda: "host atlas has come (key host@" in service.out + service.err)
    assert service.agents() == [], "nothing is played here"
    for host in hosts:
        host.until(lambda: "plays with 1 of 1 agents" in host.out)  # noqa: B023
    mine = service.runs / "mine"
    spread = {"1 on atlas", "1 on boreas"}
    service.until(lambda: set(summary(mine, "mine")["places"].split(", ")) == spread)
    hosts[0].process.kill()
    wait_for(lambda: not hosts[0].survivors(), STOP_S)
    service.until(lambda: "host atlas is lost" in service.out + service.err)
    steps = service.steps()
    service.until(lambda: service.steps() > steps + 100)
    hosts[0] = command(*coming(tmp_path, address, "atlas"))
    hosts[0].until(lambda: "plays with 1 of 1" in hosts[0].out)
    assert_secret_keys_are_nowhere_else(tmp_path, service, *hosts)
    service.interrupt()
    assert service.wait(STOP_S) == 130, service.err
    assert summary(mine, "mine")["places"] == "", "it runs no more"
    assert_nothing_is_left(service)
    for host in hosts:
        host.until(lambda: "plays with 0 of 1 agents" in host.out, STOP_S)  # noqa: B023
        host.until(lambda: not host.agents(), STOP_S)  # noqa: B023
    again = command("train", "--resume", str(service.runs / "mine"), "--listen", address)
    again.until(lambda: again.steps() > 0, BEGIN_S)
    assert again.agents() == []
    again.interrupt()
    assert again.wait(STOP_S) == 130, again.err
    for host in hosts:
        host.process.send_signal(signal.SIGTERM)
        assert host.wait(STOP_S) == 130, host.err
        assert_nothing_is_left(host)


def test_a_host_is_told_that_its_key_or_the_services_is_wrong(
    command: Start, tmp_path: Path
) -> None:
    service = command(*CORRIDOR, *listening(tmp_path))
    address = address_of(service)
    stranger = command(*coming(tmp_path, address, "stranger", by="stranger"))
    key(tmp_path, "other")
    lost = command(
        *coming(tmp_path, address, "lost")[:-2], "--service", str(tmp_path / "other.pub")
    )
    stranger.until(lambda: "it does not allow this key" in stranger.out)
    lost.until(lambda: "its key differs from --service" in lost.out)
    service.until(lambda: "refused 127.0.0.1: its key is not allowed" in service.out + service.err)
    service.until_steps_are_made()
    assert "has come" not in service.out + service.err


def test_a_host_whose_key_is_allowed_later_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """libzmq gives up a connection that was refused."""
    monkeypatch.setattr("agents.orders.AGAIN_S", 0.5)
    ours, theirs = keys.new(), keys.new()

    def doors(address: str, allowed: dict[str, str]) -> Doors:
        return Doors(f"ipc://{tmp_path}/wire", TOKEN, HELLO, Listening(address, ours, allowed))

    def refuses() -> bool:
        first.wait(100)
        return "does not allow this key" in capsys.readouterr().out

    first = doors("tcp://127.0.0.1:*", {})
    assert first.listening
    address = first.listening.endpoint
    curve = Curve(ours.public, *theirs)
    host = Host(connect=address, curve=curve, agents=1, name="mine", modules=())
    playing = threading.Thread(target=host.obey)
    playing.start()
    try:
        wait_for(refuses, STOP_S)
        first.close()
        first.close_waker()
        second = doors(address, {theirs.public: "atlas"})
        ready: list[zmq.Socket] = []
        wait_for(lambda: bool(ready.extend(second.wait(100)) or ready), STOP_S)
        user, parts = second.receive(ready[0])
        assert (user, decode_report(parts[1:]).name) == ("atlas", "mine")
        second.close()
        second.close_waker()
    finally:
        host.stop()
        playing.join()
        host.close()
    assert f"connected to {address}" in capsys.readouterr().out


def test_wrong_use_is_refused_before_anything_begins(tmp_path: Path) -> None:
    given = listening(tmp_path)
    service = ["--service", str(tmp_path / "service.pub")]
    own = ["--key", str(tmp_path / "host")]
    for arguments, words in (
        (["train", "--listen", "tcp://127.0.0.1:5"], "needs --key and --allow"),
        (["train", *given[2:]], "key and allow: are for --listen"),
        (["train", "--listen", "5555", *given[2:]], "must be tcp://ADDRESS:PORT"),
        (["train", *given, "--key", str(tmp_path / "no")], "ga3c keys makes one"),
        (["train", *given, "--listen", "tcp://203.0.113.1:9"], "listen tcp://203.0.113.1:9: "),
        (["agents", "--connect", "here", *own, *service], "connect here: must be tcp://HOST:PORT"),
        (["agents", "--connect", "tcp://u@h:5", *own, *service], "must be tcp://HOST:PORT"),
        (["agents", "--connect", "tcp://x:1", *own, "--service", str(tmp_path)], "cannot be read"),
        (["agents", "--connect", "tcp://x:1", *service], "--key is missing"),
    ):
        assert words in refused(*arguments), arguments


def test_a_host_needs_no_framework() -> None:
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['tensorflow', 'jax', 'keras']))\n"
        "from ga3c.__main__ import main\n"
        "sys.exit(main(['agents', '--connect', 'x', '--key', 'x', '--service', 'x']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "ga3c: connect x: must be tcp://HOST:PORT, with a port of 1 to 65535\n"


class Ordered(NamedTuple):
    host: str
    tasks: list[str]


class Rig:
    """Simulated hosts that do nothing but report, with a clock that the test sets."""

    def __init__(self, room_here: int = 0) -> None:
        self.now_s = 0.0
        self.orders: list[Ordered] = []
        self.refused: dict[str, int] = {}
        self.peers = Peers(HELLO, clock=lambda: self.now_s)

        def order(host: str, values: dict[str, object]) -> None:
            tasks = values["tasks"]
            assert isinstance(tasks, dict)
            self.orders.append(Ordered(host, sorted(tasks)))

        self.hosts = Hosts(
            local=LocalLauncher(),
            game="CartPole-v1",
            room_here=room_here,
            order=order,
            peers=self.peers,
            refused=lambda: self.refused,
            clock=lambda: self.now_s,
        )

    def report(self, host: str, agents: int = 1, refuses: str = "", **exits: list[object]) -> None:
        state = {"name": host, "agents": agents, "playing": 0, "exits": exits, "refuses": refuses}
        self.now_s += PAUSE_S
        self.hosts.report(host, "key", encode_note(Kind.HOST, state))

    def start(self, *identities: str) -> None:
        for identity in identities:
            self.peers.expect(identity, np.zeros((1, 2), np.int32))
            self.hosts.start(Task(identity, "", TOKEN, 1, 2, 0, CARTPOLE))

    def ordered(self, host: str) -> list[str]:
        return [tasks for name, tasks in self.orders if name == host][-1]


def test_agents_go_to_hosts_with_room_and_the_rest_wait() -> None:
    rig = Rig()
    rig.report("large", agents=4)
    rig.report("small", agents=1)
    rig.start(*"abcdef")
    assert len(rig.ordered("large")) == 4
    assert len(rig.ordered("small")) == 1
    rig.report("late", agents=9)
    assert rig.hosts.reap() == []
    assert rig.ordered("late") == ["f"]


def test_a_resting_agent_leaves_its_place_to_one_that_waits() -> None:
    """A host is lost while one more agent is tried, which then rests in the only free place."""
    rig = Rig()
    frontend: Any = SimpleNamespace(
        peers=rig.peers, endpoint="", silent=lambda _: [], retire=rig.peers.retire
    )
    agents = Agents(
        service=ServiceConfig(agents=2, max_agents=3, envs_per_agent=2, groups=1),
        environment=CARTPOLE,
        seed=None,
        may_rest=True,
        frontend=frontend,
        token=TOKEN,
        metrics=Metrics(),
        launcher=rig.hosts,
        updates=lambda: 0,
    )
    rig.report("atlas")
    agents.resize(1)
    rig.report("box")
    agents.resize(2)
    (rests,) = rig.ordered("box")
    while rig.now_s < LOST_S + 1.0:  # atlas says no more
        rig.report("box")
    agents.tend()
    agents.resize(1)
    rig.peers.forget(rests)  # it has confirmed that it rests
    assert rig.ordered("box") == [rests] and len(rig.hosts.waiting) == 1
    agents.tend()
    agents.tend()
    (plays,) = rig.ordered("box")
    assert plays.startswith("agent-0.2") and not rig.hosts.waiting


def test_agents_of_a_lost_host_are_reported_as_ended() -> None:
    rig = Rig()
    rig.report("atlas", agents=2)
    rig.start("a", "b")
    while rig.now_s < LOST_S:
        rig.now_s += 1.0
        assert rig.hosts.reap() == []
    rig.now_s += 0.1
    assert {(each.identity, each.code) for each in rig.hosts.reap()} == {("a", LOST), ("b", LOST)}
    assert any("host atlas is lost" in line for line in rig.hosts.news())
    rig.report("atlas", agents=2)
    assert rig.ordered("atlas") == [], "it is to end those that it still has"


@pytest.mark.parametrize("hears_first", [False, True])
def test_no_host_is_lost_while_the_service_itself_was_stopped(hears_first: bool) -> None:
    rig = Rig()
    rig.report("atlas", agents=2)
    rig.start("a")
    for _ in range(3):
        rig.peers.stops.listening()
        rig.now_s += 10 * LOST_S  # as if suspended by Ctrl-Z
        if hears_first:  # the frontend's thread before the main thread
            rig.peers.stops.listening()
        assert rig.hosts.reap() == []
    rig.now_s += 1.0
    rig.report("atlas", agents=2)
    assert rig.ordered("atlas") == ["a"]


def test_a_host_that_was_heard_during_a_pause_is_heard_after_it() -> None:
    """The frontend's thread still hears hosts while the main thread writes a large checkpoint."""
    rig = Rig()
    rig.report("atlas", agents=2)
    rig.start("a")
    rig.hosts.reap()
    for _ in range(20):
        rig.now_s += 2.0
        rig.peers.stops.listening()
        rig.report("atlas", agents=2)
    assert rig.hosts.reap() == []
    answered = len(rig.orders)
    rig.report("atlas", agents=2)
    assert len(rig.orders) == answered + 1


def test_a_silent_host_is_lost_though_the_main_thread_is_rarely_there() -> None:
    """It calls `on_figures`, for example, while the frontend's thread hears the other hosts."""
    rig = Rig()
    rig.report("atlas", agents=2)
    rig.start("a")
    ended, began_s = rig.hosts.reap(), rig.now_s
    while rig.now_s < began_s + LOST_S:
        assert ended == []
        for _ in range(10):
            rig.now_s += 1.0
            rig.peers.stops.listening()
        ended = rig.hosts.reap()
    assert [each.identity for each in ended] == ["a"]


def test_an_agent_that_is_retired_as_it_waits_takes_no_place() -> None:
    rig = Rig()
    rig.start("a", "b")
    rig.peers.retire("a")
    rig.report("atlas")
    assert rig.hosts.reap() == []
    assert rig.ordered("atlas") == ["b"]
    assert [(each.identity, each.code) for each in rig.hosts.reap()] == [("a", LOST)]


def test_agents_that_are_retired_as_they_wait_behind_others_are_ended() -> None:
    rig = Rig()
    rig.report("atlas", agents=1)
    rig.start(*"abcd")
    for identity in "cd":
        rig.peers.retire(identity)
    ended = [*rig.hosts.reap(), *rig.hosts.reap()]
    assert [each.identity for each in ended] == ["c", "d"]
    assert rig.ordered("atlas") == ["a"]


def test_an_agents_end_is_counted_once_and_only_if_it_was_ordered() -> None:
    rig = Rig()
    rig.report("atlas", agents=2)
    rig.start("a")
    for _ in range(2):
        rig.report("atlas", a=[3, "its words"], unknown=[1, "words"])
    assert [(each.identity, each.code, each.log) for each in rig.hosts.reap()] == [
        ("a", 3, "its words")
    ]
    assert rig.hosts.reap() == []
    assert rig.ordered("atlas") == []


def test_a_resting_agent_takes_a_task_where_it_is() -> None:
    rig = Rig()
    for name in ("atlas", "boreas"):
        rig.report(name)
    rig.start("a", "b")
    place = next(name for name in ("atlas", "boreas") if "a" in rig.ordered(name))
    rig.peers.expect("c", np.zeros((1, 2), np.int32))
    rig.hosts.start_again("a", Task("c", "", TOKEN, 1, 2, 0, CARTPOLE))
    assert rig.ordered(place) == ["c"]
    rig.hosts.end("c")
    assert rig.ordered(place) == []
    assert [each.identity for each in rig.hosts.reap()] == ["c"]


def test_the_task_of_a_resting_agent_whose_host_is_lost_goes_elsewhere() -> None:
    rig = Rig()
    rig.report("atlas")
    rig.start("a")
    while rig.now_s <= LOST_S + 1.0:
        rig.now_s += 1.0
        rig.hosts.reap()
    rig.peers.expect("b", np.zeros((1, 2), np.int32))
    rig.hosts.start_again("a", Task("b", "", TOKEN, 1, 2, 0, CARTPOLE))
    rig.report("boreas")
    assert rig.hosts.reap() == []
    assert rig.ordered("boreas") == ["b"]


def test_a_host_that_cannot_play_gets_no_agents() -> None:
    rig = Rig()
    rig.report("atlas")
    rig.start("a")
    rig.report("atlas", refuses="ale-py is 1 here and 2 there")
    assert [each.identity for each in rig.hosts.reap()] == ["a"]
    assert "host atlas plays nothing: ale-py is 1 here and 2 there" in rig.hosts.news()
    rig.start("b")
    assert rig.ordered("atlas") == []
    rig.refused = {"10.0.0.7": 4}
    assert rig.hosts.news() == ["refused 10.0.0.7: its key is not allowed"]
    rig.refused = {"10.0.0.7": 9}
    assert rig.hosts.news() == []


def test_the_placement_of_agents_is_reported_once_it_has_settled() -> None:
    rig = Rig()
    rig.report("atlas")
    rig.hosts.news()
    rig.start("a", "b")
    assert rig.hosts.news() == []
    rig.now_s += SETTLED_S
    said = rig.hosts.news()
    assert said == ["agents: 1 on atlas, 1 waiting"]
    rig.now_s += SETTLED_S
    assert rig.hosts.news() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"connect": "tcp://atlas"}, "connect tcp://atlas: must be tcp://HOST:PORT"),
        ({"connect": "tcp://*:5"}, "must be tcp://HOST:PORT"),
        ({"agents": 5000}, "agents 5000: must be 1 to 4096"),
        ({"name": "a\tb"}, "must be at most 253 printable characters"),
        ({"name": 300 * "a"}, "must be at most 253 printable characters"),
        ({"service": Path("two.pub")}, "service two.pub: must hold one key, not 2"),
    ],
)
def test_wrong_settings_of_a_host_are_refused_before_it_connects(
    given: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mine, service = key(tmp_path, "host"), key(tmp_path, "service").with_name("service.pub")
    Path("two.pub").write_text(service.read_text() + mine.with_name("host.pub").read_text())
    right: dict[str, Any] = {"connect": "tcp://127.0.0.1:1", "key": mine, "service": service}
    HostConfig(**right)
    with pytest.raises(ValueError, match=re.escape(words)):
        HostConfig(**{**right, **given})


@pytest.fixture
def host() -> Iterator[Host]:
    curve = Curve(*(keys.new().public for _ in range(2)), keys.new().secret)
    host = Host(connect="tcp://127.0.0.1:9", curve=curve, agents=99, name="atlas", modules=())
    yield host
    host.close()


def test_a_host_gives_no_task_to_an_agent_that_it_is_ending(host: Host) -> None:
    """It was without orders for long, and ends its agents; the service takes one for resting."""

    def order(**tasks: str | None) -> None:
        asked = {
            name: {
                **asdict(Task(name, "tcp://127.0.0.1:9", TOKEN, 1, 2, 0, CARTPOLE)),
                "after": after,
            }
            for name, after in tasks.items()
        }
        told = {"game": CARTPOLE.game, "versions": versions(), "tasks": asked}
        host._follow(encode_note(Kind.ORDER, told))

    order(rests=None)
    assert host._playing == {"rests"}
    host._end({"rests"})
    order(new="rests")
    assert host._playing == {"rests", "new"} and len(host._launcher) == 2


def test_a_host_plays_only_games_of_the_modules_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [key(tmp_path, "host"), key(tmp_path, "service").with_name("service.pub")]
    curve = HostConfig("tcp://127.0.0.1:1", *paths).curve
    host = Host(connect="tcp://127.0.0.1:1", curve=curve, agents=1, name="mine", modules=("mine",))
    try:
        assert host._why_not(versions(), "Pong") == ""
        assert host._why_not({**versions(), "ale-py": "0.1"}, "Pong").endswith("and 0.1 there")
        assert "that --modules does not name" in host._why_not(versions(), "theirs:Maze-v0")
        assert "unknown game" in host._why_not(versions(), "Pnog")
        assert "theirs" not in sys.modules
        task = asdict(Task("a", "ipc://x", TOKEN, 1, 2, 0, EnvironmentConfig("theirs:Maze-v0")))
        header = messages.encode_header(Header(Kind.ORDER))
        for tasks in ("[]", "{", '{"a": {}}', '{"a": 5}', json.dumps({"a": task})):
            for game in ("Pong", "theirs:Maze-v0"):
                order = f'{{"game": "{game}", "tasks": {tasks}, "versions": {{}}}}'
                host._follow([header, order.encode()])
        good = {"game": "Pong", "versions": versions(), "tasks": {"a": task}}
        host._follow(encode_note(Kind.ORDER, good))
        assert "tasks of another game" in host._state()["refuses"]
        host._follow(encode_note(Kind.ORDER, {**good, "game": "theirs:Maze-v0"}))
        assert "that --modules does not name" in host._state()["refuses"], "as long as it is asked"
        host._follow(encode_note(Kind.ORDER, {**good, "tasks": {}}))
        assert host._state()["refuses"] == ""
        host._follow([header])
        assert "an order was refused" in host._state()["refuses"], "so the service knows"
        host._follow([b"x" * 24, b"{}"])
        assert len(host._launcher) == 0
        assert "an order was refused" in capsys.readouterr().out
    finally:
        host.close()


@pytest.mark.parametrize(
    "change",
    [
        {"name": 1},
        {"name": "x" * 300},
        {"agents": 0},
        {"agents": True},
        {"agents": 10**9},
        {"playing": -1},
        {"playing": None},
        {"exits": []},
        {"exits": {"a": "x"}},
        {"exits": {"a": ["x", "y"]}},
        {"exits": {"a": [1, 2]}},
        {"refuses": None},
        {"refuses": "x" * 1001},
        {"refuses": "\x1b[2J"},
        {"name": "atlas\nghost"},
    ],
)
def test_a_malformed_report_of_a_host_is_refused(change: dict[str, object]) -> None:
    rig = Rig()
    rig.report("atlas")
    rig.start("a")
    state = {"name": "atlas", "agents": 1, "playing": 0, "exits": {}, "refuses": ""}
    rig.now_s += PAUSE_S
    with pytest.raises(MessageError, match="host fields"):
        rig.hosts.report("atlas", "key", encode_note(Kind.HOST, {**state, **change}))
    with pytest.raises(MessageError, match="host user"):
        rig.hosts.report("atlas", "another key", encode_note(Kind.HOST, state))


def test_reports_that_come_too_fast_are_refused_until_a_pause() -> None:
    rig = Rig()
    rig.report("atlas", agents=2)
    rig.start("a", "b")
    answered = len(rig.orders)
    state = {"name": "atlas", "agents": 2, "playing": 2, "exits": {"a": [3, ""]}, "refuses": ""}
    for _ in range(100):
        with pytest.raises(MessageError, match="host reports"):
            rig.hosts.report("atlas", "key", encode_note(Kind.HOST, state))
    assert len(rig.orders) == answered
    assert rig.hosts.reap() == []
    rig.report("atlas", agents=2, a=[3, ""])
    assert len(rig.orders) == answered + 1
    assert [each.identity for each in rig.hosts.reap()] == ["a"]


REPORT = b'{"name": "%b", "agents": 1, "playing": 0, "refuses": "", "exits": {"%b": [0, ""]}}'


@pytest.mark.parametrize(
    "part",
    [
        *(b"{" * 100, b"[1]", b"{" + b" " * (1 << 18), b"\xff"),
        *(REPORT % (b"b\xff", b"a"), REPORT % (b"b", b"a\xff")),  # not UTF-8
    ],
    ids=lambda part: f"{part[:12]!r} {len(part)}",
)
def test_invalid_json_and_oversized_reports_are_refused(part: bytes) -> None:
    assert decode_report([b"", REPORT % (b"b", b"a")]).name == "b"
    header, _ = encode_note(Kind.HOST, {})
    with pytest.raises(MessageError):
        Rig().hosts.report("atlas", "key", [header, part])


def test_a_report_of_the_most_ends_a_host_sends_is_accepted(host: Host) -> None:
    host._exits = {f"agent-{n}.0#" + 16 * "f": (1, MOST_WORDS * "\U0001f600") for n in range(99)}
    parts = encode_note(Kind.HOST, host._state())
    assert len(decode_report(parts).exits) == MOST_EXITS


def test_control_characters_are_removed_from_the_reason_a_host_refuses(host: Host) -> None:
    host._refuses = "\x1b[31mno\x00 such\nmod\udcffule\x9b"
    assert decode_report(encode_note(Kind.HOST, host._state())).refuses == "[31mno such module"


def test_an_order_for_as_many_agents_as_a_host_may_have_is_followed(host: Host) -> None:
    name = "agent-4095.9999#" + 16 * "f"
    task = Task(name, "ipc://" + 99 * "x", 32 * "f", 2, 32, 2**31, EnvironmentConfig("Pnog"), 2000)
    values = {**asdict(task), "after": name}  # the form in which `Hosts` sends it
    tasks = {f"agent-{n}.0#{16 * 'f'}": values for n in range(MOST_AGENTS)}
    order = {"game": "Pnog", "versions": versions(), "tasks": tasks}
    host._follow(encode_note(Kind.ORDER, order))
    assert "unknown game" in host._refuses, "the order was read"


def order_of(*names: str) -> list[bytes]:
    """An order for these agents."""
    tasks = {name: asdict(Task(name, "ipc://x", TOKEN, 1, 2, 0, CARTPOLE)) for name in names}
    values = {"game": CARTPOLE.game, "versions": versions(), "tasks": tasks}
    return encode_note(Kind.ORDER, values)


def has_ended(host: Host, name: str) -> bool:
    """Let the host check on its agents; return whether this one has ended."""
    host._tend()
    return name in host._exits


def test_an_agent_that_ignores_the_end_of_its_input_is_killed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.orders.KILLED_AFTER_S", 0.1)
    host._follow(order_of("a"))
    pid = host._launcher.pid("a")
    assert pid
    os.kill(pid, signal.SIGSTOP)
    host._follow(order_of())
    wait_for(lambda: has_ended(host, "a"), STOP_S)
    assert host._exits["a"][0] == -signal.SIGKILL
    assert host._state()["playing"] == 0


def test_another_version_of_the_settings_is_reported_only_to_its_service(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    task = asdict(Task("a", "ipc://x", TOKEN, 1, 2, 0, EnvironmentConfig("Pong")))
    newer = {"a": {**task, "new_setting": 1}}
    there = {**versions(), OURS: "00000000"}
    host._follow(encode_note(Kind.ORDER, {"game": "Pong", "versions": there, "tasks": newer}))
    assert "ga3c has different versions here and there" in host._state()["refuses"]
    assert "order was refused" not in capsys.readouterr().out
    host._tell_of(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    assert host._state()["refuses"] == "", "it was of the service before"


def test_the_silence_of_a_service_is_reported_once(
    host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service of another version is silent, because it accepts no report from this host."""
    host._tend()
    assert "nothing was heard" not in capsys.readouterr().out, "it was not reached yet"
    host._tell_of(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    now_s = time.monotonic() + SILENT_S + 1.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    for _ in range(2):
        host._tend()
    (line,) = (each for each in capsys.readouterr().out.splitlines() if "nothing was" in each)
    assert "or runs another version of ga3c" in line


def test_the_agents_of_a_host_end_when_the_service_falls_silent(
    host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens if the service was killed, and so could not dismiss its hosts."""
    monkeypatch.setattr("agents.orders.SILENT_S", 0.5)
    host._follow(order_of("a", "b"))
    for name in ("a", "b"):
        wait_for(lambda: has_ended(host, name), STOP_S)  # noqa: B023
    assert host._state()["playing"] == 0
    said = capsys.readouterr().out
    assert "nothing was heard from the service for 0.5 s, so its agents are stopped" in said


@pytest.mark.parametrize("host", ["h:0", "h:70000", "a,b:5", "-h:1", "exämple:5", "h", "u@h:5"])
def test_an_invalid_address_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="must be tcp://HOST:PORT"):
        HostConfig(f"tcp://{host}", Path("key"), Path("service"))


def test_an_agent_is_accepted_only_with_the_key_of_its_host(tmp_path: Path) -> None:
    pairs = {name: keys.own(key(tmp_path, name)) for name in ("service", "one", "two")}
    allowed = {pairs[name].public: name for name in ("one", "two")}
    door = Listening("tcp://127.0.0.1:*", pairs["service"], allowed)
    requests: BatchQueue[Request] = BatchQueue(10, 1, 2, 0.0)
    metrics = Metrics()
    near = f"ipc://{tmp_path}/agents"
    frontend = Frontend(near, TOKEN, spaces(CARTPOLE), 1, 2, requests, metrics, listening=door)
    reports: list[tuple[str, str]] = []
    frontend.on_host = lambda identity, owner, report: reports.append((identity, owner))
    frontend.start()
    context = zmq.Context()
    try:
        for identity, owner in (("a", "one"), ("b", "one"), ("c", "")):
            frontend.peers.expect(identity, np.zeros((1, 2), np.int32))
            frontend.peers.expect_of(identity, owner)
        sockets = []
        for identity, owner in (("a", "one"), ("b", "two"), ("c", "two"), ("d", "")):
            where, curve = frontend.endpoint, None
            if owner:
                curve = Curve(pairs["service"].public, *pairs[owner])
                assert frontend.listening
                where = frontend.listening.endpoint
            sockets.append(connect(context, where, identity, TOKEN, curve))
            sockets[-1].send_multipart(messages.encode_hello(HELLO))
        deadline_s = time.monotonic() + STOP_S
        while metrics.snapshot()["rejected:stranger"] < 3 or not frontend.peers.welcomed("a"):
            assert time.monotonic() < deadline_s, metrics.snapshot().counts
            time.sleep(0.01)
        assert [frontend.peers.welcomed(name) is None for name in "abcd"] == [False] + [True] * 3
        report = encode_note(Kind.HOST, {})
        sockets[-1].send_multipart(report)  # refused, as it is sent from this machine
        sockets[0].send_multipart(report)
        while metrics.snapshot()["rejected:no hello"] + len(reports) < 2:
            assert time.monotonic() < deadline_s, metrics.snapshot().counts
            time.sleep(0.01)
        assert reports == [("a", "one")]
    finally:
        context.destroy(linger=0)
        assert frontend.stop(STOP_S)
