"""Deterministic policy gradients: loss and gradients against slow references; actions and noise."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from keras.ops import convert_to_tensor

from agents.actions import Actions
from ga3c import backend
from ga3c.learning.dpg import DPG
from ga3c.learning.layers import measured_by
from ga3c.settings.learning import DPGConfig, NetworkConfig
from ga3c.settings.presets import PRESETS

SIZE, SEEN, N = 2, 3, 3
SMALL = DPGConfig(actor_units=(5, 4), critic_units=(6, 5))
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def each_test_draws_the_same_numbers() -> None:
    """Reset the shared generator, so that numbers do not depend on the tests that ran before."""
    RANDOM.bit_generator.state = np.random.default_rng(0).bit_generator.state


def made(
    config: DPGConfig = SMALL, network_config: NetworkConfig | None = None, **options: Any
) -> tuple[DPG, Any, Any]:
    """The algorithm, a network and a target network, with different random weights."""
    dpg = DPG(config, Actions(0, SIZE), **options)
    networks = [
        dpg.network(network_config or NetworkConfig(), (SEEN,), "float32", False) for _ in range(2)
    ]
    for network in networks:
        for weight in network.trainable_weights:
            # The actor's last layer is small, so that not all actions are at a bound.
            scale = 0.2 if weight.path.startswith("actor_action") else 1.0
            weight.assign(np.asarray(scale * RANDOM.normal(size=weight.shape), np.float32))
    return dpg, *networks


def batch_of(size: int = 16) -> SimpleNamespace:
    lengths = RANDOM.integers(1, N + 1, size)
    floats = {
        "weights": RANDOM.uniform(0.1, 1.0, size),
        "observations": RANDOM.normal(size=(size, SEEN)),
        "actions": RANDOM.uniform(-1, 1, (size, SIZE)),
        "rewards": 3 * RANDOM.normal(size=(size, N)),
        "discounts": RANDOM.choice([0.0, 0.9], (size, N), p=[0.2, 0.8]),
        "valid": np.arange(N) < lengths[:, None],
        "next_observations": RANDOM.normal(size=(size, SEEN)),
    }
    return SimpleNamespace(**{name: v.astype(np.float32) for name, v in floats.items()})


def values(network: Any, observations: Any, actions: Any) -> np.ndarray:
    return np.asarray(network.get_layer("critic")([observations, actions]), np.float64)


def actions_of(network: Any, observations: Any) -> np.ndarray:
    return np.asarray(network.get_layer("actor")(observations))


def slow_targets(target: Any, batch: Any) -> np.ndarray:
    after = values(target, batch.next_observations, actions_of(target, batch.next_observations))
    found = []
    for b in range(len(batch.weights)):
        count = int(batch.valid[b].sum())
        total, carried = 0.0, 1.0
        for k in range(count):
            total += carried * float(batch.rewards[b, k])
            carried *= float(batch.discounts[b, k])
        found.append(total + carried * after[b])
    return np.array(found)


def gradients(dpg: DPG, network: Any, target: Any, batch: Any) -> tuple[Any, Any, dict[str, Any]]:
    variables = network.trainable_variables
    tensors = {name: convert_to_tensor(array) for name, array in vars(batch).items()}
    loss, (_, errors), found = backend.value_and_gradients(
        lambda: dpg.loss(network, target, SimpleNamespace(**tensors), {}), variables
    )
    return loss, errors, {v.path: np.asarray(g) for v, g in zip(variables, found, strict=True)}


def test_errors_and_the_critics_gradient_match_the_reference() -> None:
    dpg, network, target = made()
    batch = batch_of()
    _, errors, found = gradients(dpg, network, target, batch)
    targets = slow_targets(target, batch)
    expected = values(network, batch.observations, batch.actions) - targets
    np.testing.assert_allclose(np.asarray(errors), expected, rtol=1e-3, atol=1e-4)

    def slow_loss() -> float:
        difference = values(network, batch.observations, batch.actions) - targets
        return float(np.mean(batch.weights * 0.5 * difference**2))

    critic = [w for w in network.trainable_variables if w.path.startswith("critic")]
    assert len(critic) == 8, "two layers with their normalisation and the last one"
    for weight in critic:
        where = tuple(RANDOM.integers(size) for size in weight.shape)
        slope = difference_of(weight, where, slow_loss)
        assert found[weight.path][where] == pytest.approx(slope, rel=0.05, abs=2e-3), weight.path


def difference_of(weight: Any, where: tuple[int, ...], loss: Any, step: float = 1e-2) -> float:
    """The derivative of `loss` with respect to one entry of a weight, by central differences."""
    before = np.asarray(weight).copy()
    found = []
    for sign in (1, -1):
        changed = before.copy()
        changed[where] += sign * step
        weight.assign(changed)
        found.append(loss())
    weight.assign(before)
    return (found[0] - found[1]) / (2 * step)


@pytest.mark.parametrize(("clip", "unit"), [(0.0, 1.0), (0.01, 1.0), (0.01, 50.0)])
def test_the_actor_climbs_the_critic_no_faster_than_the_clip(clip: float, unit: float) -> None:
    """If values follow the rewards, slopes are divided by the unit of rewards before clipping."""
    follows = NetworkConfig(follow_rewards=unit != 1.0)
    config = DPGConfig(0.3, clip, SMALL.actor_units, SMALL.critic_units)
    dpg, network, target = made(config, follows)
    batch = batch_of()
    for each in (network, target):
        for layer in measured_by(each):
            layer.measure(SimpleNamespace(rewards=convert_to_tensor(np.full(9, unit, np.float32))))
    _, _, found = gradients(dpg, network, target, batch)
    seen, best = batch.observations, actions_of(network, batch.observations)
    slopes = np.zeros_like(best)
    for d in range(SIZE):
        step = np.zeros(SIZE, np.float32)
        step[d] = 1e-3
        slopes[:, d] = (
            values(network, seen, best + step) - values(network, seen, best - step)
        ) / 2e-3
    slopes /= unit
    if clip:
        assert (np.abs(slopes) > clip).any(), "the clip matters"
        slopes = np.clip(slopes, -clip, clip)

    def slow_loss() -> float:
        return -float(np.mean(np.sum(slopes * actions_of(network, seen), axis=1)))

    actor = [w for w in network.trainable_variables if w.path.startswith("actor")]
    for weight in actor:
        where = tuple(RANDOM.integers(size) for size in weight.shape)
        slope = difference_of(weight, where, slow_loss)
        assert found[weight.path][where] == pytest.approx(slope, rel=0.05, abs=2e-4), weight.path


def test_gradients_of_actor_and_critic_do_not_reach_each_other() -> None:
    """With weights near 0 only the actor's loss is left, and the critic gets no gradient. With a
    critic that ignores actions only the critic's loss is left, and the actor gets none."""
    dpg, network, target = made()
    batch = batch_of()
    batch.weights[:] = 1e-12  # above 0, or the actor would skip them too
    _, _, found = gradients(dpg, network, target, batch)
    critic = {path: g for path, g in found.items() if path.startswith("critic")}
    actor = {path: g for path, g in found.items() if path.startswith("actor")}
    assert max(np.abs(g).max() for g in critic.values()) < 1e-6
    assert max(np.abs(g).max() for g in actor.values()) > 1e-3
    first = next(w for w in network.weights if w.path == "critic_0/kernel")
    kernel = np.asarray(first).copy()
    kernel[SEEN:] = 0.0
    first.assign(kernel)
    batch.weights[:] = 1.0
    _, _, found = gradients(dpg, network, target, batch)
    assert all(not g.any() for path, g in found.items() if path.startswith("actor"))


