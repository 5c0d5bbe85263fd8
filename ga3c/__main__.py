"""The command `ga3c`."""

import atexit
import contextlib
import importlib.util
import io
import os
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ga3c import streams
from ga3c.settings.preset_names import preset_lines

USAGE = f"""usage: ga3c train [--game GAME] [--algorithm a3c|dqn] [--preset NAME] [options]
       ga3c train --resume RUN [options]
       ga3c runs [options]
       ga3c evaluate RUN [--protocol paper|nature|machado] [options]
       ga3c play RUN [options]
       ga3c plot|table|report RUN... [options]
       ga3c export RUN --out DIRECTORY|FILE.onnx [options]
       ga3c scores --games GAME... --out-dir DIRECTORY [options]
       ga3c doctor [--game GAME] [options]
       ga3c benchmark NAME [--game GAME] [options]

train       train an agent by GA3C, or go on with a run
runs        list the runs: game, steps, score, state
evaluate    play whole games with what a run has learned, by a named protocol
play        a video of a game, with score, value and action probabilities
plot        curves of runs: score, throughput, queues, lag, who waits, counts
table       score tables of runs, beside what was published
report      one HTML page of all that, with the video
export      what a run has learned as a SavedModel or ONNX
scores      train, evaluate and tabulate a list of games, whatever interrupts it
doctor      say what limits a run on this machine and which setting to change, and try it
benchmark   measure this machine. NAME is
            limits      its parts alone: environments, wire, predictions, training
            throughput  the whole service, and where every core-second goes
            sweep       the whole service over counts, networks and minimum training batches
            ablation    the whole service with one of its ideas after another
            a3c         the whole service against A3C on cores alone
            tuning      the counts tuned from 1/1/1, by our annealing and by the paper's walk
            watching    what showing, noting and keeping a run costs
            lanes       the machinery with thousands of environments, without emulator and model
            replay      in-GPU replay: a train step's time by place, what adding and drawing cost
            fast-dqn    Concurrent Training and Synchronized Execution, on and off
            gpu-check   what a machine with a GPU makes of it all, in ten minutes

Settings of train begin with those of --preset:
{preset_lines("    ")}

`--help` after any of them shows every setting, its unit and its default.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns 0 finished, 1 failed, 2 wrong use, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        known = ", ".join(COMMANDS)
        return _complain(f"unknown command {arguments[0]!r}: must be one of {known}", 2)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        _choose_framework(arguments)
        return COMMANDS[arguments[0]](arguments[1:])
    except KeyboardInterrupt:
        return 130
    except WrongUse as error:
        return _complain(str(error), 2)
    except SystemExit as stop:  # --help has been printed
        return int(stop.code or 0)
    except ModuleNotFoundError as error:
        if error.name not in FRAMEWORKS:
            raise
        return _complain(f"{error.name} is missing: {FRAMEWORKS[error.name]}", 2)


FRAMEWORKS = {
    "tensorflow": "pip install 'ga3c[cpu]' or 'ga3c[gpu]', or use another by KERAS_BACKEND=jax",
    "jax": "pip install 'ga3c[jax]', or use another by KERAS_BACKEND=tensorflow",
}


def _choose_framework(arguments: list[str]) -> None:
    """Set KERAS_BACKEND, by which Keras goes as well. Raises WrongUse."""
    if not os.environ.get("KERAS_BACKEND"):  # the first that there is; before settings are read
        there = (name for name in FRAMEWORKS if importlib.util.find_spec(name))
        os.environ["KERAS_BACKEND"] = next(there, "tensorflow")
    from ga3c.settings.parse import given_value

    chosen = given_value(arguments, "--backend") or os.environ["KERAS_BACKEND"]
    if chosen not in FRAMEWORKS:
        raise WrongUse(f"backend {chosen}: must be {' or '.join(FRAMEWORKS)}")
    os.environ["KERAS_BACKEND"] = chosen


def _leave(number: int, frame: Any) -> None:
    """End at once: until work has begun there is nothing to keep or to end.

    An exception would not do: raised while a module is being imported, it can get lost.
    """
    os._exit(130)


def program() -> NoReturn:
    """The command as a process: `main`, and an end that no late signal changes.

    Python's own end frees the tensor framework's objects one by one, for up to 10 s on a busy
    machine, and lets signals kill it meanwhile: it is left out.
    """
    streams.open_missing()
    try:
        code = main()
    except BrokenPipeError:  # nobody reads on: `ga3c train --help | head -2`
        code = 0
    except OSError as error:  # such as a full disk that help is printed to
        code = _complain(str(error), 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    atexit._run_exitfuncs()
    os._exit(streams.flushed(code))


class WrongUse(Exception):
    """Arguments that cannot be followed."""


def _train(arguments: list[str]) -> int:
    from ga3c.settings.parse import given_value
    from ga3c.settings.train import TrainConfig

    resumed = given_value(arguments, "--resume")
    runs_dir = given_value(arguments, "--runs-dir") or "runs"
    run_path, base = _run_to_resume(resumed, runs_dir) if resumed else (None, None)
    config = _parsed(arguments, TrainConfig, "ga3c train", base)
    from agents.environments import spaces
    from ga3c.runs.finding import check_resumed, new_run_path

    try:  # before the tensor framework, which takes seconds
        if base:
            check_resumed(config, base)
        found = spaces(config.environment)
        run_path = run_path or new_run_path(config)
    except ValueError as error:
        raise WrongUse(str(error)) from error
    streams.go_on_without()
    os.environ["KERAS_BACKEND"] = config.service.backend  # a resumed run's, unless it is given
    import ga3c.backend  # noqa: F401  first: it keeps the framework's greetings from the terminal
    from ga3c.training import train

    return _done(lambda: train(config, found, run_path))


def _run_to_resume(run: str, runs_dir: str) -> tuple[Path, Any]:
    """Where it is, and its settings."""
    from ga3c.runs.finding import find_run
    from ga3c.runs.kept_config import read_config

    try:
        path = find_run(Path(run), Path(runs_dir))
        kept = read_config(path)
        for note in kept.notes:
            streams.complain(note)
        return path, kept.config
    except ValueError as error:
        raise WrongUse(str(error)) from error


MEASURED = ("limits", "throughput")  # benchmarks that are installed with the rest


def _benchmark(arguments: list[str]) -> int:
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    name = arguments[0] if arguments else ""
    package = "ga3c.measuring" if name in MEASURED else "benchmarks"
    names = (*MEASURED, *_studies())
    if name not in names:
        given = repr(name) if name else "without a name"
        others = "" if len(names) > len(MEASURED) else "; the others are in a checkout of ga3c only"
        raise WrongUse(f"benchmark {given}: must be {' or '.join(names)}{others}")
    module = f"{package}.{name.replace('-', '_')}"
    return _work(module, f"benchmark {name}", True, arguments[1:])


def _studies() -> tuple[str, ...]:
    """The names of the benchmarks that only a checkout has; it is found if this is one's code."""
    checkout = str(Path(__file__).resolve().parents[1])
    if (Path(checkout) / "benchmarks" / "__init__.py").is_file() and checkout not in sys.path:
        sys.path.append(checkout)
        known = os.environ.get("PYTHONPATH")  # some of them start programs of their own
        os.environ["PYTHONPATH"] = os.pathsep.join([*([known] if known else []), checkout])
    try:
        from benchmarks import NAMES
    except ImportError:
        return ()
    return NAMES


