"""Settings of the service that no run could keep to: one line, and nothing starts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ga3c.settings.replay import PacingConfig
from ga3c.settings.scheduler import SchedulerConfig
from ga3c.settings.service import ServiceConfig
from ga3c.settings.train import TrainConfig
from tests.commands import BEGIN_S, Command, assert_nothing_is_left

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
}


@pytest.mark.parametrize("fault", WRONG)
def test_settings_that_no_run_could_keep_to_are_refused(fault: str) -> None:
    values, words = WRONG[fault]
    with pytest.raises(ValueError, match=words):
        ServiceConfig(**values)


def test_no_prediction_is_of_more_environments_than_the_run_has() -> None:
    service = ServiceConfig(agents=1, max_agents=4, envs_per_agent=8, groups=2)
    small = replace(service, prediction_batch_min=1, prediction_batch_max=3)
    assert service.largest_prediction(lanes=8) == 8
    assert service.largest_prediction(lanes=32) == 32
    assert small.largest_prediction(lanes=8) == 4, "a group is never divided"
    pacing = PacingConfig(slack_steps=11, steps_per_update=4)
    TrainConfig(algorithm="dqn", service=service, pacing=pacing, scheduler=SchedulerConfig("off"))
    with pytest.raises(ValueError, match="slack_steps 11 < 35"):  # all four agents may come
        TrainConfig(algorithm="dqn", service=service, pacing=pacing)


def test_the_largest_groups_are_accepted() -> None:
    assert ServiceConfig(envs_per_agent=131_070, groups=2).groups == 2


@pytest.mark.parametrize(
    ("setting", "value"), [("agent-timeout-s", "-5"), ("intra-op-threads", "-1")]
)
def test_the_command_says_so_in_one_line(
    command: Callable[..., Command], setting: str, value: str
) -> None:
    run = command("train", "--game", "CartPole-v1", "--steps", "1", f"--{setting}", value)
    assert run.wait(BEGIN_S) == 2, run.err
    (line,) = run.err.splitlines()
    assert f"{setting.replace('-', '_')} {value}" in line
    assert run.out == ""
    assert_nothing_is_left(run)
