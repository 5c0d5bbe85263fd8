"""PPO's targets, loss and gradients against slow references, and the effect of the clip."""

import math
from typing import Any

import keras
import numpy as np
import pytest

from agents.actions import Actions
from ga3c import backend
from ga3c.experience.batches import Segments, Steps
from ga3c.learning.layers import measure, measured_by
from ga3c.learning.ppo import PPO
from ga3c.settings.learning import A3CConfig, NetworkConfig, PPOConfig
from tests import reference
from tests.learning.test_a3c import random_batch, weights_of
from tests.reference import Array, Batch, Given, Weights

CLIP = 0.2
ACTIONS = 3
ENTROPY_WEIGHT = 0.2


def built(config: A3CConfig) -> PPO:
    return PPO(config, PPOConfig(clip_ratio=CLIP), Actions(ACTIONS))


def prepared(config: A3CConfig, batch: Batch) -> dict[str, Array]:
    """The columns that PPO prepares for a batch, from the logits and values in it."""
    answers = (batch.logits.reshape(-1, ACTIONS), batch.values.reshape(-1))
    tensors = [keras.ops.convert_to_tensor(part) for part in (*answers, *batch[2:])]
    columns = built(config).prepare(Given(*tensors[:2]), Segments(None, *tensors[2:]))  # type: ignore[arg-type]
    return {name: np.asarray(column) for name, column in columns.items()}


