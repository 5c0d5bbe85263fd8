"""What must be the same on two machines that play for one model."""

from importlib.metadata import version


def versions() -> dict[str, str]:
    """Versions of the packages on which games depend.

    ale-py checks the sum of each ROM, which is therefore the same where ale-py is.
    """
    return {name: version(name) for name in ("ale-py", "gymnasium", "numpy")}


def differences(there: dict[str, str]) -> str:
    """The packages whose versions are others than `there`, in words; empty if all are the same."""
    here = versions()
    others = [name for name in here if here[name] != there.get(name)]
    return ", ".join(f"{name} is {here[name]} here and {there.get(name)} there" for name in others)
