"""`ga3c list`: the names that options take, each with a line about it."""

import contextlib
from dataclasses import dataclass
from typing import Literal

import tyro
from ale_py import registration

from agents import control
from agents.games import atari_roms
from ga3c.runs.finding import newest_figures, pretrained, pretrained_run
from ga3c.settings.preset_names import PRESET_LINES
from ga3c.settings.train import LEARNS_FROM

Kind = Literal["games", "presets", "networks", "algorithms", "protocols", "pretrained"]
OWN = "or your own, as module:name (docs/extending.md)"
NETWORKS = {
    "auto": "small for pictures, minatar for those below 20 pixels, mlp for vectors",
    "small": "pictures: conv 16 8x8/4, conv 32 4x4/2, dense 256 (GA3C and A3C)",
    "large-4": "pictures: conv 32 8x8/4, conv 32 4x4/2, conv 64 4x4/2, dense 256 (GA3C, Table 2)",
    "large-3": "the same with a first stride of 3",
    "large-2": "the same with a first stride of 2",
    "large-1": "the same with a first stride of 1",
    "nature": "pictures: conv 32 8x8/4, conv 64 4x4/2, conv 64 3x3/1, dense 512 (Mnih et al. 2015)",
    "minatar": "small pictures: conv 16 3x3/1, dense 128 (Young and Tian 2019)",
    "mlp": "vectors: dense 64, dense 64, tanh",
    "parr": "vectors: dense 128, dense 512 (Parr 2018)",
}
ALGORITHMS = {
    "a3c": "advantage actor-critic from queued segments (Mnih et al. 2016; GA3C)",
    "ppo": "the same with a clipped ratio and minibatches (Schulman et al. 2017)",
    "dqn": "Q-learning from a replay: double, dueling, n-step, prioritised (Mnih et al. 2015)",
    "dpg": "deterministic policy gradients from a replay, continuous actions (Silver et al. 2014)",
}
PROTOCOLS = {
    "trained": "as in training, but a lost life ends no game",
    "paper": "GA3C: sticky actions 0.25, 100,000 steps a game",
    "nature": "Mnih et al. 2015: up to 30 no-ops, epsilon 0.05, 5 minutes a game",
    "machado": "Machado et al. 2018: sticky actions 0.25, 5 minutes a game",
    "apex": "Horgan et al. 2018: up to 30 no-ops, 50,000 frames; epsilon 0.00164 is unverified",
    "control": "continuous actions, without noise",
}

DESCRIBED: dict[Kind, dict[str, str]] = {
    "presets": PRESET_LINES,
    "networks": NETWORKS,
    "algorithms": {n: ALGORITHMS.get(n, f"learns from {of}") for n, of in LEARNS_FROM.items()},
    "protocols": PROTOCOLS,
}


@dataclass(frozen=True)
class Config:
    """List the names that options take, with a line about each."""

    kind: tyro.conf.Positional[Kind]
    """What to list."""


def run(config: Config) -> None:
    """Print the names, one a line."""
    if config.kind == "games":
        games = sorted(registration.rom_id_to_name(rom) for rom in atari_roms().values())
        print("\n".join(games))
        with contextlib.suppress(control.MissingPackage):
            print("\n".join(control.tasks()))
        print("any Gymnasium id (CartPole-v1, Pendulum-v1), " + OWN)
        return
    if config.kind == "pretrained":
        names = {name: _how_trained(name) for name in pretrained()}
    else:
        names = DESCRIBED[config.kind]
    width = max(map(len, names))
    print("\n".join(f"{name:<{width}}  {line}" for name, line in names.items()))
    if config.kind in ("networks", "algorithms"):
        print(OWN)


def _how_trained(game: str) -> str:
    """A line about a policy that comes with ga3c."""
    figures = newest_figures(pretrained_run(game))
    steps, score = figures["steps"], figures["score_mean_100"]
    return f"{steps / 1e6:.1f} million steps, training score {score:.1f}"
