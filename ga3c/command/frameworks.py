"""Which tensor framework thinks: chosen before Keras is loaded, which goes by KERAS_BACKEND."""

import importlib.util
import os
import sys

FRAMEWORKS = {
    "tensorflow": "pip install 'ga3c[cpu]' or 'ga3c[gpu]', or use another by KERAS_BACKEND=jax",
    "jax": "pip install 'ga3c[jax]', or use another by KERAS_BACKEND=tensorflow",
}
"""Those that there may be, and what to do where one is missing."""


def choose(wanted: str | None = None) -> None:
    """Set KERAS_BACKEND: to `wanted`, else as it is, else to the first framework that is installed.

    Raises ValueError if there is no such framework, or Keras has been loaded with another.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # what TensorFlow says when it is loaded
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
