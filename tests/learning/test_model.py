"""The model: updates against a slow reference, schedules, state, sampling and networks."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from agents.actions import Actions
from agents.environments import Spaces
from ga3c import backend
from ga3c.experience.batches import Segments
from ga3c.experience.book import Segment
from ga3c.experience.in_order import InOrder
from ga3c.experience.memory import DEVICE, HOST
from ga3c.experience.ring import Arrivals, Experience, RingShape
from ga3c.experience.segments import SegmentBook
from ga3c.learning import optimizers
from ga3c.learning.a3c import A3C
from ga3c.learning.algorithm import Algorithm
from ga3c.learning.dpg import DPG
from ga3c.learning.dqn import DQN
from ga3c.learning.layers import Normalized, ValueScale, measured_by
from ga3c.learning.model import Learned, Model
from ga3c.learning.networks import count_weights, resolved
from ga3c.learning.optimizers import build_optimizer, prepare
from ga3c.settings.choices import NETWORK_LINES
from ga3c.settings.learning import (
    A3CConfig,
    DPGConfig,
    DQNConfig,
    NetworkConfig,
    OptimizerConfig,
    linear,
)
from tests import reference
from tests.reference import Array, Batch, NaiveExperience, Weights

T_MAX = 5
LANES = 4
ACTIONS = 3
FINITE = Actions(ACTIONS)
VECTORS = Spaces((3,), "float32", FINITE, 1)
PICTURES = Spaces((20, 20), "uint8", FINITE, 4)
ALGORITHM = A3CConfig(entropy_weight=0.05, entropy_weight_end=0.01)
CLIP = 1.0


def make_model(
    optimizer: OptimizerConfig | None = None,
    spaces: Spaces = VECTORS,
    algorithm: A3CConfig = ALGORITHM,
    lanes: int = LANES,
    on_device: bool = True,
    seed: int = 0,
    reward_clip: float = CLIP,
) -> Model:
    learned = A3C(algorithm, spaces.actions)
    return Model(
        algorithm=learned,
        network=NetworkConfig(),
        optimizer=optimizer or OptimizerConfig(),
        source=in_order(learned, spaces, lanes, on_device=on_device, reward_clip=reward_clip),
        is_picture=spaces.is_picture,
        seed=seed,
    )


@pytest.fixture(autouse=True)
def first_weights_are_always_the_same() -> None:
    keras.utils.set_random_seed(0)


def values_of(weights: list[Any]) -> list[Array]:
    return [np.array(keras.ops.convert_to_numpy(weight)) for weight in weights]


def in_order(
    algorithm: Algorithm,
    spaces: Spaces = VECTORS,
    lanes: int = LANES,
    t_max: int = T_MAX,
    on_device: bool = True,
    reward_clip: float = CLIP,
) -> InOrder:
    book = SegmentBook(lanes, t_max, 2, spaces.stack)
    ring = RingShape(lanes, book.capacity, spaces.shape, spaces.dtype, spaces.stack)
    memory = DEVICE if on_device else HOST
    return InOrder(Experience(ring, algorithm.columns, memory, reward_clip), book)


class Rollout:
    """Plays one segment in every lane of a model, and records what was seen and done."""

    def __init__(
        self, model: Model, spaces: Spaces = VECTORS, void: bool = False, gain: float = 3.0
    ) -> None:
        """Args: void: whether all steps are void; gain: standard deviation of the rewards."""
        self._model, self._gain = model, gain
        ring = model.experience.ring
        self._lanes = np.arange(ring.lanes, dtype=np.int32)
        self._book = SegmentBook(ring.lanes, T_MAX, 2, spaces.stack)
        self._segments: list[Segment] = []
        self.seen = NaiveExperience(ring.lanes, spaces.stack)
        rng = np.random.default_rng(0)
        for step in range(T_MAX + 1):
            firsts = (rng.random(ring.lanes) < 0.2) | (step == 0) | void
            self._act(rng, firsts, spaces)

    def _act(self, rng: np.random.Generator, firsts: Array, spaces: Spaces) -> None:
        count = len(firsts)
        slots, ages = self._book.advance(self._lanes, firsts, version=0)
        discounts = rng.choice([0.0, 0.9], size=count, p=[0.2, 0.8])
        outcomes = np.stack([self._gain * rng.normal(size=count), discounts, firsts], axis=1)
        outcomes = outcomes.astype(np.float32)
        frames = (255 * rng.random((count, *spaces.shape))).astype(spaces.dtype)
        for lane in range(count):
            self.seen.see(lane, frames[lane], outcomes[lane])
        greedy = np.zeros(count, np.float32)
        actions = self._model.act(Arrivals(self._lanes, slots, ages, outcomes, frames, greedy))
        experience = self._model.experience
        log_probs = experience.gather("log_prob", experience.ring.rows(self._lanes, slots))
        for lane in range(count):
            self.seen.do(lane, int(actions[lane]), float(log_probs[lane]))
        self._segments += self._book.complete(self._lanes)

    def learn(self, progress: float = 0.0) -> Learned:
        return self._model.learn(self._lanes, self._book.slots(self._segments), progress=progress)

    def gradients(self, entropy_weight: float) -> list[Array]:
        """The loss's gradients with respect to all weights, over the recorded steps."""
        parts = self.seen.segments(list(range(len(self._lanes))), [0] * len(self._lanes), T_MAX)
        parts["rewards"] = np.clip(parts["rewards"], -CLIP, CLIP)
        observations = np.concatenate(parts.pop("observations"))
        floats = {name: part.astype(np.float32) for name, part in parts.items()}
        segments = Segments(observations, **{**floats, "actions": parts["actions"]})
        network = self._model.network
        _, _, gradients = backend.value_and_gradients(
            lambda: A3C(ALGORITHM, FINITE).loss(
                network, None, segments, {"entropy_weight": np.float32(entropy_weight)}
            ),
            network.trainable_variables,
        )
        return [np.asarray(gradient) for gradient in gradients]

    def batch(self) -> Batch:
        """The loss's inputs: the recorded steps, and the network's current outputs for them."""
        lanes = len(self._lanes)
        parts = self.seen.segments(list(range(lanes)), [0] * lanes, T_MAX)
        observations = parts.pop("observations")
        answers = [self._model.network(lane) for lane in observations]
        logits = np.array([np.asarray(logits, np.float64) for logits, _ in answers])
        values = np.array([np.asarray(values, np.float64) for _, values in answers])
        return Batch(logits=logits, values=values, **parts)


