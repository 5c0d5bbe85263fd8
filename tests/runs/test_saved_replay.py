"""A replay saved in a checkpoint is a consistent snapshot, whenever it is taken."""

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.environments import EnvironmentConfig, spaces
from agents.signals import SAME_REQUEST_S
from ga3c import backend
from ga3c.runs import checkpoints
from ga3c.runs.checkpoints import Checkpoint
from ga3c.service.service import Service
from ga3c.service.wiring import build_service
from ga3c.settings.learning import DQNConfig
from ga3c.settings.replay import PacingConfig, ReplayConfig
from ga3c.settings.run import RunConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import ServiceConfig
from ga3c.settings.train import TrainConfig
from tests.commands import STOP_S, Command, assert_nothing_is_left, ended, wait_for

LEDGER = "tests.tiny:Ledger-v0"
READ_S = 20.0
# Each write of a checkpoint is slowed down, so that signals arrive in the middle of it.
SLOW = """
import sys, time
from ga3c.runs import durable

add = durable.Work.add

def slowly(self, count):
    time.sleep(0.2)
    add(self, count)

durable.Work.add = slowly
from ga3c.__main__ import main
sys.exit(main())
"""


def configured(draws: Any, pacing: Any, eviction: Any) -> TrainConfig:
    return TrainConfig(
        algorithm="dqn",
        run=RunConfig(seed=3),
        environment=EnvironmentConfig(LEDGER),
        service=ServiceConfig(agents=2, envs_per_agent=8, groups=2, prediction_batch_min=4),
        dqn=DQNConfig(epsilon_steps=100),
        replay=ReplayConfig(
            target_period=20,
            replay_steps=3000,
            replay_min_steps=500,
            update_size=50,
            replay_draws=draws,
            eviction=eviction,
            save_replay=True,
        ),
        pacing=PacingConfig(pacing=pacing, period_steps=200),
        scheduler=SchedulerConfig(scheduler="off"),
    )


def assert_of_one_moment(found: Checkpoint) -> None:
    """All counts of the same thing agree, and each lane of the ring has the steps of its count."""
    state, pacing = found.state, found.state["pacing"]
    written, flushed = found.arrays["lanes/written"], found.arrays["lanes/flushed"]
    assert state["steps"] == pacing["before"] + pacing["acted"] == pacing["before"] + written.sum()
    assert pacing["flushed"] == flushed.sum()
    assert state["counts"].get("updates", 0) == pacing["learned"] == found.arrays["counters"][1]
    lanes, frames = len(written), found.arrays["ring/frame"]
    capacity = len(frames) // lanes
    for lane in range(lanes):
        slots = np.arange(max(written[lane] - capacity, 0), written[lane]) % capacity
        number, episode, step, _ = frames[lane * capacity + slots].T
        # Ledger's observations: the step rises by one, or another episode or environment begins.
        follows = (np.diff(step) == 1) & (np.diff(episode) == 0)
        begins = (step[1:] == 0) & ((np.diff(episode) == 1) | (np.diff(number) != 0))
        assert (follows | begins).all(), f"lane {lane} has a hole"
    if "slots/inserted" in found.arrays:
        assert_slots_are_whole(found.arrays, flushed)


def assert_slots_are_whole(arrays: dict[str, np.ndarray], flushed: np.ndarray) -> None:
    """Exactly the full slots have a priority, and each holds steps of a single episode."""
    inserted, priorities = int(arrays["slots/inserted"][0]), arrays["replay/evictions"]
    assert 0.5 * flushed.sum() < inserted < flushed.sum()
    full = min(inserted, 3000)
    assert (priorities[:full] > 0).all() and not priorities[full:].any()
    before, after = (
        arrays[f"slots/{name}"][:full] for name in ("observations", "next_observations")
    )
    steps = arrays["slots/valid"][:full].sum(axis=1)
    np.testing.assert_array_equal(after[:, :2], before[:, :2], "one agent, one episode")
    np.testing.assert_array_equal(after[:, 2] - before[:, 2], steps)


