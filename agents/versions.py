"""What must be the same on two machines that play for the same model."""

import zlib
from dataclasses import fields
from importlib.metadata import version

from agents.config import EnvironmentConfig
from agents.worker import Task

OURS = "ga3c"


def versions() -> dict[str, str]:
    """Versions of the packages that games depend on; for ga3c, a checksum of agents' setting names.

    ale-py checks each ROM's checksum, so the same ale-py means the same ROMs.
    """
    names = [field.name for kind in (Task, EnvironmentConfig) for field in fields(kind)]
    packages = {name: version(name) for name in ("ale-py", "gymnasium", "numpy")}
    return {OURS: f"{zlib.crc32(repr(names).encode()):08x}", **packages}


def differences(there: dict[str, str]) -> str:
    """The packages whose versions differ from `there`, in words; empty if none do."""
    here = versions()
    if here.pop(OURS) != there.get(OURS):
        return "ga3c has different versions here and there: both machines need the same one"
    others = [name for name in here if here[name] != there.get(name)]
    return ", ".join(f"{name} is {here[name]} here and {there.get(name)} there" for name in others)
