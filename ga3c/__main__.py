"""The command `ga3c`."""

import contextlib
import io
import os
import re
import signal
import sys

USAGE = """usage: ga3c train [--game GAME] [--preset default|paper] [options]

Train an agent by GA3C: `ga3c train --help` shows every setting, its unit and its default.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns 0 finished, 1 failed, 2 wrong use, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] != "train":
        return _complain(f"unknown command {arguments[0]!r}: must be train", 2)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, until the run has begun
    try:
        return _train(arguments[1:])
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        return _complain("TensorFlow is missing: pip install 'ga3c[cpu]' or 'ga3c[gpu]'", 2)


def _train(arguments: list[str]) -> int:
    from ga3c.config import parse

    wanted = io.StringIO()
    helps = bool({"-h", "--help"} & set(arguments))
    try:
        with contextlib.nullcontext() if helps else contextlib.redirect_stderr(wanted):
            config = parse(arguments)
    except ValueError as error:
        return _complain(str(error), 2)
    except SystemExit as stop:
        if stop.code:
            _complain(_one_line(wanted.getvalue()), 2)
        return 2 if stop.code else 0
    from agents.environments import spaces
    from ga3c.runs import new_run_path

    try:  # before the tensor framework, which takes seconds
        found = spaces(config.environment)
        run_path = new_run_path(config)
    except ValueError as error:
        return _complain(str(error), 2)
    import ga3c.backend  # noqa: F401  first: it keeps the framework's greetings from the terminal
    from ga3c.service import RunFailed
    from ga3c.training import WrongInput, train

    try:
        return train(config, found, run_path)
    except WrongInput as error:
        return _complain(str(error), 2)
    except RunFailed as error:
        return _complain(str(error), 1)


def _one_line(box: str) -> str:
    """What tyro says in a box, as one line."""
    lines = (re.sub(r"[╭╮╰╯│─━]+", " ", line).strip() for line in box.splitlines())
    text = " ".join(line for line in lines if line)
    return re.sub(r"\s+", " ", text.removeprefix("Parsing error"))


def _complain(message: str, code: int) -> int:
    print(f"ga3c: {message.strip()}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
