"""All actions of a lockstep run, in a file beside its checkpoints.

A resumed run replays them, so every action is kept from the first step on. They have a file of
their own, so that memory and checkpoints do not grow with the run.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agents.actions import Actions

READ_BYTES = 1 << 22


class ActionLog:
    """Appends the actions of n environments, [n, *shape] per step. For one thread at a time."""

    def __init__(self, path: Path, actions: Actions) -> None:
        self.path = path
        self._dtype, self._size = actions.kept_dtype, actions.size
        self._unsaved: list[np.ndarray] = []
        self._digest = hashlib.sha256()
        self._bytes = 0  # bytes in the file that belong to this run

    def append(self, actions: np.ndarray) -> None:
        """Record one step of every environment; `save` writes it to disk."""
        self._unsaved.append(actions.astype(self._dtype))

    def save(self) -> dict[str, Any]:
        """Write all actions so far to disk. Returns what `restore` needs to find them."""
        new = b"".join(actions.tobytes() for actions in self._unsaved)
        with open(self.path, "r+b" if self._bytes else "wb") as file:
            file.seek(self._bytes)
            file.write(new)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        self._unsaved.clear()
        self._bytes += len(new)
        self._digest.update(new)
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def restore(self, saved: Mapping[str, Any]) -> int:
        """Continue after the actions that `saved` describes, and discard later ones.

        Returns the number of actions. Raises ValueError if the file does not hold them.
        """
        self._bytes, self._digest = int(saved["bytes"]), hashlib.sha256()
        try:
            for part in self._parts(self._bytes):
                self._digest.update(part)
        except OSError as error:
            raise ValueError(f"lockstep: the run's actions cannot be read: {error}") from error
        if self._digest.hexdigest() != saved["sha256"]:
            raise ValueError(f"lockstep: {self.path} is damaged: the run cannot be repeated")
        return self._bytes // (self._dtype.itemsize * self._size)

    def adopt(self, actions: np.ndarray) -> int:
        """Store `actions` [t, n] of a checkpoint older than this file. Returns their number."""
        self.append(actions)
        self.save()
        return int(actions.size)

    def _parts(self, count: int) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            while count and (part := file.read(min(count, READ_BYTES))):
                count -= len(part)
                yield part