def weights_of(model: Model) -> dict[str, Array]:
    return {path: w for path, w in model.read().items() if path.startswith("weights/")}


def sharpened(model: Model, gain: float) -> None:
    """Scale up the policy's last weights, because its initial logits are nearly equal."""
    weights = weights_of(model)
    (kernel,) = (path for path in weights if path.endswith("policy/kernel"))
    model.restore({**model.read(), **weights, kernel: gain * weights[kernel]})


def arrivals_of(frames: Array, slot: int = 0) -> Arrivals:
    count = len(frames)
    return Arrivals(
        np.arange(count, dtype=np.int32),
        np.full(count, slot, np.int32),
        np.zeros(count, np.int32),
        np.tile(np.array([0, 1, 1], np.float32), (count, 1)),
        frames,
        np.zeros(count, np.float32),
    )


# Schedules


@pytest.mark.parametrize(
    ("progress", "expected"), [(0.0, 4.0), (0.25, 3.5), (1.0, 2.0), (7.0, 2.0), (-1.0, 4.0)]
)
def test_schedule_is_linear_and_holds_its_ends(progress: float, expected: float) -> None:
    assert linear(4.0, 2.0, progress) == expected


def test_learning_rate_follows_its_schedule_down_to_nothing() -> None:
    model = make_model(OptimizerConfig(learning_rate=0.01, learning_rate_end=0.0))
    rollout = Rollout(model)
    before = weights_of(model)
    rollout.learn(progress=1.0)
    for path, weight in weights_of(model).items():
        np.testing.assert_array_equal(weight, before[path])
    rollout.learn(progress=0.5)
    assert any((weight != before[path]).any() for path, weight in weights_of(model).items())


# Updates


@pytest.mark.parametrize("on_device", [True, False], ids=["device", "host"])
@pytest.mark.parametrize("spaces", [VECTORS, PICTURES], ids=["vectors", "pictures"])
@pytest.mark.parametrize("progress", [0.0, 0.5])
def test_learn_reports_the_loss_of_the_reference(
    spaces: Spaces, on_device: bool, progress: float
) -> None:
    """On the way to the loss, each outcome must be paired with the action that led to it."""
    model = make_model(spaces=spaces, on_device=on_device)
    sharpened(model, 30.0)
    rollout = Rollout(model, spaces)
    batch = rollout.batch()
    weights = Weights(
        value=ALGORITHM.value_weight,
        entropy=linear(ALGORITHM.entropy_weight, ALGORITHM.entropy_weight_end, progress),
        trace_decay=ALGORITHM.trace_decay,
        reward_clip=CLIP,
        log_epsilon=ALGORITHM.log_epsilon,
        vtrace=ALGORITHM.correction == "vtrace",
        normalize=ALGORITHM.normalize_advantages,
    )
    loss = reference.a3c_loss(batch, weights, reference.a3c_constants(batch, weights))
    lived = (batch.firsts == 0).sum()
    assert 0 < lived < batch.firsts.size
    means = rollout.learn(progress).means
    assert means["loss"] == pytest.approx(loss.total, rel=1e-4)
    assert means["policy_loss"] == pytest.approx(loss.policy / lived, rel=1e-4, abs=1e-4)
    assert means["value_loss"] == pytest.approx(loss.value / lived, rel=1e-4)
    assert means["entropy"] == pytest.approx(loss.entropy / lived, rel=1e-4)


@pytest.mark.parametrize(
    ("clip_norm", "rms_start"), [(0.0, 0.0), (0.5, 0.0), (1e6, 0.0), (0.0, 1.0)]
)
def test_rmsprop_with_a_global_clip_norm_matches_the_reference(
    clip_norm: float, rms_start: float
) -> None:
    config = OptimizerConfig(
        optimizer="rmsprop",
        learning_rate=0.01,
        learning_rate_end=0.0,
        rms_decay=0.9,
        optimizer_epsilon=0.01,
        rms_start=rms_start,
        clip_norm=clip_norm,
    )
    model = make_model(config)
    rollout = Rollout(model)
    expected = values_of(model.network.trainable_variables)
    mean_squares = [np.full_like(weight, rms_start) for weight in expected]
    for progress in (0.0, 0.3, 0.6):
        gradients = rollout.gradients(linear(0.05, 0.01, progress))
        clipped = reference.clip_by_global_norm(gradients, clip_norm or np.inf)
        learned = rollout.learn(progress)
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
        assert norm > 1.0  # so that a norm of 0.5 does clip
        assert learned.means["gradient_norm"] == pytest.approx(norm, rel=1e-4)  # before clipping
        for i, gradient in enumerate(clipped):
            expected[i], mean_squares[i] = reference.rmsprop_step(
                expected[i], mean_squares[i], gradient, 0.01 * (1 - progress), 0.9, 0.01
            )
        for found, weight in zip(values_of(model.network.trainable_variables), expected):
            np.testing.assert_allclose(found, weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("start", "centered"), [(0.0, False), (0.0, True), (1.0, True)])
