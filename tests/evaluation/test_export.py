"""An export computes the same as the network; one that does not is not kept."""

from pathlib import Path

import keras
import numpy as np
import onnxruntime
import pytest

from ga3c import backend
from ga3c.evaluation import export
from ga3c.settings.checks import WrongInput
from ga3c.settings.train import TrainConfig
from tests.commands import ended, refused

if backend.FRAMEWORK != "tensorflow":
    pytest.skip("only TensorFlow exports: tests/backend/test_backends.py", allow_module_level=True)


@pytest.mark.parametrize("name", ["model", "model.onnx"])
def test_an_export_matches_the_network(pong_run: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    done = ended("export", str(pong_run), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "the same as the network on 64 frames" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == [name]
    frames = np.random.default_rng(0).integers(0, 255, (3, 84, 84, 4)).astype(np.uint8)
    if name == "model":
        found = keras.layers.TFSMLayer(str(out), call_endpoint="serve")(frames)
    else:
        session = onnxruntime.InferenceSession(str(out))
        found = session.run(None, {session.get_inputs()[0].name: frames})
    probabilities, values = (np.asarray(part) for part in found)
    assert probabilities.shape == (3, 6)
    assert values.shape == (3,)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    again = ended("export", str(pong_run), "--out", str(out))
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_an_export_that_differs_is_not_kept(
    pong_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test changes the weights only while they are exported."""
    save = export._saved

    def spoil(model: keras.Model, out: Path) -> None:
        weights = model.get_weights()
        model.set_weights([1.5 * each for each in weights])
        save(model, out)
        model.set_weights(weights)

    monkeypatch.setattr(export, "_saved", spoil)
    with pytest.raises(RuntimeError, match="differs from the network"):
        export.run(export.Config(pong_run, out=tmp_path / "model"))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_onnx_package_is_reported_with_how_to_install_it(
    pong_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tf2onnx", None)
    with pytest.raises(WrongInput, match=r"pip install -e '\.\[onnx\]'"):
        export.run(export.Config(pong_run, out=tmp_path / "model.onnx"))


def test_a_missing_output_folder_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    out = tmp_path / "nowhere" / "model"
    said = refused("export", "--pretrained", "Pong", "--out", str(out))
    assert said == f"ga3c: out {out}: must be in a writable directory"


def test_by_default_no_policy_is_chosen_and_the_game_is_pong() -> None:
    config = export.Config()
    assert (config.game, config.run, config.pretrained) == (None, None, None)
    assert TrainConfig().environment.game == "Pong"
