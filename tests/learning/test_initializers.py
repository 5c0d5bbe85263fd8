"""Initial weights: orthogonal or uniform, and determined by the seed."""

import math

import keras
import numpy as np
import pytest

from ga3c.learning.layers import Orthogonal, Uniform


@pytest.mark.parametrize("shape", [(64, 8), (8, 64), (3, 3, 4, 16), (2, 2, 2, 32), (5, 1)])
def test_orthogonal_weights_keep_lengths_times_the_scale(shape: tuple[int, ...]) -> None:
    weights = np.asarray(Orthogonal(3.0)(shape), np.float64).reshape(-1, shape[-1])
    narrow = weights if weights.shape[0] >= weights.shape[1] else weights.T
    np.testing.assert_allclose(narrow.T @ narrow, 9.0 * np.eye(narrow.shape[1]), atol=1e-5)


def test_orthogonal_weights_prefer_no_sign() -> None:
    """Without the signs of R, diagonal entries would be positive in 0, 10, 13 and 86% of draws."""
    diagonals = np.array([np.diagonal(np.asarray(Orthogonal(1.0)((4, 4)))) for _ in range(500)])
    assert np.abs((diagonals > 0).mean(axis=0) - 0.5).max() < 5 * 0.5 / math.sqrt(500)


def test_uniform_weights_fill_their_range() -> None:
    weights = np.asarray(Uniform(0.25)((100, 100)))
    assert np.abs(weights).max() <= 0.25
    assert weights.std() == pytest.approx(0.25 / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize("kind", [Orthogonal, Uniform])
def test_the_seed_decides_and_each_draw_is_another(kind: type[Orthogonal] | type[Uniform]) -> None:
    def drawn() -> tuple[np.ndarray, np.ndarray]:
        keras.utils.set_random_seed(7)
        first = kind(1.0)
        return np.asarray(first((6, 3))), np.asarray(first((6, 3)))

    one, other = drawn()
    assert (one != other).any()
    np.testing.assert_array_equal(drawn(), (one, other))
    again = kind.from_config(kind(2.0).get_config())
    assert np.abs(np.asarray(again((6, 3)))).max() <= 2.0