def test_centred_rmsprop_subtracts_the_squared_mean_gradient(start: float, centered: bool) -> None:
    """The mean gradient starts at 0, whatever the mean square starts at."""
    config = OptimizerConfig("rmsprop", rms_decay=0.9, optimizer_epsilon=0.01)
    optimizer = build_optimizer(replace(config, learning_rate=0.1, rms_centered=centered))
    weight = keras.Variable(np.zeros(1, np.float32))
    prepare(optimizer, [weight], start)
    optimizers.apply(optimizer, [ops.ones(1)], [weight])
    variance = 0.9 * start + 0.1 - (0.01 if centered else 0.0)
    assert float(weight[0]) == pytest.approx(-0.1 / (variance + 0.01) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "decay"), [(1.5e-7, 0.95), (1e-5, 0.99), (1e-8, 0.5)])
def test_centred_rmsprop_survives_gradients_that_hardly_vary(epsilon: float, decay: float) -> None:
    """Their variance is 0. With rounding, it would be below 0 in most of these weights."""
    config = OptimizerConfig("rmsprop", rms_decay=decay, optimizer_epsilon=epsilon)
    optimizer = build_optimizer(replace(config, learning_rate=1e-4, rms_centered=True))
    gradients = np.geomspace(0.1, 300.0, 64, dtype=np.float32)
    weights = keras.Variable(np.zeros(64, np.float32))
    prepare(optimizer, [weights], 0.0)
    step = backend.compiled(
        lambda gradient: optimizers.apply(optimizer, [gradient], [weights]), [((64,), "float32")]
    )
    for update in range(1500):
        step(gradients if update < 500 else gradients / 2)
    (found,) = values_of([weights])
    assert np.isfinite(found).all() and (found < 0).all()


def test_adams_first_step_has_epsilon_outside_the_root() -> None:
    model = make_model(
        OptimizerConfig("adam", learning_rate=0.01, optimizer_epsilon=0.5, clip_norm=0.0)
    )
    rollout = Rollout(model)
    before = values_of(model.network.trainable_variables)
    gradients = rollout.gradients(ALGORITHM.entropy_weight)
    rollout.learn()
    after = values_of(model.network.trainable_variables)
    for weight, first, gradient in zip(after, before, gradients):
        # With bias corrected, the mean is the gradient g, and the root of the mean square |g|.
        # Keras adds epsilon to the uncorrected root, sqrt(1 - 0.999) |g|.
        scale = 0.001**0.5
        step = 0.01 * scale * gradient / (scale * np.abs(gradient) + 0.5)
        np.testing.assert_allclose(weight, first - step, rtol=1e-4, atol=1e-6)


def test_segments_of_void_steps_change_no_weight() -> None:
    """The entropy of void steps is masked too: no loss remains, and nothing is divided by 0."""
    model = make_model()
    rollout = Rollout(model, void=True)
    before = weights_of(model)
    learned = rollout.learn()
    assert learned.update == 1
    assert set(learned.means.values()) == {0.0}
    for path, weight in weights_of(model).items():
        np.testing.assert_array_equal(weight, before[path])


@pytest.mark.parametrize("on_device", [True, False], ids=["device", "host"])
def test_an_update_that_is_not_finite_changes_nothing(on_device: bool) -> None:
    model = make_model(on_device=on_device, reward_clip=0.0)
    before = model.read()
    learned = Rollout(model, gain=1e30).learn()  # rewards whose squares overflow float32
    assert not learned.is_finite
    assert (model.updates, model.refused_in_a_row) == (0, 1)
    after = model.read()
    assert before.keys() == after.keys()
    for path in before.keys() - {"counters"}:
        np.testing.assert_array_equal(after[path], before[path], err_msg=path)
    assert Rollout(model).learn().is_finite
    assert (model.updates, model.refused_in_a_row) == (1, 0)


@pytest.mark.parametrize("on_device", [True, False], ids=["device", "host"])
def test_trainers_update_one_at_a_time_and_every_update_counts_once(on_device: bool) -> None:
    model = make_model(on_device=on_device)
    rollout = Rollout(model)
    updating = threading.Lock()
    updates: list[int] = []
    failures: list[str] = []
    learn = model._learn

    def alone(*inputs: Array) -> Any:
        if not updating.acquire(blocking=False):
            failures.append("two updates at once")
        time.sleep(0.001)  # so that other trainers could start an update meanwhile
        try:
            return learn(*inputs)
        finally:
            updating.release()

    def train() -> None:
        try:
            for _ in range(10):
                updates.append(rollout.learn().update)
        except Exception as failure:
            failures.append(repr(failure))

    model._learn = alone
    trainers = [threading.Thread(target=train) for _ in range(4)]
    for trainer in trainers:
        trainer.start()
    for trainer in trainers:
        trainer.join(60.0)
    assert not failures
    assert sorted(updates) == list(range(1, 41))
    assert model.updates == 40


# Saved state


def test_a_restored_model_continues_exactly() -> None:
    """Weights, optimizer and counters are restored: the next update is the same to the last bit."""
    one, other = make_model(), make_model()
    Rollout(one).learn()
    other.restore(one.read())
    assert (other.updates, one.updates) == (1, 1)
    for model in (one, other):
        Rollout(model).learn()
    expected, found = one.read(), other.read()
    # Adam has two moments for each weight, a step count and a rate; then there are the counters.
    assert len(expected) == len(one.network.weights) * 3 + 3
    for path, value in expected.items():
        np.testing.assert_array_equal(found[path], value, err_msg=path)


