"""The memory that a run needs is stated, and refused if too large, before it is allocated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.actions import Actions
from agents.environments import EnvironmentConfig, Spaces
from ga3c.command.parse import parse
from ga3c.experience.ring import RingShape
from ga3c.learning.a3c import A3C
from ga3c.learning.networks import count_weights, resolved
from ga3c.service import footprint
from ga3c.service.assembly import build_algorithm
from ga3c.service.footprint import plan
from ga3c.settings.choices import NETWORK_LINES
from ga3c.settings.learning import A3CConfig, NetworkConfig
from ga3c.settings.presets import PRESETS
from ga3c.settings.replay import ReplayConfig
from ga3c.settings.service import ServiceConfig
from ga3c.settings.train import TrainConfig
from tests.commands import refused

PONG = Spaces((84, 84), "uint8", Actions(6), 4)
FREE_BYTES = 8_000_000_000  # fixed: the machine's free memory may change between two plans
QUEUE = ["--training-queue", "2000000", "--training-batch-max", "900000"]


def planned(config: TrainConfig) -> str:
    return str(plan(config, PONG, build_algorithm(config, PONG.actions)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--pending-segments", "20000"], "pending_segments 20,000 of 32 steps for 128"),
        (["--pending-segments", "100000000"], "rows >= 2,147,483,648"),
        (["--algorithm", "dqn", "--replay-steps", "90000000"], "replay_steps 90,000,000 take"),
        (["--algorithm", "dqn", "--replay-steps", "3000000000"], "rows >= 2,147,483,648"),
    ],
)
def test_experience_that_does_not_fit_is_refused(given: list[str], words: str) -> None:
    arguments = ["--agents", "2", "--max-agents", "2", "--envs-per-agent", "64", *given]
    with pytest.raises(ValueError, match=words):
        planned(parse(arguments, TrainConfig, "test"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--agents", "100000"], "agents 100,000 of 64 environments each take about"),
        (["--max-agents", "9000", "--scheduler", "anneal"], "give fewer --agents, --max-agents or"),
        ([*QUEUE, "--network", "large-1", "--minibatch", "900000"], "give a smaller --frame-size"),
    ],
)
def test_processes_and_networks_that_do_not_fit_are_refused(given: list[str], words: str) -> None:
    config = parse(given, TrainConfig, "test")
    with pytest.raises(ValueError, match=words):
        planned(config)


def test_only_agents_that_may_start_take_memory() -> None:
    """Without a scheduler only `--agents` start, whatever `--max-agents` and the core count."""
    plans = []
    for most in ("1", "3", "9000"):
        config = parse(["--agents", "1", "--max-agents", most], TrainConfig, "test")
        plans.append(plan(config, PONG, build_algorithm(config, PONG.actions)))
    assert plans[0] == plans[1] == plans[2]


def test_agents_that_play_elsewhere_take_no_memory_here() -> None:
    given = ["--agents", "2000", "--envs-per-agent", "2", "--launcher", "ray", "--agents-here"]
    planned(parse([*given, "4"], TrainConfig, "test"))
    with pytest.raises(ValueError, match="agents 2,000 of 2 environments each take about"):
        planned(parse([*given, "5000"], TrainConfig, "test"))


def test_a_network_for_large_frames_is_refused_before_it_is_made() -> None:
    large = Spaces((3000, 3000), "uint8", Actions(6), 4)
    config = TrainConfig(service=ServiceConfig(agents=1, max_agents=1, envs_per_agent=2))
    with pytest.raises(ValueError, match="network small of 1,139,757,056 weights"):
        plan(config, large, build_algorithm(config, large.actions))


@pytest.mark.parametrize("name", [n for n in NETWORK_LINES if n not in ("mlp", "parr")])
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_the_weights_of_a_network_are_known_before_it_is_made(name: Any, padding: Any) -> None:
    config = NetworkConfig(name, padding=padding)
    made = A3C(A3CConfig(), Actions(6)).network(config, (84, 84, 4), "uint8", True)
    assert count_weights(resolved(config, (84, 84, 4), True), (84, 84, 4), True) == pytest.approx(
        made.count_params(), rel=0.02
    )


def test_a_refusal_is_one_line_before_anything_is_allocated(tmp_path: Path) -> None:
    given = ["--game", "CartPole-v1", "--steps", "1", "--runs-dir", str(tmp_path)]
    said = refused("train", *given, "--pending-segments", "100000000")
    assert "rows >= 2,147,483,648" in said


def test_the_refusal_states_the_most_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "free_bytes", lambda memory: FREE_BYTES)
    service = ServiceConfig(agents=2, max_agents=2, pending_segments=10**5)
    config = TrainConfig(service=service)
    with pytest.raises(ValueError, match="GB free in RAM: at most") as refusal:
        planned(config)
    most = int(str(refusal.value).split("at most ")[1].split(" ")[0].replace(",", ""))
    planned(replace(config, service=replace(service, pending_segments=int(0.9 * most))))
    with pytest.raises(ValueError, match="GB free"):
        planned(replace(config, service=replace(service, pending_segments=int(1.1 * most))))


def test_a_kept_replay_needs_room_for_a_checkpoints_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "free_bytes", lambda memory: FREE_BYTES)
    steps = int(0.7 * FREE_BYTES / 7100)  # one copy fits, two do not
    dqn = replace(PRESETS["dqn-pictures"], environment=EnvironmentConfig("Pong"))
    alone = replace(dqn, replay=ReplayConfig(replay_steps=steps))
    assert "GB in RAM" in planned(alone)
    with pytest.raises(ValueError, match="free in RAM"):
        planned(replace(alone, replay=replace(alone.replay, save_replay=True)))


def test_a_ring_of_more_rows_than_32_bits_can_number_is_refused() -> None:
    RingShape(2**10, 2**21 - 1, (1,), "uint8", 1)
    with pytest.raises(ValueError, match="2,147,483,648 rows >= 2,147,483,648"):
        RingShape(2**10, 2**21, (1,), "uint8", 1)
    assert np.int32(2**10 * (2**21 - 1) - 1) > 0


def test_a_ring_with_too_many_rows_names_the_settings_that_decide_it() -> None:
    with pytest.raises(ValueError, match="use fewer --agents or --envs-per-agent, or keep fewer"):
        RingShape(64_000_000, 100, (4,), "float32", 1)
