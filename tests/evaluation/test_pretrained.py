"""The policies that ship with ga3c: each is small, plays well and leaves the package unchanged."""

import json
from pathlib import Path

import pytest

from ga3c.runs.finding import pretrained, pretrained_run
from tests.commands import ROOT, ended, refused

LEAST = {"pong": 18.0, "boxing": 3.0, "breakout": 150.0, "qbert": 2000.0}
"""The mean score of two games that chance never reaches."""


@pytest.mark.parametrize("name", pretrained())
def test_each_policy_plays_well_and_is_small(name: str) -> None:
    path = pretrained_run(name)
    files = {file: file.stat().st_mtime for file in path.rglob("*") if file.is_file()}
    assert sum(file.stat().st_size for file in files) < 5e6
    as_trained = ["--sticky-actions", "0"]
    done = ended("evaluate", "--pretrained", name, "--episodes", "2", "--json", *as_trained)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["mean"] > LEAST[name]
    assert "kept in" not in done.stdout
    left = {file: file.stat().st_mtime for file in path.rglob("*") if file.is_file()}
    assert left == files, "nothing is written there"


def test_a_policy_makes_a_video_without_a_run(tmp_path: Path) -> None:
    out = tmp_path / "pong.mp4"
    given = ["play", "--pretrained", "Pong", "--max-seconds", "1", "--out", str(out)]
    done = ended(*given)
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size > 5000


def test_a_game_without_a_pretrained_policy_is_refused_with_the_choices() -> None:
    for game in ("Tennis", "Nope"):
        said = refused("play", "--pretrained", game)
        assert f"pretrained {game}: must be one of boxing, breakout, pong, qbert" in said
    both = refused("evaluate", "runs/mine", "--pretrained", "Pong")
    assert "run runs/mine with pretrained Pong: give one" in both


def test_all_policies_are_packaged() -> None:
    assert set(pretrained()) == set(LEAST)
    assert "pretrained/*/checkpoints/*/*" in (ROOT / "setup.cfg").read_text()
