"""Runs from before the folders of ga3c/ were reorganised can be resumed, evaluated and reported."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ga3c.runs import checkpoints
from ga3c.runs.kept_config import read_config
from tests.commands import ROOT, ended

OLD = ROOT / "tests" / "runs" / "old_runs"
NAMES = pytest.mark.parametrize("name", ["a3c", "dqn"])


@pytest.fixture
def run(name: str, tmp_path: Path) -> Path:
    return shutil.copytree(OLD / name, tmp_path / name)


@NAMES
def test_the_settings_of_an_old_run_are_read_completely(run: Path) -> None:
    """Settings that have moved since are in their new sections, and none has to be assumed."""
    values = json.loads((run / "config.json").read_text())
    config, notes = read_config(run)
    assert "format" not in values
    assert notes == []
    assert config.service.t_max == values["a3c"]["t_max"]
    assert config.replay.n_step == values["dqn"]["n_step"]
    assert config.replay.batch_size == values["dqn"]["batch_size"]
    assert config.replay.target_period == values["dqn"]["target_period"]


@NAMES
def test_an_old_run_is_resumed_and_loses_nothing(run: Path) -> None:
    before, _ = checkpoints.newest(run / "checkpoints")
    assert before
    kept = before.arrays  # read before the run goes on
    given = ["--steps", "1400", "--trust", "--json"]  # another user started the run
    done = ended("train", "--resume", str(run), *given)
    assert done.returncode == 0, done.stderr
    after, damaged = checkpoints.newest(run / "checkpoints")
    assert after and not damaged
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["steps"] >= 1400
    assert result["updates"] > before.state["counts"]["updates"] > 0
    assert after.state["seconds"] > before.state["seconds"]
    assert set(kept) - {"queue"} <= set(after.arrays), "nothing that it had is lost"
    assert all(after.arrays[key].shape == kept[key].shape for key in kept if key != "queue")
    if run.name == "dqn":
        assert after.state["pacing"]["before"] == 0, "its replay was not filled anew"
        made, total = kept["lanes/written"], after.arrays["lanes/written"]
        for name in ("ring/frame", "ring/action", "ring/reward"):
            was, now = (
                arrays[name].reshape(made.size, -1, kept[name][0].size)
                for arrays in (kept, after.arrays)
            )
            rows = slice(total.max() - was.shape[1], made.min())  # new steps replaced older rows
            assert rows.stop - rows.start > 100
            np.testing.assert_array_equal(now[:, rows], was[:, rows], err_msg=name)
    else:
        assert after.state["actions"]["bytes"] == 2 * result["steps"]


@NAMES
def test_an_old_run_is_evaluated_played_and_reported(run: Path, tmp_path: Path) -> None:
    for checkpoint in ("newest", "best"):
        given = ["--checkpoint", checkpoint, "--episodes", "2", "--trust"]
        done = ended("evaluate", str(run), *given)
        assert done.returncode == 0, done.stderr
        assert "over 2 games" in done.stdout
    out = tmp_path / "report.html"
    done = ended("report", str(run), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "Corridor" in out.read_text()
