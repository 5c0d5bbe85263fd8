"""GA3C: many processes play, and one model on one device chooses their actions and learns.

    import ga3c

    run = ga3c.train(game="Pong", steps=1_000_000)
    policy = run.load()

docs/python.md shows more. Names are loaded on first use, so that `import ga3c` and the command
start immediately.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from ga3c.api import Run, evaluate, load, train
    from ga3c.service.threads import RunFailed
    from ga3c.settings.train import TrainConfig

__all__ = ["Run", "RunFailed", "TrainConfig", "__version__", "evaluate", "load", "train"]

_HOMES = {
    "Run": "ga3c.api",
    "RunFailed": "ga3c.service.threads",
    "TrainConfig": "ga3c.settings.train",
    "evaluate": "ga3c.api",
    "load": "ga3c.api",
    "train": "ga3c.api",
}


def _check_agents() -> None:
    """Raises ImportError if another package called agents hides the one that belongs to ga3c."""
    ours = Path(__file__).parents[1] / "agents" / "__init__.py"
    spec = importlib.util.find_spec("agents")
    found = Path(spec.origin) if spec and spec.origin else None
    if found is None or found.resolve() != ours.resolve():
        raise ImportError(
            f"package agents is {found}, which hides {ours}, a part of ga3c: give it another name"
        )


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("ga3c")
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return "0+checkout"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'ga3c' has no attribute {name!r}")
    from ga3c.command import frameworks

    frameworks.choose()  # before importing the settings: the framework is a default
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]


_check_agents()
