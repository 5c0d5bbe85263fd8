"""A new run that begins with the weights of another one."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ga3c
from ga3c.runs import checkpoints
from ga3c.runs.finding import pretrained_run
from ga3c.runs.kept_config import load_config
from ga3c.settings.learning import NetworkConfig
from ga3c.settings.train import TrainConfig
from ga3c.training.starting import check_resumed
from tests.commands import BEGIN_S, ROOT, Command, refused

SMALL: dict[str, Any] = {
    "game": "tests.tiny:Corridor-v0",
    "agents": 1,
    "envs_per_agent": 4,
    "scheduler": "off",
    "keep_checkpoints": 9,
}
LEARNERS: dict[str, dict[str, Any]] = {
    "a3c": {},
    "ppo": {"training_batch_min": 128, "training_batch_max": 128, "minibatch": 32, "t_max": 8},
    "dqn": {"replay_steps": 500, "replay_min_steps": 100},
}


def kept(run: ga3c.Run, at: int) -> checkpoints.Checkpoint:
    """The run's first checkpoint if `at` is 0, its last one if `at` is -1."""
    return checkpoints.read(checkpoints.kept(run.path / "checkpoints")[at])


@pytest.mark.parametrize("algorithm", LEARNERS)
def test_a_run_begins_with_the_weights_of_another_and_nothing_else_of_it(
    algorithm: str, tmp_path: Path
) -> None:
    given = {**SMALL, **LEARNERS[algorithm], "algorithm": algorithm, "runs_dir": tmp_path}
    first = ga3c.train(steps=600, seed=1, **given)
    learned, begun = kept(first, -1), kept(first, 0)
    second = ga3c.train(steps=600, seed=2, initial_weights=1, name="second", **given)
    taken = kept(second, 0)
    assert taken.state["steps"] == 0 and not taken.arrays["counters"][1]
    names = {name.partition("/")[2] for name in learned.arrays if name.startswith("weights/")}
    assert any(
        (learned.arrays[f"weights/{n}"] != begun.arrays[f"weights/{n}"]).any() for n in names
    )
    for name in names:
        for part in ("weights", "target") if algorithm == "dqn" else ("weights",):
            np.testing.assert_array_equal(
                taken.arrays[f"{part}/{name}"], learned.arrays[f"weights/{name}"]
            )
    for name in (name for name in taken.arrays if name.startswith("optimizer/")):
        np.testing.assert_array_equal(taken.arrays[name], begun.arrays[name])
    # The settings name the first run, but a resume no longer needs it.
    assert load_config(second.path).learning.initial_weights == first.path
    shutil.rmtree(first.path)
    more = second.result["steps"] + 200
    assert ga3c.train(resume=second, steps=more).result["steps"] >= more


def test_statistics_of_another_run_soon_give_way_to_those_of_the_new_one(tmp_path: Path) -> None:
    given = {**SMALL, "algorithm": "ppo", "normalize_observations": True, "runs_dir": tmp_path}
    first = ga3c.train(steps=11_000, **given)
    count = next(name for name in kept(first, -1).arrays if name.endswith("normalized/count"))
    assert kept(first, -1).arrays[count] > 10_000
    second = ga3c.train(steps=2000, name="second", initial_weights=first, **given)
    assert kept(second, 0).arrays[count] == 10_000 < kept(second, -1).arrays[count]


@pytest.mark.parametrize(
    "given",
    [
        ["--value-scale", "2"],
        ["--pixel-scale", "symmetric"],
        ["--no-center"],
        ["--padding", "same"],
    ],
)
def test_weights_are_not_taken_by_a_network_that_would_compute_something_else(
    given: list[str], tmp_path: Path
) -> None:
    run = shutil.copytree(pretrained_run("Pong"), tmp_path / "pong")
    words = "the weights were learned in pong with "
    assert words in refused("train", "--initial-weights", str(run), *given)
    game = ["--game", "pong", "--steps", "20000000"]
    assert words in refused("train", "--resume", str(run), *game, *given)


