"""All actions of a run in lockstep, in a file beside its checkpoints.

A run that is resumed plays them once more, so they are kept from its first step on: in a file that
grows, so that neither memory nor checkpoints do.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

READ_BYTES = 1 << 22
DTYPE = np.dtype("<u2")


class ActionLog:
    """Appends actions, uint16 [n] a step of the same n environments. One thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unsaved: list[np.ndarray] = []
        self._digest = hashlib.sha256()
        self._bytes = 0  # in the file, of this run

    def append(self, actions: np.ndarray) -> None:
        """Record one step of every environment; `save` makes it last."""
        self._unsaved.append(actions.astype(DTYPE))

    def save(self) -> dict[str, Any]:
        """Have all actions so far on the disk. Returns what `restore` finds them by."""
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
        """Go on after what `save` returned; what came later has not happened.

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
        return self._bytes // DTYPE.itemsize

    def adopt(self, actions: np.ndarray) -> int:
        """Go on after `actions` [t, n], of a checkpoint of before this file. Returns how many."""
        self.append(actions)
        self.save()
        return int(actions.size)

    def _parts(self, count: int) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            while count and (part := file.read(min(count, READ_BYTES))):
                count -= len(part)
                yield part
