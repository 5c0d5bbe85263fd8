"""`python -m benchmarks.operations` on this processor."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kept import ORIGIN
from ga3c import backend


@pytest.mark.skipif(backend.FRAMEWORK == "jax", reason="of TensorFlow's kernels")
def test_operations_are_timed_and_kept(tmp_path: Path) -> None:
    out = tmp_path / "operations.json"
    command = [sys.executable, "-m", "benchmarks.operations", "--observations", "2"]
    done = subprocess.run(
        [*command, "--repeats", "1", "--part-seconds", "0.1", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(out.read_text())
    assert set(ORIGIN) <= set(found.pop("machine"))
    assert found.pop("settings")["observations"] == 2
    assert all(name in done.stdout for name in found)
    for figures in found.values():
        for precision in ("float32", "bfloat16"):
            assert figures[precision]["us"] > 0
    assert found["dense"]["float32"]["gflops"] > 0
