"""What the doctor says about agents on other machines."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agents.headers import Header, Kind
from benchmarks.delays import Delay
from ga3c.measuring.round_trips import bandwidth_mb, described, groups_needed, more_groups, way
from ga3c.runs.metrics import Snapshot, Window
from ga3c.settings.service import ServiceConfig
from ga3c.wire.peers import Peer
from tests.agents.test_host import Start, coming, listening
from tests.commands import BEGIN_S

COUNTS = {
    "frontend_waiting_s": 5.0,
    "far_messages": 1000.0,
    "far_bytes": 2e6,
    "agents_busy_s": 4.0,
    "messages": 1000.0,
    "trips": 100.0,
    "trips_s": 1.0,
}


def window(**counts: float) -> Window:
    return Window(Snapshot(0.0), Snapshot(10.0, {**COUNTS, **counts}))


def test_network_figures_are_computed_from_the_window() -> None:
    found = way(window())
    assert found == pytest.approx(
        {
            "frontend_busy_share": 0.5,
            "mb_per_s": 0.2,
            "bytes_a_message": 2000.0,
            "group_step_ms": 4.0,
            "round_trip_ms": 10.0,
        }
    )
    assert set(way(window(far_messages=0))) == {"frontend_busy_share"}
    assert "round_trip_ms" not in way(window(trips=1)), "too few to say"


def test_enough_groups_hide_the_round_trip() -> None:
    found = way(window())
    assert groups_needed(found) == 4, "1 + 10 ms / 4 ms, rounded up"
    service = ServiceConfig(envs_per_agent=64, groups=2)
    ((options, gain, because),) = more_groups({**found, "agents_waiting_share": 0.5}, service)
    assert options == {"groups": 4, "envs_per_agent": 128}
    assert gain == pytest.approx(0.75), "(10 - 4) ms of 2 x 4 ms"
    assert "4 such groups hide the round trip" in because
    far = {**found, "round_trip_ms": 1000.0, "agents_waiting_share": 0.99}
    ((options, gain, _),) = more_groups(far, service)
    assert options == {"groups": 16, "envs_per_agent": 16 * 17 * 32}, "15 groups of 17 times 4 ms"
    assert gain == pytest.approx(9.0)
    enough = replace(service, groups=4)
    assert not [*more_groups({**found, "agents_waiting_share": 0.5}, enough)]
    near = way(window(trips=0))
    assert groups_needed(near) == 1
    assert not [*more_groups({**near, "agents_waiting_share": 0.5}, service)]


def test_the_bandwidth_follows_from_how_much_longer_larger_messages_take() -> None:
    packed, whole = way(window()), way(window(far_bytes=12e6, trips_s=3.0))
    assert bandwidth_mb(packed, whole) == pytest.approx(0.5), "10,000 bytes in 20 ms"
    assert bandwidth_mb(whole, packed) is None
    assert bandwidth_mb(packed, way(window(trips=0))) is None


def test_the_doctor_says_how_far_machines_are_and_when_the_frontend_is_full() -> None:
    service = ServiceConfig(envs_per_agent=64, groups=2)
    sent, trip = described(way(window()), service)
    assert sent == "other machines send 0.2 MB/s, 62 bytes a step"
    assert trip.startswith("round trip to other machines 10.0 ms; a group's step takes 4.0 ms, ")
    assert trip.endswith("so 4 groups of 32 environments hide it, and there are 2")
    *_, hidden = described(way(window(trips=0)), service)
    assert hidden == "their agents do not wait: 2 groups hide the round trip"
    full, *_ = described(way(window(frontend_waiting_s=0.5)), service)
    assert full.startswith("the frontend is busy 95% of its time")
    assert not [*described(way(window(far_messages=0)), service)]


def test_a_round_trip_is_measured_only_if_the_agent_was_waiting_for_the_answer() -> None:
    peer = Peer(np.zeros((1, 2), np.int32), answered_s={0: 5.0})
    parts = [b"x" * 10, b"y" * 20]
    waited = Header(Kind.STEP, 0, 2, 1, waited_s=0.01, stepped_s=0.25)
    counts = peer.travelled(waited, parts, came_s=5.5)
    assert counts == {"far_messages": 1, "far_bytes": 30, "trips": 1, "trips_s": 0.25}
    for header in (waited._replace(waited_s=0.0), waited._replace(group=1)):
        assert "trips" not in peer.travelled(header, parts, came_s=5.5)


def reserved(unheard: socket.socket) -> tuple[str, int]:
    """Bind to a free port without listening, and return the address.

    The system gives the port to no other process, but a service that asks for it can still listen
    there, as the doctor does once for each measurement.
    """
    # libzmq sets this option too, so both can bind to the port.
    unheard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    unheard.bind(("127.0.0.1", 0))
    return unheard.getsockname()


@pytest.mark.slow
def test_the_doctor_measures_the_round_trip_to_a_real_host(command: Start, tmp_path: Path) -> None:
    trip_ms = 40.0
    with socket.socket() as kept, Delay(reserved(kept), trip_ms / 2000) as relay:
        port = kept.getsockname()[1]
        command(*coming(tmp_path, f"tcp://127.0.0.1:{relay}", "atlas"))
        doctor = command(
            *("doctor", "--game", "tests.tiny:Corridor-v0", "--algorithm", "a3c"),
            *("--agents", "1", "--max-agents", "1", "--envs-per-agent", "4", "--seconds", "2"),
            *("--part-seconds", "0.1", "--agents-here", "0", "--json"),
            *listening(tmp_path, f"tcp://127.0.0.1:{port}"),
        )
        assert doctor.wait(2 * BEGIN_S) == 0, doctor.err
    assert f"waiting for agents at tcp://127.0.0.1:{port}" in doctor.out
    assert "bandwidth to other machines" in doctor.out
    before = json.loads(doctor.out.splitlines()[-1])["before"]
    assert before["round_trip_ms"] >= trip_ms
