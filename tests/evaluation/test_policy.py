"""A policy on its own has the same stacks and the same probabilities as in the service."""

from dataclasses import replace

import numpy as np
import pytest

from agents.actions import Actions
from agents.environments import Spaces
from ga3c.evaluation.policy import Policy, Stacks
from ga3c.experience.ring import Arrivals
from ga3c.service.wiring import build_service
from ga3c.settings.presets import PRESETS
from ga3c.settings.replay import ReplayConfig

SPACES = {
    "pictures": Spaces((84, 84), "uint8", Actions(6), 4),
    "colours": Spaces((20, 22, 3), "uint8", Actions(3), 2),
    "vectors": Spaces((5,), "float32", Actions(2), 1),
    "stacked vectors": Spaces((5,), "float32", Actions(2), 3),
}


@pytest.mark.parametrize("kind", SPACES)
def test_stacks_hold_the_newest_frames_since_the_reset(kind: str) -> None:
    spaces, lanes = SPACES[kind], 3
    random = np.random.default_rng(0)
    stacks = Stacks(spaces, lanes)
    seen: list[list[np.ndarray]] = [[] for _ in range(lanes)]
    for step in range(30):
        frames = random.integers(0, 255, (lanes, *spaces.shape)).astype(spaces.dtype)
        firsts = (random.random(lanes) < 0.2) | (step == 0)
        for lane in range(lanes):
            if firsts[lane]:
                seen[lane] = [frames[lane]] * spaces.stack
            seen[lane].append(frames[lane])
        observations = stacks.push(frames, firsts)
        for lane in range(lanes):
            newest = seen[lane][-spaces.stack :]
            expected = np.stack(newest, axis=-1).reshape(observations[lane].shape)
            np.testing.assert_array_equal(observations[lane], expected)
    kept = observations.copy()
    stacks.push(frames + 1, firsts)
    np.testing.assert_array_equal(observations, kept, err_msg="it is a copy")


SMALL = ReplayConfig(replay_steps=2000, replay_min_steps=1000, update_size=100)


@pytest.mark.parametrize("algorithm", ["a3c", "dqn"])
@pytest.mark.parametrize("kind", SPACES)
def test_the_policy_agrees_with_how_the_service_acts(kind: str, algorithm: str) -> None:
    """The log-probability that acting records agrees with the policy's probabilities.

    With Q-learning, the greedy action has probability 1.
    """
    spaces = SPACES[kind]
    shown = "pictures" if spaces.is_picture else "vectors"
    config = replace(PRESETS[f"{algorithm}-{shown}"], replay=SMALL)
    service = build_service(config, spaces)
    try:
        model, lanes = service.model, 4
        policy = Policy(config, spaces)
        policy.load(model.read())
        stacks = Stacks(spaces, lanes)
        random = np.random.default_rng(1)
        for step in range(6):
            frames = random.integers(0, 255, (lanes, *spaces.shape)).astype(spaces.dtype)
            slots = np.full(lanes, step, np.int32)
            ages = np.full(lanes, min(step, spaces.stack - 1), np.int32)
            outcomes = np.tile(np.array([0, 1, step == 0], np.float32), (lanes, 1))
            index = np.arange(lanes, dtype=np.int32)
            greedy = np.zeros(lanes, np.float32)
            actions = model.act(Arrivals(index, slots, ages, outcomes, frames, greedy))
            probabilities, values = policy.judge(stacks.push(frames, np.full(lanes, step == 0)))
            rows = model.experience.ring.rows(index, slots)
            expected = np.zeros(lanes)
            if algorithm == "a3c":
                expected = np.asarray(model.experience.gather("log_prob", rows))
            found = np.log(probabilities[index, actions])
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
            assert values.shape == (lanes,)
    finally:
        service.stop(5.0)


def test_the_policy_is_greedy_in_its_action_values() -> None:
    spaces = SPACES["vectors"]
    observations = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    policy = Policy(replace(PRESETS["dqn-vectors"], replay=SMALL), spaces)
    probabilities, values = policy.judge(observations)
    action_values = policy.action_values(observations)
    assert action_values is not None
    assert action_values.shape == (7, spaces.actions.count)
    np.testing.assert_array_equal(action_values.argmax(axis=1), probabilities.argmax(axis=1))
    np.testing.assert_allclose(action_values.max(axis=1), values, rtol=1e-5)
    sampled = Policy(PRESETS["a3c-vectors"], spaces)
    assert sampled.action_values(observations) is None
    assert (policy.is_greedy, sampled.is_greedy) == (True, False)
