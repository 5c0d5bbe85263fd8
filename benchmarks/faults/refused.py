"""A service that cannot start because another program uses its port or its directory."""

import socket

from agents import keys
from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.service import SMALL
from benchmarks.faults.watched import Watched


def port_in_use(bench: Bench) -> Seen:
    """A run is told to listen on a port that another program uses."""
    seen, key = Seen(), bench.directory / "service"
    keys.run(keys.Config(key))
    keys.run(keys.Config(bench.directory / "host"))
    with socket.create_server(("127.0.0.1", 0)) as other, bench.watched() as run:
        where = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        listen = ("--listen", where, "--key", str(key), "--allow", f"{bench.directory}/host.pub")
        run.train(*SMALL, *listen)
        code = run.ended(60.0)
        seen.injected += 1
        said = run.errors.read_text().strip().splitlines()
        seen.expect(code == 2, f"exit code {code}")
        seen.expect(len(said) == 1 and where in said[0], f"said {said[-3:]}")
        seen.note = said[-1] if said else ""
        bench.account(run, seen)
    return seen


def one_directory(bench: Bench) -> Seen:
    """A second service is started in the directory of a run in progress."""
    seen = Seen()
    with bench.watched() as run:
        run.train(*SMALL)
        run.begun(2)
        with Watched(bench.directory / "second") as second:
            second.path = run.path
            second.resume()
            code = second.ended(60.0)
            seen.injected += 1
            said = second.errors.read_text().strip().splitlines()
        seen.expect(code == 2, f"the second one's exit code is {code}")
        seen.expect(len(said) == 1, f"it said {said[-3:]}")
        steps = run.steps
        run.until(lambda: run.steps > steps, 30.0)
        seen.note = said[-1] if said else ""
        bench.finish(run, seen)
    return seen


CASES = (
    Case("refused/port in use", "one line names the port; exit code 2", port_in_use),
    Case(
        "refused/one directory",
        "a second service in a run's directory is refused in one line; the first keeps running",
        one_directory,
    ),
)
