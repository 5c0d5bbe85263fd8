"""Fixtures for several test files, and environment variables for tests and their processes."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import FRESH, ROOT, Command, ended

# Tests under JAX compile a lot, often the same program again, and compute little.
UNDER_JAX = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / "build" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
# The command sets it too. With other test processes around, NumPy's threads wait for each other.
ALWAYS = {"OPENBLAS_NUM_THREADS": "1"}
for name, value in {**UNDER_JAX, **ALWAYS}.items():
    os.environ.setdefault(name, value)  # before NumPy is imported


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*arguments: str, program: str | None = None, fresh: bool = False) -> Command:
        run = FRESH if fresh else None if program is None else ["-c", program]
        started.append(Command(tmp_path, list(arguments), run))
        return started[-1]

    yield start
    for each in started:
        each.kill_all()


@pytest.fixture(scope="session")
def pong_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of Pong, trained for 4,000 steps. Do not change it; change a copy.

    The first test process that needs it makes it for all test processes.
    """
    place = tmp_path_factory.getbasetemp()
    runs = (place.parent if "PYTEST_XDIST_WORKER" in os.environ else place) / "trained"
    whole = runs.with_suffix(".whole")
    with open(runs.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            shutil.rmtree(runs, ignore_errors=True)
            _train_pong(runs)
            whole.touch()
    return runs / "pong"


def _train_pong(runs: Path) -> None:
    given = ["--game", "Pong", "--agents", "2", "--envs-per-agent", "4", "--scheduler", "off"]
    done = ended(
        "train",
        *given,
        "--steps",
        "4000",
        "--progress-every-s",
        "0.5",
        "--seed",
        "2",
        "--runs-dir",
        str(runs),
        "--name",
        "pong",
    )
    assert done.returncode == 0, done.stderr
