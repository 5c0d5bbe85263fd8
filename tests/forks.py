"""Runs `ga3c` commands in processes forked from one that has imported the tensor framework.

The import takes most of the time of a short command, and the suite runs more than a hundred. A
forked command differs from `python -m ga3c` in this import alone: it is a process of its own, with
its own files, arguments and exit code. What `Command` starts begins from nothing, as users do.

    python -m tests.forks       reads a line of JSON for each command: what `_run` takes
                                prints two lines for each: the process's pid, then its exit code
"""

import json
import os
import runpy
import sys
import traceback


def _run(arguments: list[str], environment: dict[str, str], out: str, err: str) -> None:
    """Be the command. Does not return. Args: out, err: files for what it writes."""
    code = 1
    try:
        for file, descriptor in ((os.devnull, 0), (out, 1), (err, 2)):
            opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.environ.clear()
        os.environ.update(environment)
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
    """Fork a process for each line, and wait for it."""
    if os.fork():
        os._exit(0)  # tests look at their own children, of which this process must not be one
    import ga3c.evaluation.learned
    import ga3c.service.wiring
    import ga3c.training.run  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if not pid:
            os.setsid()
            _run(**asked)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
