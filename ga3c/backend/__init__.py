"""What `keras.ops` cannot do, in one module for each tensor framework.

KERAS_BACKEND selects the framework, as it does for Keras. Set it before the first import.
"""

import os
from typing import TYPE_CHECKING

from ga3c.backend import common

FRAMEWORK = os.environ.setdefault("KERAS_BACKEND", "tensorflow")

if TYPE_CHECKING or FRAMEWORK != "jax":
    from ga3c.backend import fused as optimizers
    from ga3c.backend import tensorflow as framework
else:
    from ga3c.backend import jax as framework

    optimizers = framework

Column = common.Column
Signature = common.Signature
Tensor = common.Tensor

Adam = optimizers.Adam
RMSprop = optimizers.RMSprop

ROW_DTYPE = framework.ROW_DTYPE
DeviceTable = framework.DeviceTable
channels_last = framework.channels_last
compiled = framework.compiled
configure = framework.configure
filled = framework.filled
free_bytes = framework.free_bytes
gradient = framework.gradient
has_gpu = framework.has_gpu
integers = framework.integers
uniform = framework.uniform
value_and_gradients = framework.value_and_gradients
when = framework.when
