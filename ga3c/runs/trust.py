"""Decides whether modules that a run's directory names may be imported.

A run may use its owner's game, network or algorithm, `module:name`, and its directory may come from
anyone. So starting a run seals these names with something that a stranger cannot know of this
machine, and code without this user's seal is imported only if the user says so (--trust).
"""

import hashlib
import hmac
import json
import os
from pathlib import Path

from ga3c.settings.train import TrainConfig

META, SEAL = "meta.json", "owner"
MACHINE_ID = Path("/etc/machine-id")  # random, generated when the system was installed


def own_code(config: TrainConfig) -> list[str]:
    """The names in the settings that include a module, which is imported if they are used."""
    names = (config.environment.game, config.network.network, config.algorithm)
    return sorted(name for name in names if ":" in name)


def seal(config: TrainConfig) -> str | None:
    """A proof that this user named the code of `config` on this machine.

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

    The file with the seal must be owned by this user, as other local users could compute the seal.
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

    Args: trusted: whether the user has allowed it.
    """
    if not trusted and not is_begun_by_user(path, config):
        why = "was not started by you on this machine"
        if seal(config) is None:
            why = f"{MACHINE_ID}, which identifies your own runs, is missing or empty here"
        raise ValueError(
            f"run {path}: names code, {', '.join(own_code(config))}, and {why}: that module would "
            "be imported; --trust allows it"
        )
