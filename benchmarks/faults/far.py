"""A run whose agents all play on other nodes, which get broken; its ledger has each step once."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from agents import keys
from benchmarks.faults.case import Bench, Seen
from benchmarks.faults.nodes import Network, network
from benchmarks.faults.processes import END_S, Marked
from benchmarks.faults.watched import GA3C, Watched
from ga3c.runs import checkpoints

AGENTS, NODES = 4, 2
MODULES = ("benchmarks.paced", "tests.tiny")


def counts(agents: int) -> tuple[str, ...]:
    """Options for a fixed number of agents."""
    return ("--scheduler", "off", "--agents", f"{agents}", "--max-agents", f"{agents}")


LEDGER = (
    *("--game", "benchmarks.paced:PacedLedger-v0", "--algorithm", "dqn", "--save-replay"),
    *("--envs-per-agent", "16", "--steps-per-update", "64", "--slack-steps", "4096"),
    *("--replay-steps", "400000", "--replay-min-steps", "1000"),
)


class Host(Marked):
    """`ga3c agents` on a node, with its agents."""

    def __init__(self, arguments: list[str], directory: Path, run: str, name: str) -> None:
        """Args: arguments: the whole command."""
        super().__init__(directory / f"tmp-{run}-{name}")
        self.name = name
        self._arguments = arguments
        self._output = directory / f"{run}-{name}.out"

    def start(self) -> None:
        """Start it, for the first time or again."""
        with open(self._output, "ab") as out:
            self.launch(self._arguments, stdout=out, stderr=out)

    def kill(self) -> int:
        """Kill the host, not its agents. Returns how many agents it had."""
        assert self.process is not None
        agents = len(self.agents())
        self.process.kill()
        self.process.wait(END_S)
        return agents

    def end(self) -> None:
        """Send SIGTERM and wait, unless it has ended."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)


class Far:
    """A run, the hosts of its nodes, and the network between them. Use it as a context."""

    def __init__(
        self, bench: Bench, run: Watched, net: Network, nodes: int, room: int = AGENTS
    ) -> None:
        """Args: room: how many agents each host has room for."""
        self._bench, self.run, self.net = bench, run, net
        run.prefix = net.learner
        self._keys = bench.directory / "keys"
        self._keys.mkdir(exist_ok=True)
        self.hosts = [self._host(number, room) for number in range(nodes)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.kill_all()

    def key(self, name: str) -> Path:
        """The file of a secret key, created if it is missing."""
        file = self._keys / name
        if not file.exists():
            keys.run(keys.Config(file))
        return file

    def shared(self, name: str) -> Path:
        """The file of the matching public key."""
        return self.key(name).with_name(f"{name}.pub")

    def _host(self, number: int, room: int) -> Host:
        name, address = f"node{number}", self.net.connect(number)
        arguments = [
            *(*self.net.node(number), *GA3C, "agents", "--connect", address, "--name", name),
            *("--key", f"{self.key(name)}", "--service", f"{self.shared('service')}"),
            *("--agents", f"{room}", "--modules", *MODULES),
        ]
        return Host(arguments, self._bench.directory, self.run.path.name, name)

    def listening(self, *also: str) -> list[str]:
        """Options of a run that listens. Args: also: names of further allowed keys."""
        if not self.hosts:
            return []
        names = [*(f"node{number}" for number in range(len(self.hosts))), *also]
        allowed = [f"{self.shared(name)}" for name in names]
        given = ["--listen", self.net.listen, "--key", f"{self.key('service')}"]
        return [*given, "--allow", *allowed, "--agents-here", "0"]

    def begin(self, *arguments: str, agents: int = AGENTS, allow: tuple[str, ...] = ()) -> None:
        """Start the run and its hosts, and wait until AGENTS play and learning makes updates."""
        self.run.train(*arguments, *counts(agents), *self.listening(*allow))
        for host in self.hosts:
            host.start()
        self.run.until(lambda: self.playing == AGENTS, 120.0)
        self.run.begun(0)

    @property
    def fullest(self) -> Host:
        """The host with the most agents."""
        return max(self.hosts, key=lambda host: len(host.agents()))

    @property
    def playing(self) -> int:
        """Agents on all nodes and on the learner."""
        return len(self.run.agents()) + sum(len(host.agents()) for host in self.hosts)

    def finish(self, seen: Seen, code: int = 130) -> None:
        """Interrupt the run, which ends its agents, then end the hosts. Nothing may be left."""
        self._bench.finish(self.run, seen, code)
        self._account(seen)

    def account(self, seen: Seen) -> None:
        """The same for a run that has ended."""
        self._bench.account(self.run, seen)
        self._account(seen)

    def _account(self, seen: Seen) -> None:
        for host in self.hosts:
            host.end()
        left = [each for host in self.hosts for each in host.left()]
        seen.left = (seen.left or 0) + len(left)
        seen.expect(not left, f"left behind by hosts: {', '.join(left)}")


@contextlib.contextmanager
def far(bench: Bench, seen: Seen, room: int = AGENTS) -> Iterator[Far]:
    """A run that is ready to begin, with NODES nodes; the note says what these are."""
    with network(NODES) as net, bench.watched() as run, Far(bench, run, net, NODES, room) as made:
        seen.note = net.words
        yield made


def check_ledger(run: Watched, seen: Seen) -> None:
    """Check that the run's replay has each step once, following the one before it.

    An observation of Ledger is [environment number, episode, step, previous action].
    """
    found, _ = checkpoints.newest(run.path / "checkpoints")
    if found is None:
        seen.expect(False, "no intact checkpoint, so its ledger cannot be read")
        return
    written, frames = found.arrays["lanes/written"], found.arrays["ring/frame"]
    capacity = len(frames) // len(written)
    entries, holes = [], 0
    for lane, count in enumerate(written):
        slots = np.arange(max(count - capacity, 0), count) % capacity
        lines = frames[lane * capacity + slots][:, :3].astype(np.int64)
        number, episode, step = lines.T
        follows = (np.diff(step) == 1) & (np.diff(episode) == 0) & (np.diff(number) == 0)
        begins = (step[1:] == 0) & ((np.diff(episode) == 1) | (np.diff(number) != 0))
        holes += int((~(follows | begins)).sum())
        entries.append(lines)
    ledger = np.concatenate(entries)
    twice = len(ledger) - len(np.unique(ledger, axis=0))
    seen.expect(len(ledger) > 0, "no step is in the ledger")
    seen.expect(not twice, f"{twice} steps are in the ledger twice")
    seen.expect(not holes, f"{holes} steps of the ledger do not follow the one before")
    words = f"{len(ledger):,} steps in the ledger, {twice} twice, {holes} out of order"
    seen.note = "; ".join(filter(None, (seen.note, words)))
