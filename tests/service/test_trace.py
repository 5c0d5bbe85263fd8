"""The trace of a run: its arrows start and end in spans, and only the newest events are kept."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from agents.messages import Header, Kind
from ga3c.experience.book import Segment
from ga3c.service import trace
from tests.commands import ended, refused

Event = dict[str, Any]
RUN = ["train", "--game", "tests.tiny:Corridor-v0", "--algorithm", "a3c"]
RUN += ["--agents", "2", "--envs-per-agent", "4"]


def rows(events: list[Event]) -> dict[int, str]:
    return {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}


def enclosed(event: Event, spans: list[Event]) -> list[str]:
    """The names of the spans, in the same row, that contain this point of an arrow."""
    return [
        span["name"]
        for span in spans
        if span["tid"] == event["tid"] and span["ts"] <= event["ts"] <= span["ts"] + span["dur"]
    ]


def test_an_observation_is_followed_from_environment_to_action_to_gradient(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    options = ["--steps", "6000", "--scheduler", "off", "--max-agents", "2"]
    done = ended(*RUN, *options, "--runs-dir", str(tmp_path), "--trace", str(file))
    assert done.returncode == 0, done.stderr
    events = json.loads(file.read_text())["traceEvents"]
    names = rows(events)
    kinds = {name.split(".")[0] for name in names.values()}
    assert kinds == {"agent-0", "agent-1", "predictor-0", "trainer-0"}
    spans = [event for event in events if event["ph"] == "X"]
    assert {span["name"] for span in spans} == {"step", "wait", "wait for room", "predict", "learn"}
    assert all(span["dur"] >= 0 for span in spans)
    arrows: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            arrows[event["id"]].append(event)
    whole = [each for each in arrows.values() if [e["ph"] for e in each] == ["s", "t", "t", "f"]]
    assert len(whole) > 20
    for shown, predicted, acted, learned in whole[:20]:
        assert "step" in enclosed(shown, spans)
        assert enclosed(predicted, spans) == ["predict"]
        assert "step" in enclosed(acted, spans)
        assert shown["tid"] == acted["tid"]
        assert enclosed(learned, spans) == ["learn"]
        assert shown["ts"] < predicted["ts"] < acted["ts"] < learned["ts"]


def test_only_the_newest_events_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_EVENTS", 10)
    kept = trace.Trace()
    for step in range(100):
        kept.stepped("agent-0", Header(Kind.STEP, 0, 4, step, 0.1, 0.1), float(step))
        kept.learned([Segment(0, step, 1)], float(step))
    kept.write(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["ph"] for event in events].count("M") == 2
    assert len(events) == 12
    assert events[-1]["id"] == trace.key_of(0, 99)


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    short = [*RUN, "--steps", "1", "--runs-dir", str(tmp_path)]  # short, in case it is not refused
    for file in (f"{tmp_path}/nowhere/trace.json", "setup.cfg/trace.json"):
        assert f"trace {file}: must be a file in a writable" in refused(*short, "--trace", file)
