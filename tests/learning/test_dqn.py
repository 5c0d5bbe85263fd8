"""Q-learning: targets, losses and gradients against slow references; networks; actions."""

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from ga3c import backend
from ga3c.experience.batches import n_step
from ga3c.learning.dqn import DQN, huber
from ga3c.learning.exploration import greediest_third, ladder
from ga3c.settings.learning import DQNConfig, NetworkConfig
from tests import reference_replay as reference
from tests.reference import Array

ACTIONS = 4
N = 3


def batch_of(rng: np.random.Generator, size: int = 32) -> SimpleNamespace:
    """Random transitions in float64: some cut short, some with a terminal step."""
    lengths = rng.integers(1, N + 1, size)
    return SimpleNamespace(
        weights=rng.uniform(0.1, 1.0, size),
        observations=rng.integers(0, size, size),  # row numbers in a table of values
        actions=rng.integers(ACTIONS, size=size).astype(np.int32),
        rewards=3 * rng.normal(size=(size, N)),
        discounts=rng.choice([0.0, 0.9], (size, N), p=[0.2, 0.8]),
        valid=(np.arange(N) < lengths[:, None]).astype(np.float64),
        next_observations=rng.integers(0, size, size),
    )


def table(values: Any) -> Any:
    """A network that maps row numbers to the rows of `values`."""
    count = values.shape[0]
    return lambda rows: keras.ops.matmul(keras.ops.one_hot(rows, count, dtype="float64"), values)


def expected_targets(batch: SimpleNamespace, q: Array, q_target: Array, **how: Any) -> Array:
    targets = []
    for b, after in enumerate(batch.next_observations):
        count = int(batch.valid[b].sum())
        rewards, discounts = batch.rewards[b, :count].tolist(), batch.discounts[b, :count].tolist()
        targets.append(
            reference.q_target(
                rewards, discounts, next_q=q[after], next_q_target=q_target[after], **how
            )
        )
    return np.array(targets)


@pytest.mark.parametrize("double", [True, False])
def test_targets_match_the_reference(double: bool) -> None:
    rng = np.random.default_rng(0)
    batch = batch_of(rng, 200)
    q, q_target = rng.normal(size=(2, 200, ACTIONS))
    dqn = DQN(DQNConfig(double=double), ACTIONS)
    found = dqn.targets(table(q), table(q_target), batch)
    expected = expected_targets(batch, q, q_target, double=double)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


@pytest.mark.parametrize("delta", [0.0, 0.5, 1.0])
def test_loss_and_gradient_match_the_reference(delta: float) -> None:
    """The loss is a weighted sum of Huber losses. No gradient flows through the targets."""
    rng = np.random.default_rng(1)
    batch = batch_of(rng)
    q, q_target = rng.normal(size=(2, 32, ACTIONS))
    targets = expected_targets(batch, q, q_target, double=True)
    variable = keras.Variable(q, dtype="float64")
    dqn = DQN(DQNConfig(huber_delta=delta), ACTIONS)
    loss, (_, errors), (gradient,) = backend.value_and_gradients(
        lambda: dqn.loss(table(variable.value), table(q_target), batch, {}), [variable]
    )

    def slow(values: Array) -> float:
        chosen = values[batch.observations, batch.actions]
        pairs = zip(batch.weights, chosen - targets)
        return sum(float(w) * reference.huber(float(e), delta) for w, e in pairs)

    assert float(loss) == pytest.approx(slow(q), rel=1e-6)
    chosen = q[batch.observations, batch.actions]
    np.testing.assert_allclose(np.asarray(errors), chosen - targets, rtol=1e-6)
    expected = np.zeros_like(q)
    for index in np.ndindex(*q.shape):
        step = np.zeros_like(q)
        step[index] = 1e-6
        expected[index] = (slow(q + step) - slow(q - step)) / 2e-6
    np.testing.assert_allclose(np.asarray(gradient), expected, atol=1e-6)


def test_a_terminal_reward_is_credited_and_nothing_after_it() -> None:
    rewards, valid = np.array([[1.0, 2.0, 4.0]]), np.ones((1, 3))
    returns, discounts = n_step(rewards, np.array([[0.5, 0.0, 0.5]]), valid)
    assert np.asarray(returns).tolist() == [2.0]
    assert np.asarray(discounts).tolist() == [0.0]


def test_a_return_cut_short_bootstraps_where_it_ends() -> None:
    rewards, discounts = np.array([[1.0, 2.0, 4.0]]), np.full((1, 3), 0.5)
    returns, carried = n_step(rewards, discounts, np.array([[1.0, 1.0, 0.0]]))
    assert np.asarray(returns).tolist() == [2.0]
    assert np.asarray(carried).tolist() == [0.25]


@pytest.mark.parametrize("delta", [0.0, 0.7])
def test_huber_matches_the_reference(delta: float) -> None:
    errors = np.linspace(-3, 3, 61)
    expected = [reference.huber(float(error), delta) for error in errors]
    np.testing.assert_allclose(np.asarray(huber(errors, delta)), expected, atol=1e-12)


