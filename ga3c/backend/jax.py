"""JAX: compiled functions of explicit state, tables written in place, gradients and random draws.

The only module that imports JAX. What a function reads and sets (tables, weights, the optimizer's
state) is found by tracing it once. Compiled, it takes that state and gives back what it has set,
in the same memory. State is taken and put back under one lock around the dispatch, never around
the execution: so any thread may call, and sees the state as it is when its turn comes.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from ga3c.backend.common import Column, Tensor, without

ROW_DTYPE = "int32"  # of row numbers; JAX has no 64-bit integers unless told so
_DISPATCH = threading.RLock()
Adam = keras.optimizers.Adam  # compiled, it is one pass already
RMSprop = keras.optimizers.RMSprop


def configure(intra_op_threads: int, seed: int) -> None:
    """Set threads for one operation and the seed of initial weights. Call before all else."""
    several = str(intra_op_threads > 1).lower()
    os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen={several}")
    with without("tensorflow"):  # Keras would import it, to seed it too
        keras.utils.set_random_seed(seed)
    jax.devices()  # starts the runtime


def has_gpu() -> bool:
    """Whether a GPU thinks; else cores do."""
    return jax.default_backend() == "gpu"


def free_bytes() -> int | None:
    """Memory of the GPU that nothing uses yet; None where the device is the processor."""
    known = jax.devices()[0].memory_stats() if has_gpu() else None
    return known["bytes_limit"] - known["bytes_in_use"] if known else None


class _Trace(keras.StatelessScope):
    """Values of variables while a function is traced; notes which it asks for and which it sets."""

    def __init__(self, values: Mapping[int, Tensor], outer: keras.StatelessScope | None) -> None:
        super().__init__()
        self.state_mapping.update(values)
        self._outer = outer
        self.asked: dict[int, Any] = {}
        self.changed: dict[int, Any] = {}

    def get_current_value(self, variable: Any) -> Tensor | None:
        known = self.state_mapping.get(id(variable))
        if known is not None:
            return known
        self.asked.setdefault(id(variable), variable)
        return self._outer.get_current_value(variable) if self._outer else None

    def add_update(self, update: tuple[Any, Tensor]) -> None:
        self.changed.setdefault(id(update[0]), update[0])
        super().add_update(update)


class DeviceTable:
    """Columns of `rows` entries each on the device, written in place.

    `write` and `gather` are for use inside a compiled function. A gather copies only the rows
    it names.
    """

    def __init__(self, columns: Mapping[str, Column], rows: int) -> None:
        self._variables = {
            name: keras.Variable(
                jnp.zeros((rows, *shape), dtype), dtype=dtype, trainable=False, name=name
            )
            for name, (shape, dtype) in columns.items()
        }

    def write(self, rows: Tensor, values: Mapping[str, Tensor]) -> None:
        """Put `values[name]` [n, ...] at `rows` [n], but for rows beyond the last one."""
        for name, value in values.items():
            variable = self._variables[name]
            entries = jnp.asarray(value, variable.dtype)
            variable.assign(variable.value.at[jnp.asarray(rows)].set(entries, mode="drop"))

    def gather(self, name: str, rows: Tensor) -> Tensor:
        """The entries of a column at `rows` [...], as [..., *shape]."""
        return jnp.take(self._variables[name].value, jnp.asarray(rows), axis=0, mode="clip")

    def read(self) -> dict[str, np.ndarray]:
        """A copy of every column. Not for use inside a compiled function."""
        with _DISPATCH:  # what is given up to a compiled function cannot be read
            return {name: np.array(variable.value) for name, variable in self._variables.items()}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over what `read` gave. Raises KeyError or ValueError if it does not fit."""
        with _DISPATCH:
            for name, variable in self._variables.items():
                variable.assign(np.array(values[name], variable.dtype))

    def devices(self) -> dict[str, str]:
        """Where each column lies."""
        with _DISPATCH:
            return {
                name: ", ".join(map(str, variable.value.devices()))
                for name, variable in self._variables.items()
            }


