"""Checkpoints that survive a kill at any moment; damage is detected on reading.

A checkpoint is a directory named for its steps: `arrays.npz`, `state.json`, and `manifest.json`
with the size and the SHA-256 of both. It is written under a temporary name, fsynced and renamed.
Only then are older checkpoints removed. Reading a checkpoint executes no code from it.
"""

import json
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ga3c.runs.durable import Progress, SyncedFile, Work, fingerprint, put_in_place, sync_directory
from ga3c.settings.run import CheckpointConfig

ARRAYS, STATE, MANIFEST = "arrays.npz", "state.json", "manifest.json"
PARTIAL = ".partial-"
FOLDER = "checkpoints"  # in a run's directory
BEST = "best"  # the folder of the checkpoint with the best evaluation
FORMAT = 1
PASSED_OVER = "damaged, so the one before it is used"
RETRY_S = 10.0
LEARNED = ("weights/", "target/", "optimizer/")  # arrays that must be finite


class Damaged(Exception):
    """A checkpoint that cannot be used; the message says what is wrong with it."""


class NotWritten(Exception):
    """A checkpoint was not written; the message says why."""


def _no_progress(done: int, total: int) -> None:
    """Report nothing."""


class Checkpoint(NamedTuple):
    """Everything that a run needs to resume."""

    path: Path
    state: dict[str, Any]  # JSON: counters, recent scores
    arrays: dict[str, np.ndarray]

    @property
    def steps(self) -> int:
        """The environment steps that the run had made."""
        return int(self.state["steps"])


def place_of(steps: int, directory: Path) -> Path:
    """The path of the checkpoint after `steps` environment steps."""
    return directory / f"{steps:012}"


def write(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    progress: Progress = _no_progress,
) -> None:
    """Write a checkpoint, whole or not at all.

    It replaces one that is already at `path`: more updates may follow the last step.

    Args:
        progress: called every few megabytes. An exception that it raises aborts the write.

    Raises:
        NotWritten: if a learned array is not finite; the last good checkpoint stays the newest.
        OSError: for example if the disk is full.
    """
    _check_finite(arrays)
    partial = path.parent / f"{PARTIAL}{path.name}"
    shutil.rmtree(partial, ignore_errors=True)
    # Every byte of the arrays is written once, and read once for its checksum.
    work = Work(2 * sum(array.nbytes for array in arrays.values()), progress)
    try:
        partial.mkdir(parents=True)
        with SyncedFile(partial / ARRAYS, work) as file:
            np.savez(file, allow_pickle=False, **arrays)
        with SyncedFile(partial / STATE, work) as file:
            file.write(json.dumps(state).encode())
        files = {name: fingerprint(partial / name, work) for name in (ARRAYS, STATE)}
        with SyncedFile(partial / MANIFEST, work) as file:
            file.write(json.dumps({"format": FORMAT, "files": files}).encode())
        sync_directory(partial)
        put_in_place(partial, path)
        sync_directory(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_finite(arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        learned = name.startswith(LEARNED) and np.issubdtype(array.dtype, np.floating)
        if learned and not np.isfinite(array).all():
            raise NotWritten(f"{name} is not finite: the previous checkpoint stays the newest")


def read(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises Damaged if it is not intact."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT:
            raise Damaged(f"{path}: format {manifest['format']}, must be {FORMAT}")
        for name in (ARRAYS, STATE):
            if fingerprint(path / name) != manifest["files"][name]:
                raise Damaged(f"{path}: {name} differs from its manifest")
        with np.load(path / ARRAYS, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return Checkpoint(path, json.loads((path / STATE).read_bytes()), arrays)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise Damaged(f"{path}: {type(error).__name__}: {error}") from error


def kept(directory: Path) -> list[Path]:
    """The checkpoints in `directory`, oldest first. They are not read, so one may be damaged."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.name.isdigit())


def newest(directory: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint, if any, and a line about each newer one, which is damaged."""
    faults: list[str] = []
    for path in reversed(kept(directory)):
        try:
            return read(path), faults
        except Damaged as error:
            faults.append(f"{PASSED_OVER}: {error}")
    return None, faults


def set_aside(checkpoint: Checkpoint) -> None:
    """Rename damaged checkpoints newer than `checkpoint`, from which a run is being resumed."""
    for path in kept(checkpoint.path.parent):
        if path.name > checkpoint.path.name:
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)


def write_best(directory: Path, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
    """Write a checkpoint of `state["steps"]` steps, the best so far. Raises as `write`."""
    _sweep(directory)
    write(place_of(int(state["steps"]), directory), arrays, state)


def prune_best(directory: Path, folder: Path) -> None:
    """Remove all but the newest of the best ones that belong to the newest checkpoint in `folder`.

    Those beyond it are kept too: a run that is killed is resumed from there, and loses them.
    """
    if newest := kept(folder)[-1:]:
        remove([best for best in kept(directory) if best.name <= newest[0].name][:-1])


def _sweep(directory: Path) -> None:
    """Remove what earlier processes were writing or removing when they were killed."""
    for partial in directory.glob(f"{PARTIAL}*"):
        shutil.rmtree(partial, ignore_errors=True)


def remove(paths: Sequence[Path]) -> None:
    """Remove checkpoints. Each is renamed first, so that a kill leaves no partial one."""
    for path in paths:
        renamed = path.rename(path.with_name(f"{PARTIAL}old-{path.name}"))
        shutil.rmtree(renamed, ignore_errors=True)


class Checkpoints:
    """Writes a run's checkpoints when they are due, and removes outdated ones.

    Owned by the main thread.
    """

    def __init__(self, directory: Path, config: CheckpointConfig) -> None:
        self._directory, self._config = directory, config
        self._last_s = self._last_steps = 0.0

    def begin(self, seconds: float, steps: float) -> None:
        """Start counting time and steps, when the run starts or is resumed."""
        self._last_s, self._last_steps = seconds, steps
        _sweep(self._directory)

    def due(self, seconds: float, steps: float) -> bool:
        """Whether it is time for the next checkpoint."""
        if seconds >= self._last_s + self._config.checkpoint_every_s:
            return True
        every = self._config.checkpoint_every_steps
        return every is not None and steps >= self._last_steps + every

    def save(
        self,
        seconds: float,
        arrays: Mapping[str, np.ndarray],
        state: Mapping[str, Any],
        progress: Progress = _no_progress,
    ) -> Path:
        """Write a checkpoint of `state["steps"]` steps, then remove old ones. Raises as `write`."""
        steps = int(state["steps"])
        self._last_s, self._last_steps = seconds, steps
        path = place_of(steps, self._directory)
        write(path, arrays, state, progress)
        remove(self._outdated())
        return path

    def postpone(self, seconds: float) -> None:
        """Retry a little later, after a due checkpoint could not be written."""
        every_s = self._config.checkpoint_every_s
        self._last_s = seconds - every_s + min(RETRY_S, every_s)

    def _outdated(self) -> list[Path]:
        paths = kept(self._directory)
        older = paths[: -self._config.keep_checkpoints]
        return [path for path in older if path not in self._milestones(paths)]

    def _milestones(self, paths: list[Path]) -> set[Path]:
        if self._config.milestone_steps is None:
            return set()
        first: dict[int, Path] = {}
        for path in paths:
            first.setdefault(int(path.name) // self._config.milestone_steps, path)
        return {path for multiple, path in first.items() if multiple}
