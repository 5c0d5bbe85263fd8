"""Finds the run, checkpoint and protocol that the user chose, and builds the policy."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

from agents.environments import EnvironmentConfig, spaces
from ga3c import backend
from ga3c.evaluation.options import LearnedConfig, PlayedConfig
from ga3c.evaluation.policy import Policy
from ga3c.evaluation.protocols import Protocol
from ga3c.runs import checkpoints
from ga3c.runs.checkpoints import BEST, FOLDER, Checkpoint
from ga3c.runs.finding import find_run, newest_run, pretrained_run
from ga3c.runs.kept_config import read_config
from ga3c.runs.trust import check_trust
from ga3c.settings.checks import WrongInput
from ga3c.settings.machine import CORES
from ga3c.settings.train import TrainConfig


class Played(NamedTuple):
    """Who plays, in which environment, and how."""

    path: Path  # of the run
    checkpoint: Checkpoint
    title: str
    policy: Policy
    environment: EnvironmentConfig  # of training, with the options that change it
    protocol: Protocol
    name: str  # of the protocol
    changes: dict[str, Any]  # of its settings
    named: dict[str, Any]  # the protocol, as scores are kept with it


def played(config: PlayedConfig) -> Played:
    """What the options choose. Configures the backend. Raises WrongInput or RuntimeError."""
    trained, path, checkpoint = load(config)
    trained = config.as_played(trained)
    backend.configure(CORES, config.seed)
    policy = policy_of(trained, checkpoint)
    name, protocol = config.played_by(trained, policy.spaces)
    weights = config.checkpoint if config.checkpoint in ("newest", BEST) else "chosen"
    return Played(
        path=path,
        checkpoint=checkpoint,
        title=title(trained, checkpoint),
        policy=policy,
        environment=trained.environment,
        protocol=protocol.as_played(policy.is_greedy),
        name=name,
        changes=protocol.changes(name, policy.is_greedy),
        named=protocol.named(name, trained.environment, weights, policy.is_greedy),
    )


def load(wanted: LearnedConfig) -> tuple[TrainConfig, Path, Checkpoint]:
    """The settings, the directory and the checkpoint of the chosen run.

    Raises WrongInput or RuntimeError.
    """
    try:
        path = _path(wanted)
        config, notes = read_config(path)
        check_trust(path, config, wanted.trust)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    for note in notes:
        print(f"ga3c: {note}", file=sys.stderr)
    directory, checkpoint = path / FOLDER, wanted.checkpoint
    if checkpoint == "newest":
        found, damaged = checkpoints.newest(directory)
        for each in damaged:
            print(f"ga3c: {each}", file=sys.stderr)
        if found is None:
            raise RuntimeError(f"run {path} has no whole checkpoint")
        return config, path, found
    kept = {str(int(each.name)): each for each in checkpoints.kept(directory)}
    if best := checkpoints.kept(path / BEST):
        kept[BEST] = best[-1]
    asked = checkpoint.lstrip("0") or checkpoint[:1]  # a checkpoint's name begins with zeros
    chosen = kept.get(asked)
    if chosen is None:
        has = ", ".join(("newest", *kept))
        only = "" if best else "; the best are kept only by train --evaluate-every"
        raise WrongInput(f"checkpoint {checkpoint:.80}: the run has {has}{only}")
    try:
        return config, path, checkpoints.read(chosen)
    except checkpoints.Damaged as error:
        raise RuntimeError(str(error)) from error


def _path(wanted: LearnedConfig) -> Path:
    """The run's directory. Raises ValueError."""
    if wanted.pretrained is not None:
        if wanted.run is not None:
            raise ValueError(f"run {wanted.run} with pretrained {wanted.pretrained}: give one")
        if wanted.game is not None:
            raise ValueError(f"game {wanted.game} with pretrained {wanted.pretrained}: give one")
        return pretrained_run(wanted.pretrained)
    if wanted.run is None:
        return newest_run(wanted.game or EnvironmentConfig().game, wanted.runs_dir)
    if wanted.game is not None:
        raise ValueError(f"run {wanted.run} with game {wanted.game}: give one")
    return find_run(wanted.run, wanted.runs_dir)


def title(config: TrainConfig, checkpoint: Checkpoint) -> str:
    """Says what was learned: the game, and after how many steps."""
    return f"{config.environment.game} after {checkpoint.steps:,} steps"


def policy_of(config: TrainConfig, checkpoint: Checkpoint) -> Policy:
    """The network with the checkpoint's weights. Raises WrongInput if they do not fit."""
    try:
        policy = Policy(config, spaces(config.environment))
        policy.load(checkpoint.arrays)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    return policy
