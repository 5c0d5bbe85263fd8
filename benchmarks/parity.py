"""A program that computes with given weights, batches and draws, and saves the results as .npz.

    KERAS_BACKEND=... python -m benchmarks.parity FOUND.npz [CASE...]

All random numbers come from numpy, initial weights included, so results of different frameworks can
differ only in arithmetic.
"""

import sys
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from agents.actions import Actions
from agents.environments import Spaces
from ga3c import backend
from ga3c.experience.batches import blank
from ga3c.learning.model import Model
from ga3c.service.assembly import build_algorithm, small_model
from ga3c.settings.learning import OptimizerConfig
from ga3c.settings.presets import PRESETS
from ga3c.settings.train import TrainConfig

VECTORS = Spaces((27,), "float32", Actions(4), 1)
PICTURES = Spaces((84, 84), "uint8", Actions(6), 4)
CONTROL = Spaces((27,), "float32", Actions(0, 4), 1)
BATCH = 6
T_MAX = 3
SEED = 2  # with it, no unit is so near 0 that the order of a sum decides if it is active


def cases() -> dict[str, tuple[TrainConfig, Spaces]]:
    """Named settings and spaces that cover every algorithm, network and optimizer."""
    a3c, dqn = TrainConfig(), PRESETS["dqn"]
    a3c = replace(a3c, service=replace(a3c.service, t_max=T_MAX))
    small = replace(
        dqn.replay, replay_steps=1000, replay_min_steps=500, batch_size=BATCH, n_step=T_MAX
    )
    dqn = replace(dqn, replay=small)
    better = replace(dqn, dqn=replace(dqn.dqn, dueling=True, double=True))
    found: dict[str, tuple[TrainConfig, Spaces]] = {}
    for name in ("small", "large-4", "large-3", "large-2", "large-1", "nature"):
        wanted: Any = name
        found[f"a3c {name}"] = replace(a3c, network=replace(a3c.network, network=wanted)), PICTURES
    found["a3c mlp"] = a3c, VECTORS
    control = PRESETS["a3c-control"]
    found["a3c control"] = replace(control, service=replace(control.service, t_max=T_MAX)), CONTROL
    for name, spaces in (("ppo-pictures", PICTURES), ("ppo-control", CONTROL)):
        found[name] = PRESETS[name], spaces
    for name in ("dpg-control", "apex-dpg"):
        kept = replace(
            PRESETS[name].replay,
            replay_steps=1000,
            replay_min_steps=1000,
            update_size=100,
            batch_size=BATCH,
            n_step=T_MAX,
            eviction="fifo",
        )
        found[name] = replace(PRESETS[name], replay=kept), CONTROL
    found["a3c paper"] = (
        replace(PRESETS["paper"], service=replace(PRESETS["paper"].service, t_max=T_MAX)),
        PICTURES,
    )
    found["dqn nature"] = dqn, PICTURES
    found["dqn dueling"] = better, PICTURES
    parr = replace(better, network=PRESETS["in-gpu-replay"].network)
    found["dqn parr"] = replace(parr, optimizer=PRESETS["in-gpu-replay"].optimizer), VECTORS
    found["dqn mlp"] = replace(better, network=replace(a3c.network, network="mlp")), VECTORS
    adam = OptimizerConfig(optimizer="adam", clip_norm=0.5)
    found["dqn adam"] = replace(found["dqn mlp"][0], optimizer=adam), VECTORS
    return found


def made(config: TrainConfig, spaces: Spaces) -> Model:
    """The model, with experience in RAM, because this program supplies its batches."""
    return small_model(config, spaces)


def batch_of(model: Model, spaces: Spaces, random: np.random.Generator) -> list[np.ndarray]:
    """A batch of random arrays, shaped like those of the model's source."""
    shape = model.experience.ring.observation_shape
    parts = []
    for part in blank(model.source, BATCH):
        drawn: np.ndarray
        if part.dtype == np.int32:
            drawn = random.integers(max(spaces.actions.count, 1), size=part.shape)
        elif part.dtype == np.uint8:
            drawn = random.integers(256, size=part.shape)
        elif part.shape[1:] == shape:
            drawn = random.normal(size=part.shape)
        else:
            drawn = random.random(part.shape) < 0.5
        parts.append(drawn.astype(part.dtype))
    return parts


def main() -> None:
    """Compute the cases, and write the results."""
    found_file, *wanted = sys.argv[1:]
    found: dict[str, Any] = {}
    for name in wanted or list(cases()):
        backend.configure(1, SEED)
        config, spaces = cases()[name]
        model, random = made(config, spaces), np.random.default_rng(0)
        found |= {f"{name}:first:{path}": array for path, array in model.read().items()}
        batch = batch_of(model, spaces, random)
        shape = model.experience.ring.observation_shape
        algorithm = build_algorithm(config, spaces.actions)
        judge = backend.compiled(
            partial(algorithm.policy_and_value, model.network), [((None, *shape), spaces.dtype)]
        )
        observations = next(part for part in batch if part.shape[1:] == shape)
        probabilities, values = judge(observations)
        found[f"{name}:probabilities"] = np.asarray(probabilities)
        found[f"{name}:values"] = np.asarray(values)
        for update in range(3):
            learned = model.update(batch, progress=0.1)
            for figure, value in learned.means.items():
                found[f"{name}:{update}:{figure}"] = np.array(value)
        found |= {f"{name}:{path}": a for path, a in model.read().items() if "weights/" in path}
    np.savez(found_file, **found)


if __name__ == "__main__":
    main()
