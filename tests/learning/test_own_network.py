"""A torso that the user wrote: it learns and is restored, and each of its faults is one line."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest

from agents.actions import Actions
from ga3c import backend
from ga3c.learning.a3c import A3C
from ga3c.learning.dqn import DQN
from ga3c.settings.learning import A3CConfig, DQNConfig, NetworkConfig
from tests.commands import BEGIN_S, CORRIDOR, ROOT, Command, ended

OWN = "tests.own_nets:torso"


def build(algorithm: A3C | DQN, network: str = OWN, **settings: object) -> keras.Model:
    config = NetworkConfig(network, **settings)  # type: ignore[arg-type]
    return algorithm.network(config, (7,), "float32", False)


def kernels(network: keras.Model) -> list[tuple[int, ...]]:
    return sorted(tuple(w.shape) for w in network.weights if w.path.endswith("kernel"))


def paths(network: keras.Model) -> list[str]:
    return [weight.path for weight in network.weights]


def test_a3c_puts_its_heads_on_the_features() -> None:
    network = build(A3C(A3CConfig(), Actions(2)))
    assert kernels(network) == [(7, 24), (16, 1), (16, 2), (24, 16)]


def test_a_network_takes_arguments() -> None:
    network = build(A3C(A3CConfig(), Actions(2)), "tests.own_nets:of_sizes(sizes=[24, 8])")
    assert kernels(network) == [(7, 24), (8, 1), (8, 2), (24, 8)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("of_sizes(sizes=[24], activation='relu6x')", "cannot be built: "),
        ("of_sizes", "missing 1 required positional argument: 'sizes'"),
        ("of_sizes(size=[24])", "unexpected keyword argument 'size'"),
        ("of_sizes([24])", "must be module:name(key=value, ...)"),
        ("of_sizes(**{'sizes': [24]})", "must be module:name(key=value, ...)"),
        ("of_sizes(sizes=range(3))", "they are not evaluated as code"),
        ("of_sizes(sizes=[24])(3)", "must be module:name(key=value, ...)"),
        ("of_sizes(sizes=[24]).there(sizes=3)", "must be module:name(key=value, ...)"),
        ("of_sizes(sizes=[24], sizes=[8])", "must be module:name(key=value, ...)"),
        ("of_size(sizes=[24])", "did you mean of_sizes?"),
        ("Any(sizes=[24])", "cannot be built: "),
        ("__name__(sizes=[24])", "is of type str, not a function"),
    ],
)
def test_arguments_that_a_network_does_not_take_are_refused(call: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"network tests\.own_nets:") as refused:
        build(A3C(A3CConfig(), Actions(2)), f"tests.own_nets:{call}")
    assert words in str(refused.value)


def test_the_value_can_have_a_torso_of_its_own() -> None:
    network = build(A3C(A3CConfig(), Actions(2)), separate_value=True)
    assert kernels(network) == [(7, 24), (7, 24), (16, 1), (16, 2), (24, 16), (24, 16)]
    assert len(set(paths(network))) == len(network.weights)


def test_dqn_puts_its_heads_on_the_features_with_and_without_streams() -> None:
    assert kernels(build(DQN(DQNConfig(), 3))) == [
        (7, 24),
        (16, 3),
        (24, 16),
    ]
    dueling = build(DQN(DQNConfig(dueling=True), 3))
    streams = [(16, 256), (16, 256), (24, 16), (256, 1), (256, 3)]
    assert kernels(dueling) == [(7, 24), *streams]


def test_weights_have_the_same_names_each_time() -> None:
    """Otherwise a process that has made networks before could not read a checkpoint."""
    algorithm = A3C(A3CConfig(), Actions(2))
    first, second = build(algorithm), build(algorithm)
    assert paths(first) == paths(second)


def test_a_custom_network_sees_what_the_built_in_ones_see() -> None:
    """The torso gets pictures scaled to [0, 1], minus their mean."""
    network = A3C(A3CConfig(), Actions(2)).network(
        NetworkConfig("tests.own_nets:as_seen"), (20, 20, 1), "uint8", True
    )
    picture = np.zeros((1, 20, 20, 1), np.uint8)
    picture[0, 0, 0] = 255
    before = keras.Model(network.inputs[0], network.get_layer("policy").input)
    seen = np.asarray(before(picture))
    np.testing.assert_allclose(seen.max(), 1 - 1 / 400, rtol=1e-5)
    np.testing.assert_allclose(seen.mean(), 0.0, atol=1e-6)


def test_layers_of_a_custom_network_have_the_configured_precision() -> None:
    torso = build(A3C(A3CConfig(), Actions(2)), precision="bfloat16").get_layer("torso")
    assert torso.get_layer("last").compute_dtype == "bfloat16"
    assert torso.get_layer("last").variable_dtype == "float32"
    assert keras.config.dtype_policy().name == "float32"


WRONG = {
    "nowhere:torso": ["module nowhere cannot be imported", "there is no nowhere.py"],
    "tests.own_nets:torzo": ["did you mean torso? ", "own_nets.py has no torzo"],
    "tests.own_nets.py:torso": ["(a module is named without .py)"],
    "tests.own_nets:UNITS": ["UNITS is of type int, not a function"],
    "tests.own_nets:raising": ["RuntimeError: the network has a hole", "own_nets.py, line"],
    "tests.own_nets:of_rank_3": ["shape (None, 1, 7)", "must be [n, k]"],
    "tests.own_nets:a_number": ["returned int", "Keras tensor"],
}


@pytest.mark.parametrize("network", WRONG)
def test_a_fault_is_named_with_the_network(network: str) -> None:
    with pytest.raises(ValueError, match=f"^network {network}") as error:
        build(A3C(A3CConfig(), Actions(2)), network)
    assert all(word in str(error.value) for word in WRONG[network]), error.value
    assert "\n" not in str(error.value)


def test_layers_that_networks_would_share_are_refused() -> None:
    """Otherwise updates would change the target network, and a second run would start trained."""
    algorithm, network = DQN(DQNConfig(), 3), "tests.own_nets:of_shared_layers"
    build(algorithm, network)
    with pytest.raises(ValueError, match="layers that it has returned before: make new ones"):
        build(algorithm, network)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("with_dropout", "dropout or noise of 0.5 has no effect, even in training"),
        ("with_recurrent_dropout", "dropout or noise of 0.25 has no effect, even in training"),
        ("with_regularizer", "regularizers have no effect: only the algorithm's loss is minimised"),
        ("with_activity_regularizer", "regularizers have no effect: only the algorithm's loss is"),
        ("with_batch_normalisation", "batch normalisation keeps its initial means and deviations"),
        ("with_attention", ""),
    ],
)
def test_layers_without_effect_are_reported_once(
    network: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        build(A3C(A3CConfig(), Actions(2)), f"tests.own_nets:{network}")
    said = capsys.readouterr().err
    assert words in said
    assert said.count("ga3c: network") == bool(words)


@pytest.mark.parametrize("network", ["tests.own_nets:", ":torso", "a b:c", "smal"])
def test_an_invalid_name_of_a_network_is_refused(network: str) -> None:
    with pytest.raises(ValueError, match=r"must be one of auto, small.*module:name"):
        NetworkConfig(network)


def test_a_run_that_cannot_build_its_network_begins_nothing(
    command: Callable[..., Command],
) -> None:
    run = command(*CORRIDOR, "--network", "tests.own_nets:of_rank_3")
    assert run.wait(BEGIN_S) == 2
    assert len(run.err.splitlines()) == 1, run.err
    assert "must be [n, k]" in run.err
    assert not run.runs.exists()


def test_a_run_with_a_custom_network_is_resumed_evaluated_and_exported(
    command: Callable[..., Command], tmp_path: Path
) -> None:
    run = command(*CORRIDOR, "--network", OWN, "--steps", "1500", "--name", "mine", "--seed", "1")
    assert run.wait(BEGIN_S) == 0, run.err
    path = run.runs / "mine"
    assert json.loads((path / "config.json").read_text())["network"]["network"] == OWN
    again = command("train", "--resume", str(path), "--steps", "3000")
    assert again.wait(BEGIN_S) == 0, again.err
    assert "goes on from" in again.out
    evaluated = ended("evaluate", str(path), "--episodes", "3")
    assert evaluated.returncode == 0, evaluated.stderr
    if backend.FRAMEWORK == "tensorflow":
        exported = ended("export", str(path), "--out", str(tmp_path / "model.onnx"))
        assert exported.returncode == 0, exported.stderr


def test_dqn_trains_with_a_dueling_custom_network(command: Callable[..., Command]) -> None:
    settings = ["--algorithm", "dqn", "--dueling", "--steps", "2500", "--evaluate-every", "1000"]
    run = command(*CORRIDOR, *settings, "--network", OWN, "--json", "--evaluate-episodes", "2")
    assert run.wait(BEGIN_S) == 0, run.err
    result = json.loads(run.out.splitlines()[-1])
    assert result["updates"] > 0
    assert result["policy_lag"] is None, "of a replay"


def run_in(folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BEGIN_S,
    )


def test_the_installed_command_searches_the_working_directory(tmp_path: Path) -> None:
    """The command is a script elsewhere, and Python searches only the script's own folder."""
    script = tmp_path / "bin" / "ga3c"
    script.parent.mkdir()
    script.write_text("from ga3c.__main__ import program\nprogram()\n")
    here = tmp_path / "here"
    here.mkdir()
    shutil.copy(ROOT / "tests" / "tiny.py", here / "my_games.py")
    given = ["train", "--game", "my_games:Corridor-v0", "--network", "my_nets:torso"]
    arguments = [sys.executable, str(script), *given, "--steps", "50", "--runs-dir", "runs"]
    done = run_in(here, arguments)
    assert done.returncode == 2
    assert "network my_nets:torso: module my_nets cannot be imported" in done.stderr
    assert "building the network" not in done.stdout
    shutil.copy(ROOT / "tests" / "own_nets.py", here / "my_nets.py")
    done = run_in(here, arguments)
    assert done.returncode == 0, done.stderr
