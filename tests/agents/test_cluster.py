"""Agents on the nodes of a real Ray cluster, on this machine."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

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


class Nodes:
    """A Ray cluster whose head has no cores, and nodes of one core each."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ray_nodes"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": directory},
        )
        self.address = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def do(self, order: str) -> None:
        """add NAME, or remove NAME."""
        assert self._process.stdin is not None
        print(order, file=self._process.stdin, flush=True)
        assert self._line() == "done"

    def agents(self) -> list[psutil.Process]:
        """The agent processes on all nodes."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_agent = any(word.endswith("agents/start.py") for word in process.cmdline())
                if is_agent and process.environ().get("RAY_TMPDIR") == self._directory:
                    found.append(process)
        return found

    def close(self) -> None:
        """End all nodes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(BEGIN_S)
        self._process.stdout.close()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory:
        cluster = Nodes(directory)
        try:
            yield cluster
        finally:
            cluster.close()


@pytest.mark.slow
def test_nodes_play_come_and_go(command: Start, nodes: Nodes, tmp_path: Path) -> None:
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


def test_a_head_that_is_not_there_is_said_before_anything_begins() -> None:
    said = refused("train", "--launcher", "ray", "--ray-address", "127.0.0.1:9")
    assert said.startswith("ga3c: ray_address 127.0.0.1:9: there is no Ray head: ")
    said = refused("train", "--launcher", "ray", "--ray-address", "auto")
    assert said == "ga3c: ray_address auto: must be HOST:PORT, as head:6379"
