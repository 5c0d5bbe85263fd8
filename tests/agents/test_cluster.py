"""Agents on the nodes of a Ray cluster: a real one on this machine, or a mock of Ray."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from agents.cluster import RETRY_S, Cluster
from agents.nodes import PATIENCE_S, NodeHosts, Orders, Word
from agents.nodes import RETRY_S as NODE_RETRY_S
from ga3c.runs.finding import newest_figures
from ga3c.runs.kept_config import load_config
from tests.commands import (
    BEGIN_S,
    CORRIDOR,
    STOP_S,
    Command,
    assert_nothing_is_left,
    children,
    refused,
    wait_for,
)
from tests.ray_nodes import Nodes, nodes

Start = Callable[..., Command]
ORDERS = Orders("x:1", "tcp://0.0.0.0:2", "key", [])
__all__ = ["nodes"]


@pytest.mark.slow
def test_nodes_may_join_and_leave_a_run(command: Start, nodes: Nodes, tmp_path: Path) -> None:
    nodes.do("add one")
    given = ["--launcher", "ray", "--ray-address", nodes.address, "--agents-here", "0"]
    service = command(*CORRIDOR, *given)
    service.until(lambda: "host one has come (key Ray node one)" in service.out + service.err)
    service.until_steps_are_made()
    assert len(nodes.agents()) == 1, "as many as the node has cores"
    nodes.do("add two")
    service.until(lambda: "host two has come" in service.out + service.err)
    nodes.do("remove one")
    service.until(lambda: "Ray node one has left" in service.out + service.err, BEGIN_S)
    steps = service.steps()
    service.until(lambda: service.steps() > steps + 100, BEGIN_S)
    service.interrupt()
    assert service.wait(STOP_S) == 130, service.err
    assert_nothing_is_left(service)
    wait_for(lambda: not nodes.agents(), STOP_S)


def test_a_missing_ray_head_is_refused_before_anything_begins(tmp_path: Path) -> None:
    said = refused("train", "--launcher", "ray", "--ray-address", "127.0.0.1:9")
    assert said.startswith("ga3c: ray_address 127.0.0.1:9: there is no Ray head: ")
    said = refused("train", "--launcher", "ray", "--ray-address", "auto")
    assert said == "ga3c: ray_address auto: must be HOST:PORT, as head:6379"
    scores = ("scores", "--out-dir", str(tmp_path / "new"), "--on", "ray")
    assert "there is no Ray head" in refused(*scores, "--ray-address", "127.0.0.1:9")
    assert "cores 0: must be above 0" in refused(*scores, "--cores", "0")
    assert "gpus -1.0: must not be negative" in refused(*scores, "--gpus", "-1")
    assert not (tmp_path / "new").exists()


class RayError(Exception):
    """Stands in for ray.exceptions.RayError."""


def ray_of_one_node() -> MagicMock:
    """A mock of the ray module: a cluster with one node, whose cores are all still taken."""
    ray = MagicMock()
    ray.exceptions.RayError = RayError
    ray.util.get_node_ip_address.return_value = "10.0.0.1"
    resources = {"CPU": 4.0}
    node = {"NodeID": "a", "NodeName": "atlas", "Alive": True, "Resources": resources}
    ray.nodes.return_value = [node]
    ray.wait.return_value = ([], ["asked"])
    return ray


def test_a_node_whose_cores_are_taken_is_reported_once() -> None:
    ray = ray_of_one_node()
    words: list[Word] = []
    now_s = 0.0
    hosts = NodeHosts(ray, ORDERS, words.append, lambda: now_s)
    hosts.tend()
    assert words == []
    now_s = PATIENCE_S
    hosts.tend()
    hosts.tend()
    (word,) = words
    assert word.news.startswith("Ray node atlas waits: its 4 cores are not free")
    ray.wait.return_value = (["asked"], [])
    ray.get.return_value = "its key"
    hosts.tend()
    assert words[1:] == [Word(key="its key", name="Ray node atlas")]
    ray.wait.return_value = ([], ["asked"])
    hosts.allowed("its key")
    actor = ray.remote.return_value.options.return_value.remote.return_value
    orders = ORDERS._replace(connect="tcp://10.0.0.1:2")  # other nodes cannot reach 0.0.0.0
    actor.play.remote.assert_called_once_with(orders, "atlas", 4)
    hosts.tend()
    assert len(words) == 2, "it plays, which takes as long as the run"


@pytest.mark.parametrize(
    ("listen", "node", "connect"),
    [
        ("tcp://[::]:5", "10.0.0.1", "tcp://10.0.0.1:5"),
        ("tcp://[::]:5", "fd00::1", "tcp://[fd00::1]:5"),
        ("tcp://0.0.0.0:5", "fd00::1", "tcp://[fd00::1]:5"),
        ("tcp://192.168.0.7:5", "10.0.0.1", "tcp://192.168.0.7:5"),
    ],
)
def test_nodes_are_told_an_address_that_they_can_reach(
    listen: str, node: str, connect: str
) -> None:
    ray = ray_of_one_node()
    ray.util.get_node_ip_address.return_value = node
    ray.wait.return_value = (["asked"], [])
    ray.get.return_value = "its key"
    hosts = NodeHosts(ray, ORDERS._replace(connect=listen), lambda word: None)
    hosts.tend()
    hosts.allowed("its key")
    actor = ray.remote.return_value.options.return_value.remote.return_value
    orders = ORDERS._replace(connect=connect)
    actor.play.remote.assert_called_once_with(orders, "atlas", 4)


def test_the_node_of_the_service_itself_gets_no_host() -> None:
    """On its own machine, the service itself starts the agents, as many as --agents-here says."""
    ray = ray_of_one_node()
    hosts = NodeHosts(ray, ORDERS, lambda word: None)
    hosts.tend()
    assert ray.remote.call_count == 1
    ray.get_runtime_context.return_value.get_node_id.return_value = "a"
    hosts = NodeHosts(ray, ORDERS, lambda word: None)
    hosts.tend()
    assert ray.remote.call_count == 1


def test_the_reason_of_a_nodes_host_s_end_is_the_last_line_of_its_traceback() -> None:
    ray, words = ray_of_one_node(), list[Word]()
    hosts = NodeHosts(ray, ORDERS, words.append)
    ray.wait.return_value = (["asked"], [])
    ray.get.side_effect = RayError(
        "\x1b[36mray::NodeHost.play()\x1b[39m (pid=5)\n"
        '  File "orders.py", line 9, in obey\nOSError: no space is left\n'
    )
    hosts.tend()
    assert words == [Word(news="the host of Ray node atlas has ended: OSError: no space is left")]


def test_a_nodes_host_that_ends_is_placed_again_after_a_while() -> None:
    ray = ray_of_one_node()
    words: list[Word] = []
    now_s = 100.0
    hosts = NodeHosts(ray, ORDERS, words.append, lambda: now_s)
    ray.wait.return_value = (["asked"], [])
    ray.get.side_effect = RayError("\nthe actor died\nin line 3")
    hosts.tend()
    assert words == [Word(news="the host of Ray node atlas has ended: the actor died")]
    ray.get.side_effect = None
    ray.get.return_value = "its key"
    now_s = 99.9 + NODE_RETRY_S
    hosts.tend()
    assert (ray.remote.call_count, len(words)) == (1, 1), "it is not due yet"
    now_s = 100.0 + NODE_RETRY_S
    hosts.tend()
    assert ray.remote.call_count == 2
    assert words[1:] == [Word(key="its key", name="Ray node atlas")]
    hosts.allowed("its key")
    ray.get.side_effect = RayError()
    hosts.tend()
    assert words[2:] == [Word(news="the host of Ray node atlas has ended: RayError")]


def test_the_process_that_keeps_the_hosts_is_started_again_if_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Word(news="Ray has gone", key="a key", name="atlas")
    orders, stand_in = tmp_path / "orders", tmp_path / "stand-in"
    says = f"read line\necho \"$line\" >> {orders}\necho '{json.dumps(asdict(lost))}'\n"
    stand_in.write_text(f"#!/bin/sh\n{says}")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    known, said, allowed = children(), list[str](), list[tuple[str, str]]()
    ray = Cluster(ORDERS, lambda key, name: allowed.append((key, name)))
    again = f"retrying Ray at x:1 in {RETRY_S:g} s"

    def has_ended() -> bool:
        said.extend(ray.news())
        return again in said

    try:
        wait_for(has_ended, STOP_S)
        assert said == [lost.news, again]
        assert allowed == [("a key", "atlas")]
        assert ray.news() == []
        assert children() == known, "it is not due yet"
        with monkeypatch.context() as patch:
            due_s = time.monotonic() + RETRY_S
            patch.setattr(time, "monotonic", lambda: due_s)
            assert ray.news() == []
        said.clear()
        wait_for(has_ended, STOP_S)
        assert said == [lost.news, again]
    finally:
        ray.stop()
    assert [json.loads(line) for line in orders.read_text().splitlines()] == [ORDERS._asdict()] * 2


def test_a_machine_that_is_short_of_processes_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def short(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("agents.cluster.subprocess.Popen", short)
    ray = Cluster(ORDERS, lambda key, name: None)
    (line,) = ray.news()
    assert line.startswith("Ray at x:1: [Errno 11] Resource temporarily unavailable; retrying")
    assert ray.news() == [], "not before it is due"
    ray.stop()


@pytest.mark.slow
def test_training_for_scores_goes_on_elsewhere_if_a_node_is_lost(
    command: Start, nodes: Nodes, tmp_path: Path
) -> None:
    out, steps = tmp_path / "scores", 20_000
    for name in ("one", "two"):
        nodes.do(f"add {name}")
    train = "--envs-per-agent 4 --checkpoint-every-s 1 --algorithm a3c"
    scores = command(
        *("scores", "--games", "tests.tiny:Corridor-v0", "--seeds", "2", "--steps", str(steps)),
        *("--out-dir", str(out), "--episodes", "2", "--on", "ray", "--cores", "1"),
        *("--ray-address", nodes.address, f"--train={train}"),
    )
    runs = [out / f"Corridor-v0-{seed}" for seed in range(2)]
    scores.until(lambda: all(any(run.glob("checkpoints/*")) for run in runs), BEGIN_S)
    nodes.do("remove one")
    scores.until(lambda: "its node is lost; it goes on elsewhere" in scores.out, BEGIN_S)
    assert scores.wait(2 * BEGIN_S) == 0, scores.err
    assert all(newest_figures(run)["steps"] >= steps for run in runs)
    assert [load_config(run).service.agents for run in runs] == [1, 1], "as on one core"
    assert "Corridor" in (out / "scores.md").read_text()
    evaluations = [(run / "evaluations.jsonl").read_text().splitlines() for run in runs]
    assert [json.loads(lines[-1])["episodes"] for lines in evaluations] == [2, 2]
    assert_nothing_is_left(scores)
