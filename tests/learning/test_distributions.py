"""Action distributions: densities and entropies against SciPy's, and statistics of draws."""

import math

import numpy as np
import pytest
from scipy import stats

from agents.actions import Actions
from ga3c import backend
from ga3c.learning.a3c import A3C
from ga3c.learning.distributions import Categorical, Normal, bounded, distribution, normal
from ga3c.settings.learning import A3CConfig, NetworkConfig

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def each_test_draws_the_same_numbers() -> None:
    """Reset the shared generator, so that numbers do not depend on the tests that ran before."""
    RANDOM.bit_generator.state = np.random.default_rng(0).bit_generator.state


SIZE = 3


def parameters(n: int) -> np.ndarray:
    """Means and log deviations, float32 [n, 2 SIZE]."""
    return np.asarray(RANDOM.normal(size=(n, 2 * SIZE)), np.float32)


def test_densities_and_entropies_match_scipy() -> None:
    found, actions = parameters(50), RANDOM.normal(size=(50, SIZE)).astype(np.float32)
    means, deviations = found[:, :SIZE], np.exp(found[:, SIZE:])
    expected = stats.norm.logpdf(actions, means, deviations).sum(axis=1)
    log_probs = Normal(SIZE).log_probs(found, actions)
    np.testing.assert_allclose(np.asarray(log_probs), expected, rtol=1e-4)
    entropies = stats.norm.entropy(means, deviations).sum(axis=1)
    np.testing.assert_allclose(np.asarray(Normal(SIZE).entropies(found)), entropies, rtol=1e-5)


def test_uniform_numbers_become_normal_ones() -> None:
    drawn = np.asarray(normal(np.asarray(backend.uniform((40_000,), np.array([0, 1], np.int32)))))
    assert stats.kstest(drawn, "norm").pvalue > 0.01
    ends = np.array([1e-30, 0.5, 1.0], np.float32)
    np.testing.assert_allclose(np.asarray(normal(ends)), [-4.9, 0.0, 4.9], atol=0.1)


def test_draws_have_the_means_and_deviations() -> None:
    one = np.tile(parameters(1), (20_000, 1))
    noise = RANDOM.uniform(1e-6, 1, (20_000, SIZE)).astype(np.float32)
    drawn = np.asarray(Normal(SIZE).draw(one, noise))
    np.testing.assert_allclose(drawn.mean(axis=0), one[0, :SIZE], atol=0.1)
    np.testing.assert_allclose(drawn.std(axis=0), np.exp(one[0, SIZE:]), rtol=0.03)


def test_without_noise_the_mean_is_played_clipped_to_the_bounds() -> None:
    found = np.array([[0.5, -3.0, 1.5, 0.0, 0.0, 0.0]], np.float32)
    np.testing.assert_array_equal(np.asarray(Normal(SIZE).policy(found)), [[0.5, -1.0, 1.0]])


@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_entropy_is_finite_where_a_probability_is_rounded_to_0(epsilon: float) -> None:
    logits = np.array([[120.0, 0.0, 1.0], [0.0, 0.0, 0.0]], np.float32)
    entropies = np.asarray(Categorical(3).entropies(logits, epsilon))
    np.testing.assert_allclose(entropies, [0.0, math.log(3)], atol=1e-4)


def test_the_actions_decide_the_distribution() -> None:
    assert isinstance(distribution(Actions(5)), Categorical)
    found = distribution(Actions(0, 4))
    assert isinstance(found, Normal)
    assert found.action == ((4,), "float32")


def test_numbers_are_bounded_and_must_be_finite() -> None:
    np.testing.assert_array_equal(bounded(np.array([[-2.0, 0.5, 2.0]])), [[-1.0, 0.5, 1.0]])
    finite = np.array([0, 7], np.int32)
    assert bounded(finite) is finite
    with pytest.raises(FloatingPointError, match="not finite"):
        bounded(np.array([[0.0, math.nan]]))


def test_a_policy_acts_with_the_probability_that_it_keeps() -> None:
    algorithm = A3C(A3CConfig(), Actions(0, SIZE))
    network = algorithm.network(NetworkConfig(layer_norm=False), (4,), "float32", False)
    observations = RANDOM.normal(size=(8, 4)).astype(np.float32)
    noise = RANDOM.uniform(1e-6, 1, (8, SIZE)).astype(np.float32)
    decision = algorithm.act(network, observations, noise, np.zeros(8, np.float32))
    found, _ = network(observations)
    expected = Normal(SIZE).log_probs(found, decision["action"])
    np.testing.assert_allclose(np.asarray(decision["log_prob"]), np.asarray(expected), rtol=1e-5)
    names = [weight.path for weight in network.trainable_variables]
    assert "log_deviations/log_deviations" in names, "the deviations are learned"
    policy, _ = algorithm.policy_and_value(network, observations)
    assert np.asarray(policy).shape == (8, SIZE)
