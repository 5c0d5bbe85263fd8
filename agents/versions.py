"""What must be the same on two machines that play for one model."""

import zlib
from dataclasses import fields
from importlib.metadata import version

from agents.config import EnvironmentConfig
from agents.worker import Task

OURS = "ga3c"


def versions() -> dict[str, str]:
    """Versions of the packages on which games depend; of ga3c a sum of an agent's settings' names.

    ale-py checks the sum of each ROM, which is therefore the same where ale-py is.
    """
    names = [field.name for kind in (Task, EnvironmentConfig) for field in fields(kind)]
    packages = {name: version(name) for name in ("ale-py", "gymnasium", "numpy")}
    return {OURS: f"{zlib.crc32(repr(names).encode()):08x}", **packages}


def differences(there: dict[str, str]) -> str:
    """The packages whose versions are others than `there`, in words; empty if all are the same."""
    here = versions()
    if here.pop(OURS) != there.get(OURS):
        return "ga3c has another version here than there: both machines need the same"
    others = [name for name in here if here[name] != there.get(name)]
    return ", ".join(f"{name} is {here[name]} here and {there.get(name)} there" for name in others)
