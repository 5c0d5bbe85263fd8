"""The environments that a learned policy makes for use from Python."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import ga3c
from agents.environments import Environments

MOST_STEPS = 300  # random play loses its first life within about fifty


def test_a_lost_life_does_not_end_a_game_though_it_did_in_training() -> None:
    policy, count, draws = ga3c.load(pretrained="Breakout"), 2, np.random.default_rng(0)
    training = Environments(policy.config.environment, count)
    training.reset(1)
    with policy.make_environments(count, seed=1) as environments:
        environments.reset()
        for _ in range(MOST_STEPS):
            actions = draws.integers(environments.num_actions, size=count, dtype=np.int32)
            lost = training.step(actions).outcomes["terminated"]
            assert not environments.step(actions).terminated.any()
            if lost.any():
                break
    training.close()
    assert lost.any(), "a life"


@pytest.mark.parametrize("action", [4, -1, 2**32, -(2**32), 2**64 - 2**32])
def test_actions_that_do_not_exist_are_refused(action: int) -> None:
    """Also those that would be valid if only their lowest 32 bits counted."""
    policy = ga3c.load(pretrained="Breakout")
    with policy.make_environments(1) as environments:
        environments.reset()
        environments.step([environments.num_actions - 1])
        with pytest.raises(ValueError, match=r"outside 0\.\.3"):
            environments.step([action])


class Parts(gymnasium.Env[Any, Any]):
    observation_space = Dict(a=Box(-1, 1, (2,)), b=Discrete(4, start=2))
    action_space = Discrete(6)


@pytest.mark.parametrize(
    "observation", [{"a": np.zeros(2)}, np.zeros(9), {"a": np.zeros(2), "b": 99}, None]
)
def test_a_player_refuses_observations_that_are_not_of_its_environments_space(
    observation: Any,
) -> None:
    policy = ga3c.load(pretrained="Pong")
    with pytest.raises(ValueError, match=r"environment 3: must be a gymnasium\.Env"):
        policy.player(3)  # type: ignore[arg-type]
    player = policy.player(Parts())
    with pytest.raises(ValueError, match=r"must be of Dict\('a': Box.*observation space"):
        player.act(observation)