# Networks


def kernels(network: Any) -> list[tuple[int, ...]]:
    return sorted(tuple(w.shape) for w in network.weights if w.path.endswith("kernel"))


def network_of(dueling: bool, name: Any, shape: tuple[int, ...], scale: float = 1.0) -> Any:
    picture = len(shape) == 3
    config = NetworkConfig(name, center=False)
    dqn = DQN(
        DQNConfig(dueling=dueling, dueling_gradient_scale=scale),
        ACTIONS,
    )
    return dqn.network(config, shape, "uint8" if picture else "float32", picture)


def test_nature_network_is_the_published_one() -> None:
    convolutions = [(3, 3, 64, 64), (4, 4, 32, 64), (8, 8, 4, 32)]
    plain = [*convolutions, (512, ACTIONS), (3136, 512)]
    assert kernels(network_of(False, "nature", (84, 84, 4))) == sorted(plain)
    dueling = [*convolutions, (512, 1), (512, ACTIONS), (3136, 512), (3136, 512)]
    assert kernels(network_of(True, "nature", (84, 84, 4))) == sorted(dueling)


def test_parrs_network_is_the_published_one() -> None:
    """A shared layer 27 to 128, then 512 units each for value and advantages (Parr 2018)."""
    expected = [(27, 128), (128, 512), (128, 512), (512, 1), (512, ACTIONS)]
    assert kernels(network_of(True, "parr", (27,))) == sorted(expected)


def test_dueling_subtracts_the_mean_advantage_of_each_state() -> None:
    network = network_of(True, "mlp", (3,))
    rng = np.random.default_rng(2)
    for weight in network.weights:
        weight.assign(rng.normal(size=weight.shape))
    layers = {layer.name: layer for layer in network.layers}
    inner = keras.Model(network.input, [layers["value"].output, layers["advantage"].output])
    observations = rng.normal(size=(5, 3)).astype(np.float32)
    value, advantage = (np.asarray(each) for each in inner(observations))
    for b in range(5):
        expected = value[b] + advantage[b] - advantage[b].mean()
        np.testing.assert_allclose(np.asarray(network(observations))[b], expected, rtol=1e-4)


@pytest.mark.parametrize(("name", "shape"), [("mlp", (3,)), ("small", (20, 20, 4))])
def test_the_gradient_into_a_dueling_networks_shared_layers_is_scaled_and_its_values_are_not(
    name: Any, shape: tuple[int, ...]
) -> None:
    """The factor is 1 / sqrt(2) (Wang et al. 2016, section 4.2), but not within the streams."""
    scales = (1.0, 2**-0.5)
    networks = [network_of(True, name, shape, scale) for scale in scales]
    networks[1].set_weights(networks[0].get_weights())
    observations = (
        np.random.default_rng(0).integers(0, 9, (5, *shape)).astype(networks[0].input.dtype)
    )
    values, gradients = [], []
    for network in networks:
        _, found, by_weight = backend.value_and_gradients(
            lambda network=network: (
                keras.ops.sum(keras.ops.square(q := network(observations))),
                q,
            ),
            network.trainable_variables,
        )
        values.append(np.asarray(found))
        paths = [v.path for v in network.trainable_variables]
        gradients.append(dict(zip(paths, map(np.asarray, by_weight), strict=True)))
    np.testing.assert_array_equal(values[0], values[1])
    shared = [path for path in gradients[0] if path.startswith(("dense_0", "conv"))]
    assert len(shared) == (2 if name == "mlp" else 4)
    for path, gradient in gradients[0].items():
        expected = gradient * (scales[1] if path in shared else 1.0)
        np.testing.assert_allclose(gradients[1][path], expected, rtol=1e-4, atol=1e-6, err_msg=path)
        assert np.abs(gradient).max() > 0 or path.endswith("bias"), path


@pytest.mark.parametrize("double", [True, False])
def test_a_mean_loss_is_the_summed_one_over_its_size(double: bool) -> None:
    rng = np.random.default_rng(1)
    batch, size = batch_of(rng), 32
    q, q_target = (table(each) for each in rng.normal(size=(2, size, ACTIONS)))
    summed, mean = (
        float(
            DQN(
                DQNConfig(double=double, loss_reduction=how),
                ACTIONS,
            ).loss(q, q_target, batch, {})[0]
        )
        for how in ("sum", "mean")
    )
    assert mean == pytest.approx(summed / size)


# Actions


