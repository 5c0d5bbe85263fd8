"""PPO's loss and gradients against a twin, and what the clipped ratio does to them."""

import math

import numpy as np
import pytest

from ga3c.settings.learning import A3CConfig, PPOConfig
from tests import reference
from tests.learning.test_a3c import Differentiated, of_one_lane, random_batch, weights_of
from tests.reference import Array, Batch, Weights

CLIP = 0.2


def differentiated(config: A3CConfig, batch: Batch, entropy_weight: float = 0.01) -> Differentiated:
    """The product's loss of a batch, with its gradients by logits and by values."""
    return Differentiated(config, batch, entropy_weight, ppo=PPOConfig(clip_ratio=CLIP))


def twin(batch: Batch, weights: Weights, constants: reference.Constants) -> float:
    """Schulman et al. 2017, equations 7 and 9, step by step, the constants given."""
    probs = reference.softmax(batch.logits)
    total, count = 0.0, 0
    for lane, t in np.ndindex(*batch.rewards.shape):
        if batch.firsts[lane, t]:
            continue
        ratio = probs[lane, t, batch.actions[lane, t]] / math.exp(batch.log_probs[lane, t])
        advantage = float(constants.advantages[lane, t])
        clipped = min(max(ratio, 1 - CLIP), 1 + CLIP)
        error = float(constants.targets[lane, t] - batch.values[lane, t])
        total -= min(ratio * advantage, clipped * advantage)
        total += weights.value * error**2
        total -= weights.entropy * reference.entropy(probs[lane, t], weights.log_epsilon)
        count += 1
    return total / max(count, 1)


def twins_gradient(batch: Batch, weights: Weights, name: str, step: float = 1e-6) -> Array:
    """Central differences, the constants held: so none may flow through them."""
    constants = reference.a3c_constants(batch, weights)
    entries = np.array(getattr(batch, name))
    gradient = np.zeros_like(entries)
    for index in np.ndindex(*entries.shape):
        sides = []
        for sign in (1, -1):
            moved = entries.copy()
            moved[index] += sign * step
            sides.append(twin(batch._replace(**{name: moved}), weights, constants))
        gradient[index] = (sides[0] - sides[1]) / (2 * step)
    return gradient


def near_policy(batch: Batch, rng: np.random.Generator, spread: float) -> Batch:
    """The batch with ratios around 1, as they are when the policy has moved a little."""
    chosen = np.take_along_axis(
        reference.softmax(batch.logits[:, :-1]), batch.actions[..., None], axis=-1
    )[..., 0]
    return batch._replace(log_probs=np.log(chosen) + spread * rng.normal(size=chosen.shape))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("normalize", [False, True])
def test_loss_and_gradients_are_the_twins(seed: int, normalize: bool) -> None:
    rng = np.random.default_rng(seed)
    batch = near_policy(random_batch(rng, 3, [4, 6, 9][seed]), rng, spread=0.3)
    config = A3CConfig(
        correction="none", normalize_advantages=normalize, log_epsilon=1e-6, value_weight=0.3
    )
    weights = weights_of(config, entropy_weight=0.2)
    found = differentiated(config, batch, entropy_weight=0.2)
    constants = reference.a3c_constants(batch, weights)
    assert found.total == pytest.approx(twin(batch, weights, constants), rel=1e-9)
    for name, gradient in (("logits", found.by_logits), ("values", found.by_values)):
        expected = twins_gradient(batch, weights, name)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("moved", "reward", "learns"),
    [
        (1.5, 1.0, False),  # made likelier already, and good
        (1.5, -1.0, True),  # made likelier, and bad
        (0.5, 1.0, True),
        (0.5, -1.0, False),  # made rarer already, and bad
        (1.1, 1.0, True),  # within the clip
        (0.9, -1.0, True),
    ],
)
def test_an_action_is_moved_no_further_than_the_clip(
    moved: float, reward: float, learns: bool
) -> None:
    batch = of_one_lane([0.0, 0.0], [reward], [0.0])
    batch = batch._replace(log_probs=np.log([[0.5 / moved]]))
    found = differentiated(A3CConfig(correction="none"), batch, entropy_weight=0.0)
    assert bool(np.abs(found.by_logits[0, 0]).max() > 1e-6) == learns


def test_void_steps_teach_nothing_and_do_not_count() -> None:
    rng = np.random.default_rng(5)
    batch = near_policy(random_batch(rng, 3, 8), rng, spread=0.1)
    void = batch.firsts == 1
    assert void.any()
    garbage = batch._replace(
        log_probs=np.where(void, -50.0, batch.log_probs),
        rewards=np.where(void, 1e6, batch.rewards),
    )
    config = A3CConfig(normalize_advantages=True)
    one, other = differentiated(config, batch), differentiated(config, garbage)
    assert one.total == other.total
    np.testing.assert_array_equal(one.by_logits, other.by_logits)
    np.testing.assert_array_equal(one.by_logits[:, :-1][void], 0.0)


def test_the_loss_is_a_mean() -> None:
    """Twice the same batch is learned from as once: epsilon and gradient norm mean the same."""
    rng = np.random.default_rng(2)
    batch = near_policy(random_batch(rng, 2, 6), rng, spread=0.1)
    twice = Batch(*(np.concatenate([part, part]) for part in batch))
    config = A3CConfig()
    one, both = differentiated(config, batch), differentiated(config, twice)
    assert both.total == pytest.approx(one.total, rel=1e-9)
    np.testing.assert_allclose(both.by_logits[:2], one.by_logits / 2, rtol=1e-9)