def channels_last(frames: Sequence[Tensor]) -> Tensor:
    """Frames [..., pixels], oldest first, as one [..., pixels, len(frames)]."""
    return jnp.stack(frames, axis=-1)


def _key(seed: Tensor) -> Tensor:
    return jax.random.fold_in(jax.random.key(seed[0]), seed[1])


def integers(shape: Any, seed: Tensor, total: Tensor) -> Tensor:
    """Reproducible int32 draws from [0, total): `seed` is int32 [2]."""
    return jax.random.randint(_key(seed), shape, 0, total, jnp.int32)


def uniform(shape: Any, seed: Tensor) -> Tensor:
    """Reproducible uniform draws from [tiny, 1): `seed` is int32 [2]."""
    return jax.random.uniform(_key(seed), shape, jnp.float32, minval=1e-20)


def shape(tensor: Tensor) -> tuple[int, ...]:
    """Its sizes."""
    found: tuple[int, ...] = tensor.shape
    return found


def filled(count: int) -> int:
    """The batch that `count` rows are to be filled up to: there are few sizes to compile then."""
    return 1 << max(count - 1, 0).bit_length()


def value_and_gradients(
    function: Callable[[], tuple[Tensor, Any]], variables: Sequence[Any]
) -> tuple[Tensor, Any, list[Tensor]]:
    """The scalar and the auxiliary value of `function`, and the scalar's gradients."""
    outer = keras.src.backend.common.stateless_scope.get_stateless_scope()

    def of(values: list[Tensor]) -> tuple[Tensor, Any]:
        with _Trace(dict(zip(map(id, variables), values, strict=True)), outer):
            return function()

    values = [variable.value for variable in variables]
    (value, auxiliary), gradients = jax.value_and_grad(of, has_aux=True)(values)
    return value, auxiliary, gradients


def when(condition: Tensor, function: Callable[[], Any]) -> None:
    """Call `function`, which sets variables, only where the scalar `condition` holds."""
    outer = keras.src.backend.common.stateless_scope.get_stateless_scope()
    with _Trace({}, outer) as scope:
        function()
    for key, variable in scope.changed.items():
        variable.assign(jnp.where(condition, scope.state_mapping[key], variable.value))


def compiled(
    function: Callable[..., Any], signature: Sequence[tuple[tuple[int | None, ...], str]]
) -> Callable[..., Any]:
    """`function` compiled for such inputs, for each size when it first comes."""
    programs: list[_Program] = []

    def call(*inputs: Any) -> Any:
        with _DISPATCH:
            if not programs:
                programs.append(_Program(function, inputs))
            return programs[0].run(inputs)

    return call


class _Program:
    """A function with the state that it reads and sets, as found by tracing it."""

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Any]) -> None:
        noted = _Trace({}, None)

        def noting(*inputs: Tensor) -> Any:
            with noted:
                return function(*inputs)

        jax.eval_shape(noting, *inputs)
        self._changed = list(noted.changed.values())
        self._asked = [v for key, v in noted.asked.items() if key not in noted.changed]
        keys = [id(variable) for variable in (*self._changed, *self._asked)]
        changed = keys[: len(self._changed)]

        def pure(old: list[Tensor], kept: list[Tensor], *inputs: Tensor) -> tuple[Any, Any]:
            with _Trace(dict(zip(keys, (*old, *kept), strict=True)), None) as scope:
                found = function(*inputs)
                return found, [scope.state_mapping[key] for key in changed]

        self._pure = jax.jit(pure, donate_argnums=0)

    def run(self, inputs: Sequence[Any]) -> Any:
        """Start it; the state is then what it will have set."""
        old = [variable.value for variable in self._changed]
        found, new = self._pure(old, [variable.value for variable in self._asked], *inputs)
        for variable, value in zip(self._changed, new, strict=True):
            variable.assign(value)
        return found