def test_epsilon_is_the_share_of_uniformly_random_actions() -> None:
    rng = np.random.default_rng(3)
    count = 20_000
    values = np.tile(np.array([0.0, 2.0, 1.0, -1.0], np.float32), (count, 1))
    noise = rng.uniform(0.001, 0.999, (count, ACTIONS + 1)).astype(np.float32)
    for epsilon in (0.0, 0.3, 1.0):
        dqn = DQN(DQNConfig(), ACTIONS)
        epsilons = np.full(count, epsilon, np.float32)
        actions = np.asarray(dqn.act(lambda x: x, values, noise, epsilons)["action"])
        shares = np.bincount(actions, minlength=ACTIONS) / count
        expected = np.full(ACTIONS, epsilon / ACTIONS) + np.eye(ACTIONS)[1] * (1 - epsilon)
        np.testing.assert_allclose(shares, expected, atol=0.02)


def test_epsilon_falls_once_learning_begins() -> None:
    config = DQNConfig(epsilon_start=1.0, epsilon_end=0.1, epsilon_steps=1000)
    dqn = DQN(config, ACTIONS, random_steps=500)
    lanes = np.arange(2)
    found = [dqn.exploration(lanes, steps).tolist() for steps in (0, 500, 1000, 1500, 9000)]
    np.testing.assert_allclose(found, np.outer([1.0, 1.0, 0.55, 0.1, 0.1], [1, 1]), rtol=1e-6)


def test_policy_and_value_give_the_best_action_and_its_value() -> None:
    values = np.array([[0.0, 3.0, 1.0, 2.0], [5.0, 3.0, 1.0, 2.0]], np.float32)
    probabilities, best = DQN(DQNConfig(), ACTIONS).policy_and_value(lambda x: x, values)
    assert np.asarray(probabilities).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert np.asarray(best).tolist() == [3.0, 5.0]


def test_acting_keeps_the_values_that_a_first_priority_needs() -> None:
    values = np.array([[0.0, 3.0, 1.0, 2.0], [5.0, 3.0, 1.0, 2.0]], np.float32)
    noise = np.array([[0.0, 0, 0, 0, 1], [0.9, 0, 0, 1, 0]], np.float32)  # the first row explores
    exploration = np.full(2, 0.5, np.float32)
    kept = DQN(DQNConfig(), ACTIONS, keeps_values=True)
    assert set(kept.columns) == {"action", "q", "value"}
    acted = kept.act(lambda x: x, values, noise, exploration)
    assert {name: np.asarray(acted[name]).tolist() for name in kept.columns} == {
        "action": [3, 0],
        "q": [2.0, 5.0],
        "value": [3.0, 5.0],
    }
    plain = DQN(DQNConfig(), ACTIONS)
    assert set(plain.act(lambda x: x, values, noise, exploration)) == set(plain.columns)


@pytest.mark.parametrize(("agents", "envs"), [(1, 1), (2, 1), (1, 2), (4, 90), (3, 5)])
def test_the_ladder_of_epsilons_follows_apex(agents: int, envs: int) -> None:
    """Horgan et al. 2018: epsilon_i = 0.4^(1 + 7 i / (N - 1))."""
    epsilons = ladder(0.4, 7.0, agents, envs)
    count = agents * envs
    expected = [0.4 ** (1 + 7 * i / max(count - 1, 1)) for i in range(count)]
    np.testing.assert_allclose(sorted(epsilons, reverse=True), expected, rtol=1e-5)
    assert epsilons[0] == pytest.approx(0.4)
    if count == 360:
        assert epsilons.min() == pytest.approx(0.00065536)
    by_agent = epsilons.reshape(agents, envs)
    assert (np.diff(by_agent, axis=1) < 0).all(), "each agent has the whole ladder"
    if envs > 1:
        spread = by_agent.mean(axis=1)
        assert spread.max() / spread.min() < 0.4 ** (-7 / envs), "and no agent a part of it"


def test_a_ladder_may_have_few_rungs() -> None:
    epsilons = ladder(0.4, 7.0, 4, 9, rungs=6)
    values, counts = np.unique(epsilons, return_counts=True)
    np.testing.assert_allclose(values[::-1], ladder(0.4, 7.0, 1, 6), rtol=1e-6)
    assert (counts == 6).all()
    np.testing.assert_array_equal(ladder(0.4, 7.0, 1, 3, rungs=6), ladder(0.4, 7.0, 1, 3))


@pytest.mark.parametrize(("lanes", "third"), [(1, 1), (2, 1), (3, 1), (4, 2), (32, 11), (360, 120)])
def test_the_greediest_third_is_a_third_of_the_lanes_rounded_up(lanes: int, third: int) -> None:
    epsilons = ladder(0.4, 7.0, 1, lanes)
    assert (epsilons <= greediest_third(epsilons)).sum() == third
    assert greediest_third(epsilons) == np.sort(epsilons)[third - 1]


def test_each_lane_explores_by_its_place_on_the_ladder_at_all_times() -> None:
    table = ladder(0.4, 7.0, 2, 3)
    dqn = DQN(DQNConfig(exploration="ladder"), ACTIONS, ladder=table, random_steps=500)
    for steps in (0, 10**6):
        found = dqn.exploration(np.array([4, 0, 5]), steps)
        np.testing.assert_array_equal(found, table[[4, 0, 5]])