def test_weights_that_are_loaded_act_as_before() -> None:
    model = make_model()
    sharpened(model, 30.0)
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    kept = weights_of(model)
    before = [np.array(part) for part in model.network(observations)]
    Rollout(model).learn()
    assert not np.array_equal(np.array(model.network(observations)[0]), before[0])
    model.restore({**model.read(), **kept})
    for part, expected in zip(model.network(observations), before):
        np.testing.assert_array_equal(np.array(part), expected)


def test_weights_are_a_copy() -> None:
    model = make_model()
    kept = weights_of(model)
    first = {path: weight.copy() for path, weight in kept.items()}
    Rollout(model).learn()
    for path, weight in kept.items():
        np.testing.assert_array_equal(weight, first[path])


@pytest.mark.parametrize("part", ["weights", "optimizer"])
@pytest.mark.parametrize("wrong", ["missing", "shape"])
def test_a_state_that_does_not_fit_is_refused_and_none_of_it_taken(wrong: str, part: str) -> None:
    model = make_model()
    before = model.read()
    weights = {path: weight + 1 for path, weight in before.items()}
    last = [path for path in weights if path.startswith(f"{part}/")][-1]
    if wrong == "missing":
        del weights[last]
    else:
        weights[last] = np.zeros((7, 7), np.float32)
    found = "nothing" if wrong == "missing" else r"\(7, 7\)"
    expected = rf"{part} {last.removeprefix(part + '/')}: expected \(.*\), found {found}"
    with pytest.raises(ValueError, match=expected):
        model.restore(weights)
    for path, weight in model.read().items():
        np.testing.assert_array_equal(weight, before[path])


# Acting


@pytest.mark.parametrize("on_device", [True, False], ids=["device", "host"])
def test_actions_are_drawn_from_the_softmax(on_device: bool) -> None:
    """Pearson's chi-squared over 8,000 draws in two batches, against its 99.9% quantile."""
    spaces = Spaces((3,), "float32", Actions(6), 1)
    model = make_model(spaces=spaces, lanes=4000, on_device=on_device, seed=3)
    sharpened(model, 200.0)
    frames = np.tile(np.array([[0.5, -1.0, 2.0]], np.float32), (4000, 1))
    probs = reference.softmax(np.asarray(model.network(frames[:1])[0], np.float64))[0]
    assert probs.min() > 0.002 and probs.max() > 2 / 6  # all expected counts are above 16
    actions = [model.act(arrivals_of(frames, slot)) for slot in range(2)]
    counts = np.bincount(np.concatenate(actions), minlength=6)
    statistic = ((counts - 8000 * probs) ** 2 / (8000 * probs)).sum()
    assert statistic < 20.5  # 5 degrees of freedom
    assert (actions[0] != actions[1]).any()


@pytest.mark.parametrize("on_device", [True, False])
def test_acting_writes_the_rows_of_its_lanes_and_no_others(on_device: bool) -> None:
    """Three of four lanes act: rows that pad the batch (`backend.filled`) must not be written."""
    model = make_model(on_device=on_device)
    ring = model.experience.ring
    before = model.experience.read()
    lanes, ones = np.array([0, 1, 3], np.int32), np.ones(3, np.int32)
    outcomes = np.full((3, 3), 0.5, np.float32)
    frames = np.full((3, *VECTORS.shape), 7, np.float32)
    greedy = np.zeros(3, np.float32)
    actions = model.act(Arrivals(lanes, 2 * ones, 0 * ones, outcomes, frames, greedy))
    assert actions.shape == (3,)
    after = model.experience.read()
    rows = lanes * ring.capacity + 2
    others = np.setdiff1d(np.arange(ring.lanes * ring.capacity), rows)
    for name, column in after.items():
        np.testing.assert_array_equal(column[others], before[name][others], err_msg=name)
    assert (after["frame"][rows] == 7).all()
    np.testing.assert_array_equal(after["action"][rows], actions)


