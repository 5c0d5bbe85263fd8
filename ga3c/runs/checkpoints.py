"""Checkpoints that a kill at any moment, or a damaged disk, cannot spoil unseen.

A checkpoint is a directory named for its steps: `arrays.npz`, `state.json`, and `manifest.json`
with the size and the SHA-256 of both. It is written under another name, synced, renamed, and only
then are older ones removed. Reading one runs no code from it.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ARRAYS, STATE, MANIFEST = "arrays.npz", "state.json", "manifest.json"
PARTIAL = ".partial-"
FORMAT = 1
RETRY_S = 10.0
LEARNED = ("weights/", "target/", "optimizer/")  # what must be finite numbers
SYNC_BYTES = 1 << 26  # written between two syncs, so that the last one does not take long
READ_BYTES = 1 << 22
Progress = Callable[[int, int], None]  # bytes done and in all; what it raises ends the writing


class Damaged(Exception):
    """A checkpoint that is not whole; the message says what is wrong with it."""


class NotWritten(Exception):
    """A checkpoint that must not be kept, or was given up; the message says why."""


def _no_progress(done: int, total: int) -> None:
    """Nobody wants to know."""


class Checkpoint(NamedTuple):
    """What a run needs to go on."""

    path: Path
    state: dict[str, Any]  # what JSON holds: counters and the like
    arrays: dict[str, np.ndarray]

    def part(self, name: str) -> dict[str, np.ndarray]:
        """The arrays called `name/...`, without that."""
        prefix = f"{name}/"
        return {
            key.removeprefix(prefix): array
            for key, array in self.arrays.items()
            if key.startswith(prefix)
        }


def write(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    progress: Progress = _no_progress,
) -> None:
    """Write a checkpoint, whole or not at all.

    One that is there already, and whole, stays: it is of the same steps.

    Args:
        progress: called every few megabytes; a large checkpoint is given up by raising from it.

    Raises:
        NotWritten: if what was learned is not finite: a good checkpoint must not make way for it.
        OSError: as where the disk is full.
    """
    _check_finite(arrays)
    partial = path.parent / f"{PARTIAL}{path.name}"
    shutil.rmtree(partial, ignore_errors=True)
    # Every byte of the arrays is written once, and read once for its checksum.
    work = _Work(2 * sum(array.nbytes for array in arrays.values()), progress)
    try:
        partial.mkdir(parents=True)
        with _SyncedFile(partial / ARRAYS, work) as file:
            np.savez(file, allow_pickle=False, **arrays)
        with _SyncedFile(partial / STATE, work) as file:
            file.write(json.dumps(state).encode())
        files = {name: _seal(partial / name, work) for name in (ARRAYS, STATE)}
        with _SyncedFile(partial / MANIFEST, work) as file:
            file.write(json.dumps({"format": FORMAT, "files": files}).encode())
        sync_directory(partial)
        if path.exists() and not _is_whole(path):
            shutil.rmtree(path)
        if not path.exists():
            partial.rename(path)
        sync_directory(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_finite(arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        learned = name.startswith(LEARNED) and np.issubdtype(array.dtype, np.floating)
        if learned and not np.isfinite(array).all():
            raise NotWritten(f"{name} is not finite: the checkpoint before it stays the newest")


def _is_whole(path: Path) -> bool:
    try:
        read(path)
    except Damaged:
        return False
    return True


def read(path: Path) -> Checkpoint:
    """A whole checkpoint. Raises Damaged."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT:
            raise Damaged(f"{path}: of format {manifest['format']}, must be {FORMAT}")
        for name in (ARRAYS, STATE):
            if _seal(path / name) != manifest["files"][name]:
                raise Damaged(f"{path}: {name} is not what its manifest says")
        with np.load(path / ARRAYS, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return Checkpoint(path, json.loads((path / STATE).read_bytes()), arrays)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise Damaged(f"{path}: {type(error).__name__}: {error}") from error


def kept(directory: Path) -> list[Path]:
    """The checkpoints in `directory`, oldest first; whether they are whole shows when read."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.name.isdigit())


def newest(directory: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest whole checkpoint, if any, and what is wrong with those after it."""
    wrong: list[str] = []
    for path in reversed(kept(directory)):
        try:
            return read(path), wrong
        except Damaged as error:
            wrong.append(str(error))
    return None, wrong


def set_aside(checkpoint: Checkpoint) -> None:
    """Rename those beyond `checkpoint`, from which a run goes on: they are not whole."""
    for path in kept(checkpoint.path.parent):
        if path.name > checkpoint.path.name:
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)


