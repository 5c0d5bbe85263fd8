"""JAX: compiled functions of explicit state, tables written in place, gradients and random draws.

This is the only module that imports JAX. The state that a function reads and sets (tables, weights,
the optimizer's state) is found by tracing the function once. The compiled function takes that state
as an argument and returns the new state in the same memory. State is read and replaced under one
lock, which is held for the dispatch but not for the execution. So any thread may call a compiled
function, and each call sees the state that the last call left.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from ga3c.backend.common import Column, Signature, Tensor, without

ROW_DTYPE = "int32"  # of row numbers; JAX has no 64-bit integers by default
_DISPATCH = threading.RLock()
Adam = keras.optimizers.Adam  # JAX compiles its step to a single pass
RMSprop = keras.optimizers.RMSprop


def configure(intra_op_threads: int, seed: int) -> None:
    """Set the threads per operation and the seed for the initial weights. Call this first."""
    several = str(intra_op_threads > 1).lower()
    os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen={several}")
    with without("tensorflow"):  # Keras would import TensorFlow only to seed it
        keras.utils.set_random_seed(seed)
    jax.devices()  # starts the runtime


def has_gpu() -> bool:
    """Whether the model runs on a GPU."""
    return jax.default_backend() == "gpu"


def free_bytes() -> int | None:
    """Free memory of the GPU; None if the device is the CPU."""
    memory = jax.devices()[0].memory_stats() if has_gpu() else None
    return memory["bytes_limit"] - memory["bytes_in_use"] if memory else None


class _Trace(keras.StatelessScope):
    """Values of variables while a function is traced; records which ones it reads and sets."""

    def __init__(self, values: Mapping[int, Tensor], outer: keras.StatelessScope | None) -> None:
        super().__init__()
        self.state_mapping.update(values)
        self._outer = outer
        self.variables_read: dict[int, Any] = {}
        self.variables_set: dict[int, Any] = {}

    def get_current_value(self, variable: Any) -> Tensor | None:
        value = self.state_mapping.get(id(variable))
        if value is not None:
            return value
        self.variables_read.setdefault(id(variable), variable)
        return self._outer.get_current_value(variable) if self._outer else None

    def add_update(self, update: tuple[Any, Tensor]) -> None:
        self.variables_set.setdefault(id(update[0]), update[0])
        super().add_update(update)


class DeviceTable:
    """Columns of `rows` entries on the device, written in place.

    `write` and `gather` are used inside compiled functions. A gather copies only the rows that it
    names.
    """

    def __init__(self, columns: Mapping[str, Column], rows: int) -> None:
        self._variables = {
            name: keras.Variable(
                jnp.zeros((rows, *shape), dtype), dtype=dtype, trainable=False, name=name
            )
            for name, (shape, dtype) in columns.items()
        }

    def write(self, rows: Tensor, values: Mapping[str, Tensor]) -> None:
        """Write `values[name]` [n, ...] to `rows` [n]; rows beyond the last one are ignored."""
        for name, value in values.items():
            variable = self._variables[name]
            entries = jnp.asarray(value, variable.dtype)
            variable.assign(variable.value.at[jnp.asarray(rows)].set(entries, mode="drop"))

    def gather(self, name: str, rows: Tensor) -> Tensor:
        """The entries of a column at `rows` [...], as [..., *shape]."""
        return jnp.take(self._variables[name].value, jnp.asarray(rows), axis=0, mode="clip")

    def read(self) -> dict[str, np.ndarray]:
        """A copy of every column. Not for use inside a compiled function."""
        with _DISPATCH:  # memory that was donated to a compiled function cannot be read
            return {name: np.array(variable.value) for name, variable in self._variables.items()}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Restore what `read` returned. Raises KeyError or ValueError if it does not fit."""
        with _DISPATCH:
            for name, variable in self._variables.items():
                variable.assign(np.array(values[name], variable.dtype))

    def devices(self) -> dict[str, str]:
        """The device of each column."""
        with _DISPATCH:
            return {
                name: ", ".join(map(str, variable.value.devices()))
                for name, variable in self._variables.items()
            }


