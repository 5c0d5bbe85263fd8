"""Private directories are removed by their owner or, if that was killed, by the next process."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ga3c.runs.scratch import LOCK, ScratchDirectory, sweep
from tests import leaks
from tests.commands import ROOT, STOP_S
from tests.service.test_service import configured, made

OWNER = """
import sys
from pathlib import Path
from ga3c.runs.scratch import ScratchDirectory
scratch = ScratchDirectory()
(scratch.path / "kept").mkdir()
(scratch.path / "kept" / "file").write_text("x")
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def owner(directory: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process with its own directory; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def test_a_killed_owners_directory_is_removed_and_a_living_owners_is_not(directory: Path) -> None:
    with owner(directory) as (_, theirs), ScratchDirectory() as ours:
        sweep()
        assert (theirs / "kept" / "file").exists()
        assert ours.stat().st_mode & 0o777 == 0o700
    with ScratchDirectory() as ours:
        assert list(directory.iterdir()) == [ours]


def test_what_is_not_an_owners_directory_stays(directory: Path) -> None:
    (directory / "ga3c-by-hand").mkdir()
    (directory / "ga3c-by-hand" / "file").touch()
    (directory / "ga3c-file").touch()
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / LOCK).touch()
    (directory / "ga3c-link").symlink_to(elsewhere)
    (directory / "ga3c-linked-lock").mkdir()
    (directory / "ga3c-linked-lock" / LOCK).symlink_to(elsewhere / LOCK)
    before = sorted(directory.rglob("*"))
    sweep()
    assert sorted(directory.rglob("*")) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_another_users_directory_stays(directory: Path) -> None:
    theirs = directory / "ga3c-theirs"
    theirs.mkdir()
    (theirs / LOCK).touch()
    os.chown(theirs, 12345, 12345)
    sweep()
    assert theirs.exists()


def test_many_that_start_at_once_do_not_sweep_each_other(directory: Path) -> None:
    program = (
        "from ga3c.runs.scratch import ScratchDirectory\n"
        "for _ in range(200):\n"
        "    with ScratchDirectory() as path:\n"
        "        assert path.exists(), 'swept'\n"
    )
    environment = {**os.environ, "TMPDIR": str(directory)}
    command = [sys.executable, "-c", program]
    started = [subprocess.Popen(command, cwd=ROOT, env=environment) for _ in range(4)]
    assert [process.wait(STOP_S * 3) for process in started] == [0] * 4
    assert list(directory.iterdir()) == []


def test_a_removed_directory_leaves_no_descriptor() -> None:
    before = leaks.descriptors()
    scratch = ScratchDirectory()
    scratch.remove()
    scratch.remove()
    assert not scratch.path.exists()
    assert not leaks.descriptors() - before


def test_a_service_sweeps_what_a_killed_one_left(directory: Path) -> None:
    with owner(directory) as (_, theirs):
        pass
    service = made(configured())
    assert not theirs.exists()
    assert len(list(directory.iterdir())) == 1
    service.stop(STOP_S)
    assert list(directory.iterdir()) == []
