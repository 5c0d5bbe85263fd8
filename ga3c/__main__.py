"""The `ga3c` command."""

import atexit
import contextlib
import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import ga3c
from ga3c.command import frameworks, streams
from ga3c.command.arguments import HELP, NEAR, at_home, check_paths, near
from ga3c.command.line import WrongUse, complained, done, parsed
from ga3c.command.usage import USAGE
from ga3c.training.interrupts import Interrupts

if TYPE_CHECKING:
    from ga3c.training.starting import Start


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns 0 if it finished, 1 if it failed, 2 if misused, 130 if interrupted."""
    arguments = at_home(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in HELP:
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"ga3c {ga3c.__version__}")
        return 0
    if arguments[0] == "help":
        return main([*arguments[1:], "--help"])
    if arguments[0] not in COMMANDS:
        known = ", ".join(COMMANDS)
        hint = near(arguments[0], [*COMMANDS, "--version", "--help"], NEAR, longer=True)
        return complained(f"unknown command {arguments[0]!r}: {hint}it must be one of {known}", 2)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        try:
            frameworks.choose()  # before importing the settings: the framework is a default
            from ga3c.settings.begin import given_value

            frameworks.choose(given_value(arguments, "--backend"))
        except ValueError as error:
            raise WrongUse(str(error)) from error
        return COMMANDS[arguments[0]](arguments[1:])
    except KeyboardInterrupt:
        return 130
    except WrongUse as error:
        return complained(str(error), 2)
    except SystemExit as stop:  # help has been printed
        return int(stop.code or 0)
    except ModuleNotFoundError as error:
        if error.name not in frameworks.FRAMEWORKS:
            raise
        return complained(frameworks.FRAMEWORKS[error.name], 2)


def _leave(number: int, frame: Any) -> None:
    """Exit at once: before the work begins, there is nothing to save or to stop.

    Raising an exception instead is not safe: while a module is being imported, it can get lost.
    """
    os._exit(130)


def program() -> NoReturn:
    """The entry point of the process: `main`, then an exit that late signals cannot change.

    Python's normal exit is skipped: it frees the tensor framework's objects one by one, which takes
    up to 10 s on a busy machine, and a signal during that time would kill the process.
    """
    streams.prepare()
    frameworks.have_the_process()
    _search_working_directory()
    try:
        code = main()
    except BrokenPipeError:  # the reader has closed the pipe: `ga3c train --help | head -2`
        code = 0
    except OSError as error:  # for example, help redirected to a full disk
        code = complained(streams.in_words(error), 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    atexit._run_exitfuncs()
    os._exit(streams.flushed(code))


def _search_working_directory() -> None:
    """Make `module:name` importable from the working directory, as `python -m ga3c` does.

    The directory is searched last, so that no file in it shadows an installed module.
    """
    with contextlib.suppress(OSError):  # the working directory has been deleted
        here = os.getcwd()
        if not sys.flags.safe_path and not {"", here} & set(sys.path):
            sys.path.append(here)


def _train(arguments: list[str]) -> int:
    from ga3c.command.effects import check_effects
    from ga3c.command.files import as_arguments, to_toml
    from ga3c.command.help import setting
    from ga3c.command.parse import TrainArguments
    from ga3c.settings.begin import given_value, preset_like
    from ga3c.training.starting import known_run, prepared, settings_in

    file = given_value(arguments, "--config")
    try:
        check_paths(arguments, TrainArguments)
        of_file = {} if file is None else settings_in(Path(file))
        given, arguments = arguments, [*as_arguments(of_file), *arguments]
        typed = {setting(each) for each in given if each.startswith("--")}
        resumed = given_value(arguments, "--resume")
        place = Path(given_value(arguments, "--runs-dir") or "runs")
        new_steps, trust = given_value(arguments, "--steps") is not None, "--trust" in arguments
        known = None if resumed is None else known_run(Path(resumed), place, new_steps, trust)
    except ValueError as error:
        raise WrongUse(str(error)) from error
    base = known.config if known else None
    try:
        asked: TrainArguments = parsed(arguments, TrainArguments, "ga3c train", base)
    except WrongUse as error:
        raise WrongUse(_with_file(str(error), file, of_file.keys() - typed)) from error
    config = asked.settings
    if asked.print_config:
        print(to_toml(config, base or preset_like(config)), end="")
        return 0
    try:  # check before loading the tensor framework, which takes seconds
        start = prepared(config, known)
        check_effects(config, start.spaces, given)
    except ValueError as error:
        raise WrongUse(_with_file(str(error), file, of_file.keys() - typed)) from error
    streams.go_on_without()
    return done(lambda: _run(start))


def _with_file(message: str, file: str | None, settings: Iterable[str]) -> str:
    """The message, prefixed with the file's name if it is about a setting in that file."""
    words = set(re.findall(r"[a-z_]+", message.replace("-", "_")))
    return f"config {file}: {message}" if words & set(settings) else message