def channels_last(frames: Sequence[Tensor]) -> Tensor:
    """Frames [..., pixels], oldest first, as one tensor [..., pixels, len(frames)]."""
    return jnp.stack(frames, axis=-1)


def _key(seed: Tensor) -> Tensor:
    return jax.random.fold_in(jax.random.key(seed[0]), seed[1])


def integers(shape: Any, seed: Tensor, total: Tensor) -> Tensor:
    """Reproducible int32 draws from [0, total): `seed` is int32 [2]."""
    return jax.random.randint(_key(seed), shape, 0, total, jnp.int32)


def uniform(shape: Any, seed: Tensor) -> Tensor:
    """Reproducible uniform draws from [tiny, 1): `seed` is int32 [2]."""
    return jax.random.uniform(_key(seed), shape, jnp.float32, minval=1e-20)


def filled(count: int) -> int:
    """The size that a batch of `count` rows is padded to, so that few sizes are compiled."""
    return 1 << max(count - 1, 0).bit_length()


def value_and_gradients(
    function: Callable[[], tuple[Tensor, Any]], variables: Sequence[Any]
) -> tuple[Tensor, Any, list[Tensor]]:
    """The scalar and the auxiliary value of `function`, and the gradients of the scalar."""
    outer = keras.src.backend.common.stateless_scope.get_stateless_scope()

    def of_values(values: list[Tensor]) -> tuple[Tensor, Any]:
        with _Trace(dict(zip(map(id, variables), values, strict=True)), outer):
            return function()

    values = [variable.value for variable in variables]
    (value, auxiliary), gradients = jax.value_and_grad(of_values, has_aux=True)(values)
    return value, auxiliary, gradients


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of a scalar function at `x`, of x's shape; also within `value_and_gradients`."""
    return jax.grad(function)(x)


def when(condition: Tensor, function: Callable[[], Any]) -> None:
    """Call `function`, which sets variables, only if the scalar `condition` holds."""
    outer = keras.src.backend.common.stateless_scope.get_stateless_scope()
    with _Trace({}, outer) as scope:
        function()
    for key, variable in scope.variables_set.items():
        variable.assign(jnp.where(condition, scope.state_mapping[key], variable.value))


def compiled(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """`function`, compiled for each size of its inputs when that size first occurs."""
    programs: list[_Program] = []

    def call(*inputs: Any) -> Any:
        with _DISPATCH:
            if not programs:
                programs.append(_Program(function, inputs))
            return programs[0].run(inputs)

    return call


class _Program:
    """A function with the state that it reads and sets, which is found by tracing it."""

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Any]) -> None:
        trace = _Trace({}, None)

        def traced(*inputs: Tensor) -> Any:
            with trace:
                return function(*inputs)

        jax.eval_shape(traced, *inputs)
        was_set = trace.variables_set
        self._set = list(was_set.values())
        self._only_read = [v for key, v in trace.variables_read.items() if key not in was_set]
        keys = [id(variable) for variable in (*self._set, *self._only_read)]
        set_keys = keys[: len(self._set)]

        def pure(old: list[Tensor], constant: list[Tensor], *inputs: Tensor) -> tuple[Any, Any]:
            with _Trace(dict(zip(keys, (*old, *constant), strict=True)), None) as scope:
                result = function(*inputs)
                return result, [scope.state_mapping[key] for key in set_keys]

        self._pure = jax.jit(pure, donate_argnums=0)

    def run(self, inputs: Sequence[Any]) -> Any:
        """Dispatch the function, and install the state that it will compute."""
        old = [variable.value for variable in self._set]
        result, new = self._pure(old, [variable.value for variable in self._only_read], *inputs)
        for variable, value in zip(self._set, new, strict=True):
            variable.assign(value)
        return result
