"""Private directories in the temporary folder, which do not outlive their owner for long.

An owner that is killed cannot remove its directory. The next one that starts does: it takes the
lock that an owner holds on a file in its directory as long as it lives.
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
        """Raises OSError if there is no place for it."""
        sweep()
        self.path, self._lock_fd = _make()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()


def sweep() -> None:
    """Remove the directories of this user's owners that were killed."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # it goes at this moment
                if (
                    entry.name.startswith(PREFIX)
                    and entry.is_dir(follow_symlinks=False)
                    and entry.stat(follow_symlinks=False).st_uid == os.getuid()
                ):
                    _remove_if_abandoned(Path(entry.path))


def _make() -> tuple[Path, int | None]:
    """A directory and its lock, None where the file system has no locks."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock_fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process sweeps it, as it had no owner for a moment
            os.close(lock_fd)
            continue
        except OSError:
            os.close(lock_fd)
            (path / LOCK).unlink()  # without it nobody sweeps the directory
            return path, None
        if os.fstat(lock_fd).st_nlink:
            return path, lock_fd
        os.close(lock_fd)  # it has been swept


def _remove_if_abandoned(path: Path) -> None:
    """Remove a directory whose lock nobody holds. One without a lock is not ours."""
    lock_fd = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock_fd)
