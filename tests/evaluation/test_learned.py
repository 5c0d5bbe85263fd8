"""The environments that a learned policy makes for use from Python."""

import numpy as np

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
