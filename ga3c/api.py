"""GA3C's Python API: train an agent, evaluate it, and use what it has learned."""

import contextlib
import gc
import random
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agents import registrations
from ga3c.command import frameworks, streams
from ga3c.command.effects import without_effect
from ga3c.command.names import changed, checked, typed, values_of
from ga3c.settings.begin import begun_with
from ga3c.settings.checks import no_effect
from ga3c.settings.presets import DEFAULT
from ga3c.settings.train import TrainConfig
from ga3c.training.interrupts import Interrupts
from ga3c.training.start import OnFigures
from ga3c.training.starting import Known, begin, known_run, prepared

if TYPE_CHECKING:  # importing this module loads the framework
    from ga3c.evaluation.learned import LearnedPolicy


@dataclass(frozen=True)
class Run:
    """A finished run."""

    path: Path
    """The run's directory."""
    result: dict[str, Any]
    """The run's final figures, as in result.json; `ended` says why it ended."""

    def load(self, checkpoint: str | int = "newest") -> "LearnedPolicy":
        """Load the policy that the run has learned; see `ga3c.load`."""
        return load(self, checkpoint)

    def evaluate(self, checkpoint: str | int = "newest", **options: Any) -> dict[str, Any]:
        """Play whole games by a named protocol and return their scores; see `ga3c.evaluate`."""
        return evaluate(self, checkpoint, **options)


def train(
    config: TrainConfig | None = None, *, on_figures: OnFigures | None = None, **settings: Any
) -> Run:
    """Train an agent, as `ga3c train` does, and return when the run has ended.

    Settings are named after the command's options, with _ for -: game="Pong", steps=100_000,
    algorithm="dqn", preset="paper", double=False, resume="runs/mine". Those not passed come from
    `config` if given, else from the resumed run or the preset. Unless `preset` names one, the
    algorithm and the game choose the preset.

    Args:
        on_figures: called every `progress_every_s` seconds with a dict of figures, as recorded in
            metrics.jsonl, such as `steps`, `score_mean_100` and `pps`. A true return value ends the
            run. So does an exception, which is raised again here once the run has been saved.

    In the main thread, the first SIGINT (Ctrl-C), SIGTERM or SIGHUP ends the run and writes its
    checkpoint, as on the command line. The signal is then passed on to the previous handler, so
    Ctrl-C raises KeyboardInterrupt. Other threads receive no signals: there, give the run a limit,
    such as `steps`.

    Agents are separate processes. If the calling script defines the environment, they load that
    script, so the call must then be under `if __name__ == "__main__":`.

    Raises:
        ValueError: if a setting is wrong, or settings contradict each other; nothing was started.
        RunFailed: if the run cannot continue or be saved; everything has been stopped.
        RuntimeError: if an agent process makes this call while it loads the calling script.
    """
    if registrations.in_agent:
        raise RuntimeError(
            "ga3c.train was called while an agent loaded this script: put it under `if __name__ == "
            '"__main__":`, or every agent would train'
        )
    if on_figures is not None and not callable(on_figures):
        raise ValueError(f"on_figures {on_figures!r}: must be a function, which takes the figures")
    frameworks.choose()
    start = prepared(*_wanted(config, settings))._replace(on_figures=on_figures)
    of_command = {"ga3c.train, which returns the result": frozenset({"json"})}
    for what, unread in (without_effect(start.config, start.spaces) | of_command).items():
        if idle := sorted(unread & settings.keys()):
            raise ValueError(no_effect(idle[0], what))
    interrupts = Interrupts()
    gc.collect()  # frees an earlier run's model and ring before this one's memory is planned
    with _random_state_kept(), streams.tolerant():
        try:
            outcome = begin(start, interrupts)
        finally:
            interrupts.restore()
            if interrupts.number:
                _hand_on(interrupts.number)
    from ga3c.service.threads import RunFailed

    if outcome.stuck:
        raise RunFailed(f"run {start.path}: did not end in time: {', '.join(outcome.stuck)}")
    if not outcome.kept:
        raise RunFailed(f"run {start.path}: its final checkpoint could not be written")
    return Run(start.path.resolve(), outcome.result)


def _hand_on(number: int) -> None:
    """Pass a signal that ended the run on to the calling program.

    A Python handler is called directly: after `raise_signal` it might run a moment later, inside a
    destructor, where its KeyboardInterrupt would be lost.
    """
    handler = signal.getsignal(number)
    if callable(handler):
        handler(number, None)
    else:
        signal.raise_signal(number)


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    """Restores the caller's random state afterwards, because a run seeds the whole process."""
    drawn, numpy_drawn = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(drawn)
        np.random.set_state(numpy_drawn)


def _load_framework() -> None:
    frameworks.choose()
    import ga3c.backend  # noqa: F401  imported first: it silences the framework's startup messages