@pytest.mark.skipif(backend.FRAMEWORK != "jax", reason="TensorFlow traces one size for all")
@pytest.mark.parametrize("on_device", [True, False], ids=["device", "host"])
def test_jax_compiles_acting_for_few_sizes(
    on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, traced = A3C.act, []

    def recorded(self: A3C, network: keras.Model, observations: Any, *given: Any) -> Any:
        traced.append(len(observations))
        return act(self, network, observations, *given)

    monkeypatch.setattr(A3C, "act", recorded)
    model = make_model(lanes=8, on_device=on_device)
    for lanes in range(1, 9):
        assert model.act(arrivals_of(np.zeros((lanes, 3), np.float32))).shape == (lanes,)
    assert set(traced) == {1, 2, 4, 8}


def test_equal_seeds_draw_equal_actions_and_others_do_not() -> None:
    frames = np.zeros((64, 3), np.float32)  # biases start at 0, so all actions are equally likely
    draws = [
        make_model(lanes=64, seed=seed).act(arrivals_of(frames)).tolist() for seed in (5, 5, 6)
    ]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


# Networks


def test_torsos_are_the_published_ones() -> None:
    """Kernels [height, width, in, filters] and units, by name (GA3C, Table 2; Mnih et al. 2015)."""
    large: list[tuple[int, ...]] = [(8, 8, 4, 32), (4, 4, 32, 32), (4, 4, 32, 64)]
    small: list[tuple[int, ...]] = [(8, 8, 4, 16), (4, 4, 16, 32)]
    nature: list[tuple[int, ...]] = [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)]
    expected: dict[str, list[tuple[int, ...]]] = {
        # The last two: the dense layer on what is left of 84 x 84, without and with padding.
        "small": [*small, (9 * 9 * 32, 256), (11 * 11 * 32, 256)],
        "auto": [*small, (9 * 9 * 32, 256), (11 * 11 * 32, 256)],
        "large-4": [*large, (3 * 3 * 64, 256), (6 * 6 * 64, 256)],
        "large-3": [*large, (5 * 5 * 64, 256), (7 * 7 * 64, 256)],
        "large-2": [*large, (8 * 8 * 64, 256), (11 * 11 * 64, 256)],
        "large-1": [*large, (17 * 17 * 64, 256), (21 * 21 * 64, 256)],
        "nature": [*nature, (7 * 7 * 64, 512), (11 * 11 * 64, 512)],
        "minatar": [(3, 3, 4, 16), (82 * 82 * 16, 128), (84 * 84 * 16, 128)],
    }
    assert {*expected, "mlp", "parr"} == set(NETWORK_LINES)
    paddings: list[tuple[Any, int]] = [("valid", -2), ("same", -1)]
    for name, kernels in expected.items():
        for padding, dense in paddings:
            config = NetworkConfig(name, padding=padding, initializer="fan-in")
            network = A3C(A3CConfig(), Actions(6)).network(config, (84, 84, 4), "uint8", True)
            found = {tuple(w.shape) for w in network.weights if w.path.endswith("kernel")}
            units = kernels[-1][1]
            assert found == {*kernels[:-2], kernels[dense], (units, 6), (units, 1)}, name
            if padding == "valid":
                assert_answers(network, np.zeros((2, 84, 84, 4), np.uint8), 6)


def test_mlp_takes_vectors() -> None:
    for name in ("mlp", "auto"):
        network = A3C(A3CConfig(), Actions(2)).network(NetworkConfig(name), (3,), "float32", False)
        kernels = [tuple(w.shape) for w in network.weights if w.path.endswith("kernel")]
        assert sorted(kernels) == [(3, 64), (64, 1), (64, 2), (64, 64)]
        assert_answers(network, np.zeros((5, 3), np.float32), 2)


def assert_answers(network: Any, observations: Array, actions: int) -> None:
    logits, values = network(observations)
    assert logits.shape == (len(observations), actions)
    assert values.shape == (len(observations),)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((84, 84, 4), "uint8"), ((3,), "float32")], ids=["pictures", "vectors"]
)
def test_bfloat16_keeps_weights_and_answers_in_float32(shape: tuple[int, ...], dtype: str) -> None:
    whole, brief = (
        A3C(A3CConfig(), FINITE).network(NetworkConfig(precision=p), shape, dtype, len(shape) > 1)
        for p in ("float32", "bfloat16")
    )
    brief.set_weights(whole.get_weights())
    assert {weight.dtype for weight in brief.weights} == {"float32"}
    observations = np.random.default_rng(0).integers(0, 256, (50, *shape)).astype(dtype)
    for exact, found in zip(whole(observations), brief(observations), strict=True):
        assert keras.backend.standardize_dtype(found.dtype) == "float32"
        difference = np.abs(np.asarray(found) - np.asarray(exact)).max()
        assert 0 < difference < 0.05 * np.abs(np.asarray(exact)).max()


def test_bfloat16_keeps_all_weights_of_dpg_in_float32() -> None:
    """Its layer normalisation too, of which no update would move weights in bfloat16."""
    config = NetworkConfig(precision="bfloat16")
    network = DPG(DPGConfig(), Actions(0, 2)).network(config, (5,), "float32", False)
    assert {weight.dtype for weight in network.weights} == {"float32"}
    observations = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    before = network.get_weights()
    optimizer, variables = build_optimizer(OptimizerConfig()), network.trainable_variables
    prepare(optimizer, variables, 0.0)

    def loss() -> tuple[Any, Any]:
        actions, values = network(observations)
        return keras.ops.sum(values) + keras.ops.sum(actions), ()

    _, _, gradients = backend.value_and_gradients(loss, variables)
    optimizers.apply(optimizer, gradients, variables)
    moved = [np.any(one != other) for one, other in zip(before, network.get_weights(), strict=True)]
    assert all(moved)


@pytest.mark.parametrize("is_picture", [True, False], ids=["pictures", "vectors"])
def test_bfloat16_gradients_of_weights_and_biases_are_those_of_float32(is_picture: bool) -> None:
    """Each weight's gradient differs from the float32 one by less than 15% of its length."""
    rng = np.random.default_rng(0)
    given = balls(rng, 256) if is_picture else rng.normal(size=(4096, 20)).astype(np.float32)
    first: list[Array] = []
    found: dict[str, list[Array]] = {}
    for precision in ("float32", "bfloat16"):
        config: Any = NetworkConfig(precision=precision)
        shape, dtype = given.shape[1:], str(given.dtype)
        network = A3C(A3CConfig(), FINITE).network(config, shape, dtype, is_picture)
        first = first or network.get_weights()
        network.set_weights(first)

        def loss(network: Any = network) -> tuple[Any, Any]:
            logits, values = network(given)
            return keras.ops.sum(keras.ops.log_softmax(logits)[:, 0]) + keras.ops.sum(values), ()

        _, _, gradients = backend.value_and_gradients(loss, network.trainable_variables)
        found[precision] = [np.asarray(each) for each in gradients]
    for exact, ours in zip(found["float32"], found["bfloat16"], strict=True):
        assert np.linalg.norm(ours - exact) < 0.15 * np.linalg.norm(exact)


