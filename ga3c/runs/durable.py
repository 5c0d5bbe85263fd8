"""Durable files: fsynced, replaced atomically, verified by checksums."""

import contextlib
import ctypes
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SYNC_BYTES = 1 << 26  # written between two fsyncs, so that the last one does not take long
READ_BYTES = 1 << 22
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h
Progress = Callable[[int, int], None]  # bytes done and in total; may raise to abort the write


def is_writable(folder: Path) -> bool:
    """Whether files can be made in `folder`. Permissions do not tell: nobody can in /proc."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


class Work:
    """Counts the bytes written and read so far, and reports progress."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total = total
        self._progress = progress
        self._done = 0

    def add(self, count: int) -> None:
        """Report that `count` more bytes are done."""
        self._done += count
        self._progress(min(self._done, self._total), self._total)


class SyncedFile(io.BufferedWriter):
    """A new file to write. It is on disk once its `with` block ends without an exception."""

    def __init__(self, path: Path, work: Work) -> None:
        super().__init__(io.FileIO(path, "x"))
        self._work = work
        self._unsynced = 0

    def write(self, data: Any) -> int:
        """Write, fsync every `SYNC_BYTES`, and report the progress."""
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
    """Fsync a directory, so that the names of its new and renamed files are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(new: Path, path: Path) -> None:
    """Rename directory `new` to `path`. One that is already there becomes `new`, or is removed.

    If the file system can exchange two names, as Linux's native ones can, `path` exists throughout.
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
    """Replace a file's content by `text` atomically, even if the power fails midway."""
    rewrite_lines(path, [text.encode()])


def rewrite_lines(path: Path, lines: Iterable[bytes]) -> None:
    """The same with lines, which may be streamed from the file itself."""
    partial = path.with_name(f".{path.name}")
    try:
        with open(partial, "wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)  # frees space: the disk may be full
        raise
    sync_directory(path.parent)
