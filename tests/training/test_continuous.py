"""A run with continuous actions: evaluated, exported, played, resumed, and used from Python."""

import json
from pathlib import Path

import numpy as np
import pytest

import ga3c
from ga3c import backend
from tests.commands import ended, refused

GAME = "tests.tiny:Reach-v0"
SMALL = {
    "game": GAME,
    "envs_per_agent": 8,
    "max_agents": 2,
    "replay_min_steps": 1000,
    "replay_steps": 5000,
    "update_size": 50,
    "learning_rate": 1e-3,
    "noise": 0.2,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ga3c.Run:
    """A run that has partly learned the game, with dpg, the default for continuous actions."""
    place = tmp_path_factory.mktemp("runs")
    return ga3c.train(**SMALL, steps=5000, runs_dir=place, name="mine")


def test_dpg_is_the_default_and_its_policy_acts_within_the_bounds(run: ga3c.Run) -> None:
    assert run.load().config.preset == "dpg-control"
    policy = run.load()
    observations = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    actions = policy.act(observations)
    assert (actions.shape, actions.dtype) == ((50, 1), np.float32)
    assert np.abs(actions).max() <= 1
    again = policy.act(observations)
    np.testing.assert_array_equal(actions, again, err_msg="there is no noise")
    assert policy.value(observations).shape == (50,)
    with pytest.raises(ValueError, match="have no probabilities"):
        policy.probabilities(observations)
    assert np.corrcoef(actions[:, 0], observations[:, 0])[0, 1] > 0.9, "it gives what it sees"


def test_environments_take_floats_of_the_right_shape(run: ga3c.Run) -> None:
    policy = run.load()
    with policy.make_environments(3) as environments:
        assert (environments.num_actions, environments.actions.size) == (0, 1)
        observations = environments.reset()
        step = environments.step(policy.act(observations))
        assert step.rewards.shape == (3,)
        for wrong in (np.zeros(3), np.zeros((3, 2)), np.zeros((3, 1), np.int32)):
            with pytest.raises(ValueError, match=r"must be floats of shape \(3, 1\)"):
                environments.step(wrong)


def test_it_is_evaluated_without_noise_by_its_own_protocol(run: ga3c.Run) -> None:
    done = ended("evaluate", str(run.path), "--episodes", "20")
    assert done.returncode == 0, done.stderr
    entry = json.loads((run.path / "evaluations.jsonl").read_text().splitlines()[-1])
    assert (entry["protocol"]["name"], entry["protocol"]["policy"]) == ("control", "greedy")
    assert entry["mean"] > -2, "a constant action gives -5"
    done = ended("evaluate", str(run.path), "--protocol", "paper")
    assert done.returncode == 2
    assert "are played without noise: choose the protocol control" in done.stderr
    done = ended("evaluate", str(run.path), "--policy", "sample")
    assert done.returncode == 2
    assert "are played without noise: leave --policy out" in done.stderr


@pytest.mark.parametrize(
    ("game", "protocol", "words"),
    [
        (GAME, "paper", "evaluate_protocol: policy sample"),
        ("CartPole-v1", "control", "evaluate_protocol: protocol control: is for continuous act"),
    ],
)
def test_a_protocol_for_other_actions_is_refused_before_there_is_a_run(
    tmp_path: Path, game: str, protocol: str, words: str
) -> None:
    given = ["--evaluate-every", "1000", "--evaluate-protocol", protocol]
    given += ["--seconds", "1", "--runs-dir", str(tmp_path)]  # short, in case it is not refused
    assert words in refused("train", "--game", game, *given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(backend.FRAMEWORK != "tensorflow", reason="only TensorFlow exports")
@pytest.mark.parametrize("name", ["model", "model.onnx"])
def test_it_is_exported_with_its_measured_weights(run: ga3c.Run, tmp_path: Path, name: str) -> None:
    done = ended("export", str(run.path), "--out", str(tmp_path / name))
    assert done.returncode == 0, done.stderr
    assert "the same as the network on 64 frames" in done.stdout


def test_a_resumed_run_continues_its_normalization_statistics(run: ga3c.Run) -> None:
    policy = run.load()._policy
    weights = {w.path: np.asarray(w) for w in policy.network.weights}
    assert weights["actor_normalized/count"] > 1000
    np.testing.assert_allclose(weights["actor_normalized/mean"], 0.0, atol=0.15)
    np.testing.assert_allclose(weights["actor_normalized/variance"], 1 / 3, rtol=0.2)
    assert 0.3 < weights["value_scale/square"] < 10
    done = ended("train", "--resume", str(run.path), "--steps", "6500")
    assert done.returncode == 0, done.stderr
    assert "goes on from" in done.stdout
    later = {w.path: np.asarray(w) for w in run.load()._policy.network.weights}
    assert later["actor_normalized/count"] > weights["actor_normalized/count"]


def test_a_video_of_continuous_actions_is_written(tmp_path: Path) -> None:
    given = {**SMALL, "game": "Pendulum-v1", "steps": 1200}
    played = ga3c.train(**given, runs_dir=tmp_path, name="mine")
    out = tmp_path / "video.mp4"
    done = ended("play", str(played.path), "--max-seconds", "0.5", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size > 1000