@pytest.mark.parametrize("orthogonal", [True, False])
def test_only_orthogonal_initial_policies_are_nearly_uniform(orthogonal: bool) -> None:
    """Orthogonal policy heads start small; fan-in ones, as in the published code, do not."""
    config = NetworkConfig(initializer="orthogonal" if orthogonal else "fan-in")
    network = A3C(A3CConfig(), Actions(4)).network(config, (3,), "float32", False)
    observations = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    probs = reference.softmax(np.asarray(network(observations)[0]))
    assert (np.abs(probs - 0.25).max() < 0.01) == orthogonal


def test_fan_in_weights_are_uniform_within_the_published_bounds() -> None:
    config = NetworkConfig("small", initializer="fan-in")
    network = A3C(A3CConfig(), Actions(4)).network(config, (84, 84, 4), "uint8", True)
    for kernel in values_of([w for w in network.weights if w.path.endswith("kernel")]):
        bound = np.prod(kernel.shape[:-1]) ** -0.5
        assert 0.9 * bound < np.abs(kernel).max() <= bound
        assert kernel.std() == pytest.approx(bound / 3**0.5, rel=0.15)


@pytest.mark.parametrize(
    ("name", "spaces", "message"),
    [
        ("mlp", PICTURES, "network mlp does not take pictures: choose small"),
        ("small", VECTORS, "network small does not take vectors: choose mlp"),
        ("nature", VECTORS, "network nature does not take vectors: choose mlp"),
    ],
)
def test_network_that_does_not_fit_the_observations_is_refused(
    name: str, spaces: Spaces, message: str
) -> None:
    algorithm = A3C(ALGORITHM, FINITE)
    with pytest.raises(ValueError, match=message):
        Model(
            algorithm=algorithm,
            network=NetworkConfig(name),
            optimizer=OptimizerConfig(),
            source=in_order(algorithm, spaces),
            is_picture=spaces.is_picture,
            seed=0,
        )


def test_picture_too_small_for_the_network_is_refused() -> None:
    with pytest.raises(ValueError, match="too small for it without padding"):
        A3C(A3CConfig(), FINITE).network(NetworkConfig("small"), (8, 8, 4), "uint8", True)


def test_unknown_network_is_refused_with_the_choices() -> None:
    unknown: Any = "tiny"
    with pytest.raises(ValueError, match="network 'tiny': must be one of auto, small, large-4"):
        NetworkConfig(unknown)


def balls(rng: np.random.Generator, count: int) -> Array:
    """Pictures of a small bright square on an even background, like Pong's ball."""
    pictures = np.full((count, 84, 84, 4), 87, np.uint8)
    for picture in pictures:
        for frame in range(4):
            y, x = rng.integers(80, size=2)
            picture[y : y + 4, x : x + 4, frame] = 236
    return pictures


@pytest.mark.parametrize(("center", "least", "most"), [(True, 0.9, 1.0), (False, 0.0, 0.7)])
def test_centred_pictures_keep_the_first_layers_units_alive(
    center: bool, least: float, most: float
) -> None:
    """Without centring, an even background kills many units while values are first learned."""
    spaces = Spaces((84, 84), "uint8", FINITE, 4)
    algorithm, steps = A3C(A3CConfig(), FINITE), (4, 20)
    model = Model(
        algorithm=algorithm,
        network=NetworkConfig(center=center, layer_norm=False),
        optimizer=OptimizerConfig(),
        source=in_order(algorithm, spaces, 1, t_max=20, on_device=False),
        is_picture=True,
        seed=0,
    )
    rng = np.random.default_rng(0)
    nothing = np.zeros(steps, np.float32)
    for _ in range(60):
        actions = rng.integers(ACTIONS, size=steps).astype(np.int32)
        rewards = -(rng.random(steps) < 0.02).astype(np.float32)
        acted = nothing - np.float32(np.log(ACTIONS))
        discounts = nothing + np.float32(0.99)
        segments = Segments(balls(rng, 4 * 21), actions, acted, rewards, discounts, nothing)
        model.update(segments, progress=0.0)
    first = keras.Model(model.network.input, model.network.get_layer("conv_0").output)
    fired = np.asarray(first(balls(rng, 64))) > 0
    assert least <= fired.any(axis=(0, 1, 2)).mean() <= most


@pytest.mark.parametrize(
    ("name", "shape", "norm"),
    [("small", (84, 84, 4), "dense_norm"), ("mlp", (6,), "dense_1_norm")],
)
def test_the_last_dense_layer_is_normalised_before_its_activation(
    name: Any, shape: tuple[int, ...], norm: str
) -> None:
    config, is_picture = NetworkConfig(name), len(shape) == 3
    rng = np.random.default_rng(0)
    given = rng.integers(0, 256, (5, *shape)).astype(np.uint8)
    network = A3C(A3CConfig(), FINITE).network(config, shape, "uint8", is_picture)
    layer = network.get_layer(norm)
    normalised = np.asarray(keras.Model(network.input, layer.output)(given))
    np.testing.assert_allclose(normalised.mean(axis=1), 0.0, atol=1e-5)
    np.testing.assert_allclose(normalised.std(axis=1), 1.0, atol=0.05)
    plain = A3C(A3CConfig(), FINITE).network(
        NetworkConfig(name, layer_norm=False), shape, "uint8", is_picture
    )
    units = normalised.shape[1]
    assert network.count_params() == plain.count_params() + 2 * units
    assert not any("norm" in weight.path for weight in plain.weights)


