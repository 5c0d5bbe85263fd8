"""Files that are on the disk, whole, once they are written: synced, sealed with checksums."""

import contextlib
import ctypes
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SYNC_BYTES = 1 << 26  # written between two syncs, so that the last sync does not take long
READ_BYTES = 1 << 22
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
Progress = Callable[[int, int], None]  # bytes done and bytes in all; may raise to stop the writing


class Work:
    """How many bytes have been written and read so far."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total = total
        self._progress = progress
        self._done = 0

    def add(self, count: int) -> None:
        """Report that `count` more bytes are done."""
        self._done += count
        self._progress(min(self._done, self._total), self._total)


class SyncedFile(io.BufferedWriter):
    """A new file to write to. It is on the disk once it is closed without an exception."""

    def __init__(self, path: Path, work: Work) -> None:
        super().__init__(io.FileIO(path, "x"))
        self._work = work
        self._unsynced = 0

    def write(self, data: Any) -> int:
        """Write, sync every `SYNC_BYTES`, and report the progress."""
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


def fingerprint(path: Path, work: Work | None = None) -> dict[str, Any]:
    """The size and the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(READ_BYTES):
            digest.update(part)
            if work:
                work.add(len(part))
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def sync_directory(path: Path) -> None:
    """Sync a directory, so that the names of its new and renamed files are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(new: Path, path: Path) -> None:
    """Give a directory the name `path`. One that has the name already then has that of `new`.

    There is one or the other under this name at every moment, if the file system can exchange two
    names, as those of Linux's own disks can.
    """
    if path.exists():
        names = AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(path)
        if ctypes.CDLL(None).renameat2(*names, RENAME_EXCHANGE) == 0:
            return
        before = path.rename(new.with_name(f"{new.name}-before"))
        new.rename(path)
        shutil.rmtree(before, ignore_errors=True)
    else:
        new.rename(path)


def rewrite_whole(path: Path, text: str) -> None:
    """Replace a file by `text`, whole or not at all, even if power fails in the middle."""
    rewrite_lines(path, [text.encode()])


def rewrite_lines(path: Path, lines: Iterable[bytes]) -> None:
    """The same with lines, which may be read from the file itself, one after another."""
    partial = path.with_name(f".{path.name}")
    try:
        with open(partial, "wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)  # a full disk needs the room
        raise
    sync_directory(path.parent)
