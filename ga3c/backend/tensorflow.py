"""TensorFlow: tables written in place, traced functions, gradients and random draws.

Only this module and `fused` import TensorFlow. Everything is built on the main thread; other
threads only call what `compiled` returned.
"""

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ga3c.backend.common import Column, Signature, Tensor, without, without_collections
from ga3c.settings.machine import said_of_gpus

ROW_DTYPE = "int64"
"""Dtype of row numbers. TensorFlow's GPU kernels for scatter and gather multiply a row number by
the size of a row in this type. With int32 and rows of 84x84 bytes that overflows at row 304,348.
Also, arithmetic on int32 tensors would run on the host.
"""

BLOCK_ROWS = 2048  # rows of a column that are copied to or from RAM at once
NOISE = ("WARNING: All log messages before absl", "oneDNN custom", "cpu_feature_guard", "To enable")


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Collect what C++ code writes to standard error; print all of it but the start-up messages."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            file.seek(0)
            for line in file.read().decode(errors="replace").splitlines():
                if not any(noise in line for noise in NOISE):
                    print(line, file=sys.stderr)


# TensorFlow and Keras would import these packages for parts that we do not use. JAX would take a
# second, the others a sixth of the remaining import time.
with _without_noise(), without("jax", "matplotlib", "scipy"), without_collections():
    import tensorflow as tf


def configure(intra_op_threads: int, seed: int) -> None:
    """Set the threads per operation and the seed for the initial weights. Call this first."""
    tf.keras.utils.set_random_seed(seed)
    with contextlib.suppress(RuntimeError):  # TensorFlow has started, and its threads are fixed
        tf.config.threading.set_intra_op_parallelism_threads(intra_op_threads)
    with _without_noise():
        tf.config.list_logical_devices()  # starts the runtime


def has_gpu() -> bool:
    """Whether the model runs on a GPU."""
    return bool(tf.config.list_logical_devices("GPU"))


class DeviceTable:
    """Columns of `rows` entries on the device, written in place.

    `write` and `gather` are used inside compiled functions. A gather copies only the rows that it
    names. Threads may write and gather at the same time, but not the same rows.

    TensorFlow has no int32 variables on a GPU. An int32 column is stored with the same bits as
    uint32, and is gathered as int64, because arithmetic on int32 would run on the host.
    """

    def __init__(self, columns: Mapping[str, Column], rows: int) -> None:
        self._variables = {
            name: tf.Variable(tf.zeros((rows, *shape), _stored(dtype)), trainable=False, name=name)
            for name, (shape, dtype) in columns.items()
        }
        self._dtypes = {name: dtype for name, (_, dtype) in columns.items()}

    def write(self, rows: Tensor, values: Mapping[str, Tensor]) -> None:
        """Write `values[name]` [n, ...] to `rows` [n], of any integer dtype."""
        rows = tf.cast(rows, ROW_DTYPE)
        for name, value in values.items():
            variable = self._variables[name]
            entries = tf.cast(value, self._dtypes[name])
            if entries.dtype != variable.dtype:
                entries = tf.bitcast(entries, variable.dtype)
            tf.raw_ops.ResourceScatterUpdate(
                resource=variable.handle, indices=rows, updates=entries
            )

    def gather(self, name: str, rows: Tensor) -> Tensor:
        """The entries of a column at `rows` [...], as [..., *shape]; int32 columns as int64."""
        entries = tf.gather(self._variables[name], tf.cast(rows, ROW_DTYPE))
        if self._dtypes[name] != "int32":
            return entries
        return tf.cast(tf.bitcast(entries, tf.int32), tf.int64)

    def read(self) -> dict[str, np.ndarray]:
        """A copy of every column. Not for use inside a compiled function."""
        copies = {name: np.empty(v.shape, v.dtype.name) for name, v in self._variables.items()}
        for name, rows in self._blocks():
            copies[name][rows] = tf.gather(self._variables[name], np.r_[rows])
        return {name: copy.view(self._dtypes[name]) for name, copy in copies.items()}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises KeyError or ValueError if it does not fit."""
        for name, variable in self._variables.items():
            if np.shape(values[name]) != tuple(variable.shape):
                raise ValueError(f"{name}: {np.shape(values[name])}, must be {variable.shape}")
        for name, rows in self._blocks():
            self.write(np.r_[rows], {name: values[name][rows]})

    def _blocks(self) -> Iterator[tuple[str, slice]]:
        """Each column's rows in blocks: to read or set a whole column, TensorFlow would copy it."""
        for name, variable in self._variables.items():
            for first in range(0, variable.shape[0], BLOCK_ROWS):
                yield name, slice(first, min(first + BLOCK_ROWS, variable.shape[0]))

    def devices(self) -> dict[str, str]:
        """The device of each column."""
        return {name: variable.device for name, variable in self._variables.items()}


