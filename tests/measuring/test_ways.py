"""Simulated networks between machines, as the studies use them: delayed, frozen and cut."""

import socket
import subprocess
import sys
import time

import pytest

from benchmarks.delays import Delay
from benchmarks.faults.nodes import PORT, Namespaces, NoNamespaces

LIMIT_S = 10.0
ECHO = (
    "import socket, sys\n"
    "with socket.create_server(('0.0.0.0', int(sys.argv[1]))) as door:\n"
    "    print('listens', flush=True)\n"
    "    one, _ = door.accept()\n"
    "    while data := one.recv(100):\n"
    "        one.sendall(data)\n"
)
ASK = (
    "import socket, sys\n"
    "with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as one:\n"
    "    for line in sys.stdin.buffer:\n"
    "        one.sendall(line)\n"
    "        sys.stdout.buffer.write(one.recv(100))\n"
    "        sys.stdout.buffer.flush()\n"
)


def test_a_relay_is_late_and_hands_nothing_on_while_it_is_frozen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        relay = Delay(("127.0.0.1", door.getsockname()[1]), 0.05)
        with relay as port, socket.create_connection(("127.0.0.1", port), LIMIT_S) as one:
            other, _ = door.accept()
            with other:
                other.settimeout(LIMIT_S)
                began_s = time.monotonic()
                one.sendall(b"a")
                assert other.recv(1) == b"a"
                assert time.monotonic() - began_s >= 0.05
                relay.freeze()
                one.sendall(b"b")
                other.settimeout(0.5)
                with pytest.raises(TimeoutError):
                    other.recv(1)
                relay.mend()
                other.settimeout(LIMIT_S)
                assert other.recv(1) == b"b"


def test_nodes_reach_the_learner_until_the_cable_is_cut() -> None:
    try:
        with Namespaces(2) as net:
            assert net.connect(0) != net.connect(1)
            echo = [*net.learner, sys.executable, "-c", ECHO, str(PORT)]
            with subprocess.Popen(echo, stdout=subprocess.PIPE) as server:
                assert server.stdout is not None
                assert server.stdout.readline() == b"listens\n"
                host = net.connect(1).removeprefix("tcp://").split(":")[0]
                ask = [*net.node(1), sys.executable, "-c", ASK, host, str(PORT)]
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
                with subprocess.Popen(ask, **pipes) as client:  # type: ignore[call-overload]
                    client.stdin.write(b"one\n")
                    assert client.stdout.readline() == b"one\n"
                    net.cut(1)
                    client.stdin.write(b"two\n")
                    time.sleep(0.5)
                    net.mend(1)
                    assert client.stdout.readline() == b"two\n", "TCP sends it again"
                    client.stdin.close()
    except NoNamespaces as error:
        pytest.skip(str(error))
    known = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert net.learner[-1] not in known, "nothing is left"