def load(
    run: str | int | Path | Run | None = None,
    checkpoint: str | int = "newest",
    trust: bool = False,
    *,
    pretrained: str | None = None,
    runs_dir: str | Path = "runs",
) -> "LearnedPolicy":
    """Load the policy that a run has learned.

    Args:
        run: a run's directory, its name or number in `runs_dir`, or the `Run` that `train`
            returned. None: the newest run of Pong in `runs_dir`, unless `pretrained` is given.
        checkpoint: "newest", "best" (with `evaluate_every`) or the number of steps of a checkpoint.
        trust: import the modules that the run names even if you did not start it on this machine.
        pretrained: instead of a run, use the policy that ships with ga3c for this game.
        runs_dir: the directory in which runs are looked up by name or number.

    Raises:
        ValueError: if there is no such run or checkpoint, or its code is not trusted.
        RuntimeError: if the run has no intact checkpoint.
    """
    _load_framework()
    from ga3c.evaluation.learned import load_policy
    from ga3c.evaluation.options import LearnedConfig

    with _random_state_kept():
        return load_policy(LearnedConfig(**_meant(run, checkpoint, trust, pretrained, runs_dir)))


def evaluate(
    run: str | int | Path | Run | None = None,
    checkpoint: str | int = "newest",
    trust: bool = False,
    *,
    pretrained: str | None = None,
    runs_dir: str | Path = "runs",
    protocol: str | None = None,
    episodes: int = 30,
    at_once: int = 30,
    seed: int = 0,
    env_args: Mapping[str, Any] | None = None,
    info_keys: Sequence[str] = (),
) -> dict[str, Any]:
    """Play whole games, and print and record the scores, as `ga3c evaluate` does.

    Takes the arguments of `load`, and options of the command. Returns the entry of
    evaluations.jsonl, such as `mean`, `scores`, `lengths`, `infos` and the whole `protocol`.

    Raises what `load` raises, ValueError for a wrong option, OSError if scores cannot be recorded.
    """
    _load_framework()
    from ga3c.evaluation.evaluate import scores
    from ga3c.evaluation.options import EvaluateConfig
    from ga3c.evaluation.protocols import PROTOCOLS

    if protocol not in (None, *PROTOCOLS):
        raise ValueError(f"protocol {protocol!r}: must be one of {', '.join(PROTOCOLS)}")
    given = _meant(run, checkpoint, trust, pretrained, runs_dir)
    given |= typed(EvaluateConfig, {"episodes": episodes, "at_once": at_once, "seed": seed})
    given |= checked({"env_args": env_args or {}, "info_keys": info_keys})
    defaults = EvaluateConfig.defaults(["--protocol", protocol] if protocol else [])
    with _random_state_kept(), streams.tolerant():
        return scores(replace(defaults, **given))


def _meant(
    run: str | int | Path | Run | None,
    checkpoint: str | int,
    trust: bool,
    pretrained: str | None,
    runs_dir: str | Path,
) -> dict[str, Any]:
    """The fields of `LearnedConfig`, which select a run's weights."""
    from ga3c.evaluation.options import LearnedConfig

    values: dict[str, Any] = {"run": _named(run), "pretrained": pretrained, "runs_dir": runs_dir}
    values |= {"checkpoint": str(checkpoint), "trust": trust or isinstance(run, Run)}
    return typed(LearnedConfig, values)


def _named(run: str | int | Path | Run | None) -> Path | None:
    """A run's directory, name or number, in the form that the command's options have."""
    return None if run is None else Path(str(run.path if isinstance(run, Run) else run))


def _wanted(
    config: TrainConfig | None, settings: dict[str, Any]
) -> tuple[TrainConfig, Known | None]:
    """The run's settings, and the earlier run that it resumes, if any."""
    if isinstance(settings.get("resume"), Run):  # from this program, so its code is trusted
        settings["trust"] = True
    settings |= {n: _named(settings[n]) for n in settings.keys() & {"resume", "initial_weights"}}
    given = checked(settings)
    if config is not None:
        if not isinstance(config, TrainConfig):
            raise ValueError(
                f"config {config!r}: must be a TrainConfig; pass single settings as game='Pong'"
            )
        if given.get("preset", config.preset) != config.preset:
            raise ValueError(
                f"preset {given['preset']} with a config: the config's settings are those of "
                f"preset {config.preset}, and would only be renamed; give one or the other"
            )
        wanted = changed(config, {**values_of(config), **given})
        if not (asked := wanted.run).resume:
            return wanted, None
        return wanted, known_run(asked.resume, asked.runs_dir, False, asked.trust)
    if given.get("preset") == DEFAULT:
        del given["preset"]
    if resume := given.get("resume"):
        place, trust = given.get("runs_dir", Path("runs")), given.get("trust", False)
        known = known_run(resume, place, given.get("steps") is not None, trust)
        return changed(known.config, given), known
    return changed(begun_with(given), given), None
