"""Keras' optimizers with TensorFlow's fused operations, which make one pass over the weights."""

from collections.abc import Sequence
from typing import Any

from ga3c.backend.common import Tensor
from ga3c.backend.tensorflow import tf


class Adam(tf.keras.optimizers.Adam):
    """Keras' Adam with one operation per variable: one pass over its memory instead of twelve."""

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        """Update the variable, its momentum and its velocity."""
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=self.beta_1**step,
            beta2_power=self.beta_2**step,
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


class RMSprop(tf.keras.optimizers.RMSprop):
    """Keras' RMSprop with one operation per variable; it needs increments even without momentum."""

    def build(self, variables: Sequence[Any]) -> None:
        """Create the optimizer's state."""
        super().build(variables)
        self._increments = [m.value for m in self._momentums] or [
            tf.Variable(tf.zeros(variable.shape), trainable=False) for variable in variables
        ]

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        """Update the variable and its averages."""
        index = self._get_variable_index(variable)
        inputs = {
            "var": variable.handle,
            "ms": self._velocities[index].value.handle,
            "mom": self._increments[index].handle,
            "lr": learning_rate,
            "rho": self.rho,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
            "grad": gradient,
        }
        if self.centered:
            mean = self._average_gradients[index].value.handle
            tf.raw_ops.ResourceApplyCenteredRMSProp(mg=mean, **inputs)
        else:
            tf.raw_ops.ResourceApplyRMSProp(**inputs)
