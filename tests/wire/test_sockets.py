"""A service's socket outlives peers that go away at the worst moment."""

import contextlib
import subprocess
import sys
from pathlib import Path

import zmq

from agents.link import connect

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a token"
MOST = 1_000_000  # messages: far more than are taken from a peer that is not listened to
TWO_HEARTBEATS_S = 5  # the first tells that the peer has gone, the second would end the service
SERVICE = f"""
import time
from agents.actions import Actions
from agents.messages import Hello
from ga3c.wire.doors import Doors

hello = Hello({TOKEN!r}, (4,), "float32", Actions(2), 1, 1)
doors = Doors("tcp://127.0.0.1:*", {TOKEN!r}, hello)
print(doors.endpoint, flush=True)
while not doors.wait(1000):  # answers who may come in
    pass
print("it has come in", flush=True)
input()  # busy with something else
time.sleep({TWO_HEARTBEATS_S})
print("it lives", flush=True)
"""


def test_a_peer_that_floods_a_busy_service_and_goes_away_does_not_end_it() -> None:
    """As libzmq 4.3.5 would, by an assertion, if the service sent heartbeats."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as service:
        assert service.stdout
        endpoint = service.stdout.readline().strip()
        context = zmq.Context()
        try:
            peer = connect(context, endpoint, "peer", TOKEN)
            peer.setsockopt(zmq.SNDTIMEO, 10_000)
            peer.send(b"hello")
            assert service.stdout.readline().strip() == "it has come in"
            peer.setsockopt(zmq.SNDTIMEO, 300)
            sent = 0
            with contextlib.suppress(zmq.Again):
                while sent < MOST:
                    peer.send(bytes(1000))
                    sent += 1
            assert sent < MOST, "the service never stopped to take messages"
        finally:
            context.destroy(linger=0)
        said, _ = service.communicate("\n", timeout=60)
    assert "it lives" in said, said
    assert service.returncode == 0
