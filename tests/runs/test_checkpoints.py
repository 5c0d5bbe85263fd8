"""Checkpoints are whole or absent, damage is noticed, and the right ones are kept."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ga3c.runs import checkpoints, durable
from ga3c.runs.checkpoints import Checkpoints, Damaged
from ga3c.runs.durable import fingerprint
from ga3c.settings.run import CheckpointConfig

ARRAYS = {"weights/a": np.arange(6, dtype=np.float32).reshape(2, 3), "counters": np.array([3, 4])}


def write(directory: Path, steps: int) -> Path:
    path = directory / f"{steps:012}"
    checkpoints.write(path, ARRAYS, {"steps": steps})
    return path


def names(directory: Path) -> list[int]:
    return [int(path.name) for path in checkpoints.kept(directory)]


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    found = checkpoints.read(write(tmp_path, 70))
    assert found.state == {"steps": 70}
    assert set(found.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype
    assert [path.name for path in tmp_path.iterdir()] == ["000000000070"]


def flipped(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << 3
    file.write_bytes(data)


@pytest.mark.parametrize("name", ["arrays.npz", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "missing"])
def test_damage_is_seen_and_the_one_before_is_used(tmp_path: Path, name: str, damage: str) -> None:
    write(tmp_path, 1)
    file = write(tmp_path, 2) / name
    if damage == "flipped":
        flipped(file, file.stat().st_size // 2)
    elif damage == "truncated":
        os.truncate(file, file.stat().st_size - 1)
    elif damage == "empty":
        os.truncate(file, 0)
    else:
        file.unlink()
    with pytest.raises(Damaged, match="000000000002"):
        checkpoints.read(file.parent)
    found, damaged = checkpoints.newest(tmp_path)
    assert found is not None and found.state == {"steps": 1}
    assert len(damaged) == 1 and str(file.parent) in damaged[0]


def test_a_flipped_bit_in_any_byte_of_a_checkpoint_is_detected(tmp_path: Path) -> None:
    """One bit of every byte is flipped.

    The manifest has no checksum, but a flipped bit breaks its syntax or changes a name or a value.
    """
    path = write(tmp_path, 2)
    for name in ("arrays.npz", "state.json", "manifest.json"):
        for at in range((path / name).stat().st_size):
            flipped(path / name, at)
            with pytest.raises(Damaged):
                checkpoints.read(path)
            flipped(path / name, at)
    assert checkpoints.read(path).state == {"steps": 2}


def test_newest_finds_none_if_all_checkpoints_are_damaged(tmp_path: Path) -> None:
    for steps in (1, 2):
        (write(tmp_path, steps) / "manifest.json").unlink()
    found, damaged = checkpoints.newest(tmp_path)
    assert found is None
    assert len(damaged) == 2
    assert checkpoints.newest(tmp_path / "nowhere") == (None, [])


def test_a_checkpoint_runs_no_code_when_it_is_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return (os.mkdir, (str(tmp_path / "trapped"),))

    path = write(tmp_path, 1)
    np.savez(path / "arrays.npz", trap=np.array([Trap()], object), allow_pickle=True)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["arrays.npz"] = fingerprint(path / "arrays.npz")
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(Damaged, match="allow_pickle"):
        checkpoints.read(path)
    assert not (tmp_path / "trapped").exists()


def test_the_newest_and_the_milestones_are_kept(tmp_path: Path) -> None:
    keeper = Checkpoints(tmp_path, CheckpointConfig(keep_checkpoints=2, milestone_steps=100))
    for steps in (0, 40, 90, 110, 160, 190, 230, 270, 290):
        keeper.save(0.0, ARRAYS, {"steps": steps})
    assert names(tmp_path) == [110, 230, 270, 290]


def test_a_checkpoint_is_due_by_time_or_by_steps() -> None:
    often = CheckpointConfig(checkpoint_every_s=10.0, checkpoint_every_steps=100)
    keeper = Checkpoints(Path("nowhere"), often)
    keeper.begin(seconds=50.0, steps=1000)
    assert not keeper.due(59.9, 1099)
    assert keeper.due(60.0, 1000)
    assert keeper.due(50.0, 1100)


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_later_checkpoint_at_the_same_steps_replaces_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    """Updates may follow the last step. Not every file system can exchange two names."""
    if not exchanges:
        monkeypatch.setattr(durable, "RENAME_EXCHANGE", 2**30)  # a flag that no kernel knows
    path, other = write(tmp_path, 5), {"other": np.zeros(2)}
    checkpoints.write(path, other, {"steps": 5})
    assert set(checkpoints.read(path).arrays) == set(other)
    (path / "manifest.json").unlink()
    checkpoints.write(path, ARRAYS, {"steps": 5})
    assert set(checkpoints.read(path).arrays) == set(ARRAYS)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_checkpoint_exists_at_every_moment_while_it_is_replaced(tmp_path: Path) -> None:
    """The names are exchanged atomically; two renames would leave a moment without a checkpoint."""
    path, ended, looks = write(tmp_path, 5), threading.Event(), Counter[bool]()

    def look() -> None:
        while not ended.is_set():
            looks[path.exists()] += 1

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for number in range(50):
            checkpoints.write(path, {"other": np.array([number])}, {"steps": 5})
    finally:
        ended.set()
        looking.join()
    assert checkpoints.read(path).arrays["other"] == [49]
    assert looks[True] > 100
    assert not looks[False]


def test_a_checkpoint_is_synced_to_the_disk_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut could leave an empty checkpoint after an older one was removed."""
    path, synced = tmp_path / "000000000005", []
    sync = os.fsync

    def noted(number: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{number}")).name, path.exists()))
        sync(number)

    monkeypatch.setattr(os, "fsync", noted)
    checkpoints.write(path, ARRAYS, {"steps": 5})
    partial = f"{checkpoints.PARTIAL}{path.name}"
    names = {"arrays.npz", "state.json", "manifest.json", partial}
    assert {name for name, is_named in synced if not is_named} >= names
    assert synced[-1] == (tmp_path.name, True)


def test_the_best_weights_stay_until_better_ones_belong_to_a_checkpoint(tmp_path: Path) -> None:
    """A killed run goes on from its newest checkpoint, and what is beyond it does not count."""
    best, folder = tmp_path / "best", tmp_path / "checkpoints"
    half = best / f"{checkpoints.PARTIAL}000000000005"  # left by a process that was killed
    half.mkdir(parents=True)
    for steps in (10, 30, 40):
        checkpoints.write_best(best, ARRAYS, {"steps": steps})
        checkpoints.prune_best(best, folder)
    assert names(best) == [10, 30, 40], "there is no checkpoint"
    for at, left in ((20, [10, 30, 40]), (35, [30, 40]), (40, [40]), (50, [40])):
        write(folder, at)
        checkpoints.prune_best(best, folder)
        assert names(best) == left
    assert len(list(best.iterdir())) == 1


def test_a_failed_checkpoint_is_retried_after_10_s() -> None:
    keeper = Checkpoints(Path("nowhere"), CheckpointConfig(checkpoint_every_s=300.0))
    keeper.begin(seconds=0.0, steps=0)
    keeper.postpone(seconds=300.0)
    assert not keeper.due(309.0, 10**9)
    assert keeper.due(310.0, 0)


def test_checkpoints_newer_than_the_one_used_are_set_aside(tmp_path: Path) -> None:
    for steps in (1, 2, 3):
        write(tmp_path, steps)
    (tmp_path / f"{3:012}" / "state.json").unlink()
    found, _ = checkpoints.newest(tmp_path)
    assert found is not None
    checkpoints.set_aside(found)
    assert names(tmp_path) == [1, 2]
    assert (tmp_path / f"damaged-{3:012}" / "manifest.json").exists()


LIMITED = """
import resource, sys
import numpy as np
from pathlib import Path
from ga3c.runs import checkpoints
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    checkpoints.write(Path(sys.argv[1]), {"a": np.zeros(10_000)}, {"steps": 2})
except OSError as error:
    print("refused", error.strerror)
"""


def test_a_disk_that_takes_no_more_leaves_the_last_one_as_it_was(tmp_path: Path) -> None:
    """A limit on file sizes simulates a full disk: the kernel refuses a write in mid-file."""
    write(tmp_path, 1)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / f"{2:012}")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("refused"), done.stderr
    assert names(tmp_path) == [1]
    assert len(list(tmp_path.iterdir())) == 1
    assert checkpoints.newest(tmp_path)[0] is not None


