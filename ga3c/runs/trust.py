"""Whether modules may be imported because a run's directory names them.

A run may be of a game, network or algorithm of its owner's, `module:name`, and its directory may
come from anybody. So who begins a run seals these names, with what a stranger cannot know of this
machine, and code that no seal of this user is on is imported only if the user says so (--trust).
"""

import hashlib
import hmac
import json
import os
from pathlib import Path

from ga3c.settings.train import TrainConfig

META, SEAL = "meta.json", "owner"
MACHINE_ID = Path("/etc/machine-id")  # random, made when the system was installed


def own_code(config: TrainConfig) -> list[str]:
    """The names in the settings that have a module, which using them imports."""
    names = (config.environment.game, config.network.network, config.algorithm)
    return sorted(name for name in names if ":" in name)


def seal(config: TrainConfig) -> str | None:
    """What proves that this user named the code of `config` on this machine.

    None if there is nothing to prove, or the machine has no id.
    """
    names = own_code(config)
    try:
        secret = MACHINE_ID.read_text().strip()
    except OSError:
        secret = ""
    if not names or not secret:
        return None
    message = json.dumps([os.getuid(), *names]).encode()
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def is_begun_by_user(path: Path, config: TrainConfig) -> bool:
    """Whether the run in `path` names no code, or this user named it on this machine.

    The file with the seal must be this user's: others here can read what a seal is made of.
    """
    if not own_code(config):
        return True
    try:
        with open(path / META) as file:
            is_users = os.fstat(file.fileno()).st_uid == os.getuid()
            found = json.load(file).get(SEAL) if is_users else None
    except (OSError, ValueError, AttributeError):
        found = None
    wanted = seal(config)
    return isinstance(found, str) and wanted is not None and hmac.compare_digest(found, wanted)


def check_trust(path: Path, config: TrainConfig, trusted: bool) -> None:
    """Raises ValueError unless the code that the run in `path` names may be imported.

    Args: trusted: whether the user has said that it may.
    """
    if not trusted and not is_begun_by_user(path, config):
        why = "was not begun by you on this machine"
        if seal(config) is None:
            why = f"{MACHINE_ID}, by which runs of your own are known, is missing or empty here"
        raise ValueError(
            f"run {path}: names code, {', '.join(own_code(config))}, and {why}: that module would "
            "be imported; --trust allows it"
        )
