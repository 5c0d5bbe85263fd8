"""Which run's weights are meant, and the policy that they make."""

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from agents.environments import Spaces, spaces
from ga3c.evaluation import pretrained
from ga3c.evaluation.policy import Policy
from ga3c.evaluation.protocols import PROTOCOLS, Protocol
from ga3c.runs import checkpoints
from ga3c.runs.checkpoints import Checkpoint
from ga3c.runs.finding import find_run, newest_run
from ga3c.runs.kept_config import read_config
from ga3c.settings.checks import WrongInput, check_seed
from ga3c.settings.parse import given_value
from ga3c.settings.run import ProtocolName
from ga3c.settings.train import TrainConfig

BEST = "best"
PAPER: ProtocolName = "paper"


@dataclass(frozen=True)
class LearnedConfig:
    """Which run's weights are meant."""

    run: tyro.conf.Positional[Path | None] = None
    """The run: its directory, or its name in runs/; without one, the newest of --game."""
    game: str = "Pong"
    """Whose newest run it is, where none is given."""
    pretrained: str | None = None
    """Instead of a run: the policy that comes with ga3c for this game."""
    checkpoint: str = "newest"
    """newest, best (by --evaluate-every) or a checkpoint's number of steps."""


@dataclass(frozen=True)
class PlayedConfig(LearnedConfig):
    """How games are played with them."""

    protocol: ProtocolName | None = None
    """paper is GA3C's, nature Mnih et al. 2015, machado Machado et al. 2018, apex Horgan et al.
    2018, control is for continuous actions, without noise; None: the run's --evaluate-protocol.
    Its single settings, which --help-all lists, change it."""
    seed: int = 0
    """Seed of games and of actions."""
    settings: Protocol = PROTOCOLS[PAPER]

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @classmethod
    def defaults(cls, arguments: list[str]) -> "PlayedConfig":
        """What --protocol, if it is given, makes of all other defaults."""
        given = given_value(arguments, "--protocol")
        known: Any = given if given in PROTOCOLS else None
        return cls(protocol=known, settings=PROTOCOLS[known or PAPER])

    def played_by(self, trained: TrainConfig, spaces: Spaces) -> tuple[str, Protocol]:
        """The protocol's name and settings. Raises WrongInput if it does not fit the actions."""
        name, settings = self.protocol, self.settings
        if name is None:
            name = trained.evaluation.evaluate_protocol
            default = asdict(PROTOCOLS[PAPER])
            changed = {key: v for key, v in asdict(settings).items() if v != default[key]}
            settings = replace(PROTOCOLS[name], **changed)
        try:
            settings.check_actions(spaces.actions)
        except ValueError as error:
            raise WrongInput(str(error)) from error
        return name, settings


def load(wanted: LearnedConfig) -> tuple[TrainConfig, Path, Checkpoint]:
    """The settings, the place and the checkpoint of the run that is wanted.

    Raises WrongInput or RuntimeError.
    """
    try:
        path = _path(wanted)
        config, notes = read_config(path)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    for note in notes:
        print(f"ga3c: {note}", file=sys.stderr)
    directory, checkpoint = path / "checkpoints", wanted.checkpoint
    if checkpoint == "newest":
        found, damaged = checkpoints.newest(directory)
        for each in damaged:
            print(f"ga3c: damaged, so the one before it is used: {each}", file=sys.stderr)
        if found is None:
            raise RuntimeError(f"run {path} has no whole checkpoint")
        return config, path, found
    best = checkpoints.kept(path / BEST)[-1:]
    chosen = best[0] if best and checkpoint == BEST else directory / checkpoint.zfill(12)
    if not chosen.is_dir():
        steps = ", ".join(str(int(each.name)) for each in checkpoints.kept(directory))
        raise WrongInput(
            f"checkpoint {checkpoint}: the run has newest, {steps}, or best if it was evaluated"
        )
    try:
        return config, path, checkpoints.read(chosen)
    except checkpoints.Damaged as error:
        raise RuntimeError(str(error)) from error


def _path(wanted: LearnedConfig) -> Path:
    """The run's directory. Raises ValueError."""
    if wanted.pretrained is not None:
        if wanted.run is not None:
            raise ValueError(f"run {wanted.run} with pretrained {wanted.pretrained}: give one")
        return pretrained.find(wanted.pretrained)
    return newest_run(wanted.game) if wanted.run is None else find_run(wanted.run)


def policy_of(config: TrainConfig, checkpoint: Checkpoint) -> Policy:
    """The network with the checkpoint's weights. Raises WrongInput if they do not fit."""
    try:
        policy = Policy(config, spaces(config.environment))
        policy.load(checkpoint.arrays)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    return policy
