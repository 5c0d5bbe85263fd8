"""Starts, replaces, rests and ends the agent processes."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from agents.environments import EnvironmentConfig
from agents.launchers import UNSTARTED, Exit, Launcher
from agents.link import name_of, new_identity
from agents.worker import Task
from ga3c.runs.metrics import Metrics
from ga3c.service.threads import RunFailed
from ga3c.settings.service import ServiceConfig
from ga3c.wire.deaths import Death, Deaths
from ga3c.wire.frontend import Frontend

SLOWEST_STEPS_PER_S = 100.0  # slowest rate assumed of an agent that replays recorded actions
SLOWEST_MAKE_S = 0.5  # to create an environment; an Atari game takes 0.05 s on an idle core
OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}  # kills from outside


class Agents:
    """The agent processes. Agent number i owns lanes i * E .. (i + 1) * E.

    An agent that dies is replaced; if agents die repeatedly in one place, the run fails (see
    `Deaths`). An agent that is no longer needed rests until it is needed again, because creating
    environments again would cost seconds of CPU time. Under a cap on memory it ends instead.
    Playing and resting agents together never exceed the largest number that may play.
    """

    def __init__(
        self,
        *,
        service: ServiceConfig,
        environment: EnvironmentConfig,
        seed: int | None,
        may_rest: bool,
        frontend: Frontend,
        token: str,
        metrics: Metrics,
        launcher: Launcher,
        updates: Callable[[], int],
    ) -> None:
        """Args:
        seed: of all environments; None: they seed themselves.
        may_rest: whether agents that are not needed rest, or end to free their memory.
        """
        self.started = 0
        """Number of agents started so far. Each agent's seeds depend on it, so they differ."""
        self._played: tuple[Path | None, int] = (None, 0)
        self._stops_s = 0.0  # of all stops that agents have been excused for
        self._service = service
        self._environment = environment
        self._seed = seed
        self._may_rest = may_rest
        self._updates = updates
        self._frontend = frontend
        self._token = token
        self._metrics = metrics
        self._launcher = launcher
        self._identities: dict[int, str] = {}
        self._retired: list[str] = []  # agents that rest, or will after their current step
        self._killed: dict[str, tuple[str, float]] = {}  # why, and the seconds it was silent for
        self._deaths = Deaths()
        self._due_s: dict[int, float] = {}  # when the successor in a place must start

    def __len__(self) -> int:
        return len(self._identities) + len(self._due_s)

    def play_again(self, actions: Path, steps: int) -> None:
        """In lockstep: the agent first replays `steps` steps from the file `actions`."""
        self._played = actions, steps

    def plays(self) -> bool:
        """Whether every agent has made a step."""
        return not self._due_s and self.begun == len(self)

    @property
    def begun(self) -> int:
        """How many agents have made a step."""
        return sum(self._frontend.peers.has_played(name) for name in self._identities.values())

    @property
    def lanes(self) -> set[int]:
        """The lanes of all agents that have made a step; others may wait for a machine."""
        per_agent, has_played = self._service.envs_per_agent, self._frontend.peers.has_played
        begun = [index for index, name in self._identities.items() if has_played(name)]
        return {index * per_agent + lane for index in begun for lane in range(per_agent)}

    def pids(self) -> list[int]:
        """Process ids of the playing agents, then of the resting ones, on this machine."""
        pids = map(self._launcher.pid, [*self._identities.values(), *self._retired])
        return [pid for pid in pids if pid is not None]

    def resize(self, count: int) -> None:
        """Start agents, or retire the last ones after their current step."""
        self._due_s = {index: due_s for index, due_s in self._due_s.items() if index < count}
        for index in sorted({*range(count)} - {*self._identities, *self._due_s}):
            self._start(index)
        for index in [i for i in self._identities if i >= count]:
            self._retired.append(self._identities.pop(index))
            self._frontend.retire(self._retired[-1])
        may_rest = max(self._service.most.agents - count, 0) if self._may_rest else 0
        while len(self._retired) > may_rest:
            self._launcher.end(self._retired.pop(0))

    def tend(self) -> list[str]:
        """Replace dead agents, and kill those that are silent or sent a refused message.

        Returns news, and for each death a line followed by the agent's output and failure. Raises
        RunFailed if agents die repeatedly.
        """
        timeout_s = self._service.agent_timeout_s
        peers = self._frontend.peers
        if (stops_s := peers.stops.total_s()) > self._stops_s:
            peers.excuse(stops_s - self._stops_s)
            self._stops_s = stops_s
        for identity in self._frontend.silent(timeout_s):
            why = f"it owed a step for {timeout_s:g} s (agent_timeout_s)"
            if not peers.has_played(identity):
                why += ", while still creating its environments or in their first step"
            self._kill(identity, why, timeout_s)
        for identity, fault in peers.faults().items():
            self._kill(identity, f"its message was refused: {fault}", 0.0)
        # Resting agents first, because a successor's task must not be given to a dead one.
        reaped = sorted(self._launcher.reap(), key=lambda each: each.identity not in self._retired)
        events = [self._bury(ended) for ended in reaped]
        for index in [i for i, due_s in self._due_s.items() if due_s <= time.monotonic()]:
            del self._due_s[index]
            self._start(index)
        for _ in range(min(len(self._launcher.waiting), len(self._retired))):
            self._launcher.end(self._retired.pop(0))  # another agent waits for its place
        return [*self._launcher.news(), *filter(None, events)]

    def _kill(self, identity: str, why: str, silent_s: float) -> None:
        self._killed.setdefault(identity, (why, silent_s))
        self._launcher.kill(identity)

    def _bury(self, ended: Exit) -> str:
        """Handle an agent that has ended. Returns what to report; nothing if it was retired."""
        identity = ended.identity
        why, silent_s = self._killed.pop(identity, ("", 0.0))
        from_outside = not why and ended.code in OUTSIDE
        peers = self._frontend.peers
        of_machine = ended.code == UNSTARTED or not peers.is_here(identity)
        death = Death(peers.has_played(identity), from_outside, silent_s, of_machine)
        report = peers.forget(identity).strip()
        written = ended.log.replace(report, "").strip()  # an agent also writes what it reports
        words = "\n".join(filter(None, (written, why, report)))
        if identity in self._identities.values():
            return self._replace(ended, words, death)
        if identity in self._retired:
            self._retired.remove(identity)
        return ""

    def dismiss(self) -> None:
        """Order the agents on other machines to end, while they can still be reached."""
        self._launcher.dismiss()

    def stop(self, timeout_s: float) -> None:
        """End every agent process."""
        self._launcher.stop(timeout_s)

    def _replace(self, ended: Exit, words: str, death: Death) -> str:
        index = next(i for i, name in self._identities.items() if name == ended.identity)
        delay_s = self._deaths.delay_s(index, death, self._updates())
        self._metrics.add(agent_deaths=1)
        name = name_of(ended.identity)
        how = f"was killed by signal {-ended.code}" if ended.code < 0 else f"exited {ended.code}"
        how = "has no process" if ended.code == UNSTARTED else how
        if self._service.lockstep:
            raise RunFailed(f"agent {name} {how}: no other can take its turn\n{words}")
        if why := self._deaths.hopeless(index):
            raise RunFailed(f"agent {name} {how}: {why}\n{words}")
        del self._identities[index]
        reason = words.splitlines()[-1] if words else "no last words"
        if delay_s:
            self._due_s[index] = time.monotonic() + delay_s
            follows = f"to be replaced in {delay_s:g} s"
        else:
            self._start(index)
            follows = f"replaced by {name_of(self._identities[index])}"
        return f"agent {name} {how} ({reason}): {follows}\n{words}".strip()

    def _start(self, index: int) -> None:
        identity = new_identity(f"agent-{index}.{self.started}")
        seed = None
        if self._seed is not None:
            seeds = np.random.SeedSequence([self._seed, index, self.started])
            seed = int(seeds.generate_state(1)[0])
        self.started += 1
        per_agent, groups = self._service.envs_per_agent, self._service.groups
        lanes = np.arange(index * per_agent, (index + 1) * per_agent, dtype=np.int32)
        file, played = self._played
        patience_s = per_agent / groups * (SLOWEST_MAKE_S + played / SLOWEST_STEPS_PER_S)
        self._frontend.peers.expect(identity, lanes.reshape(groups, -1), played, patience_s)
        self._identities[index] = identity
        self._deaths.began(index, self._updates())
        task = Task(
            identity=identity,
            endpoint=self._frontend.endpoint,
            token=self._token,
            groups=groups,
            envs_per_group=per_agent // groups,
            seed=seed,
            environment=self._environment,
            stagger_steps=self._service.stagger_steps,
            played=str(file) if file else None,
            played_steps=played,
        )
        rests = next((name for name in self._retired if not self._frontend.peers.knows(name)), None)
        if rests is None:
            self._launcher.start(task)
        else:
            self._retired.remove(rests)
            self._launcher.start_again(rests, task)
