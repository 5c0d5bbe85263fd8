"""Private directories in the temporary folder that are removed even if their owner is killed.

A process that is killed cannot remove its directory, so the next process that starts does. An owner
holds a lock on a file in its directory while it lives; a directory without that lock is abandoned.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "ga3c-"
LOCK = "owner.lock"


class ScratchDirectory:
    """A new directory of mode 0700, until `remove` or the end of this process."""

    def __init__(self) -> None:
        """Raises OSError if it cannot be created."""
        sweep()
        self.path, self._lock_fd = _make()

    def remove(self) -> None:
        """Remove the directory and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()


def sweep() -> None:
    """Remove the directories of this user's processes that were killed."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process may be removing it
                if (
                    entry.name.startswith(PREFIX)
                    and entry.is_dir(follow_symlinks=False)
                    and entry.stat(follow_symlinks=False).st_uid == os.getuid()
                ):
                    _remove_if_abandoned(Path(entry.path))


def _make() -> tuple[Path, int | None]:
    """A new directory and its lock; the lock is None if the file system has no locks."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock_fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # not locked yet, so another process is removing it
            os.close(lock_fd)
            continue
        except OSError:
            os.close(lock_fd)
            (path / LOCK).unlink()  # no process removes a directory without a lock file
            return path, None
        if os.fstat(lock_fd).st_nlink:
            return path, lock_fd
        os.close(lock_fd)  # another process has removed it


def _remove_if_abandoned(path: Path) -> None:
    """Remove a directory whose lock nobody holds. A directory without a lock file is not ours."""
    lock_fd = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock_fd)
