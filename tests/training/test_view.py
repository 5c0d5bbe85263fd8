"""How a run is shown: a live view in a terminal, otherwise plain lines; TensorBoard events."""

import contextlib
import csv
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.actions import Actions
from ga3c.command.parse import parse
from ga3c.runs.metrics import Metrics, Window
from ga3c.runs.tally import Tally
from ga3c.service.assembly import build_algorithm
from ga3c.settings.presets import PRESETS
from ga3c.settings.train import TrainConfig
from ga3c.training.progress import explored, figures, line, rows
from ga3c.training.view import curve, scale
from tests.commands import BEGIN_S, CORRIDOR, ROOT

DISCRETE, CONTINUOUS = Actions(2), Actions(0)
SECOND_SCREEN, FIRST_SCREEN = "\x1b[?1049h", "\x1b[?1049l"  # a terminal's codes to switch screens


def _waited(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """The exit code of a process. Then kills what is left of its group, agents included."""
    try:
        return process.wait(timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def in_a_terminal(*arguments: str) -> str:
    """The output of a command in a terminal of 120 columns, including control sequences."""
    terminal, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ga3c", *arguments],
        cwd=ROOT,
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "COLUMNS": "120", "LINES": "40", "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(child)
    said, deadline_s = b"", time.monotonic() + BEGIN_S
    while time.monotonic() < deadline_s:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            said += part
            if not part:
                break
    os.close(terminal)
    assert _waited(process, 30.0) == 0, said
    return said.decode()


def words_of(said: str) -> str:
    """Terminal output without its control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)


def events_of(run: Path) -> EventAccumulator:
    (file,) = run.glob("events.out.tfevents.*")
    return EventAccumulator(str(file)).Reload()


def test_a_terminal_shows_a_live_view(tmp_path: Path) -> None:
    given = [*CORRIDOR, "--steps", "6000", "--progress-every-s", "0.3", "--runs-dir", str(tmp_path)]
    given += ["--info-keys", "position"]
    before, begun, drawn = in_a_terminal(*given).partition(SECOND_SCREEN)
    on_it, ended, left = drawn.partition(FIRST_SCREEN)
    assert begun and ended, "the live view has a screen of its own"
    for words in (
        "score, mean of the last 100",
        "position, mean of the last 100",
        "reward per 1,000 steps",
        "PPS, predictions/s",
        "policy lag, updates",
        "queued predictions, samples",
        "agents: 2",
        "predictors: 1",
        "trainers: 1",
        "episodes",
        "left",
        "events",
    ):
        assert words in words_of(on_it), words
        assert words in words_of(left), f"{words}: of the last picture, which stays"
    assert "6,000 steps done; kept in" in words_of(left).splitlines()[-1]
    assert "[Time" not in words_of(before + drawn)
    (run,) = tmp_path.glob("*a3c*")
    assert "[Time" in (run / "log.txt").read_text()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    played = np.diff([0, *(line["steps"] for line in lines)])
    rewards = np.dot(played, [line["reward_per_step"] for line in lines])
    with open(run / "episodes.csv") as file:
        ended = [(int(row["steps"]), float(row["score"])) for row in csv.DictReader(file)]
    scores = sum(score for steps, score in ended if steps <= lines[-1]["steps"])
    assert lines[-1]["steps"] >= 4000, "the last line is near the end"
    assert rewards == pytest.approx(scores, rel=0.05), "all rewards are those of games"
    of_games = {f"charts/episodic_{what}_mean_100" for what in ("return", "length")}
    assert of_games <= set(events_of(run).Tags()["scalars"])


def test_a_terminal_that_is_closed_does_not_end_a_run(tmp_path: Path) -> None:
    terminal, child = pty.openpty()
    given = [*CORRIDOR, "--steps", "6000", "--progress-every-s", "0.3", "--runs-dir", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "ga3c", *given, "--name", "mine"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(child)
    assert os.read(terminal, 1), "the live view has begun"
    os.close(terminal)
    assert _waited(process, BEGIN_S) == 0
    assert "6,000 steps done" in (tmp_path / "mine" / "log.txt").read_text()
    assert (tmp_path / "mine" / "result.json").exists()


def test_plain_prints_lines_in_a_terminal_too(tmp_path: Path) -> None:
    given = [*CORRIDOR, "--steps", "3000", "--plain", "--runs-dir", str(tmp_path)]
    said = in_a_terminal(*given)
    assert SECOND_SCREEN not in said
    assert "[Time 0:00:0" in words_of(said)
    assert "events" not in words_of(said)


def test_the_line_shows_the_replays_steps_and_epsilon_instead_of_the_lag(tmp_path: Path) -> None:
    config = PRESETS["dqn-pictures"]
    metrics = Metrics(lambda: 5.0)
    before = metrics.snapshot()
    metrics.add(steps=100, updates=4, trained_samples=128)
    metrics.set(replay_steps=12_345.0, epsilon=0.25)
    window = Window(before, metrics.snapshot())
    tally = Tally(lambda: 5.0)
    values = figures(window, metrics, tally, config.service.counts, 3, 0)
    assert "[PQ 3 Replay 12,345 Ratio 1.28 Epsilon 0.25]" in line(values)
    assert values["steps_per_update"] == 25.0
    metrics.set(noise=0.3)
    values = figures(window, metrics, tally, config.service.counts, 3, 0)
    assert "Ratio 1.28 Noise 0.30]" in line(values), "of continuous actions"
    metrics = Metrics(lambda: 5.0)
    assert "Lag 0.0]" in line(figures(window, metrics, tally, config.service.counts, 3, 0))


@pytest.mark.parametrize(
    ("given", "actions", "shown"),
    [
        ("--algorithm dqn --epsilon-end 0.25", DISCRETE, "Epsilon 0.25"),
        ("--algorithm dqn --epsilon-end 0 --epsilon-steps 1", DISCRETE, "Epsilon 0.00"),
        ("--algorithm dqn --exploration ladder", DISCRETE, "Epsilon per environment"),
        ("--algorithm dqn --exploration ladder --ladder-rungs 1", DISCRETE, "Epsilon 0.40"),
        ("--algorithm dpg", CONTINUOUS, "Noise 0.30"),
        ("--algorithm dpg --noise 0", CONTINUOUS, "Noise 0.00"),
        ("--algorithm a3c", DISCRETE, None),
    ],
)
def test_the_exploration_that_is_shown_is_that_of_all_environments_now(
    given: str, actions: Actions, shown: str | None
) -> None:
    """It does not depend on which of them were in a prediction."""
    given += " --game CartPole-v1 --agents 2 --envs-per-agent 2 --replay-min-steps 1000"
    config = parse(given.split(), TrainConfig, "test")
    algorithm, steps = build_algorithm(config, actions), 1000 + config.dqn.epsilon_steps
    experience = SimpleNamespace(
        ring=SimpleNamespace(lanes=config.max_lanes), columns=algorithm.columns
    )
    metrics = Metrics(lambda: 5.0)
    if config.learns_from_replay:
        metrics.set(replay_steps=0.0)
    service: Any = SimpleNamespace(
        model=SimpleNamespace(exploration=algorithm.exploration, experience=experience),
        pacing=SimpleNamespace(steps=steps),
        metrics=metrics,
    )
    now = metrics.snapshot()
    made = figures(Window(now, now), metrics, Tally(lambda: 5.0), config.service.counts, 0, 0)
    values = {**made, **explored(service)}
    if shown:
        assert f" {shown}]" in line(values)
    else:
        assert not {"epsilon", "noise"} & values.keys()


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([20.0, 20.1, 19.9], (19.0, 21.0)),  # the ends are a tenth of 20 apart
        ([0.0, 0.2], (-0.4, 0.6)),
        ([-21.0, 18.0], (-21.0, 18.0)),
        ([0.0], (-0.5, 0.5)),
    ],
)
def test_the_axis_does_not_turn_noise_into_progress(
    values: list[float], ends: tuple[float, float]
) -> None:
    assert scale(values) == pytest.approx(ends, abs=0.01)


def test_the_rows_of_the_live_view_are_those_of_the_algorithm() -> None:
    config = PRESETS["dqn-pictures"]
    metrics = Metrics(lambda: 5.0)
    now = metrics.snapshot()
    metrics.set(policy_loss=0.125, entropy=1.5, best_evaluation=17.0)
    tally = Tally(lambda: 5.0)
    shown = dict(rows(figures(Window(now, now), metrics, tally, config.service.counts, 3, 0)))
    assert shown["policy loss"] == "0.125"
    assert shown["best evaluation"] == "17.000"
    assert "epsilon" not in shown
    metrics.set(replay_steps=10.0)
    shown = dict(rows(figures(Window(now, now), metrics, tally, config.service.counts, 3, 0)))
    assert shown["epsilon"] == "per environment"


@pytest.mark.parametrize("count", [1, 5, 60, 61, 1000])
def test_the_curve_fits_its_place_and_has_its_scale(count: int) -> None:
    lines = curve([float(i) for i in range(count)], 60, 8)
    assert len(lines) == 8
    assert all(len(line) <= 9 + 60 for line in lines)
    low = 0.0 if count <= 60 else (-(-count // 60) - 1) / 2  # a column shows a mean
    assert lines[-1].split()[0] == (f"{low:.1f}" if count > 1 else "-0.5")
    if count > 1:
        assert lines[0].rstrip().endswith("█"), "the highest is the newest"
        assert "█" not in lines[0][9 : 9 + (len(lines[0]) - 9) // 2]


def test_tensorboard_events_have_the_fields_usual_names(pong_run: Path) -> None:
    events = events_of(pong_run)
    text = events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| environment.game | Pong |" in text
    tags = set(events.Tags()["scalars"])
    for tag in (
        "charts/SPS",
        "charts/reward_per_step",
        "losses/policy_loss",
        "losses/value_loss",
        "losses/entropy",
        "perf/PPS",
        "perf/TPS",
        "stats/policy_lag",
        "stats/prediction_queue",
        "sched/agents",
    ):
        assert tag in tags
    steps = [event.step for event in events.Scalars("perf/PPS")]
    assert steps == sorted(steps)
    result = json.loads((pong_run / "result.json").read_text())
    assert 0 < steps[-1] <= result["steps"], "environment steps"