@pytest.mark.parametrize(
    ("shape", "is_picture", "name"),
    [
        ((84, 84, 4), True, "small"),
        ((20, 20, 3), True, "small"),
        ((10, 10, 4), True, "minatar"),
        ((8,), False, "mlp"),
    ],
)
def test_auto_is_the_torso_that_fits_the_observation(
    shape: tuple[int, ...], is_picture: bool, name: str
) -> None:
    found = resolved(NetworkConfig("auto"), shape, is_picture)
    assert found.network == name
    network = A3C(A3CConfig(), FINITE).network(NetworkConfig("auto"), shape, "uint8", is_picture)
    logits, values = network(np.zeros((2, *shape), np.uint8))
    assert (logits.shape, values.shape) == ((2, ACTIONS), (2,))


@pytest.mark.parametrize(
    ("name", "shape", "units", "dense"),
    [
        ("mlp", (6,), (32, 16, 8), [(6, 32), (32, 16), (16, 8)]),
        ("mlp", (6,), (5,), [(6, 5)]),
        ("parr", (6,), None, [(6, 128), (128, 512)]),
        ("auto", (20, 20, 4), (7,), [(32, 7)]),
    ],
)
@pytest.mark.parametrize("dueling", [False, True])
def test_dense_layers_have_the_units_that_are_asked_for(
    name: Any, shape: tuple[int, ...], units: Any, dense: list[tuple[int, int]], dueling: bool
) -> None:
    config, is_picture = NetworkConfig(name, units, layer_norm=False), len(shape) == 3
    dqn = DQN(DQNConfig(dueling=dueling), ACTIONS)
    network = dqn.network(config, shape, "uint8", is_picture)
    heads = {"q", "value", "advantage"}
    layers = [
        layer
        for layer in network.layers
        if isinstance(layer, keras.layers.Dense) and layer.name not in heads
    ]
    streams = 2 if dueling else 1
    assert [tuple(layer.kernel.shape) for layer in layers] == dense[:-1] + dense[-1:] * streams
    torso = resolved(config, shape, is_picture)
    kernels = [weight for weight in network.weights if "kernel" in weight.path]
    shared = [math.prod(k.shape) for k in kernels if not heads & {*k.path.split("/")}]
    assert count_weights(torso, shape, is_picture) == sum(shared) - math.prod(dense[-1]) * (
        streams - 1
    )


