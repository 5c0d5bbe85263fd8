"""`ga3c export`: writes the policy of a run for programs without ga3c, as SavedModel or ONNX.

An export maps observations, as the network sees them, to action probabilities (or continuous
actions) and values. It is compared with the live network on frames of the game before it is kept.
"""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from agents.environments import EnvironmentConfig, Environments
from agents.extras import missing
from ga3c import backend
from ga3c.evaluation.chosen import load, policy_of, title
from ga3c.evaluation.options import ExportConfig as Config
from ga3c.evaluation.policy import Policy, Stacks
from ga3c.settings.checks import WrongInput
from ga3c.settings.machine import CORES

FRAMES = 64  # observations on which the export and the network are compared
LARGEST_DIFFERENCE = 1e-4  # absolute; relative for values above 1
Judge = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def run(config: Config) -> None:
    """Write the export and compare it. Raises WrongInput or RuntimeError; then nothing is kept."""
    if backend.FRAMEWORK != "tensorflow":
        raise WrongInput(
            f"export with {backend.FRAMEWORK}: needs TensorFlow, which can read this run too: set "
            "KERAS_BACKEND=tensorflow"
        )
    trained, path, checkpoint = load(config)
    backend.configure(CORES, 0)
    policy = policy_of(trained, checkpoint)
    write, read = (_onnx, _read_onnx) if config.out.suffix == ".onnx" else (_saved, _read_saved)
    partial = config.out.with_name(f".partial-{config.out.name}")
    _remove(partial)
    try:
        write(policy.model, partial)
        difference = _difference(policy, read(partial), trained.environment)
        if not difference <= LARGEST_DIFFERENCE:
            raise RuntimeError(f"the export differs from the network by {difference:.2g}")
        partial.rename(config.out)
    except ModuleNotFoundError as error:
        raise WrongInput(missing(str(error.name), "onnx")) from error
    finally:
        _remove(partial)
    print(
        f"wrote {path}, {title(trained, checkpoint)}, to {config.out}: the same as the network on "
        f"{FRAMES} frames, to within {difference:.1g}"
    )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _saved(model: keras.Model, out: Path) -> None:
    model.export(str(out), verbose=False)


def _onnx(model: keras.Model, out: Path) -> None:
    import onnxruntime  # noqa: F401  optional: if it is missing, fail before writing anything
    import tf2onnx  # noqa: F401

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # from Keras, about numpy
        model.export(str(out), format="onnx", verbose=False)


def _read_saved(path: Path) -> Judge:
    layer = keras.layers.TFSMLayer(str(path), call_endpoint="serve")

    def judge(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        probabilities, values = layer(observations)
        return np.asarray(probabilities), np.asarray(values)

    return judge


def _read_onnx(path: Path) -> Judge:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def judge(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        outputs: list[Any] = session.run(None, {name: observations})
        return outputs[0], outputs[1]

    return judge


def _difference(policy: Policy, judge: Judge, environment: EnvironmentConfig) -> float:
    observations = _frames(policy, environment)
    pairs = zip(judge(observations), policy.judge(observations), strict=True)
    return max(
        float((np.abs(exported - live) / np.maximum(np.abs(live), 1.0)).max())
        for exported, live in pairs
    )


def _frames(policy: Policy, environment: EnvironmentConfig) -> np.ndarray:
    """Observations of a game with random actions, [FRAMES, ...]."""
    environments = Environments(environment, 1)
    random, stacks = np.random.default_rng(0), Stacks(policy.spaces, 1)
    step, observations = environments.reset(0), []
    for _ in range(FRAMES):
        observations.append(stacks.push(step.frames, step.firsts)[0])
        step = environments.step(policy.spaces.actions.random(random, 1))
    environments.close()
    return np.stack(observations)
