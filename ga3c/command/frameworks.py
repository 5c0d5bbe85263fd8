"""Chooses the tensor framework before Keras is loaded, which is when it reads KERAS_BACKEND."""

import importlib.util
import os
import sys

from agents.extras import missing

FRAMEWORKS = {
    "tensorflow": f"{missing('tensorflow', 'cpu')} (or gpu), or choose KERAS_BACKEND=jax",
    "jax": f"{missing('jax', 'jax')} (or jax-gpu), or choose KERAS_BACKEND=tensorflow",
}
"""The supported frameworks, each with what to say if it is missing."""

_OUR_DEFAULTS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",  # silences TensorFlow's startup messages
    # Allocate GPU memory as needed, not all at once, so that a run can be evaluated meanwhile.
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


def have_the_process() -> None:
    """Limit NumPy to one thread; only for the command's own process. Call before NumPy is loaded.

    NumPy draws the initial weights. With a thread per core, that took ten times as long while
    agents were starting, and three times as long alone, because its threads wait for each other.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def choose(wanted: str | None = None) -> None:
    """Set KERAS_BACKEND to `wanted`; else keep its value; else use the first installed framework.

    Raises ValueError if the framework is not supported, or Keras has been loaded with another.
    """
    for name, value in _OUR_DEFAULTS.items():
        os.environ.setdefault(name, value)
    loaded = sys.modules.get("keras")
    if loaded:
        os.environ["KERAS_BACKEND"] = loaded.config.backend()
    elif not os.environ.get("KERAS_BACKEND"):
        there = (name for name in FRAMEWORKS if importlib.util.find_spec(name))
        os.environ["KERAS_BACKEND"] = next(there, "tensorflow")
    chosen = wanted or os.environ["KERAS_BACKEND"]
    if chosen not in FRAMEWORKS:
        raise ValueError(f"backend {chosen}: must be {' or '.join(FRAMEWORKS)}")
    if loaded and chosen != os.environ["KERAS_BACKEND"]:
        raise ValueError(
            f"backend {chosen}: Keras has been loaded with {os.environ['KERAS_BACKEND']} in this "
            f"process and cannot change: set KERAS_BACKEND={chosen} before Python starts"
        )
    os.environ["KERAS_BACKEND"] = chosen