@pytest.mark.parametrize(
    ("network", "units", "shape", "words"),
    [
        ("auto", (), (6,), "must be one or more numbers above 0"),
        ("auto", (64, 0), (6,), "must be one or more numbers above 0"),
        ("auto", (64, 64), (84, 84, 4), r"units \(64, 64\): network small has one dense layer"),
    ],
)
def test_units_that_do_not_fit_the_network_are_refused(
    network: Any, units: Any, shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        resolved(NetworkConfig(network, units), shape, len(shape) == 3)


def test_each_stream_of_a_dueling_network_is_normalised() -> None:
    dqn = DQN(DQNConfig(dueling=True), ACTIONS)
    network = dqn.network(NetworkConfig("mlp"), (6,), "float32", False)
    names = {weight.path for weight in network.weights}
    for stream in ("value_stream", "advantage_stream"):
        assert {f"{stream}_norm/gamma", f"{stream}_norm/beta"} <= names


@pytest.mark.parametrize(
    ("scale", "at_byte"), [("unit", lambda x: x / 255), ("symmetric", lambda x: x / 128 - 1)]
)
def test_pixels_enter_the_network_in_the_configured_range(
    scale: Any, at_byte: Callable[[Array], Array]
) -> None:
    """Byte pictures, and the same ones as floats in [0, 1], reach the first convolution alike."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (3, 20, 20, 4)).astype(np.uint8)
    pictures[0, 0, 0, :3] = 0, 128, 255
    inputs = {"uint8": pictures, "float32": pictures.astype(np.float32) / 255}
    for dtype, given in inputs.items():
        config = NetworkConfig("small", pixel_scale=scale, center=False)
        network = A3C(A3CConfig(), FINITE).network(config, (20, 20, 4), dtype, True)
        shown = keras.Model(network.input, network.get_layer("conv_0").input)
        found = np.asarray(shown(given))
        np.testing.assert_allclose(found, at_byte(pictures.astype(np.float32)), atol=1e-6)


def test_centring_bytes_within_the_first_convolution_equals_centring_floats() -> None:
    """Bytes x and floats x / 255 give the same outputs and gradients, up to rounding."""
    pictures = balls(np.random.default_rng(0), 6)
    inputs = {"uint8": pictures, "float32": pictures.astype(np.float32) / 255}
    first: list[Array] = []
    found: dict[str, list[Array]] = {}
    for dtype, given in inputs.items():
        network = A3C(A3CConfig(), FINITE).network(NetworkConfig(), (84, 84, 4), dtype, True)
        first = first or network.get_weights()
        network.set_weights(first)

        def loss(network: Any = network, given: Any = given) -> tuple[Any, Any]:
            logits, values = network(given)
            shown = keras.ops.sum(keras.ops.square(logits)) + keras.ops.sum(values)
            return shown, (logits, values)

        _, outputs, gradients = backend.value_and_gradients(loss, network.trainable_variables)
        found[dtype] = [np.asarray(each) for each in (*outputs, *gradients)]
    layers = {type(layer).__name__ for layer in network.layers}
    assert "CentredConv2D" not in layers, "the floats' network is not the other way"
    for ours, plain in zip(found["uint8"], found["float32"], strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-4 * np.abs(plain).max())


def test_bytes_of_a_vector_are_normalised_as_the_same_numbers_are() -> None:
    observations = np.random.default_rng(0).integers(0, 256, (64, 5), np.uint8)
    config, answers = NetworkConfig(normalize_observations=True, layer_norm=False), []
    for dtype in ("uint8", "float32"):
        keras.utils.set_random_seed(0)
        network = A3C(ALGORITHM, FINITE).network(config, (5,), dtype, False)
        given = observations.astype(dtype)
        for layer in measured_by(network):
            layer.measure(SimpleNamespace(observations=ops.convert_to_tensor(given)))
        answers.append([np.asarray(each) for each in network(ops.convert_to_tensor(given))])
    np.testing.assert_allclose(answers[0][0], answers[1][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answers[0][1], answers[1][1], rtol=1e-5, atol=1e-6)
    assert answers[0][1].std() > 0.1, "as of numbers that are not nearly one"


def measured(layer: Any, batches: list[Array], of: str) -> Any:
    for batch in batches:
        layer.measure(SimpleNamespace(**{of: ops.convert_to_tensor(batch.astype(np.float32))}))
    return layer


def test_measured_statistics_cover_all_batches_together() -> None:
    """The three batches differ in mean, deviation and size."""
    rng = np.random.default_rng(0)
    batches = [rng.normal(n, n + 1, (10**n, 2)) for n in (1, 2, 3)]
    every = np.concatenate(batches)
    layer = Normalized()
    layer.build((None, 2))
    measured(layer, batches, "observations")
    expected = (every - every.mean(axis=0)) / every.std(axis=0)
    given = ops.convert_to_tensor(every.astype(np.float32))
    np.testing.assert_allclose(np.asarray(layer(given)), expected, rtol=1e-3, atol=1e-4)
    scale = ValueScale()
    scale.build((None,))
    measured(scale, [batch[:, 0] for batch in batches], "rewards")
    root = np.sqrt(np.square(every[:, 0]).mean())
    assert float(np.asarray(scale.scale)) == pytest.approx(root, rel=1e-4)


def test_the_scale_stays_1_until_the_first_reward_that_is_not_zero() -> None:
    scale = ValueScale()
    scale.build((None,))
    measured(scale, [np.zeros(10)], "rewards")
    assert float(np.asarray(scale.scale)) == 1.0, "nothing is known yet"
    measured(scale, [np.full(10, -1000.0)], "rewards")
    assert float(np.asarray(scale.scale)) == pytest.approx(1000 * np.sqrt(0.5))


def test_sensors_in_small_units_are_normalised_too() -> None:
    layer, rng = Normalized(), np.random.default_rng(0)
    layer.build((None, 2))
    x = np.stack([1e-3 * rng.normal(size=1000), np.full(1000, 5.0)], axis=1)
    measured(layer, [x], "observations")
    found = np.asarray(layer(ops.convert_to_tensor(x.astype(np.float32))))
    assert found[:, 0].std() == pytest.approx(1.0, rel=0.02)
    assert np.abs(found[:, 1]).max() < 0.1, "a constant stays near 0"


def test_one_huge_number_does_not_make_the_statistics_infinite() -> None:
    beyond, usual = np.array([[1e30]]), np.random.default_rng(0).normal(size=(64, 1))
    layer = Normalized()
    layer.build((None, 1))
    measured(layer, [beyond, usual], "observations")
    scale = ValueScale()
    scale.build((None,))
    measured(scale, [beyond, usual], "rewards")
    for weight in [*layer.weights, *scale.weights]:
        assert np.isfinite(np.asarray(weight)).all(), weight.path


def test_vectors_are_not_rescaled_as_pixels_are() -> None:
    for scale in ("unit", "symmetric"):
        config: Any = NetworkConfig("mlp", pixel_scale=scale)
        network = A3C(A3CConfig(), FINITE).network(config, (3,), "float32", False)
        shown = keras.Model(network.input, network.get_layer("dense_0").input)
        given = np.array([[-3.0, 0.5, 200.0]], np.float32)
        np.testing.assert_array_equal(np.asarray(shown(given)), given)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((20, 20, 4), "uint8"), ((3,), "float32")], ids=["pictures", "vectors"]
)
@pytest.mark.parametrize("separate", [True, False])
def test_a_separate_values_gradient_does_not_reach_the_policys_features(
    shape: tuple[int, ...], dtype: str, separate: bool
) -> None:
    config = NetworkConfig(separate_value=separate)
    network = A3C(A3CConfig(), FINITE).network(config, shape, dtype, len(shape) > 1)
    given = np.random.default_rng(0).integers(0, 9, (2, *shape)).astype(dtype)
    reached = {}
    for place, name in enumerate(("policy", "value")):
        variables = network.trainable_variables
        _, _, gradients = backend.value_and_gradients(
            lambda place=place: (keras.ops.sum(keras.ops.square(network(given)[place] + 1)), None),
            variables,
        )
        reached[name] = {
            v.path
            for v, g in zip(variables, gradients, strict=True)
            if g is not None and np.abs(np.asarray(g)).max() > 0
        }
    assert all(reached.values())
    shared = reached["policy"] & reached["value"]
    assert bool(shared) is not separate


def test_values_are_scaled_and_the_policy_is_not() -> None:
    networks = [
        A3C(A3CConfig(), FINITE).network(NetworkConfig(value_scale=s), (3,), "float32", False)
        for s in (1.0, 10.0)
    ]
    networks[1].set_weights(networks[0].get_weights())
    given = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    (logits, values), (logits_scaled, values_scaled) = (
        [np.asarray(each) for each in network(given)] for network in networks
    )
    np.testing.assert_array_equal(logits, logits_scaled)
    np.testing.assert_allclose(10 * values, values_scaled, rtol=1e-6)
