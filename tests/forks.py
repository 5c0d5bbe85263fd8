"""Runs `ga3c` commands in processes forked from one that has imported the tensor framework.

The import takes most of the time of a short command, and the suite runs more than a hundred of
them. A forked command differs from `python -m ga3c` only in this import: it has its own process,
session, files, arguments and exit code.

    python -m tests.forks       reads lines of JSON and answers each with one
        {`_run`'s arguments}    starts a command; the answer is the process's pid
        PID                     the answer is that process's exit code, or null while it runs
"""

import faulthandler
import json
import os
import runpy
import sys
import tempfile
import traceback
from typing import Any


def _run(arguments: list[str], environment: dict[str, str], out: str, err: str, cwd: str) -> None:
    """Become the command. Does not return. Args: out, err: files for its output."""
    code = 1
    try:
        os.chdir(cwd)
        for file, descriptor in ((os.devnull, 0), (out, 1), (err, 2)):
            opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # find it again: TMPDIR may have changed
        if "PYTHONFAULTHANDLER" in environment:
            faulthandler.enable()
        sys.argv = ["ga3c", *arguments]
        runpy.run_module("ga3c", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """For each line of input, start a command or look up the exit code of one."""
    if os.fork():
        os._exit(0)  # tests inspect their children, and this process must not be one of them
    from ga3c.command import frameworks

    frameworks.have_the_process()  # both set variables that the imports below read
    frameworks.choose()
    import ga3c.evaluation.learned
    import ga3c.service.wiring
    import ga3c.training.run  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_ended(asked) if isinstance(asked, int) else _started(asked)), flush=True)


def _started(asked: dict[str, Any]) -> int:
    pid = os.fork()
    if not pid:
        os.setsid()
        _run(**asked)
    return pid


def _ended(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


if __name__ == "__main__":
    main()
