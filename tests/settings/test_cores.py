"""The cores and memory that we may use, where a container allows less than the machine has."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from agents.machine import COUNTED, available_cores, free_ram_bytes
from ga3c.runs import metrics
from ga3c.runs.metrics import cores_time

OURS = len(os.sched_getaffinity(0))
MANY = 8  # cores that a machine may have, so that a quota matters


def root_with(tmp_path: Path, groups: str, files: dict[str, str]) -> Path:
    """A file system as the kernel shows it to a process in these control groups."""
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, MANY),
        ("0::/", {"sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1),
        ("0::/", {"sys/fs/cgroup/cpu.max": "20000 100000\n"}, 1),
        ("0::/box", {"sys/fs/cgroup/box/cpu.max": "150000 100000\n"}, 1),
        ("0::/pod/box", {"sys/fs/cgroup/pod/cpu.max": "399999 100000\n"}, 3),
        # Inside a container, the group's own folder may be the mount.
        ("0::/docker/1234", {"sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1),
        (
            "5:cpu,cpuacct:/box\n0::/",
            {
                "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
        (
            "5:cpu:/\n",
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            MANY,
        ),
        ("0::/", {"sys/fs/cgroup/cpu.max": "not what the kernel writes\n"}, MANY),
        ("0::/../elsewhere", {}, MANY),
    ],
)
def test_a_containers_quota_is_honoured(
    groups: str, files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(MANY)))
    monkeypatch.delenv(COUNTED, raising=False)
    assert available_cores(root_with(tmp_path, groups, files)) == cores


def test_without_control_groups_the_affinity_is_counted(tmp_path: Path) -> None:
    assert available_cores(tmp_path) == OURS
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert available_cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.skipif(OURS < 2, reason="one core cannot be limited to fewer")
@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/", "sys/fs/cgroup/cpu.stat"),
        ("9:name=systemd:/\n0::/pod/box", "sys/fs/cgroup/pod/box/cpu.stat"),
        ("0::/docker/1234", "sys/fs/cgroup/cpu.stat"),
    ],
)
def test_under_a_quota_the_busy_time_is_that_of_the_control_group(
    groups: str, file: str, tmp_path: Path
) -> None:
    """Otherwise, the work of other containers on these cores would count."""
    root = root_with(tmp_path, groups, {file: "usage_usec 5000000\nuser_usec 4000000\n"})
    before = cores_time(root, allowed=1)
    assert before.busy == 5.0
    root_with(tmp_path, groups, {file: "usage_usec 5250000\nuser_usec 4000000\n"})
    time.sleep(0.5)
    after = cores_time(root, allowed=1)
    assert after.busy - before.busy == 0.25
    assert sum(after) - sum(before) >= 0.5
    assert cores_time(root, allowed=OURS).busy != 5.25, "no quota: the cores' own time"
    assert cores_time(tmp_path / "none", allowed=1).busy > 0.0


@pytest.mark.skipif(OURS < 2, reason="one core cannot be limited to fewer")
@pytest.mark.parametrize("groups", ["5:cpu,cpuacct:/box\n0::/", "5:cpu:/\n6:cpuacct:/box\n0::/"])
def test_under_a_quota_the_busy_time_is_read_from_cgroup_v1_too(
    groups: str, tmp_path: Path
) -> None:
    file = "sys/fs/cgroup/cpuacct/box/cpuacct.usage"
    root = root_with(tmp_path, groups, {file: "5000000000\n"})
    assert cores_time(root, allowed=1).busy == 5.0


def test_ga3c_cores_limits_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GA3C_CORES", "1")
    assert available_cores() == 1
    monkeypatch.setenv("GA3C_CORES", "4096")
    assert available_cores() <= OURS
    for wrong in ("0", "two", "-1"):
        command = [sys.executable, "-m", "ga3c", "list", "presets"]
        monkeypatch.setenv("GA3C_CORES", wrong)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert f"GA3C_CORES {wrong}: must be a whole number of cores above 0" in line


GIB = 1 << 30


@pytest.mark.parametrize(
    ("groups", "files", "left"),
    [
        (
            "0::/pod/box",
            {
                "sys/fs/cgroup/pod/memory.max": "max\n",
                "sys/fs/cgroup/pod/box/memory.max": f"{GIB}\n",
                "sys/fs/cgroup/pod/box/memory.current": f"{GIB // 2}\n",
                "sys/fs/cgroup/pod/box/memory.stat": f"anon 5\ninactive_file {GIB // 8}\n",
            },
            GIB // 2 + GIB // 8,
        ),
        (
            "7:memory:/box\n4:cpu:/box\n0::/",
            {
                "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{GIB // 4}\n",
                "sys/fs/cgroup/memory/box/memory.usage_in_bytes": f"{GIB}\n",
                "sys/fs/cgroup/memory/box/memory.stat": "total_inactive_file 0\n",
            },
            0,
        ),
        ("0::/", {"sys/fs/cgroup/memory.max": "max\n"}, None),
    ],
)
def test_a_containers_memory_is_honoured(
    groups: str, files: dict[str, str], left: int | None, tmp_path: Path
) -> None:
    found = free_ram_bytes(root_with(tmp_path, groups, files))
    if left is None:
        assert found == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    else:
        assert found == left


def test_cores_that_a_container_numbers_otherwise_are_all_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lxcfs may list cpu0 and cpu1 although the affinity is 8 and 9. Other lists have gaps."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {8, 9})
    monkeypatch.setattr(metrics, "STAT", tmp_path / "stat")
    for listed, expected in ((["cpu0", "cpu1"], ["a", "b"]), (["cpu8", "cpu9"], ["a", "b"])):
        (tmp_path / "stat").write_text("cpu  1 2\n" + "".join(f"{n} 1 2\n" for n in listed))
        assert metrics._of_ours(["a", "b"]) == expected
    (tmp_path / "stat").write_text("cpu  1 2\ncpu0 1 2\ncpu8 1 2\ncpu9 1 2\n")
    assert metrics._of_ours(["a", "b", "c"]) == ["b", "c"]
