"""Impossible settings of the service or of a run are refused in one line; nothing starts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.environments import EnvironmentConfig
from ga3c.runs.finding import new_run_path
from ga3c.settings.checks import check_slack
from ga3c.settings.presets import PRESETS
from ga3c.settings.replay import PacingConfig
from ga3c.settings.run import RunConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import ServiceConfig
from ga3c.settings.train import TrainConfig
from tests.commands import BEGIN_S, Command, assert_nothing_is_left, refused

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "negative timeout": ({"agent_timeout_s": -5.0}, r"agent_timeout_s -5.0: must be above 0"),
    "no timeout": ({"agent_timeout_s": 0.0}, r"agent_timeout_s 0.0: must be above 0"),
    "negative wait for predictions": ({"prediction_wait_s": -1.0}, r"prediction_wait_s -1.0"),
    "negative wait for training": ({"training_wait_s": -1.0}, r"training_wait_s -1.0"),
    "negative threads": ({"intra_op_threads": -1}, r"intra_op_threads -1: must be between 1 and"),
    "no threads": ({"intra_op_threads": 0}, r"intra_op_threads 0: must be between 1 and 1024"),
    "too many threads": ({"intra_op_threads": 3_000_000_000}, r"intra_op_threads 3000000000"),
    "group beyond the wire": (
        {"envs_per_agent": 131_074, "groups": 2},
        "2 groups of 65537 environments: must be at most 65535 each",
    ),
    "groups beyond the wire": (
        {"envs_per_agent": 65_536, "groups": 65_536},
        "65536 groups of 1 environments: must be at most",
    ),
    "groups that are not alike": (
        {"envs_per_agent": 5, "groups": 2},
        "envs_per_agent 5: must be a multiple of groups 2",
    ),
    "no groups": ({"groups": 0}, "must be a multiple of groups 0"),
    "lanes that cannot act on": ({"pending_segments": 1}, "pending_segments 1: must be at least 2"),
    "smallest prediction above the largest": (
        {"prediction_batch_min": 65, "prediction_batch_max": 64},
        "prediction_batch_min 65 > prediction_batch_max 64: no batch would ever be complete",
    ),
}
OF_A_RUN: dict[str, tuple[list[str], str]] = {
    "one checkpoint": (["--keep-checkpoints", "1"], "keep_checkpoints 1: must be at least 2"),
    "each moment a checkpoint": (["--checkpoint-every-s", "0"], "checkpoint_every_s 0.0: must be"),
    "each step a milestone": (["--milestone-steps", "0"], "milestone_steps 0: must be above 0"),
    "each moment a line": (["--progress-every-s", "0"], "progress_every_s 0.0: must be above 0"),
    "evaluations without end": (["--evaluate-every", "0"], "evaluate_every 0: must be at least 1"),
    "name too long for a file": (["--name", 201 * "a"], "aaa: must be at most 200 bytes"),
    "few signs of many bytes": (["--name", 101 * "ä"], "äää: must be at most 200 bytes"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_settings_that_no_run_could_keep_to_are_refused(fault: str) -> None:
    values, words = WRONG[fault]
    with pytest.raises(ValueError, match=words):
        ServiceConfig(**values)


@pytest.mark.parametrize("fault", OF_A_RUN)
def test_settings_of_a_run_that_would_harm_it_are_refused(fault: str, tmp_path: Path) -> None:
    arguments, words = OF_A_RUN[fault]
    given = ["--game", "CartPole-v1", "--steps", "1", "--runs-dir", str(tmp_path)]
    assert words in refused("train", *given, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_name_of_200_bytes_is_accepted(tmp_path: Path) -> None:
    name = 100 * "ä"
    config = TrainConfig(run=RunConfig(runs_dir=tmp_path, name=name))
    assert new_run_path(config) == tmp_path / name


def test_a_prediction_has_no_more_environments_than_the_run() -> None:
    service = ServiceConfig(agents=1, max_agents=4, envs_per_agent=8, groups=2)
    small = replace(service, prediction_batch_min=1, prediction_batch_max=3)
    assert service.largest_prediction(lanes=8) == 8
    assert service.largest_prediction(lanes=32) == 32
    assert small.largest_prediction(lanes=8) == 4, "a group is never divided"
    pacing = PacingConfig(slack_steps=11, steps_per_update=4)
    off = SchedulerConfig("off")
    fixed = TrainConfig(algorithm="dqn", service=service, pacing=pacing, scheduler=off)
    assert (fixed.most_agents, fixed.max_lanes) == (1, 8)
    scheduled = TrainConfig(service=service)
    assert (scheduled.most_agents, scheduled.max_lanes) == (4, 32)
    with pytest.raises(ValueError, match="slack_steps 11 < 35"):  # four agents may come
        TrainConfig(algorithm="dqn", service=service, pacing=pacing)


def test_only_dqn_has_a_ladder_of_epsilons() -> None:
    apex = PRESETS["apex"]
    assert apex.has_ladder
    assert not replace(apex, algorithm="mine:Own", learns_from="replay").has_ladder
    assert not PRESETS["dqn"].has_ladder


@pytest.mark.parametrize(("steps_per_update", "least"), [(4.0, 67), (4.5, 69), (0.25, 65)])
def test_too_little_slack_for_acting_to_go_on_is_refused(
    steps_per_update: float, least: int
) -> None:
    with pytest.raises(ValueError, match=f"{least - 1} < .*: a prediction of 64 steps"):
        check_slack(least - 1, 64, steps_per_update)
    check_slack(least, 64, steps_per_update)


def test_the_largest_groups_are_accepted() -> None:
    assert ServiceConfig(envs_per_agent=131_070, groups=2).groups == 2


@pytest.mark.parametrize(
    ("setting", "value"), [("agent-timeout-s", "-5"), ("intra-op-threads", "-1")]
)
def test_the_command_refuses_a_negative_setting_in_one_line(
    command: Callable[..., Command], setting: str, value: str
) -> None:
    run = command("train", "--game", "CartPole-v1", "--steps", "1", f"--{setting}", value)
    assert run.wait(BEGIN_S) == 2, run.err
    (line,) = run.err.splitlines()
    assert f"{setting.replace('-', '_')} {value}" in line
    assert run.out == ""
    assert_nothing_is_left(run)


def test_a_game_with_a_long_name_needs_no_name_for_its_run(tmp_path: Path) -> None:
    game = EnvironmentConfig(f"{100 * 'a'}.{100 * 'b'}:{100 * 'c'}-v0")
    config = TrainConfig(environment=game, run=RunConfig(runs_dir=tmp_path))
    assert new_run_path(config).name.startswith(f"{57 * 'c'}-v0__")
