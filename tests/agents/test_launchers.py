"""Agent processes are started, reported however they end, and never left behind."""

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from agents import tails
from agents.environments import EnvironmentConfig, Environments, spaces
from agents.launchers import NUMBER, PREPARED, UNSTARTED, Exit, LocalLauncher
from agents.tails import TAIL_BYTES
from agents.worker import Task
from ga3c.runs.metrics import Metrics
from ga3c.wire.frontend import Frontend
from ga3c.wire.queues import BatchQueue
from ga3c.wire.requests import Reply, Request
from tests import leaks

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 40.0  # for what must happen; generous, since only a failing test waits this long
TOKEN = "a token"
GROUPS, ENVS = 2, 2
LANES = np.arange(GROUPS * ENVS, dtype=np.int32).reshape(GROUPS, ENVS)
CARTPOLE = EnvironmentConfig(game="CartPole-v1")
PONG = EnvironmentConfig(game="Pong")
NOWHERE = Task("agent", "ipc:///nowhere/at/all", TOKEN, GROUPS, ENVS, 1, CARTPOLE)


@pytest.fixture(autouse=True)
def agents_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents find our packages from any working directory, installed or not."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def launcher() -> Iterator[LocalLauncher]:
    """A launcher that is stopped after the test, whatever the test did."""
    launcher = LocalLauncher()
    yield launcher
    launcher.stop(LIMIT_S)


