"""How a run begins: all that can be checked before the tensor framework is loaded, then the run."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agents.environments import Spaces, spaces
from agents.registrations import handed_over
from ga3c.command import files, frameworks, streams
from ga3c.runs.finding import check_resumed, find_run, new_run_path
from ga3c.runs.kept_config import CONFIG, read_config
from ga3c.settings.checks import WrongInput
from ga3c.settings.train import TrainConfig
from ga3c.training.interrupts import Interrupts

if TYPE_CHECKING:  # it loads the framework
    from ga3c.training.results import Outcome


class Known(NamedTuple):
    """A run that is to go on."""

    path: Path
    config: TrainConfig  # its settings so far


class Start(NamedTuple):
    """A run that can begin, or go on."""

    config: TrainConfig
    spaces: Spaces
    path: Path  # of its directory


def known_run(run: Path, runs_dir: Path) -> Known:
    """The run that is to go on, by its directory or its name in `runs_dir`. Raises ValueError."""
    path = find_run(run, runs_dir)
    kept = read_config(path)
    for note in kept.notes:
        streams.complain(note)
    return Known(path, kept.config)


def prepared(config: TrainConfig, known: Known | None) -> Start:
    """What is found out before a run begins. Raises ValueError if it cannot."""
    if known:
        check_resumed(config, known.config)
    handed_over(config.environment.game)  # its agents can find it
    return Start(config, spaces(config.environment), known.path if known else new_run_path(config))


def begin(start: Start, interrupts: Interrupts) -> "Outcome":
    """Load the tensor framework, and run until a limit, a signal or a failure.

    Raises as `training.train` does, and WrongInput if Keras has been loaded with another framework.
    """
    try:
        frameworks.choose(start.config.service.backend)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    import ga3c.backend  # noqa: F401  first: it keeps the framework's greetings from the terminal
    from ga3c.training.run import train

    interrupts.listen()  # until here there is nothing to keep or to end
    return train(start.config, start.spaces, start.path, interrupts)


def settings_in(file: Path) -> dict[str, Any]:
    """The settings in a file, or in a run's own config.json of any version, by their names alone.

    Raises ValueError if there is something else in it.
    """
    values = files.read(file)
    if file.name == CONFIG and ("format" in values or (file.parent / "meta.json").exists()):
        kept = read_config(file.parent)
        for note in kept.notes:
            streams.complain(note)
        values = json.loads(json.dumps(asdict(kept.config), default=str))
    return files.settings(file, values)
