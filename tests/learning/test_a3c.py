"""A3C's returns, loss and gradients against slow references, and where no gradient may flow."""

import math
from typing import Any

import keras
import numpy as np
import pytest

from agents.actions import Actions
from ga3c import backend
from ga3c.experience.batches import Segments
from ga3c.learning.a3c import A3C, lambda_returns, policy_gradient_loss
from ga3c.learning.distributions import Categorical
from ga3c.settings.learning import A3CConfig
from tests import reference
from tests.reference import Array, Batch, Given, Weights

GAMMA = 0.9
SIZES = [(1, 1), (2, 3), (3, 5), (2, 20)]  # segments B, steps T
LAMBDAS = [1.0, 0.7, 0.0]


def random_batch(rng: np.random.Generator, segments: int, steps: int, actions: int = 3) -> Batch:
    """Segments with terminal steps, truncations and lost lives.

    A void step follows a terminal or truncated one. Its reward and discount are random, because
    they must not matter.
    """
    discounts = np.full((segments, steps), GAMMA)
    firsts = np.zeros((segments, steps))
    for lane in range(segments):
        ended = rng.random() < 0.2  # whether an episode ended just before the segment
        for t in range(steps):
            firsts[lane, t] = ended
            end = rng.choice(["", "terminal", "truncated", "life"], p=[0.55, 0.2, 0.15, 0.1])
            discounts[lane, t] = rng.random() if ended else GAMMA
            if end in ("terminal", "life") and not ended:
                discounts[lane, t] = 0.0
            ended = end in ("terminal", "truncated") and not ended
    return Batch(
        logits=rng.normal(size=(segments, steps + 1, actions)),
        values=rng.normal(size=(segments, steps + 1)),
        actions=rng.integers(actions, size=(segments, steps)).astype(np.int32),
        log_probs=np.log(rng.uniform(0.05, 0.9, size=(segments, steps))),
        rewards=2 * rng.normal(size=(segments, steps)),
        discounts=discounts,
        firsts=firsts,
    )


def returns(batch: Batch, ratios: Array, trace_decay: float) -> tuple[Array, Array]:
    targets, advantages = lambda_returns(
        batch.values, batch.rewards, batch.discounts, 1 - batch.firsts, ratios, trace_decay
    )
    return np.asarray(targets), np.asarray(advantages)


def of_one_lane(
    values: list[float],
    rewards: list[float],
    discounts: list[float],
    firsts: list[float] | None = None,
) -> Batch:
    steps = len(rewards)
    return Batch(
        logits=np.zeros((1, steps + 1, 2)),
        values=np.array([values]),
        actions=np.zeros((1, steps), np.int32),
        log_probs=np.full((1, steps), math.log(0.5)),
        rewards=np.array([rewards]),
        discounts=np.array([discounts]),
        firsts=np.array([firsts or [0.0] * steps]),
    )


def weights_of(config: A3CConfig, entropy_weight: float) -> Weights:
    return Weights(
        value=config.value_weight,
        entropy=entropy_weight,
        trace_decay=config.trace_decay,
        reward_clip=0.0,
        log_epsilon=config.log_epsilon,
        vtrace=config.correction == "vtrace",
        normalize=config.normalize_advantages,
    )


class Differentiated:
    """`A3C.loss` of a batch, in float64, and its gradients with respect to logits and values."""

    def __init__(self, config: A3CConfig, batch: Batch, entropy_weight: float = 0.01) -> None:
        actions = batch.logits.shape[-1]
        logits = keras.Variable(batch.logits.reshape(-1, actions), dtype="float64")
        values = keras.Variable(batch.values.reshape(-1), dtype="float64")
        segments = Segments(None, *(keras.ops.convert_to_tensor(part) for part in batch[2:]))

        algorithm = A3C(config, Actions(actions))

        def loss() -> tuple[Any, Any]:
            return algorithm.loss(
                Given(logits, values),
                None,
                segments,
                {"entropy_weight": entropy_weight},
            )

        total, (means, _), gradients = backend.value_and_gradients(loss, [logits, values])
        self.total = float(total)
        self.means = {name: float(mean) for name, mean in means.items()}
        self.by_logits = np.asarray(gradients[0]).reshape(batch.logits.shape)
        self.by_values = np.asarray(gradients[1]).reshape(batch.values.shape)


