"""The tensor framework: what `keras.ops` cannot do, one module per framework."""

from ga3c.backend.tensorflow import (
    Column,
    DeviceTable,
    Tensor,
    channels_last,
    compiled,
    configure,
    free_bytes,
    fused,
    has_gpu,
    integers,
    shape,
    uniform,
    value_and_gradients,
)

__all__ = [
    "Column",
    "DeviceTable",
    "Tensor",
    "channels_last",
    "compiled",
    "configure",
    "free_bytes",
    "fused",
    "has_gpu",
    "integers",
    "shape",
    "uniform",
    "value_and_gradients",
]
