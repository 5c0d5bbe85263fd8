"""A long run with random faults at random times; memory, descriptors and threads must stay flat."""

import random
import signal
import socket
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.processes import Belongings
from benchmarks.faults.watched import Watched
from ga3c.runs.scratch import PREFIX

AGENTS = 4
TIMEOUT_S = 60.0
PONG = (
    *("--game", "Pong", "--algorithm", "a3c", "--scheduler", "off", "--envs-per-agent", "16"),
    *("--agents", str(AGENTS), "--max-agents", str(AGENTS)),
    *("--agent-timeout-s", str(TIMEOUT_S), "--checkpoint-every-s", "60"),
)
LIVES = 3  # the service is terminated, then killed, and resumed each time
EVERY_S = 30.0  # mean time between two faults
WARM_UP = 0.1  # share of a life after which its memory must be flat
DEVIATIONS = 3.0  # a life's memory may drift by this many deviations from its own line
PARTS = 40  # a life's memory is averaged over at most this many parts to fit the line


def kill_one(run: Watched, rng: random.Random) -> None:
    """Kill an agent."""
    rng.choice(run.agents()).send_signal(signal.SIGKILL)


def kill_all(run: Watched, rng: random.Random) -> None:
    """Kill all agents."""
    for each in run.agents():
        each.send_signal(signal.SIGKILL)


def stop_one(run: Watched, rng: random.Random) -> None:
    """Stop an agent, which resumes after some seconds, unless it is declared dead first."""
    agent = rng.choice(run.agents())
    agent.suspend()
    time.sleep(rng.choice((2.0, TIMEOUT_S + 5.0)))
    if agent.is_running():
        agent.resume()


def stop_service(run: Watched, rng: random.Random) -> None:
    """Stop the service for some seconds."""
    run.signal(signal.SIGSTOP)
    time.sleep(rng.uniform(1.0, 5.0))
    run.signal(signal.SIGCONT)


def send_noise(run: Watched, rng: random.Random) -> None:
    """Send random bytes to the service's socket from many connections."""
    (place,) = run.temporary.glob(f"{PREFIX}*/agents")
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(1.0)
            try:
                stranger.connect(str(place))
                stranger.sendall(rng.randbytes(rng.randint(1, 100_000)))
            except OSError:  # it has been cut off, as it should be
                continue


def damage_newest(run: Watched, rng: random.Random) -> None:
    """Change a byte of the newest checkpoint."""
    file = max((run.path / "checkpoints").glob("[0-9]*")) / "arrays.npz"
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


Fault = Callable[[Watched, random.Random], None]
FAULTS: tuple[Fault, ...] = (kill_one, kill_all, stop_one, stop_service, send_noise, damage_newest)


def random_faults(bench: Bench) -> Seen:
    """All faults of `FAULTS` at random times; the service itself is ended twice."""
    seen, rng = Seen(), random.Random(bench.seed)
    whole_s = bench.scaled(bench.soak_s, 75.0)
    notes = []
    with bench.watched() as run:
        for life in range(LIVES):
            first = len(run.held)
            if life:
                run.resume()
            else:
                run.train(*PONG)
            steps = run.steps
            run.until(lambda: len(run.agents()) >= AGENTS and run.steps > steps, 120.0)  # noqa: B023
            seen.injected += _live(run, rng, whole_s / LIVES, bench.scaled(EVERY_S, 4.0))
            notes.append(_judge(seen, run.held[first:], life))
            if life < LIVES - 1:
                run.signal((signal.SIGTERM, signal.SIGKILL)[life])
                code = run.ended()
                seen.expect(code == (130, -9)[life], f"life {life} ended with exit code {code}")
                seen.injected += 1
        _rates(seen, run)
        bench.finish(run, seen)
        seen.note = "; ".join(notes)
    return seen


def _live(run: Watched, rng: random.Random, seconds: float, every_s: float) -> int:
    """Inject random faults for `seconds`. Returns how many."""
    until_s, injected = time.monotonic() + seconds, 0
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(rng.expovariate(1 / every_s), left_s))
        if not run.runs:
            raise RuntimeError(f"the run has ended: {run.tail()}")
        if run.agents():
            rng.choice(FAULTS)(run, rng)
            injected += 1
    return injected


def _judge(seen: Seen, held: Sequence[Belongings], life: int) -> str:
    """Memory, descriptors and threads must not have grown in this life. Returns its figures."""
    held = held[int(len(held) * WARM_UP) :]
    tenth = max(len(held) // 10, 1)
    growth = {
        name: statistics.median(getattr(each, name) for each in held[-tenth:])
        - statistics.median(getattr(each, name) for each in held[:tenth])
        for name in ("descriptors", "threads")
    }
    for name, more in growth.items():
        seen.expect(more <= 0, f"life {life}: {more:+g} {name}")
    drift, noise = drift_and_noise([each.memory_mb for each in held])
    seen.expect(
        drift <= DEVIATIONS * noise,
        f"life {life}: memory grew by {drift:.1f} MiB, its noise is {noise:.1f}",
    )
    seen.descriptors = max(seen.descriptors or 0, int(growth["descriptors"]))
    seen.threads = max(seen.threads or 0, int(growth["threads"]))
    return f"life {life}: memory {drift:+.1f} MiB, noise {noise:.1f}"


def drift_and_noise(memory_mb: Sequence[float]) -> tuple[float, float]:
    """The total rise of a line through the means of parts, and the means' deviation from it."""
    parts = min(PARTS, len(memory_mb))
    means = np.array([part.mean() for part in np.array_split(np.asarray(memory_mb), parts)])
    at = np.arange(parts)
    slope, start = np.polyfit(at, means, 1)
    return slope * (parts - 1), float(np.std(means - (start + slope * at), ddof=2))


def _rates(seen: Seen, run: Watched) -> None:
    """The median speed between readings, including those during which nothing was played."""
    pairs = zip(run.readings, run.readings[1:])  # a later life begins at an earlier checkpoint
    rates = [(b.steps - a.steps) / (b.at_s - a.at_s) for a, b in pairs if b.steps >= a.steps]
    seen.pps_during = statistics.median(rates)


CASES = (
    Case(
        "soak/random faults",
        "two hours of random faults at random times, in three lives of the service: "
        "descriptors and threads do not grow, memory grows by at most three times its own noise, "
        "and nothing is left behind",
        random_faults,
        is_long=True,
    ),
)