@pytest.mark.parametrize("correction", ["none", "vtrace"])
def test_prepared_targets_advantages_and_priors_match_the_reference(
    correction: Any,
) -> None:
    batch = random_batch(np.random.default_rng(1), 4, 9)
    config = A3CConfig(correction=correction, normalize_advantages=True)
    found = prepared(config, batch)
    weights = weights_of(config, 0.0)._replace(normalize=False)
    expected = reference.a3c_constants(batch, weights)
    lived = batch.firsts == 0
    np.testing.assert_allclose(found["target"][lived], expected.targets[lived], rtol=1e-9)
    np.testing.assert_allclose(found["advantage"][lived], expected.advantages[lived], rtol=1e-9)
    logs = np.log(reference.softmax(batch.logits[:, :-1]))
    chosen = np.take_along_axis(logs, batch.actions[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(found["prior_log_prob"], chosen, rtol=1e-9)
    assert found.keys() == PPO.prepared.keys()


def random_steps(rng: np.random.Generator, count: int, spread: float = 0.3) -> tuple[Array, Steps]:
    """Logits and steps, a quarter of them void. The policy has moved a little since the priors."""
    logits = rng.normal(size=(count, ACTIONS))
    actions = rng.integers(ACTIONS, size=count).astype(np.int32)
    logs = np.log(reference.softmax(logits))[np.arange(count), actions]
    priors = logs + spread * rng.normal(size=count)
    return logits, Steps(
        observations=None,
        actions=actions,
        log_probs=priors + spread * rng.normal(size=count),
        prior_log_probs=priors,
        advantages=2 * rng.normal(size=count) + 1,
        targets=rng.normal(size=count),
        rewards=np.zeros(count),
        firsts=(rng.random(count) < 0.25).astype(float),
    )


class Differentiated:
    """`PPO.loss` of steps, in float64, and its gradients with respect to logits and values."""

    def __init__(self, config: A3CConfig, logits: Array, values: Array, steps: Steps) -> None:
        variables = [keras.Variable(part, dtype="float64") for part in (logits, values)]
        given = Steps(None, *(keras.ops.convert_to_tensor(part) for part in steps[1:]))

        def loss() -> tuple[Any, Any]:
            rates = {"entropy_weight": ENTROPY_WEIGHT}
            return built(config).loss(Given(*variables), None, given, rates)  # type: ignore[arg-type]

        total, (means, _), gradients = backend.value_and_gradients(loss, variables)
        self.total = float(total)
        self.means = {name: float(mean) for name, mean in means.items()}
        self.by_logits, self.by_values = (np.asarray(gradient) for gradient in gradients)


def reference_loss(weights: Weights, logits: Array, values: Array, steps: Steps) -> float:
    """The loss of Schulman et al. 2017, equations 7 and 9, computed one step at a time."""
    lived = [n for n in range(len(values)) if not steps.firsts[n]]
    advantages = np.array(steps.advantages)
    if weights.normalize and lived:
        some = advantages[lived]
        advantages = (advantages - some.mean()) / (some.std() + 1e-8)
    total = 0.0
    for n in lived:
        probs = reference.softmax(logits[n])
        ratio = probs[steps.actions[n]] / math.exp(steps.prior_log_probs[n])
        clipped = min(max(ratio, 1 - CLIP), 1 + CLIP)
        total -= min(ratio * advantages[n], clipped * advantages[n])
        total += weights.value * (steps.targets[n] - values[n]) ** 2
        total -= weights.entropy * reference.entropy(probs, weights.log_epsilon)
    return total / max(len(lived), 1)


def slope(weights: Weights, inputs: list[Array], steps: Steps, which: int) -> Array:
    """The gradient of `reference_loss`, by logits (0) or values (1), from central differences."""
    gradient = np.zeros_like(inputs[which])
    for index in np.ndindex(*gradient.shape):
        sides = []
        for sign in (1, -1):
            moved = [each.copy() for each in inputs]
            moved[which][index] += sign * 1e-6
            sides.append(reference_loss(weights, moved[0], moved[1], steps))
        gradient[index] = (sides[0] - sides[1]) / 2e-6
    return gradient


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("normalize", [False, True])
def test_loss_and_gradients_match_the_reference(seed: int, normalize: bool) -> None:
    rng = np.random.default_rng(seed)
    logits, steps = random_steps(rng, [5, 12, 30][seed])
    values = rng.normal(size=len(logits))
    config = A3CConfig(normalize_advantages=normalize, log_epsilon=1e-6, value_weight=0.3)
    weights = weights_of(config, ENTROPY_WEIGHT)
    found = Differentiated(config, logits, values, steps)
    assert found.total == pytest.approx(reference_loss(weights, logits, values, steps), rel=1e-9)
    for which, gradient in enumerate((found.by_logits, found.by_values)):
        expected = slope(weights, [logits, values], steps, which)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)


def of_one(moved: float, advantage: float) -> tuple[Array, Steps]:
    """Logits and a step with two equally likely actions; the ratio to the prior is `moved`."""
    one, none = np.ones(1), np.zeros(1)
    logs = np.log([0.5])
    action = np.zeros(1, np.int32)
    return np.zeros((1, 2)), Steps(
        None, action, logs - 1.0, np.log([0.5 / moved]), advantage * one, none, none, none
    )


@pytest.mark.parametrize(
    ("moved", "advantage", "learns"),
    [
        (1.5, 1.0, False),  # a good action, already likelier than the clip allows
        (1.5, -1.0, True),  # a bad action that has become likelier
        (0.5, 1.0, True),  # a good action that has become rarer
        (0.5, -1.0, False),  # a bad action, already rarer than the clip allows
        (1.1, 1.0, True),  # within the clip
        (0.9, -1.0, True),
    ],
)
def test_an_action_is_moved_no_further_than_the_clip_since_the_batch_was_prepared(
    moved: float, advantage: float, learns: bool
) -> None:
    logits, steps = of_one(moved, advantage)
    found = Differentiated(A3CConfig(), logits, np.zeros(1), steps)
    # The entropy of two equally likely actions has no slope.
    assert bool(np.abs(found.by_logits).max() > 1e-6) == learns
    assert found.means["clip_fraction"] == float(abs(moved - 1) > CLIP)


def test_void_steps_teach_nothing_and_do_not_count() -> None:
    logits, steps = random_steps(np.random.default_rng(5), 20)
    values, void = np.zeros(20), steps.firsts == 1
    assert void.any()
    garbage = steps._replace(
        prior_log_probs=np.where(void, -50.0, steps.prior_log_probs),
        advantages=np.where(void, 1e6, steps.advantages),
        targets=np.where(void, 1e6, steps.targets),
    )
    config = A3CConfig(normalize_advantages=True)
    one, other = (Differentiated(config, logits, values, each) for each in (steps, garbage))
    assert one.total == other.total
    np.testing.assert_array_equal(one.by_logits, other.by_logits)
    np.testing.assert_array_equal(one.by_logits[void], 0.0)
    np.testing.assert_array_equal(one.by_values[void], 0.0)


def test_the_loss_is_a_mean() -> None:
    """A doubled batch has the same loss, so epsilon and gradient clipping act the same."""
    logits, steps = random_steps(np.random.default_rng(2), 12)
    values = np.zeros(12)
    both = Steps(None, *(np.concatenate([part, part]) for part in steps[1:]))
    config = A3CConfig()
    one = Differentiated(config, logits, values, steps)
    twice = Differentiated(config, np.tile(logits, (2, 1)), np.tile(values, 2), both)
    assert twice.total == pytest.approx(one.total, rel=1e-9)
    np.testing.assert_allclose(twice.by_logits[:12], one.by_logits / 2, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-4, 100.0])
def test_the_loss_does_not_depend_on_the_unit_of_rewards(unit: float) -> None:
    """This holds if values follow the rewards, as in preset ppo-vectors."""
    algorithm = PPO(A3CConfig(), PPOConfig(clip_ratio=CLIP), Actions(ACTIONS))
    network = algorithm.network(NetworkConfig(follow_rewards=True), (4,), "float32", False)
    rng = np.random.default_rng(0)
    _, steps = random_steps(rng, 64)
    steps = steps._replace(observations=rng.normal(size=(64, 4)))
    first, losses = network.get_weights(), []
    for times in (1.0, unit):
        network.set_weights(first)
        scaled = steps._replace(
            rewards=np.full(64, times),
            targets=times * steps.targets,
            advantages=times * steps.advantages,
        )
        given = Steps(*(keras.ops.convert_to_tensor(part, "float32") for part in scaled))
        given = given._replace(actions=keras.ops.cast(given.actions, "int32"))
        measure(measured_by(network), given)
        loss, _ = algorithm.loss(network, None, given, {"entropy_weight": ENTROPY_WEIGHT})
        losses.append(float(loss))
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
