"""Starts a run: first all checks that need no tensor framework, then the run itself."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agents.cluster import check_ray
from agents.environments import spaces
from agents.games import resolve
from agents.launchers import LocalLauncher
from agents.registrations import handed_over
from agents.worker import Task
from ga3c.command import files, frameworks, streams
from ga3c.evaluation.protocols import PROTOCOLS, fitting
from ga3c.runs.checkpoints import BEST
from ga3c.runs.finding import PRETRAINED, find_run, game_of, new_run_path
from ga3c.runs.kept_config import CONFIG, load_config, read_config, replay_settings, to_json
from ga3c.runs.tracking import check_tracker
from ga3c.runs.trust import META, check_trust
from ga3c.settings.checks import WrongInput, without_arguments
from ga3c.settings.choices import TORSOS
from ga3c.settings.machine import CORES
from ga3c.settings.train import TrainConfig
from ga3c.training.checks import check_own_parts, check_resumable
from ga3c.training.interrupts import Interrupts
from ga3c.training.start import Start
from ga3c.wire.doors import listening

if TYPE_CHECKING:  # it loads the framework
    from ga3c.training.results import Outcome

OF_MEANING = ("pixel_scale", "center", "value_scale", "padding")
"""Network settings that change what it computes, but not always the shapes of its weights."""
SLOW_S = 10.0  # warn if creating an environment and its first step take longer


class Known(NamedTuple):
    """A run to resume."""

    path: Path  # its directory
    config: TrainConfig


def known_run(run: Path, runs_dir: Path, new_steps: bool, trust: bool) -> Known:
    """The run to resume, with the settings that it was last run with.

    Args:
        run: its directory, or its name in `runs_dir`.
        new_steps: whether new `steps` are given. They replace its other limits, `seconds` and
            `score`: if one of these ended the run, it would otherwise end again immediately.
        trust: whether modules that it names may be imported, whoever started it.

    Raises ValueError if there is no such run, its settings cannot be read, it is not trusted, or it
    cannot be resumed.
    """
    path = find_run(run, runs_dir)
    if PRETRAINED in path.resolve().parents:
        raise ValueError(
            f"run {path}: ships with ga3c for evaluation and play; it cannot be resumed, as it "
            "has weights only"
        )
    kept = read_config(path)
    check_trust(path, kept.config, trust)
    for note in kept.notes:
        streams.complain(note)
    config = kept.config
    if new_steps:
        config = replace(config, run=replace(config.run, seconds=None, score=None))
    return Known(path, config)


def prepared(config: TrainConfig, known: Known | None) -> Start:
    """Check the settings and the environment before a run. Raises ValueError if it cannot start."""
    if known:
        check_resumed(config, known.config)
        check_resumable(known.path, config)
    elif config.learning.initial_weights:
        config = _with_weights_found(config)
    check_own_parts(config)
    check_tracker(config.run.track)
    listening(config.hosts)  # checks that the keys can be read
    if config.hosts.launcher == "ray":
        check_ray(config.hosts.ray_address)
    handed_over(config.environment.game)  # checks that agent processes can find the environment
    words = f"{config.environment.game}: still starting, or in its first step, after {SLOW_S:g} s"
    slow = threading.Timer(SLOW_S, streams.complain, [words])
    slow.daemon = True
    slow.start()
    try:
        found = spaces(config.environment)
    finally:
        slow.cancel()
    if config.evaluation.evaluate_every:
        name = fitting(config.evaluation.evaluate_protocol, found.actions)
        try:
            PROTOCOLS[name].check_fits(name, config.environment, found.actions)
        except ValueError as error:
            raise ValueError(f"evaluate_protocol: {error}") from error
    return Start(config, found, known.path if known else new_run_path(config))


def _with_weights_found(config: TrainConfig) -> TrainConfig:
    """The settings, with `initial_weights` resolved to a run's directory.

    A number or name could mean another run later. Raises ValueError if there is no such run.
    """
    given, runs_dir = config.learning.initial_weights, config.run.runs_dir
    assert given is not None
    is_run = any((place / CONFIG).is_file() for place in (given, runs_dir / given))
    of_best = given.name == BEST and not is_run
    try:
        path = find_run(given.parent if of_best else given, runs_dir)
        _check_meaning(config, load_config(path))
    except ValueError as error:
        raise ValueError(f"initial_weights: {error}") from error
    path = path / BEST if of_best else path
    return replace(config, learning=replace(config.learning, initial_weights=path))


def _check_meaning(config: TrainConfig, before: TrainConfig) -> None:
    """Raises ValueError if the network would compute something else with the same weights."""
    pairs = {n: (getattr(config.network, n), getattr(before.network, n)) for n in OF_MEANING}
    # For vectors, auto is mlp. For pictures, only the torso that auto picks has weights that fit.
    names = ["mlp" if (n := c.network.network) == "auto" else n for c in (config, before)]
    torso, old = (TORSOS.get(name) for name in names)
    if torso and old and torso.kind == old.kind:
        pairs["network"] = (names[0], names[1])
    for name, (value, old_value) in pairs.items():
        if value != old_value:
            raise ValueError(
                f"the weights were learned in {before.environment.game} with {name} {old_value}, "
                f"and would mean something else with {value}"
            )


def check_resumed(config: TrainConfig, before: TrainConfig) -> None:
    """Raises ValueError if a run that was started with `before` cannot continue with `config`."""
    game, game_before = config.environment.game, before.environment.game
    if game_of(game) != game_of(game_before):
        raise ValueError(
            f"game {game}: the run plays {game_before}, and what it has learned would be lost: "
            "start a new run"
        )
    for name, rule in (
        ("preset", "name the settings to change"),
        ("algorithm", "another one could not use its weights: start a new run"),
    ):
        value, old_value = str(getattr(config, name)), str(getattr(before, name))
        if without_arguments(value) != without_arguments(old_value):
            raise ValueError(f"{name} {value}: a resumed run keeps its {name} {old_value}; {rule}")
    _check_meaning(config, before)
    if config.run.name not in (None, before.run.name):
        raise ValueError(f"name {config.run.name}: a resumed run keeps its name; leave it out")
    if config.replay.save_replay and before.replay.save_replay:
        old_replay = replay_settings(before)
        for name, value in replay_settings(config).items():
            old_value = old_replay[name]
            if value != old_value:
                raise ValueError(
                    f"{name} {value}: the replay was saved with {old_value}, which its content "
                    "depends on: leave it out, or give --no-save-replay to fill a new one"
                )
    played, known = (
        (
            resolve(c.environment.game),
            replace(c.environment, game=game_before, info_keys=()),
            c.run.seed,
            c.service.stagger_steps,
        )
        for c in (config, before)
    )
    if config.service.lockstep and played != known:
        raise ValueError(
            "lockstep: the seed, stagger_steps and the environment's settings must stay the same, "
            "or the run's actions could not be replayed"
        )
    if config.run.seed != before.run.seed:
        raise ValueError(
            f"seed {config.run.seed}: a resumed run keeps its seed {before.run.seed}; leave it out"
        )


def begin(start: Start, interrupts: Interrupts) -> "Outcome":
    """Load the tensor framework, and run until a limit, a signal or a failure.

    While it loads, agents create their environments, which takes as long.

    Raises what `training.run.train` raises, and WrongInput if Keras has already been loaded with
    another framework.
    """
    try:
        frameworks.choose(start.config.service.backend)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    launcher = LocalLauncher()
    try:
        _prepare(launcher, start.config)
        import ga3c.backend  # noqa: F401  imported first: it silences the framework's messages
        from ga3c.training.run import train

        interrupts.listen()  # before this point there is nothing to save or to stop
        return train(start, interrupts, launcher)
    finally:
        launcher.stop(0.0)  # the agents that no service has taken over


def _prepare(launcher: LocalLauncher, config: TrainConfig) -> None:
    """Start agents on this machine ahead of time, so that they create their environments.

    Skipped if they are seeded or agents may play on other machines. At most one per core: the
    settings are not yet known to fit the machine. One if a scheduler resumes its own count.
    """
    service, environment = config.service, config.environment
    if not config.seeds_games and not config.hosts.others_may_play:
        task = Task(
            identity="",
            endpoint="",
            token="",
            groups=service.groups,
            envs_per_group=service.envs_per_group,
            seed=None,
            environment=environment,
            stagger_steps=service.stagger_steps,
        )
        is_known = config.run.resume is None or config.scheduler.scheduler == "off"
        launcher.prepare(min(service.agents, CORES) if is_known else 1, task)


def settings_in(file: Path) -> dict[str, Any]:
    """The settings in a file, by name and without sections.

    The file may be a run's config.json of any version. Raises ValueError if the file holds anything
    that is not a setting.
    """
    values = files.read(file)
    if file.name == CONFIG and ("format" in values or (file.parent / META).exists()):
        kept = read_config(file.parent)
        for note in kept.notes:
            streams.complain(note)
        values = to_json(kept.config)
        del values["format"]
    return files.settings(file, values)
