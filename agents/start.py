"""Starts an agent process: run as `python -P agents/start.py DIRECTORY...`.

The `agents` package of the process is this folder, even if the working directory or the search path
has another folder of that name. All other modules are imported from the given directories, which
are the search path of the parent process, so that both processes find the same modules.
"""

import importlib.util
import os
import sys
from pathlib import Path


def main(directories: list[str]) -> int:
    """Play, with `directories` as the module search path. Returns the exit code."""
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        "agents", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec and spec.loader
    package = importlib.util.module_from_spec(spec)
    sys.modules["agents"] = package
    spec.loader.exec_module(package)
    sys.path[:] = directories
    # Nothing here multiplies matrices. NumPy's BLAS would start a thread for each core, which took
    # a third of an agent's startup time and would slow other agents down.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from agents import worker

    return worker.main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