@pytest.mark.parametrize(
    ("draws", "eviction"),
    [("uniform", "fifo"), ("prioritised", "fifo"), ("prioritised", "priority")],
)
@pytest.mark.parametrize("pacing", ["ratio", "target-period"])
def test_state_read_while_threads_run_is_consistent(draws: str, eviction: str, pacing: str) -> None:
    backend.configure(1, 0)
    config = configured(draws, pacing, eviction)
    service = build_service(config, spaces(config.environment))
    try:
        service.start()
        read = 0
        last_steps = -1
        deadline_s = time.monotonic() + 200.0
        while read < 40:
            assert time.monotonic() < deadline_s
            assert service.tend() == []
            found = service.kept.read(READ_S)
            assert found is not None
            arrays, state = found
            if state["steps"] > max(last_steps, 1000):
                last_steps = state["steps"]
                assert_of_one_moment(Checkpoint(Path(), state, arrays))
                read += 1
    finally:
        assert service.stop(STOP_S) == []


def test_a_replay_saved_with_other_settings_is_not_continued() -> None:
    """A session without --save-replay may have changed them and have died before its checkpoint."""
    backend.configure(1, 0)
    config = configured("uniform", "ratio", "fifo")
    other = replace(config, learning=replace(config.learning, discount=0.5))
    with _service(config) as first:
        first.start()
        wait_for(lambda: first.pacing.steps >= 600, 100.0)
        found = first.kept.read(READ_S)
    assert found is not None
    arrays, state = found
    saved = Checkpoint(Path(), json.loads(json.dumps(state)), arrays)
    old = {name: value for name, value in saved.state.items() if name != "replay_settings"}
    for config_now, state_now, missing, said in (
        (config, saved.state, 0, ""),
        (config, old, 0, ""),  # as checkpoints were before 2026-11-28
        (other, saved.state, 500, "made with discount 0.99, which is now 0.5"),
    ):
        with _service(config_now) as now:
            note = now.kept.restore(saved._replace(state=state_now))
            assert said in note and bool(said) == bool(note)
            assert now.pacing.missing_steps == missing
            assert now.pacing.steps == saved.steps


@contextlib.contextmanager
def _service(config: TrainConfig) -> Iterator[Service]:
    service = build_service(config, spaces(config.environment))
    try:
        yield service
    finally:
        assert service.stop(STOP_S) == []


@pytest.mark.slow
def test_every_checkpoint_of_a_killed_run_is_consistent_and_can_be_resumed(
    command: Callable[..., Command], tmp_path: Path
) -> None:
    """The run is killed by SIGKILL at random times; it saves its replay every 200 steps."""
    draw = random.Random(2)
    given = ["--game", LEDGER, "--algorithm", "dqn", "--save-replay", "--update-size", "50"]
    given += ["--agents", "2", "--envs-per-agent", "8", "--prediction-batch-min", "4"]
    given += ["--replay-steps", "3000", "--replay-min-steps", "500", "--name", "mine"]
    given += ["--steps-per-update", "4"]
    given += ["--checkpoint-every-steps", "200", "--progress-every-s", "0.2"]
    run = tmp_path / "runs" / "mine"
    arguments, least = ["train", *given], 0
    for _ in range(3):
        service = command(*arguments)
        service.until_steps_are_made()
        time.sleep(draw.uniform(0.0, 1.0))
        service.process.kill()
        service.process.wait()
        wait_for(lambda: not service.survivors(), STOP_S)  # noqa: B023
        kept, damaged = checkpoints.newest(run / "checkpoints")
        assert kept is not None
        assert damaged == []
        for path in checkpoints.kept(run / "checkpoints"):
            found = checkpoints.read(path)
            if found.state["steps"]:
                assert_of_one_moment(found)
        assert kept.state["steps"] >= least, "it went back"
        least = int(kept.state["steps"])
        arguments = ["train", "--resume", str(run)]
    done = ended("train", "--resume", str(run), "--steps", str(least + 4000), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["updates"] == pytest.approx((least + 4000 - 500) / 4, abs=20)


@pytest.mark.slow
def test_signals_are_heard_while_a_large_checkpoint_is_written(
    command: Callable[..., Command],
) -> None:
    """The first signal makes the run say what it is doing; the second skips the checkpoint."""
    large = ["--algorithm", "dqn", "--save-replay", "--replay-steps", "1000000", "--name", "mine"]
    run = command("train", "--game", "tests.tiny:Corridor-v0", *large, program=SLOW)
    checkpoint = run.runs / "mine" / "checkpoints"
    run.until(lambda: any(checkpoint.glob(".partial-*")))
    run.interrupt()
    run.until(lambda: "Ctrl-C again skips it" in run.out)
    time.sleep(SAME_REQUEST_S)
    run.interrupt()
    assert run.wait(STOP_S) == 130, run.err
    assert "no checkpoint: a second signal came" in run.err
    assert list(checkpoint.glob("*")) == [], "nothing that is not whole"
    assert_nothing_is_left(run)