@pytest.mark.parametrize(
    ("before", "now", "fits"),
    [
        ("mlp", "parr", False),
        ("parr", "auto", False),
        ("large-4", "large-3", False),
        ("auto", "mlp", True),
        ("auto", "small", True),
        ("minatar", "auto", True),
        ("mlp", "tests.own_nets:torso", True),  # which may compute anything
    ],
)
def test_weights_stay_with_the_activation_and_strides_that_they_were_learned_with(
    before: str, now: str, fits: bool
) -> None:
    """`mlp` and `parr` with equal units differ in their activation only, tanh and relu."""
    old, new = (TrainConfig(network=NetworkConfig(network, (64, 64))) for network in (before, now))
    words = "the weights were learned in"
    with contextlib.nullcontext() if fits else pytest.raises(ValueError, match=words):
        check_resumed(new, old)


def test_weights_of_another_activation_are_not_taken(tmp_path: Path) -> None:
    run = shutil.copytree(ROOT / "tests" / "runs" / "old_runs" / "a3c", tmp_path / "old")
    given = ["--initial-weights", str(run), "--network", "parr", "--value-scale", "1"]
    said = refused("train", "--game", "tests.tiny:Corridor-v0", *given)
    words = "learned in tests.tiny:Corridor-v0 with network mlp, and would mean something"
    assert words in said


def test_the_best_weights_of_a_run_may_be_taken(tmp_path: Path) -> None:
    given = {**SMALL, "algorithm": "a3c", "runs_dir": tmp_path}
    with pytest.raises(ValueError, match=r"initial_weights: run mine: no directory"):
        ga3c.train(steps=600, initial_weights="mine/best", **given)
    first = ga3c.train(steps=600, name="mine", evaluate_every=300, evaluate_episodes=2, **given)
    (best,) = checkpoints.kept(first.path / "best")
    shutil.rmtree(first.path / "checkpoints")
    second = ga3c.train(steps=200, name="best", initial_weights="1/best", **given)
    assert f"begins with the weights of {best}\n" in (second.path / "log.txt").read_text()
    third = ga3c.train(steps=200, name="third", initial_weights="best", **given)
    assert load_config(third.path).learning.initial_weights == second.path, "a run of this name"
    assert load_config(second.path).learning.initial_weights == first.path / "best"
    taken, expected = kept(second, 0).arrays, checkpoints.read(best).arrays
    for name in (name for name in expected if name.startswith("weights/")):
        np.testing.assert_array_equal(taken[name], expected[name])


def test_weights_that_do_not_fit_or_are_damaged_leave_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {**SMALL, "algorithm": "a3c", "runs_dir": tmp_path}
    first = ga3c.train(steps=600, **given)
    with pytest.raises(ValueError, match=r"initial_weights: those of .* do not fit .* expected"):
        ga3c.train(steps=600, initial_weights=first, **{**given, "game": "CartPole-v1"})
    with pytest.raises(ValueError, match=r"initial_weights: run nowhere: no directory"):
        ga3c.train(steps=600, initial_weights="nowhere", **given)
    newest = checkpoints.kept(first.path / "checkpoints")[-1]
    (newest / checkpoints.ARRAYS).write_bytes(b"")
    assert ga3c.train(steps=600, initial_weights=first, name="older", **given).path.is_dir()
    assert f"damaged, so the one before it is used: {newest}" in capsys.readouterr().err
    shutil.rmtree(first.path / "checkpoints")
    with pytest.raises(ValueError, match=r"initial_weights: .*checkpoints has no whole check"):
        ga3c.train(steps=600, initial_weights=first, **given)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == sorted(
        {"older", first.path.name}
    )


def test_a_resumed_run_refuses_the_weights_of_another(tmp_path: Path) -> None:
    first = ga3c.train(steps=200, **SMALL, algorithm="a3c", runs_dir=tmp_path / "runs")
    with pytest.raises(ValueError, match="initial_weights has no effect on a run that is resumed"):
        ga3c.train(resume=first, steps=400, initial_weights=first)
    given = ["--steps", "400", "--initial-weights", "1"]
    command = Command(tmp_path, ["train", "--resume", "1", *given])
    assert command.wait(BEGIN_S) == 2
    assert "--initial-weights has no effect on a run that is resumed" in command.err