def assert_same(one: Differentiated, other: Differentiated) -> None:
    assert one.total == other.total
    assert one.means == other.means
    np.testing.assert_array_equal(one.by_logits, other.by_logits)
    np.testing.assert_array_equal(one.by_values, other.by_values)


def with_garbage_where_void(batch: Batch, rng: np.random.Generator) -> Batch:
    """The same batch with another reward, discount, action and log-probability at void steps."""
    void = batch.firsts == 1
    assert void.any()
    actions = batch.logits.shape[-1]
    return batch._replace(
        actions=np.where(void, (batch.actions + 1) % actions, batch.actions).astype(np.int32),
        log_probs=np.where(void, -50.0, batch.log_probs),
        rewards=np.where(void, 1e6 * rng.normal(size=void.shape), batch.rewards),
        discounts=np.where(void, 1 - batch.discounts, batch.discounts),
    )


# Returns


@pytest.mark.parametrize(("segments", "steps"), SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_lambda_1_with_ratios_of_1_is_the_n_step_return(
    segments: int, steps: int, seed: int
) -> None:
    batch = random_batch(np.random.default_rng(seed), segments, steps)
    targets, advantages = returns(batch, np.ones_like(batch.rewards), trace_decay=1.0)
    expected = reference.n_step_returns(batch.values, *batch[4:])
    np.testing.assert_allclose(targets, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(advantages, expected - batch.values[:, :-1], atol=1e-12)


@pytest.mark.parametrize(("segments", "steps"), SIZES)
@pytest.mark.parametrize("trace_decay", LAMBDAS)
def test_ratios_of_1_give_generalized_advantages(
    segments: int, steps: int, trace_decay: float
) -> None:
    batch = random_batch(np.random.default_rng(steps), segments, steps)
    targets, advantages = returns(batch, np.ones_like(batch.rewards), trace_decay)
    expected = reference.generalized_advantages(batch.values, *batch[4:], trace_decay)
    np.testing.assert_allclose(advantages, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(targets, batch.values[:, :-1] + expected, atol=1e-12)


@pytest.mark.parametrize(("segments", "steps"), SIZES)
@pytest.mark.parametrize("trace_decay", LAMBDAS)
@pytest.mark.parametrize("seed", range(2))
def test_vtrace_is_equation_1_of_its_paper(
    segments: int, steps: int, trace_decay: float, seed: int
) -> None:
    rng = np.random.default_rng([seed, steps])
    batch = random_batch(rng, segments, steps)
    ratios = np.exp(rng.normal(size=batch.rewards.shape))  # on both sides of 1
    targets, advantages = returns(batch, ratios, trace_decay)
    parts = (batch.values, *batch[4:], ratios, trace_decay)
    np.testing.assert_allclose(targets, reference.vtrace_targets(*parts), atol=1e-12)
    np.testing.assert_allclose(advantages, reference.vtrace_advantages(*parts), atol=1e-12)


def test_ratios_above_1_count_as_1() -> None:
    batch = random_batch(np.random.default_rng(0), 3, 5)
    ones = np.ones_like(batch.rewards)
    for large in (1.5 * ones, np.full_like(ones, np.inf)):
        for part, expected in zip(returns(batch, large, 1.0), returns(batch, ones, 1.0)):
            np.testing.assert_array_equal(part, expected)


def test_ratio_of_0_leaves_the_value_as_the_target() -> None:
    batch = of_one_lane([1.0, 2.0, 3.0], [5.0, 7.0], [GAMMA, GAMMA])
    targets, _ = returns(batch, np.array([[1.0, 0.0]]), 1.0)
    np.testing.assert_allclose(targets, [[5.0 + GAMMA * 2.0, 2.0]])


def test_terminal_reward_is_credited() -> None:
    """The return of the last step is its reward, and no value from beyond the end counts."""
    batch = of_one_lane([7.0, 8.0, 9.0, 100.0], [0.0, 0.0, 1.0], [GAMMA, GAMMA, 0.0])
    targets, advantages = returns(batch, np.ones((1, 3)), 1.0)
    np.testing.assert_allclose(targets, [[GAMMA**2, GAMMA, 1.0]])
    np.testing.assert_allclose(advantages, [[GAMMA**2 - 7.0, GAMMA - 8.0, 1.0 - 9.0]])


def test_terminal_reward_in_the_middle_of_a_segment_is_credited() -> None:
    batch = of_one_lane(
        [7.0, 8.0, 100.0, 4.0, 5.0],
        [0.0, 1.0, 50.0, 3.0],
        [GAMMA, 0.0, GAMMA, GAMMA],
        [0.0, 0.0, 1.0, 0.0],
    )
    targets, advantages = returns(batch, np.ones((1, 4)), 1.0)
    np.testing.assert_allclose(targets, [[GAMMA, 1.0, 100.0, 3.0 + GAMMA * 5.0]])
    np.testing.assert_allclose(advantages, targets - batch.values[:, :-1])


def test_lost_life_ends_the_return_and_the_next_step_counts() -> None:
    batch = of_one_lane([7.0, 8.0, 9.0], [1.0, 2.0], [0.0, GAMMA])
    targets, _ = returns(batch, np.ones((1, 2)), 1.0)
    np.testing.assert_allclose(targets, [[1.0, 2.0 + GAMMA * 9.0]])


def test_truncated_episode_bootstraps_from_its_final_observation() -> None:
    batch = of_one_lane(
        [7.0, 8.0, 9.0, 4.0, 5.0],  # 9 is the value of the final observation, 4 of the reset frame
        [1.0, 2.0, 50.0, 3.0],
        [GAMMA] * 4,
        [0.0, 0.0, 1.0, 0.0],
    )
    targets, advantages = returns(batch, np.ones((1, 4)), 1.0)
    last = 2.0 + GAMMA * 9.0
    np.testing.assert_allclose(targets, [[1.0 + GAMMA * last, last, 9.0, 3.0 + GAMMA * 5.0]])
    assert advantages[0, 2] == 0.0


def test_segment_that_starts_with_a_void_step_begins_after_it() -> None:
    batch = of_one_lane([7.0, 8.0, 9.0], [50.0, 2.0], [GAMMA, GAMMA], [1.0, 0.0])
    targets, advantages = returns(batch, np.ones((1, 2)), 1.0)
    np.testing.assert_allclose(targets, [[7.0, 2.0 + GAMMA * 9.0]])
    np.testing.assert_allclose(advantages, [[0.0, 2.0 + GAMMA * 9.0 - 8.0]])


# The parts of the loss


def test_entropy_has_epsilon_within_the_logarithm() -> None:
    rng = np.random.default_rng(0)
    probs = reference.softmax(rng.normal(size=(5, 4)))
    for epsilon in (1e-6, 0.1):
        expected = [reference.entropy(row, epsilon) for row in probs]
        np.testing.assert_allclose(
            np.asarray(Categorical(4).entropies(np.log(probs), epsilon)), expected, rtol=1e-12
        )


def test_certain_policy_has_finite_entropy_and_loss() -> None:
    certain, logits = Categorical(2), np.array([[1e9, 0.0]])
    assert float(certain.entropies(logits, 1e-6)[0]) == pytest.approx(-math.log1p(1e-6))
    log_probs = certain.log_probs(logits, np.array([1], np.int32), 1e-6)
    loss = policy_gradient_loss(log_probs, np.array([1.0]))
    assert float(loss) == pytest.approx(-math.log(1e-6))


@pytest.mark.parametrize("correction", ["none", "vtrace"])
def test_certain_policy_has_finite_gradients(correction: Any) -> None:
    batch = random_batch(np.random.default_rng(0), 2, 5)
    batch = batch._replace(logits=1000 * batch.logits)
    found = Differentiated(A3CConfig(correction=correction), batch)
    assert math.isfinite(found.total)
    assert np.isfinite(found.by_logits).all() and np.isfinite(found.by_values).all()


# Loss and gradients


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("correction", ["none", "vtrace"])
@pytest.mark.parametrize("trace_decay", [1.0, 0.7])
def test_loss_and_gradients_match_the_reference(
    seed: int, normalize: bool, correction: Any, trace_decay: float
) -> None:
    """The reference treats targets and advantages as constants: no gradient flows through them."""
    rng = np.random.default_rng(seed)
    segments, steps = [(1, 4), (3, 5), (2, 9)][seed]
    batch = random_batch(rng, segments, steps)
    config = A3CConfig(
        trace_decay=trace_decay,
        correction=correction,
        normalize_advantages=normalize,
        log_epsilon=1e-2,  # large enough for a misplaced epsilon to show
        value_weight=0.3,
    )
    weights = weights_of(config, entropy_weight=0.2)
    found = Differentiated(config, batch, entropy_weight=0.2)
    loss = reference.a3c_loss(batch, weights, reference.a3c_constants(batch, weights))
    assert found.total == pytest.approx(loss.total, rel=1e-9)
    by_logits, by_values = reference.a3c_gradients(batch, weights)
    np.testing.assert_allclose(found.by_logits, by_logits, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.by_values, by_values, rtol=1e-6, atol=1e-8)


def test_means_are_over_the_steps_that_are_not_void() -> None:
    batch = random_batch(np.random.default_rng(4), 3, 8)
    config = A3CConfig()
    weights = weights_of(config, entropy_weight=0.01)
    loss = reference.a3c_loss(batch, weights, reference.a3c_constants(batch, weights))
    lived = batch.firsts == 0
    assert 0 < lived.sum() < lived.size
    chosen = np.take_along_axis(
        reference.softmax(batch.logits[:, :-1]), batch.actions[..., None], axis=-1
    )[..., 0]
    ratios = chosen / np.exp(batch.log_probs)
    expected = {
        "approx_kl": (ratios - 1 - np.log(ratios))[lived].mean(),
        "policy_loss": loss.policy / lived.sum(),
        "value_loss": loss.value / lived.sum(),
        "entropy": loss.entropy / lived.sum(),
        "value": batch.values[:, :-1][lived].mean(),
    }
    assert Differentiated(config, batch).means == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("correction", ["none", "vtrace"])
def test_values_learn_nothing_from_the_policy_loss_or_the_entropy(
    normalize: bool, correction: Any
) -> None:
    batch = random_batch(np.random.default_rng(1), 3, 6)
    config = A3CConfig(value_weight=0.0, correction=correction, normalize_advantages=normalize)
    found = Differentiated(config, batch, entropy_weight=1.0)
    assert np.abs(found.by_logits).max() > 0.01
    np.testing.assert_array_equal(found.by_values, 0.0)


@pytest.mark.parametrize("correction", ["none", "vtrace"])
def test_policy_learns_nothing_from_the_value_loss(correction: Any) -> None:
    """The value loss gives the logits no gradient, not even through V-trace's ratios."""
    batch = random_batch(np.random.default_rng(1), 3, 6)
    without, with_values = (
        Differentiated(A3CConfig(value_weight=weight, correction=correction), batch)
        for weight in (0.0, 100.0)
    )
    np.testing.assert_array_equal(without.by_logits, with_values.by_logits)


def test_value_gradient_is_that_of_the_squared_error_alone() -> None:
    """It is 2 w (v_t - G_t), w = 0.5. No gradient flows into values that G_t bootstraps from."""
    batch = random_batch(np.random.default_rng(2), 3, 6)
    config = A3CConfig()
    targets = reference.a3c_constants(batch, weights_of(config, 0.0)).targets
    errors = (batch.values[:, :-1] - targets) * (1 - batch.firsts)
    found = Differentiated(config, batch)
    np.testing.assert_allclose(found.by_values[:, :-1], errors, rtol=1e-9, atol=1e-12)


def test_last_observation_only_bootstraps() -> None:
    batch = random_batch(np.random.default_rng(3), 3, 6)
    found = Differentiated(A3CConfig(), batch)
    np.testing.assert_array_equal(found.by_values[:, -1], 0.0)
    np.testing.assert_array_equal(found.by_logits[:, -1], 0.0)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("correction", ["none", "vtrace"])
def test_step_into_a_resets_frame_is_void(normalize: bool, correction: Any) -> None:
    """A void step's reward, discount, action and log-probability change no loss and no gradient."""
    rng = np.random.default_rng(5)
    batch = random_batch(rng, 4, 10)
    config = A3CConfig(correction=correction, normalize_advantages=normalize)
    changed = with_garbage_where_void(batch, rng)
    found = Differentiated(config, batch)
    assert_same(found, Differentiated(config, changed))
    void = batch.firsts == 1
    np.testing.assert_array_equal(found.by_values[:, :-1][void], 0.0)
    np.testing.assert_array_equal(found.by_logits[:, :-1][void], 0.0)


def test_nothing_after_a_reset_reaches_the_steps_before_it() -> None:
    rng = np.random.default_rng(6)
    batch = random_batch(rng, 1, 6)._replace(firsts=np.array([[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]]))
    config = A3CConfig(normalize_advantages=False)
    after = np.arange(7) > 2
    changed = batch._replace(
        values=np.where(after, rng.normal(size=7), batch.values),
        rewards=np.where(after[:-1], rng.normal(size=6), batch.rewards),
    )
    found, other = Differentiated(config, batch), Differentiated(config, changed)
    np.testing.assert_array_equal(found.by_values[:, :3], other.by_values[:, :3])
    np.testing.assert_array_equal(found.by_logits[:, :3], other.by_logits[:, :3])
    assert not np.array_equal(found.by_values[:, 3:], other.by_values[:, 3:])


@pytest.mark.parametrize("normalize", [False, True])
def test_batch_of_void_steps_teaches_nothing(normalize: bool) -> None:
    batch = random_batch(np.random.default_rng(7), 2, 3)
    batch = batch._replace(firsts=np.ones_like(batch.firsts))
    config = A3CConfig(normalize_advantages=normalize)
    found = Differentiated(config, batch, entropy_weight=1.0)
    assert found.total == 0.0
    assert set(found.means.values()) == {0.0}
    np.testing.assert_array_equal(found.by_logits, 0.0)
    np.testing.assert_array_equal(found.by_values, 0.0)


def test_equal_advantages_are_normalized_to_nothing() -> None:
    """The deviation of equal advantages is 0, yet nothing is divided by 0: the gradient is 0."""
    batch = of_one_lane([0.0, 0.0, 0.0], [1.0, 1.0], [0.0, 0.0])
    found = Differentiated(A3CConfig(normalize_advantages=True), batch, 0.0)
    np.testing.assert_allclose(found.by_logits, 0.0, atol=1e-12)
    plain = Differentiated(A3CConfig(normalize_advantages=False), batch, 0.0)
    assert np.abs(plain.by_logits).max() > 0.1


def test_lagged_policys_advantage_is_weighed_by_the_ratio() -> None:
    """An action half as likely as when it was taken counts half; a likelier one counts fully."""
    batch = of_one_lane([0.0, 0.0], [1.0], [0.0])

    def gradient(behaviour: float, correction: Any) -> float:
        lagged = batch._replace(log_probs=np.array([[math.log(behaviour)]]))
        config = A3CConfig(correction=correction, normalize_advantages=False)
        return float(Differentiated(config, lagged, 0.0).by_logits[0, 0, 0])

    exact = gradient(0.5, "vtrace")  # equal to the current probability: the ratio is 1
    assert exact < 0
    assert gradient(1.0, "vtrace") == pytest.approx(exact / 2)
    assert gradient(0.1, "vtrace") == pytest.approx(exact)
    assert gradient(1.0, "none") == pytest.approx(exact)


# Acting


def test_action_follows_the_gumbel_max_trick_and_comes_with_its_log_probability() -> None:
    rng = np.random.default_rng(8)
    logits = rng.normal(size=(50, 4)).astype(np.float32)
    noise = rng.uniform(0.01, 0.99, size=(50, 4)).astype(np.float32)
    decision = A3C(A3CConfig(), Actions(4)).act(
        lambda observations: (observations, None), logits, noise, None
    )
    expected = (np.log(reference.softmax(logits)) - np.log(-np.log(noise))).argmax(axis=1)
    np.testing.assert_array_equal(np.asarray(decision["action"]), expected)
    np.testing.assert_allclose(
        np.asarray(decision["log_prob"]),
        np.log(reference.softmax(logits))[np.arange(50), expected],
        rtol=1e-5,
    )
