"""`ga3c list`: the names that options accept, each with a line about it."""

import contextlib
from dataclasses import dataclass
from typing import Literal

import tyro
from ale_py import registration

from agents import control
from agents.games import atari_roms
from ga3c.runs.finding import newest_figures, pretrained, pretrained_run
from ga3c.settings.choices import NETWORK_LINES, PRESET_LINES, TRAITS

Kind = Literal["games", "presets", "networks", "algorithms", "protocols", "pretrained"]
OWN = "or your own, as module:name (docs/extending.md)"
PROTOCOLS = {
    "trained": "as in training, but a lost life does not end a game",
    "paper": "GA3C: sticky actions 0.25, 100,000 steps a game",
    "nature": "Mnih et al. 2015: up to 30 no-ops, epsilon 0.05, 5 minutes a game",
    "machado": "Machado et al. 2018: sticky actions 0.25, 5 minutes a game",
    "apex": "Horgan et al. 2018: up to 30 no-ops, 50,000 frames; epsilon 0.00164 is unverified",
    "control": "continuous actions, without noise",
}

DESCRIBED: dict[Kind, dict[str, str]] = {
    "presets": PRESET_LINES,
    "networks": NETWORK_LINES,
    "algorithms": {name: traits.line for name, traits in TRAITS.items()},
    "protocols": PROTOCOLS,
}


@dataclass(frozen=True)
class Config:
    """List the names that options accept, with one line about each."""

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