def _run(start: "Start") -> int:
    """Train. Returns the exit code: 0 if the run was kept, 130 after a signal, otherwise 1."""
    from ga3c.training.starting import begin

    interrupts = Interrupts()
    outcome = begin(start, interrupts)
    if start.config.run.json:
        print(json.dumps(outcome.result), flush=True)
    interrupted = interrupts.first.is_set()
    if outcome.stuck:
        os._exit(130 if interrupted else 1)  # unlike sys.exit, this does not wait for threads
    return 130 if interrupted else int(not outcome.kept)


MEASURED = ("limits", "throughput")  # the benchmarks that are part of the installed package


def _benchmark(arguments: list[str]) -> int:
    if arguments and arguments[0] in HELP:
        print(USAGE)
        return 0
    name = arguments[0] if arguments else ""
    names = (*MEASURED, *_studies())
    if name not in names:
        given = repr(name) if name else "without a name"
        others = "" if len(names) > len(MEASURED) else "; the others are in a checkout of ga3c only"
        raise WrongUse(f"benchmark {given}: must be {' or '.join(names)}{others}")
    command, package = f"benchmark {name}", "ga3c.measuring" if name in MEASURED else "benchmarks"
    if name not in MEASURED:
        import ga3c.backend  # noqa: F401  the studies load the framework; this silences it

    module = f"{package}.{name.replace('-', '_')}"
    return _run_module(module, command, name in MEASURED, arguments[1:])


def _studies() -> tuple[str, ...]:
    """The benchmarks that exist only in a checkout; none if this code is not in one."""
    checkout = str(Path(__file__).resolve().parents[1])
    if (Path(checkout) / "benchmarks" / "__init__.py").is_file() and checkout not in sys.path:
        sys.path.append(checkout)
        known = os.environ.get("PYTHONPATH")  # some benchmarks start Python programs
        os.environ["PYTHONPATH"] = os.pathsep.join([*([known] if known else []), checkout])
    try:
        from benchmarks import NAMES
    except ImportError:
        return ()
    return NAMES


def _run_module(module: str, command: str, needs_framework: bool, arguments: list[str]) -> int:
    """Run a module's `run` with its `Config`.

    If it needs the tensor framework, which takes seconds to load, its options are parsed first:
    they are defined in `options.py` beside the module.
    """
    from agents.signals import ending, handled
    from ga3c.command.effects import check_measured

    package, _, name = module.rpartition(".")
    own = (f"{package}.options", f"{name.capitalize()}Config")
    place, kind = own if needs_framework else (module, "Config")
    options = getattr(importlib.import_module(place), kind)
    try:
        base = options.defaults(arguments) if hasattr(options, "defaults") else None
    except ValueError as error:
        raise WrongUse(str(error)) from error
    config = parsed(arguments, options, f"ga3c {command}", base)
    check_measured(config, arguments, f"ga3c {command}")
    if needs_framework:
        import ga3c.backend  # noqa: F401  imported first: it silences the framework

    run = importlib.import_module(module).run
    if command in PRINTED:
        streams.end_quietly_unread()
    else:
        streams.go_on_without()
    handled(ending(), signal.default_int_handler)  # from here on there are processes to stop
    return done(lambda: run(config))


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "list": partial(_run_module, "ga3c.evaluation.names", "list", False),
    "runs": partial(_run_module, "ga3c.reports.listing", "runs", False),
    "evaluate": partial(_run_module, "ga3c.evaluation.evaluate", "evaluate", True),
    "play": partial(_run_module, "ga3c.evaluation.play", "play", True),
    "plot": partial(_run_module, "ga3c.reports.plots", "plot", False),
    "table": partial(_run_module, "ga3c.reports.tables", "table", False),
    "report": partial(_run_module, "ga3c.reports.page", "report", False),
    "export": partial(_run_module, "ga3c.evaluation.export", "export", True),
    "agents": partial(_run_module, "agents.host", "agents", False),
    "keys": partial(_run_module, "agents.keys", "keys", False),
    "scores": partial(_run_module, "ga3c.reports.scores", "scores", False),
    "doctor": partial(_run_module, "ga3c.measuring.doctor", "doctor", True),
    "benchmark": _benchmark,
}

PRINTED = ("list", "runs", "table")  # commands whose only result is the text that they print


if __name__ == "__main__":
    program()