def write_best(directory: Path, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
    """Write one of `state["steps"]` steps, and then remove all others there. Raises as `write`."""
    path = directory / f"{int(state['steps']):012}"
    write(path, arrays, state)
    remove([other for other in kept(directory) if other != path])


def remove(paths: Sequence[Path]) -> None:
    """Remove checkpoints: each is whole, or not called one, whenever this is cut short."""
    for path in paths:
        going = path.rename(path.with_name(f"{PARTIAL}old-{path.name}"))
        shutil.rmtree(going, ignore_errors=True)


class Checkpoints:
    """A run's checkpoints: writes one when it is due, and keeps the last `keep` and milestones.

    Owned by the main thread.

    Args:
        every_s: seconds between two.
        every_steps: steps between two, besides; None: time alone decides.
        milestone_steps: the first checkpoint beyond each multiple of it stays for good.
    """

    def __init__(
        self,
        directory: Path,
        keep: int,
        every_s: float,
        every_steps: int | None,
        milestone_steps: int | None,
    ) -> None:
        self._directory = directory
        self._keep = keep
        self._every_s, self._every_steps = every_s, every_steps
        self._milestone_steps = milestone_steps
        self._last_s = self._last_steps = 0.0

    def begin(self, seconds: float, steps: float) -> None:
        """Count from here on: a run begins or goes on."""
        self._last_s, self._last_steps = seconds, steps
        for left in self._directory.glob(f"{PARTIAL}*"):
            shutil.rmtree(left, ignore_errors=True)

    def due(self, seconds: float, steps: float) -> bool:
        """Whether it is time for the next one."""
        if seconds >= self._last_s + self._every_s:
            return True
        return self._every_steps is not None and steps >= self._last_steps + self._every_steps

    def save(
        self,
        seconds: float,
        arrays: Mapping[str, np.ndarray],
        state: Mapping[str, Any],
        progress: Progress = _no_progress,
    ) -> Path:
        """Write one of `state["steps"]` steps, then remove older ones. Raises as `write`."""
        steps = int(state["steps"])
        self._last_s, self._last_steps = seconds, steps
        path = self._directory / f"{steps:012}"
        write(path, arrays, state, progress)
        remove(self._superfluous())
        return path

    def postpone(self, seconds: float) -> None:
        """One that was due could not be made: try again a little later."""
        self._last_s = seconds - self._every_s + min(RETRY_S, self._every_s)

    def _superfluous(self) -> list[Path]:
        paths = kept(self._directory)
        return [path for path in paths[: -self._keep] if path not in self._milestones(paths)]

    def _milestones(self, paths: list[Path]) -> set[Path]:
        if self._milestone_steps is None:
            return set()
        first: dict[int, Path] = {}
        for path in paths:
            first.setdefault(int(path.name) // self._milestone_steps, path)
        return {path for multiple, path in first.items() if multiple}


class _Work:
    """How many bytes of a checkpoint are written and read."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total = total
        self._progress = progress
        self._done = 0

    def add(self, count: int) -> None:
        """So many more."""
        self._done += count
        self._progress(min(self._done, self._total), self._total)


class _SyncedFile(io.BufferedWriter):
    """A new file to write to, on the disk when it is closed without an exception."""

    def __init__(self, path: Path, work: _Work) -> None:
        super().__init__(io.FileIO(path, "x"))
        self._work = work
        self._unsynced = 0

    def write(self, data: Any) -> int:
        """Write, sync now and then, and tell how far it has come."""
        count = super().write(data)
        self._unsynced += count
        if self._unsynced >= SYNC_BYTES:
            self._sync()
        self._work.add(count)
        return count

    def _sync(self) -> None:
        self.flush()
        os.fsync(self.fileno())
        self._unsynced = 0

    def __exit__(self, *failure: Any) -> None:
        with contextlib.closing(self.raw):
            if failure[0] is None:
                self._sync()


def _seal(path: Path, work: _Work | None = None) -> dict[str, Any]:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(READ_BYTES):
            digest.update(part)
            if work:
                work.add(len(part))
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def sync_directory(path: Path) -> None:
    """Have the directory's names on the disk: those of new and of renamed files."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
