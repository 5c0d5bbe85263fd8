"""What `keras.ops` cannot do, in one module for each tensor framework.

KERAS_BACKEND chooses the framework, for Keras too. It must be set before the first import.
"""

import os
from typing import TYPE_CHECKING

from ga3c.backend.common import Column, Signature, Tensor

FRAMEWORK = os.environ.setdefault("KERAS_BACKEND", "tensorflow")

if TYPE_CHECKING or FRAMEWORK != "jax":
    from ga3c.backend.fused import Adam, RMSprop
    from ga3c.backend.tensorflow import (
        ROW_DTYPE,
        DeviceTable,
        channels_last,
        compiled,
        configure,
        filled,
        free_bytes,
        gradient,
        has_gpu,
        integers,
        shape,
        uniform,
        value_and_gradients,
        when,
    )
else:
    from ga3c.backend.jax import (
        ROW_DTYPE,
        Adam,
        DeviceTable,
        RMSprop,
        channels_last,
        compiled,
        configure,
        filled,
        free_bytes,
        gradient,
        has_gpu,
        integers,
        shape,
        uniform,
        value_and_gradients,
        when,
    )

__all__ = [
    "FRAMEWORK",
    "ROW_DTYPE",
    "Adam",
    "Column",
    "DeviceTable",
    "RMSprop",
    "Signature",
    "Tensor",
    "channels_last",
    "compiled",
    "configure",
    "filled",
    "free_bytes",
    "gradient",
    "has_gpu",
    "integers",
    "shape",
    "uniform",
    "value_and_gradients",
    "when",
]
