"""Algorithms that fail inside the service on command, for `--algorithm MODULE:NAME`.

The file that the environment variable TRIGGER names is the order to fail. Whoever obeys removes it,
so the fault happens once.
"""

import contextlib
import os
from typing import Any

import tensorflow as tf

from agents.actions import Actions
from ga3c.learning.a3c import A3C
from ga3c.settings.learning import A3CConfig, LearningConfig

TRIGGER = "GA3C_FAULT_TRIGGER"


class _Fails(A3C):
    """a3c with its default settings."""

    def __init__(self, actions: Actions, learning: LearningConfig) -> None:
        super().__init__(A3CConfig(), actions)


class FailsActing(_Fails):
    """Raises in a predictor's thread."""

    def act(self, network: Any, observations: Any, noise: Any, exploration: Any) -> Any:
        """Act as a3c does, unless told to fail."""
        with tf.control_dependencies([_fail_if_told()]):
            return super().act(network, tf.identity(observations), noise, exploration)


class FailsLearning(_Fails):
    """Raises in a trainer's thread."""

    def loss(self, network: Any, target: Any, batch: Any, rates: Any) -> Any:
        """The loss of a3c, unless told to fail."""
        loss, (figures, errors) = super().loss(network, target, batch, rates)
        with tf.control_dependencies([_fail_if_told()]):
            return tf.identity(loss), (figures, errors)


def _fail_if_told() -> tf.Tensor:
    return tf.py_function(_obey, [], tf.bool)


def _obey() -> bool:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.environ[TRIGGER])
        raise RuntimeError("told to fail")
    return True
