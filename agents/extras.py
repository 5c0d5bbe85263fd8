"""The packages that only some uses of ga3c need: extras, in setup.cfg's word."""

import importlib.util
import shlex
import sys


def missing(package: str, extra: str) -> str:
    """One line that says that `package` is missing, and how to install ga3c's `extra` with it.

    ga3c is on no package index, so that an extra can only be installed from a checkout.
    """
    python = shlex.quote(sys.executable)
    pip = f"{python} -m pip install" if importlib.util.find_spec("pip") else "uv pip install"
    return f"{package} is missing; in your checkout of ga3c, run {pip} -e '.[{extra}]'"
