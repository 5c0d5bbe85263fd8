"""The tensor framework: what `keras.ops` cannot do, one module per framework."""

from ga3c.backend.tensorflow import (
    Column,
    DeviceRing,
    Tensor,
    channels_last,
    compiled,
    configure,
    has_gpu,
    minimum,
    reshape,
    shape,
    uniform,
    value_and_gradients,
)

__all__ = [
    "Column",
    "DeviceRing",
    "Tensor",
    "channels_last",
    "compiled",
    "configure",
    "has_gpu",
    "minimum",
    "reshape",
    "shape",
    "uniform",
    "value_and_gradients",
]