def _stored(dtype: str) -> str:
    """The dtype of the variable that holds a column of this dtype."""
    return "uint32" if dtype == "int32" else dtype


def channels_last(frames: Sequence[Tensor]) -> Tensor:
    """Frames [..., pixels], oldest first, as one tensor [..., pixels, len(frames)].

    On a CPU, XLA compiles one loop that packs four frames of bytes; compiling takes 30 ms for each
    number of frames. The loop takes half the time of TensorFlow's separate operations. On a GPU,
    `tf.stack` of bytes would copy the frames to the host, where its only kernel is.
    """
    if has_gpu():
        return concatenated(frames)
    if len(frames) != 4 or frames[0].dtype != tf.uint8:
        return tf.stack(frames, axis=-1)
    return _packed(*frames)


@tf.function(jit_compile=True, autograph=False)
def _packed(*frames: Tensor) -> Tensor:
    shifted = [tf.cast(frame, tf.uint32) * 256**place for place, frame in enumerate(frames)]
    return tf.bitcast(functools.reduce(tf.bitwise.bitwise_or, shifted), tf.uint8)


def concatenated(frames: Sequence[Tensor]) -> Tensor:
    """`channels_last` by an operation that runs on a GPU for every dtype of frames."""
    return tf.concat([frame[..., tf.newaxis] for frame in frames], axis=-1)


def integers(shape: Tensor, seed: Tensor, total: Tensor) -> Tensor:
    """Reproducible int32 draws from [0, total): `seed` is int32 [2]."""
    return tf.random.stateless_uniform(shape, seed, maxval=total, minval=0, dtype=tf.int32)


def free_bytes() -> int | None:
    """Free memory of the GPU; None if the device is the CPU."""
    if not has_gpu():
        return None
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]  # the one in use
    total_mib = said_of_gpus("memory.total", "noheader,nounits", first)
    if total_mib is None or not total_mib.split()[0].isdecimal():  # the GPU shares RAM
        return None
    used: int = tf.config.experimental.get_memory_info("GPU:0")["current"]
    return int(total_mib.split()[0]) * 2**20 - used


def uniform(shape: Tensor, seed: Tensor) -> Tensor:
    """Reproducible uniform draws from [tiny, 1): `seed` is int32 [2]."""
    return tf.random.stateless_uniform(shape, seed, minval=1e-20)


def filled(count: int) -> int:
    """The size that a batch of `count` rows is padded to: one program serves every size."""
    return count


def value_and_gradients(
    function: Callable[[], tuple[Tensor, Any]], variables: Sequence[Any]
) -> tuple[Tensor, Any, list[Tensor]]:
    """The scalar and the auxiliary value of `function`, and the gradients of the scalar."""
    with tf.GradientTape() as tape:
        value, auxiliary = function()
    zero = tf.UnconnectedGradients.ZERO  # as in JAX, where the value does not depend on a variable
    gradients = tape.gradient(value, [v.value for v in variables], unconnected_gradients=zero)
    return value, auxiliary, gradients


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of a scalar function at `x`, of x's shape; also within `value_and_gradients`."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    return tape.gradient(value, x)


def when(condition: Tensor, function: Callable[[], Any]) -> None:
    """Call `function`, which sets variables, only if the scalar `condition` holds."""

    def called() -> Tensor:
        function()
        return tf.constant(True)

    tf.cond(condition, called, lambda: tf.constant(False))


class _Operation:
    """A traced function that is called as an operation, in the calling thread: 0.05 ms per call.

    Calling the traced function itself takes 0.3 ms, for Python and for handing work to threads.
    """

    def __init__(self, traced: Any, signature: Signature) -> None:
        self.traced = traced
        self._captured = traced.captured_inputs
        self._inputs = [dtype for _, dtype in signature]
        self._outputs = [output.dtype for output in traced.outputs]

    def __call__(self, *inputs: Tensor) -> Any:
        given = [np.asarray(x, dtype) for x, dtype in zip(inputs, self._inputs, strict=True)]
        outputs = tf.raw_ops.StatefulPartitionedCall(
            args=[*given, *self._captured], Tout=self._outputs, f=self.traced
        )
        structure = self.traced.structured_outputs
        return tf.nest.pack_sequence_as(structure, outputs) if outputs else None


def compiled(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """`function`, traced now, for inputs (arrays or tensors) of these shapes and dtypes."""
    specs = [tf.TensorSpec(shape, dtype) for shape, dtype in signature]
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    return traced if has_gpu() else _Operation(traced, signature)