def test_batch_entries_of_weight_0_contribute_no_gradient() -> None:
    dpg, network, target = made()
    batch = batch_of(4)
    batch.weights[2:] = 0.0
    _, _, found = gradients(dpg, network, target, batch)
    batch.observations[2:], batch.actions[2:], batch.rewards[2:] = 9.0, -1.0, 50.0
    _, _, again = gradients(dpg, network, target, batch)
    for path, gradient in found.items():
        np.testing.assert_allclose(gradient, again[path], atol=1e-6)


@pytest.mark.parametrize("keeps_values", [True, False])
def test_acting_adds_noise_within_the_bounds_and_keeps_both_values(keeps_values: bool) -> None:
    dpg, network, _ = made(keeps_values=keeps_values)
    observations = RANDOM.normal(size=(3000, SEEN)).astype(np.float32)
    noise = RANDOM.uniform(1e-6, 1, (3000, SIZE)).astype(np.float32)
    best = actions_of(network, observations)
    seen, drawn = convert_to_tensor(observations), convert_to_tensor(noise)
    decision = dpg.act(network, seen, drawn, convert_to_tensor(np.full(3000, 0.1, np.float32)))
    assert set(decision) == set(dpg.columns)
    action = np.asarray(decision["action"])
    assert np.abs(action).max() <= 1
    inner = np.abs(best) < 0.5  # at least five of the noise's deviations from the bounds
    assert inner.sum() > 300
    assert (action - best)[inner].std() == pytest.approx(0.1, rel=0.1)
    if keeps_values:
        np.testing.assert_allclose(
            np.asarray(decision["q"]), values(network, observations, action), rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(
            np.asarray(decision["value"]), values(network, observations, best), rtol=1e-4, atol=1e-4
        )
    still = dpg.act(network, seen, drawn, convert_to_tensor(np.zeros(3000, np.float32)))
    np.testing.assert_allclose(np.asarray(still["action"]), best, atol=1e-6)


def test_all_lanes_have_the_same_noise_and_the_policy_has_none() -> None:
    dpg, network, _ = made()
    np.testing.assert_array_equal(dpg.exploration(np.arange(5), 1e6), np.full(5, 0.3, np.float32))
    observations = RANDOM.normal(size=(4, SEEN)).astype(np.float32)
    policy, value = dpg.policy_and_value(network, observations)
    best = actions_of(network, observations)
    np.testing.assert_allclose(np.asarray(policy), best, atol=1e-6)
    np.testing.assert_allclose(np.asarray(value), values(network, observations, best), rtol=1e-5)


def test_the_first_actions_are_small_and_the_layers_are_as_published() -> None:
    dpg = DPG(DPGConfig(), Actions(0, 21))
    network = dpg.network(NetworkConfig(), (67,), "float32", False)
    shapes = {w.path: tuple(w.shape) for w in network.weights if w.path.endswith("kernel")}
    assert shapes == {
        "actor_0/kernel": (67, 300),
        "actor_1/kernel": (300, 200),
        "actor_action/kernel": (200, 21),
        "critic_0/kernel": (67 + 21, 400),
        "critic_1/kernel": (400, 300),
        "critic_value/kernel": (300, 1),
    }
    seen = RANDOM.normal(size=(100, 67)).astype(np.float32)
    assert np.abs(actions_of(network, seen)).max() < 0.3


@pytest.mark.parametrize("shape", [(20, 20, 4), (96, 96, 3)])
def test_pictures_go_through_a_torso_of_their_own(shape: tuple[int, ...]) -> None:
    dpg = DPG(DPGConfig(), Actions(0, SIZE))
    network = dpg.network(NetworkConfig(), shape, "uint8", True)
    best, value = network(np.zeros((2, *shape), np.uint8))
    assert (best.shape, value.shape) == ((2, SIZE), (2,))
    names = {w.path.split("/")[0] for w in network.weights}
    assert {"actor_conv_0", "critic_conv_0"} <= names


@pytest.mark.parametrize("preset", ["dpg-control", "apex-dpg"])
def test_actions_and_values_begin_near_0(preset: str) -> None:
    config = PRESETS[preset]
    dpg = DPG(config.dpg, Actions(0, SIZE))
    network = dpg.network(config.network, (SEEN,), "float32", False)
    seen = RANDOM.normal(size=(100, SEEN)).astype(np.float32)
    actions = RANDOM.uniform(-1, 1, (100, SIZE)).astype(np.float32)
    assert np.abs(actions_of(network, seen)).max() < 0.1
    assert np.abs(values(network, seen, actions)).max() < 0.1 * config.network.value_scale