def wait_until(happened: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not happened():
        assert time.monotonic() < deadline_s, "it has not happened in time"
        time.sleep(0.005)


def runs(pid: int) -> bool:
    """Whether a process is alive; a zombie is not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def reaped(launcher: LocalLauncher) -> Exit:
    """Wait for the next agent to end."""
    deadline_s = time.monotonic() + LIMIT_S
    while not (ended := launcher.reap()):
        assert time.monotonic() < deadline_s, "no agent has ended in time"
        time.sleep(0.005)
    (only,) = ended
    return only


def test_agents_alive_at_the_same_time_have_different_numbers(launcher: LocalLauncher) -> None:
    def start(identity: str) -> str:
        launcher.start(replace(NOWHERE, identity=identity))
        pid = launcher.pid(identity)
        assert pid is not None
        process = psutil.Process(pid)
        wait_until(lambda: NUMBER in process.environ())  # for a moment, /proc shows none
        return process.environ()[NUMBER]

    assert [start(f"agent-{n}") for n in range(3)] == ["0", "1", "2"]
    launcher.kill("agent-1")
    assert reaped(launcher).identity == "agent-1"
    assert [start("agent-3"), start("agent-4")] == ["1", "3"]


class Rig:
    """A launcher, and a frontend to which its agents connect."""

    def __init__(self, directory: Path, launcher: LocalLauncher, config: EnvironmentConfig) -> None:
        self.launcher = launcher
        self.requests: BatchQueue[Request] = BatchQueue(100, 1, ENVS, 0.0)
        self.metrics = Metrics()
        self.config = config
        self.spaces = spaces(config)
        self.frontend = Frontend(
            f"ipc://{directory}/wire",
            TOKEN,
            self.spaces,
            GROUPS,
            ENVS,
            self.requests,
            self.metrics,
        )
        self.frontend.start()

    def start(self, identity: str, index: int = 0) -> int:
        """Start an agent for the lanes of place `index`; return its process id."""
        self.frontend.peers.expect(identity, LANES + index * GROUPS * ENVS)
        self.launcher.start(self.task(identity))
        return self.launcher.pid(identity)

    def task(self, identity: str) -> Task:
        return Task(identity, self.frontend.endpoint, TOKEN, GROUPS, ENVS, 1, self.config)

    def take(self) -> Request:
        requests = self.requests.get(LIMIT_S)
        assert requests, "no agent plays"
        return requests[0]

    def answer(self, request: Request, action: int = 0) -> None:
        self.frontend.reply([Reply(request, np.full(ENVS, action, np.int32))])

    def play(self, requests: int) -> list[Request]:
        """Answer this many requests, and return them."""
        taken = []
        for _ in range(requests):
            taken.append(self.take())
            self.answer(taken[-1])
        return taken


@contextlib.contextmanager
def playing(directory: Path, launcher: LocalLauncher, config: EnvironmentConfig) -> Iterator[Rig]:
    rig = Rig(directory, launcher, config)
    try:
        yield rig
    finally:
        assert rig.frontend.stop(LIMIT_S)


@pytest.fixture
def rig(tmp_path: Path, launcher: LocalLauncher) -> Iterator[Rig]:
    with playing(tmp_path, launcher, CARTPOLE) as rig:
        yield rig


def test_an_agent_plays_both_its_groups_in_order_until_it_rests(
    tmp_path: Path, launcher: LocalLauncher
) -> None:
    with playing(tmp_path, launcher, PONG) as rig:
        rig.start("agent-0.0")
        played = rig.play(20)
        for group in range(GROUPS):
            mine = [request for request in played if request.group == group]
            assert [request.sequence for request in mine] == list(range(len(mine)))
            assert len(mine) >= 5
            for request in mine:
                assert request.step.frames.shape == (ENVS, 84, 84)
                assert request.lanes.tolist() == [2 * group, 2 * group + 1]
                assert (request.step.outcomes["first"] == (request.sequence == 0)).all()
        rig.frontend.retire("agent-0.0")
        wait_until(lambda: not rig.frontend.peers.knows("agent-0.0"))
        launcher.end("agent-0.0")
        assert reaped(launcher).identity == "agent-0.0"
        assert len(launcher) == 0
        assert not any(n.startswith("rejected") for n in rig.metrics.snapshot().counts)


def test_an_agents_steps_equal_those_of_the_same_environments_in_this_process(rig: Rig) -> None:
    rig.start("agent")
    actions = np.random.default_rng(0).integers(0, 2, 60)
    seeds = np.random.SeedSequence(1).generate_state(GROUPS)
    groups = [Environments(CARTPOLE, ENVS) for _ in range(GROUPS)]
    steps = [group.reset(int(seed)) for group, seed in zip(groups, seeds, strict=True)]
    finished = 0
    for action in actions:
        request = rig.take()
        expected = steps[request.group]
        np.testing.assert_array_equal(request.step.frames, expected.frames)
        np.testing.assert_array_equal(request.step.outcomes, expected.outcomes)
        finished += int(expected.outcomes["finished"].sum())
        rig.answer(request, int(action))
        steps[request.group] = groups[request.group].step(np.full(ENVS, action, np.int32))
    assert finished > 0, "too few steps to meet the end of an episode"


def test_an_agents_environments_follow_from_its_seed(rig: Rig) -> None:
    rig.start("one", 0)
    first = {request.group: request.step.frames for request in rig.play(GROUPS)}
    rig.launcher.kill("one")
    assert reaped(rig.launcher).identity == "one"
    rig.frontend.peers.forget("one")
    rig.start("two", 1)  # with the same seed, for other lanes
    again: dict[int, np.ndarray] = {}
    while len(again) < GROUPS:
        request = rig.take()
        if request.identity == "two":
            again[request.group] = request.step.frames
    for group in range(GROUPS):
        np.testing.assert_array_equal(again[group], first[group])
    assert not np.array_equal(first[0], first[1]), "groups have seeds of their own"


def test_a_killed_agent_is_reported_once_with_its_signal_and_the_others_play_on(rig: Rig) -> None:
    victim = rig.start("victim", 0)
    rig.start("survivor", 1)
    seen: set[str] = set()
    while seen != {"victim", "survivor"}:
        seen.update(request.identity for request in rig.play(1))
    os.kill(victim, signal.SIGKILL)
    ended = reaped(rig.launcher)
    assert (ended.identity, ended.code) == ("victim", -signal.SIGKILL)
    assert rig.launcher.reap() == []
    assert len(rig.launcher) == 1
    rig.frontend.peers.forget("victim")
    played = rig.play(12)
    assert sum(request.identity == "survivor" for request in played) >= 12 - GROUPS


def test_an_agents_last_words_reach_the_frontend_and_its_log(rig: Rig) -> None:
    rig.start("agent")
    request = rig.take()
    rig.answer(request, action=1000)
    assert "action range" in reaped(rig.launcher).log
    wait_until(lambda: "agent" in rig.frontend.peers._failures)  # forgetting it refuses later ones
    assert "action range" in rig.frontend.peers.forget("agent")


def test_an_agent_that_fails_at_its_start_exits_1_and_its_traceback_ends_its_log(
    rig: Rig, launcher: LocalLauncher
) -> None:
    bad = EnvironmentConfig(game="NoSuchGame")
    launcher.start(Task("agent", rig.frontend.endpoint, TOKEN, GROUPS, ENVS, 1, bad))
    ended = reaped(launcher)
    assert (ended.identity, ended.code) == ("agent", 1)
    assert "Traceback" in ended.log
    assert "unknown game 'NoSuchGame'" in ended.log.splitlines()[-1]


@pytest.mark.parametrize("config", [CARTPOLE, PONG], ids=["Gymnasium", "ALE"])
def test_an_agent_that_rests_plays_again_with_new_games(
    tmp_path: Path, launcher: LocalLauncher, config: EnvironmentConfig
) -> None:
    with playing(tmp_path, launcher, config) as rig:
        pid = rig.start("before")
        begun = [request.step.frames for request in rig.play(6) if not request.sequence]
        rig.frontend.retire("before")
        wait_until(lambda: not rig.frontend.peers.knows("before"))
        assert launcher.reap() == []
        while rig.requests.size:  # sent before it retired; their lanes stay taken until answered
            rig.play(1)
        rig.frontend.peers.expect("after", LANES)
        launcher.start_again("before", rig.task("after"))  # with the same seed
        assert launcher.pid("after") == pid
        assert len(launcher) == 1
        played = rig.play(12)
        assert {request.identity for request in played} == {"after"}
        for group in range(GROUPS):
            mine = [request for request in played if request.group == group]
            assert [request.sequence for request in mine] == list(range(len(mine)))
            over = np.ones(ENVS, bool)  # play begins with new games; some of CartPole are short
            for request in mine:
                outcomes = request.step.outcomes
                np.testing.assert_array_equal(outcomes["first"], over)
                over = (outcomes["terminated"] | outcomes["truncated"]).astype(bool)
        if config is CARTPOLE:  # all games of Pong begin alike
            again = [request.step.frames for request in played if not request.sequence]
            assert not any(np.array_equal(a, b) for a in again for b in begun), "the same games"
        assert not any(n.startswith("rejected") for n in rig.metrics.snapshot().counts)


def prepared(launcher: LocalLauncher, config: EnvironmentConfig) -> psutil.Process:
    """The process of an agent that makes its first environments and has no service yet."""
    known = {each.pid for each in psutil.Process().children()}
    launcher.prepare(1, Task("", "", "", GROUPS, ENVS, None, config))
    (new,) = (each for each in psutil.Process().children() if each.pid not in known)
    return new


def test_a_prepared_agent_takes_the_first_task_and_plays_all_its_groups(
    tmp_path: Path, launcher: LocalLauncher
) -> None:
    waits = prepared(launcher, PONG)
    with playing(tmp_path, launcher, PONG) as rig:
        assert rig.start("first") == waits.pid
        assert rig.start("second", 1) != waits.pid
        assert len(launcher) == 2
        seen: dict[tuple[str, int], list[int]] = {}
        while not (len(seen) == 2 * GROUPS and all(len(each) > 3 for each in seen.values())):
            (request,) = rig.play(1)
            seen.setdefault((request.identity, request.group), []).append(request.sequence)
        assert all(each == list(range(len(each))) for each in seen.values())
        assert not any(n.startswith("rejected") for n in rig.metrics.snapshot().counts)


def test_a_prepared_agent_that_has_failed_is_reported_under_the_name_that_it_gets(rig: Rig) -> None:
    failed = prepared(rig.launcher, EnvironmentConfig(game="NoSuchGame"))
    wait_until(lambda: failed.status() == psutil.STATUS_ZOMBIE)
    rig.launcher.start(rig.task("agent"))
    ended = reaped(rig.launcher)
    assert (ended.identity, ended.code) == ("agent", 1)
    assert "unknown game 'NoSuchGame'" in ended.log


def test_a_prepared_agent_that_gets_no_task_ends_with_the_launcher(launcher: LocalLauncher) -> None:
    waits = prepared(launcher, PONG)
    launcher.stop(LIMIT_S)
    assert not waits.is_running()
    launcher.stop(LIMIT_S)  # a run and its command both call this


def test_an_agent_that_died_as_it_rested_is_reported_under_its_new_name(rig: Rig) -> None:
    pid = rig.start("before")
    rig.play(2)
    rig.frontend.retire("before")
    wait_until(lambda: not rig.frontend.peers.knows("before"))
    os.kill(pid, signal.SIGKILL)
    rig.launcher.start_again("before", rig.task("after"))
    ended = reaped(rig.launcher)
    assert (ended.identity, ended.code) == ("after", -signal.SIGKILL)


@pytest.mark.parametrize("plays", [True, False])
def test_an_agent_ends_when_its_input_is_closed(rig: Rig, plays: bool) -> None:
    rig.start("agent")
    rig.play(2)
    if not plays:
        rig.frontend.retire("agent")
        wait_until(lambda: not rig.frontend.peers.knows("agent"))
    rig.launcher.end("agent")
    ended = reaped(rig.launcher)
    assert (ended.identity, ended.code, ended.log) == ("agent", 1, "")


def test_an_agent_that_fails_ends_though_nobody_hears_its_last_words(tmp_path: Path) -> None:
    bad = replace(NOWHERE, environment=EnvironmentConfig(game="NoSuchGame"))
    with open(tmp_path / "log", "w+b") as log:
        agent = subprocess.Popen(
            [sys.executable, "-m", "agents.worker"], stdin=subprocess.PIPE, stderr=log
        )
        try:
            assert agent.stdin is not None
            agent.stdin.write(bad.to_json().encode() + b"\n")
            agent.stdin.flush()
            wait_until(lambda: b"NoSuchGame" in (tmp_path / "log").read_bytes())
            assert agent.wait(LIMIT_S) == 1
        finally:
            agent.kill()
            agent.communicate()


@pytest.mark.parametrize("endpoint", ["nonsense://here", "ipc://" + "x" * 200])
def test_an_agent_without_a_usable_endpoint_ends(launcher: LocalLauncher, endpoint: str) -> None:
    launcher.start(replace(NOWHERE, endpoint=endpoint))
    assert "ZMQError" in reaped(launcher).log


def test_an_agent_whose_parent_is_killed_ends_by_itself() -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\n"
            "from agents.launchers import LocalLauncher; from agents.worker import Task\n"
            "launcher = LocalLauncher()\n"
            "launcher.start(Task.from_json(sys.argv[1]))\n"
            "print(launcher.pid('agent'), flush=True)\n"
            "time.sleep(600)\n",
            NOWHERE.to_json(),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert parent.stdout is not None
        agent = int(parent.stdout.readline())
        assert runs(agent)
    finally:
        parent.kill()
        parent.communicate()
    wait_until(lambda: not runs(agent))


def test_an_agent_ends_when_its_input_does_in_the_middle_of_a_game(rig: Rig) -> None:
    pid = rig.start("agent")
    rig.play(2)
    rig.launcher.stop(LIMIT_S)  # closes the input, then waits
    assert not runs(pid)
    assert len(rig.launcher) == 0


def test_stop_leaves_no_process_no_thread_and_no_descriptor() -> None:
    threads, descriptors = leaks.threads(), leaks.descriptors()
    launcher = LocalLauncher()
    pids = []
    for index in range(3):
        launcher.start(replace(NOWHERE, identity=f"agent-{index}"))
        pids.append(launcher.pid(f"agent-{index}"))
    os.kill(pids[0], signal.SIGSTOP)  # does not react, so it has to be killed
    os.kill(pids[1], signal.SIGKILL)  # has ended, but was not reaped
    launcher.stop(0.5)
    assert not any(runs(pid) for pid in pids)
    assert len(launcher) == 0
    assert launcher.reap() == []
    wait_until(lambda: not leaks.threads() - threads)  # join() returns just before the thread ends
    assert not leaks.descriptors() - descriptors


def test_an_agent_whose_process_cannot_start_is_reported_and_the_next_one_starts(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    descriptors = leaks.descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refused)
        launcher.start(NOWHERE)
        launcher.prepare(1, NOWHERE)
    assert launcher.pid("agent") is None
    launcher.end("agent")
    launcher.kill("agent")
    first, second = launcher.reap()
    assert (first.identity, first.code) == ("agent", UNSTARTED)
    assert "Resource temporarily unavailable" in first.log
    assert second.identity.startswith(PREPARED)
    assert launcher.reap() == []
    assert not leaks.descriptors() - descriptors
    launcher.start(NOWHERE)
    assert launcher.pid("agent")


def test_kill_ends_an_agent_and_ignores_an_unknown_one(launcher: LocalLauncher) -> None:
    launcher.start(NOWHERE)
    launcher.kill("nobody")
    launcher.kill("agent")
    assert reaped(launcher) == Exit("agent", -signal.SIGKILL, "")
    launcher.kill("agent")


def test_agents_are_in_sessions_of_their_own(launcher: LocalLauncher) -> None:
    launcher.start(NOWHERE)
    assert os.getsid(launcher.pid("agent")) == launcher.pid("agent") != os.getsid(0)


def program(directory: Path, body: str) -> str:
    """An executable that stands in for Python."""
    path = directory / "stand-in"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_the_end_of_a_long_log_is_kept(
    tmp_path: Path, launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "seq 10000 20000 >&2; echo '\u2620 the end'; exit 7"
    monkeypatch.setattr(sys, "executable", program(tmp_path, f"read task; {lines}"))
    launcher.start(NOWHERE)
    ended = reaped(launcher)
    assert ended.code == 7
    assert ended.log.endswith("20000\n\u2620 the end")
    assert len(ended.log.encode()) <= TAIL_BYTES


def test_the_first_lines_that_an_agent_prints_are_reported(
    tmp_path: Path, launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "HELD_S", 0.0)
    lines = r"printf '\033[33mone\033[0m\a\n\ntwo'; echo ' halves' >&2; seq 1000; read end"
    monkeypatch.setattr(sys, "executable", program(tmp_path, f"read task; {lines}"))
    launcher.start(replace(NOWHERE, identity="agent-3#secret"))
    news: list[str] = []
    wait_until(lambda: news.extend(launcher.news()) or f"agent-3: {tails.NO_MORE}" in news)
    numbers = map(str, range(1, tails.FIRST_LINES - 1))
    assert news == [f"agent-3: {text}" for text in ("one", "two halves", *numbers, tails.NO_MORE)]
    assert launcher.news() == []


def test_the_last_lines_of_an_agent_that_ends_are_told_once(
    tmp_path: Path, launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "HELD_S", LIMIT_S)
    monkeypatch.setattr(sys, "executable", program(tmp_path, "read task; echo why; exit 7"))
    launcher.start(NOWHERE)
    assert reaped(launcher).log == "why"
    monkeypatch.setattr(tails, "HELD_S", 0.0)
    assert launcher.news() == []


def test_what_an_agent_writes_neither_blocks_it_nor_fills_the_disk(
    tmp_path: Path, launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    lines = f"seq 5000000; echo the end; touch {tmp_path}/written; read end; exit 7"
    monkeypatch.setattr(sys, "executable", program(tmp_path, f"read task; {lines}"))
    launcher.start(NOWHERE)
    wait_until((tmp_path / "written").exists)  # even though nothing is reaped meanwhile
    launcher.end("agent")
    ended = reaped(launcher)
    assert ended.code == 7
    assert ended.log.endswith("5000000\nthe end")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1000


def test_an_agent_is_reaped_though_its_child_lives_and_holds_its_output(
    tmp_path: Path, launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = f"setsid sh -c 'touch {tmp_path}/left; exec sleep 600' &"  # the agent's process group
    ends = f"until [ -e {tmp_path}/left ]; do sleep 0.01; done; echo $!; exit 3"
    monkeypatch.setattr(sys, "executable", program(tmp_path, f"{leaves}\n{ends}"))
    launcher.start(NOWHERE)
    ended = reaped(launcher)
    child = int(ended.log)
    try:
        assert ended == Exit("agent", 3, f"{child}")
        launcher.stop(LIMIT_S)
        assert runs(child), "it was not waited for"
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_folder_of_the_same_name_does_not_shadow_the_agents_package(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("raise ImportError('not ours')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    rig.start("agent")
    rig.play(4)


@pytest.mark.parametrize("entry", ["{path}", ""])
def test_an_agent_finds_every_module_that_its_starter_finds(
    tmp_path: Path, launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    name = f"own_games_{len(entry)}"
    (tmp_path / f"{name}.py").write_text(
        "import gymnasium\n"
        f"gymnasium.register('{name}-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry.format(path=tmp_path), *sys.path])
    with playing(tmp_path, launcher, EnvironmentConfig(f"{name}:{name}-v0")) as rig:
        rig.start("agent")
        rig.play(4)


class LateTask(Task):
    """A task that is not written until its reader has ended."""

    def to_json(self) -> str:
        children = psutil.Process().children
        wait_until(lambda: any(child.status() == psutil.STATUS_ZOMBIE for child in children()))
        return super().to_json()


def test_an_agent_that_ends_before_it_has_its_task_is_reaped(
    tmp_path: Path, launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path, "exit 3"))
    launcher.start(LateTask(**vars(NOWHERE)))
    assert reaped(launcher).code == 3


def test_a_task_comes_out_of_its_json_as_it_went_in() -> None:
    task = replace(NOWHERE, environment=replace(PONG, sticky_actions=0.25, noop_max=0))
    assert Task.from_json(task.to_json()) == task
    assert "\n" not in task.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"environment": {}}',
        re.sub('"seed"', '"seeds"', NOWHERE.to_json()),
        re.sub('"game"', '"games"', NOWHERE.to_json()),
    ],
)
def test_a_wrong_task_is_refused(text: str) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        Task.from_json(text)