WRITER = """
import sys
import numpy as np
from pathlib import Path
from ga3c.runs.checkpoints import Checkpoints
from ga3c.settings.run import CheckpointConfig
keeper = Checkpoints(Path(sys.argv[1]), CheckpointConfig(keep_checkpoints=2))
keeper.begin(0, 0)
for steps in range(1, 1_000_000):
    keeper.save(0.0, {"a": np.full(200_000, steps)}, {"steps": steps})
    print(steps, flush=True)
"""


def test_a_writer_that_is_killed_leaves_the_last_whole_one(tmp_path: Path) -> None:
    draw = random.Random(0)
    for number in range(10):
        said = tmp_path / "said"
        directory = tmp_path / str(number)
        directory.mkdir()
        with open(said, "wb") as out:
            writer = subprocess.Popen([sys.executable, "-c", WRITER, str(directory)], stdout=out)
        while not said.read_bytes().count(b"\n"):
            assert writer.poll() is None
            time.sleep(0.01)
        time.sleep(draw.uniform(0.0, 0.1))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        last = int(said.read_bytes().split(b"\n")[-2])
        found, damaged = checkpoints.newest(directory)
        assert damaged == []
        assert found is not None
        assert found.state["steps"] in (last, last + 1)
        assert (found.arrays["a"] == found.state["steps"]).all()
        for path in checkpoints.kept(directory):
            assert checkpoints.read(path).state["steps"] >= last - 1


def test_weights_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    write(tmp_path, 70)
    for part in ("weights", "target", "optimizer"):
        for value in (np.nan, np.inf):
            bad = {f"{part}/dense/kernel": np.array([1.0, value], np.float32)}
            with pytest.raises(checkpoints.NotWritten, match=f"{part}/dense/kernel is not finite"):
                checkpoints.write(tmp_path / "000000000071", bad, {"steps": 71})
    assert [path.name for path in tmp_path.iterdir()] == ["000000000070"]
    checkpoints.write(tmp_path / "000000000072", {"ring/x": np.array([np.nan])}, {"steps": 72})


def test_a_large_checkpoint_tells_how_far_it_is_and_can_be_given_up(tmp_path: Path) -> None:
    """Progress is reported every few megabytes, for writing and for the checksums."""
    write(tmp_path, 70)
    large = {"ring/frame": np.zeros(100_000_000, np.uint8)}
    told: list[float] = []
    checkpoints.write(
        tmp_path / "000000000071", large, {}, lambda done, total: told.append(done / total)
    )
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len([share for share in told if share < 0.5]) >= 5
    assert len([share for share in told if share > 0.5]) >= 20
    for limit in (0.2, 0.9):

        def give_up(done: int, total: int) -> None:
            if done / total > limit:  # noqa: B023
                raise checkpoints.NotWritten("enough")

        with pytest.raises(checkpoints.NotWritten, match="enough"):
            checkpoints.write(tmp_path / "000000000072", large, {}, give_up)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000070", "000000000071"]
