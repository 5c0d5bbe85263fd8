"""Hosts on the nodes of a Ray cluster, kept running by `agents.nodes`, a separate process."""

import contextlib
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from agents.extras import missing
from agents.launchers import search_path
from agents.nodes import Orders, Word

RETRY_S = 10.0  # before restarting the process, which ends when it loses the cluster
END_S = 5.0
REACHED_S = 5.0


def check_ray(address: str) -> None:
    """Raises ValueError if Ray is not installed, or its head is not at HOST:PORT."""
    if not re.fullmatch(r"[^/\s:]+:\d{1,5}", address):
        raise ValueError(f"ray_address {address}: must be HOST:PORT, as head:6379")
    if importlib.util.find_spec("ray") is None:
        raise ValueError(missing("ray", "ray"))
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), REACHED_S).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"ray_address {address}: there is no Ray head: {error}; ray start --head starts one "
            "on this machine"
        ) from None


class Cluster:
    """The process that keeps the hosts. It exits when its stdin closes, so also when we exit."""

    def __init__(self, orders: Orders, allow: Callable[[str, str], None]) -> None:
        """Args: allow: called with each node's public key and name."""
        self._orders = orders
        self._allow = allow
        self._process: subprocess.Popen[bytes] | None = None
        self._output = b""  # an incomplete line
        self._due_s = 0.0  # when to start the process

    def news(self) -> list[str]:
        """Lines about nodes that have joined or left since the last call."""
        if self._process is None:
            if time.monotonic() >= self._due_s:
                return self._start()
            return []
        has_ended = self._process.poll() is not None
        assert self._process.stdout is not None
        *lines, self._output = (self._output + (self._process.stdout.read() or b"")).split(b"\n")
        words = [Word(**json.loads(line)) for line in lines]
        for word in words:
            if word.key:
                self._allow(word.key, word.name)
                self._tell(word.key)
        news = [word.news for word in words if word.news]
        if has_ended:
            news.append(f"retrying Ray at {self._orders.address} in {RETRY_S:g} s")
            self._due_s = time.monotonic() + RETRY_S
            self.stop()
        return news

    def _start(self) -> list[str]:
        """Start the process. Returns lines that say why, if it could not be started."""
        self._output = b""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "agents.nodes"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(search_path())},
            )
        except OSError as error:  # out of processes or memory
            self._due_s = time.monotonic() + RETRY_S
            return [f"Ray at {self._orders.address}: {error}; retrying in {RETRY_S:g} s"]
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._tell(json.dumps(self._orders._asdict()))
        return []

    def _tell(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has exited
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def stop(self) -> None:
        """Stop the process, and all hosts with it."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the process exited with unread input
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        process.kill()  # no-op if it has exited
        with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel
            process.wait(END_S)
        process.stdout.close()
