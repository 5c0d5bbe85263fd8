"""The options that choose a run's policy, and how games are played with it.

These are the options of the commands evaluate, play and export. They are parsed before the tensor
framework is loaded, so nothing here loads it.
"""

import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Self

import tyro

from agents.environments import Spaces
from agents.games import resolve
from ga3c.evaluation.protocols import OF_GAMES, PROTOCOLS, Protocol, fitting
from ga3c.settings.begin import given_value, given_values
from ga3c.settings.checks import WrongInput, check_count, check_file, check_seed, no_effect
from ga3c.settings.run import ProtocolName
from ga3c.settings.train import TrainConfig

DAY_S = 86_400.0


@dataclass(frozen=True)
class LearnedConfig:
    """Which run's weights to use."""

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]")] = None
    """The run: its directory, or its name or number in --runs-dir; without one, the newest run of
    --game."""
    runs_dir: Path = Path("runs")
    """Directory in which runs are looked up by name or number."""
    game: str | None = None
    """Use the newest run of this game if no run is given; None: Pong, the default game."""
    pretrained: str | None = None
    """Instead of a run, use the pretrained policy that ships with ga3c for this game."""
    checkpoint: str = "newest"
    """newest, best (from --evaluate-every) or a checkpoint's number of steps."""
    trust: bool = False
    """Import the modules that the run names even if this user did not start it on this machine."""


@dataclass(frozen=True)
class PlayedConfig(LearnedConfig):
    """How games are played with them."""

    protocol: ProtocolName | None = None
    """How games are played: `ga3c list protocols` says how by each; None: the run's
    --evaluate-protocol. The options in --help-all override individual settings of it."""
    seed: int = 0
    """Seed for the games and the actions."""
    env_args: tuple[str, ...] = ()
    """Arguments for the environment's constructor, each as key=value, replacing or adding to those
    used in training; not for Atari games."""
    settings: Protocol = field(default_factory=Protocol)
    given: Annotated[tuple[str, ...], tyro.conf.Suppress] = ()
    """The settings that the user gave, which override those of any protocol."""

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @classmethod
    def defaults(cls, arguments: list[str]) -> Self:
        """The defaults of all options, which depend on --protocol if it is given."""
        given = given_value(arguments, "--protocol")
        known: Any = given if given in PROTOCOLS else None
        names = (each.name for each in fields(Protocol))
        own = tuple(n for n in names if given_values(arguments, f"--{n.replace('_', '-')}"))
        return cls(protocol=known, settings=PROTOCOLS[known] if known else Protocol(), given=own)

    def _check_effect(self, settings: Protocol, is_atari: bool) -> None:
        """Raises WrongInput if a setting that the user gave changes nothing about the games."""
        idle: dict[str, tuple[str, ...]] = {}
        if settings.policy != "epsilon":
            idle[f"policy {settings.policy}"] = ("epsilon",)
        if not is_atari:
            idle["games other than Atari's"] = OF_GAMES
        for what, names in idle.items():
            for name in set(names) & set(self.given):
                raise WrongInput(no_effect(f"--{name.replace('_', '-')}", what))

    def as_played(self, trained: TrainConfig, **changed: Any) -> TrainConfig:
        """The run's settings, with --env-args applied to its environment.

        Args: changed: other settings of the environment.

        Raises WrongInput if the environment does not allow them.
        """
        given = {pair.partition("=")[0] for pair in self.env_args}
        own = (p for p in trained.environment.env_args if p.partition("=")[0] not in given)
        try:
            played = replace(trained.environment, env_args=(*own, *self.env_args), **changed)
        except ValueError as error:
            raise WrongInput(str(error)) from error
        return replace(trained, environment=played)

    def played_by(self, trained: TrainConfig, spaces: Spaces) -> tuple[str, Protocol]:
        """The protocol's name and settings. Raises WrongInput if it does not fit the game."""
        name, settings = self.protocol, self.settings
        if name is None:
            name = fitting(trained.evaluation.evaluate_protocol, spaces.actions)
            changed = {key: getattr(settings, key) for key in self.given}
            settings = replace(PROTOCOLS[name], **changed)
        self._check_effect(settings, resolve(trained.environment.game).is_atari)
        try:
            settings.check_fits(name, trained.environment, spaces.actions)
        except ValueError as error:
            raise WrongInput(str(error)) from error
        return name, settings


@dataclass(frozen=True)
class EvaluateConfig(PlayedConfig):
    """Play whole games with a run's policy, and record the scores together with the protocol."""

    episodes: int = 30
    """Number of games, each with its own seed."""
    at_once: int = 30
    """Number of games played in parallel."""
    info_keys: tuple[str, ...] = ()
    """Keys of numbers in the info of a game's last step, in addition to those of the run. Their
    means are reported too."""
    json: bool = False
    """Print the result as one JSON object on the last line."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "episodes", "at_once")

    def as_played(self, trained: TrainConfig, **changed: Any) -> TrainConfig:
        """The run's settings, with --env-args and --info-keys applied to its environment."""
        keys = dict.fromkeys((*trained.environment.info_keys, *self.info_keys))
        return super().as_played(trained, info_keys=tuple(keys), **changed)


@dataclass(frozen=True)
class PlayConfig(PlayedConfig):
    """Render a game played by a run's policy as mp4 or gif."""

    out: Path | None = None
    """File to write, .mp4 or .gif; None: video/STEPS-PROTOCOL-SEED.mp4 in the run's directory, or
    with --pretrained GAME-PROTOCOL-SEED.mp4 in the working directory. PROTOCOL includes settings
    that you change."""
    window: bool = False
    """Show the game in a window while it is played, and write no file."""
    max_seconds: float = 120.0
    """Maximum length of the video, in seconds of play."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out is not None and self.out.suffix not in (".mp4", ".gif"):
            raise ValueError(f"out {self.out}: must end in .mp4 or .gif")
        check_file("out", self.out)
        if self.window and self.out is not None:
            raise ValueError(f"out {self.out} with window: no file would be written; give one")
        if not 0 < self.max_seconds <= DAY_S:
            raise ValueError(
                f"max_seconds {self.max_seconds:g}: must be above 0, and at most a day"
            )


@dataclass(frozen=True)
class ExportConfig(LearnedConfig):
    """Export a run's policy as a SavedModel or an ONNX file, checked against the network."""

    out: Path = Path("exported")
    """Directory for the SavedModel, or a file name that ends in .onnx."""

    def __post_init__(self) -> None:
        if self.out.exists():
            raise ValueError(f"out {self.out}: exists already; choose another, or remove it")
        folder = self.out.absolute().parent
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise ValueError(f"out {self.out}: must be in a writable directory")