def _work(module_name: str, command: str, thinks: bool, arguments: list[str]) -> int:
    """Run a module's `run` with its `Config`. Args: thinks: whether it needs the framework."""
    if thinks:
        import ga3c.backend  # noqa: F401  first: it keeps the framework's greetings off the terminal

    module = importlib.import_module(module_name)
    kind = module.Config
    base = kind.defaults(arguments) if hasattr(kind, "defaults") else None
    config = _parsed(arguments, kind, f"ga3c {command}", base)
    if command in PRINTED:
        streams.end_quietly_unread()
    else:
        streams.go_on_without()
    for number in (signal.SIGINT, signal.SIGTERM):  # from here on there are processes to end
        signal.signal(number, signal.default_int_handler)
    return _done(lambda: module.run(config))


def _done(work: Callable[[], int | None]) -> int:
    """The exit code of `work`, which may fail in ways that its user should hear of in one line."""
    from ga3c.settings.checks import WrongInput

    try:
        return work() or 0
    except WrongInput as error:
        raise WrongUse(str(error)) from error
    except (RuntimeError, OSError) as error:  # a process, the service or the disk has failed
        return _complain(str(error), 1)
    except MemoryError as error:
        return _complain(f"out of memory: {error}", 1)


def _parsed(arguments: list[str], kind: type[Any], command: str, base: Any = None) -> Any:
    """The configuration asked for. Raises WrongUse, or SystemExit after --help."""
    from ga3c.settings.checks import check_finite
    from ga3c.settings.parse import parse

    said = io.StringIO()
    helps = bool({"-h", "--help"} & set(arguments))
    try:
        with contextlib.nullcontext() if helps else contextlib.redirect_stderr(said):
            config = parse(arguments, kind, command, base)
        check_finite(config)
        return config
    except ValueError as error:
        raise WrongUse(str(error)) from error
    except SystemExit as stop:
        if stop.code:
            raise WrongUse(_one_line(said.getvalue())) from stop
        raise


def _one_line(box: str) -> str:
    """What tyro says in a box, as one line: without its title."""
    said = (line for line in box.splitlines() if not line.startswith("╭"))
    lines = (re.sub(r"[╰╯│─━]+", " ", line).strip() for line in said)
    text = " ".join(line for line in lines if line)
    return re.sub(r"\s+", " ", text)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "runs": partial(_work, "ga3c.reports.listing", "runs", False),
    "evaluate": partial(_work, "ga3c.evaluation.evaluate", "evaluate", True),
    "play": partial(_work, "ga3c.evaluation.play", "play", True),
    "plot": partial(_work, "ga3c.reports.plots", "plot", False),
    "table": partial(_work, "ga3c.reports.tables", "table", False),
    "report": partial(_work, "ga3c.reports.page", "report", False),
    "export": partial(_work, "ga3c.evaluation.export", "export", True),
    "scores": partial(_work, "ga3c.reports.scores", "scores", False),
    "doctor": partial(_work, "ga3c.measuring.doctor", "doctor", True),
    "benchmark": _benchmark,
}


PRINTED = ("runs", "table")  # commands whose result is what they print


def _complain(message: str, code: int) -> int:
    streams.complain(message)
    return code


if __name__ == "__main__":
    program()
