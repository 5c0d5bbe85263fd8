"""Starts, replaces, rests and ends the agent processes."""

import math
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agents.environments import EnvironmentConfig
from agents.launchers import Exit, Launcher
from agents.worker import Task
from ga3c.runs.metrics import Metrics
from ga3c.service.threads import RunFailed
from ga3c.settings.service import ServiceConfig
from ga3c.wire.frontend import Frontend
from ga3c.wire.peers import name_of, new_identity

MAX_EARLY_DEATHS = 3  # consecutive deaths in one place before the agent's first step
MAX_FAILURES = 5  # consecutive failures in one place
HEALTHY_S = 600.0  # the death of an agent that lived this long is not counted as a failure
KILLED_S = 120.0  # kills from outside for this long, without an update, end the run
FIRST_DELAY_S = 0.5  # delay of the successor after a second failure; doubles with each further one
SLOWEST_STEPS_PER_S = 100.0  # slowest rate assumed of an agent that replays recorded actions
OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}  # kills from outside


class Death(NamedTuple):
    """How an agent ended."""

    played: bool  # whether it had made a step
    from_outside: bool  # killed by a signal that neither it nor the service sent
    silent_s: float  # how long its step had been overdue


@dataclass
class _Place:
    """The record of one agent number, across the agents that succeed each other in it."""

    began_s: float = 0.0  # when the current agent began
    updates: float = 0.0  # the run's updates when the current agent began
    early_deaths: int = 0  # consecutive
    failures: int = 0  # consecutive
    killed_since_s: float = math.inf  # first kill since an update, or since a long life


class Deaths:
    """Counts consecutive failures in each agent's place.

    A death is a failure, unless the agent had lived for HEALTHY_S or was killed from outside. The
    successor starts at once after a first failure, and waits twice as long after each further one.
    Kills from outside end the run if they go on in one place for KILLED_S without an update.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: defaultdict[int, _Place] = defaultdict(_Place)

    def began(self, index: int, updates: float) -> None:
        """Record that an agent starts in place `index`, when the run has made `updates`."""
        place = self._places[index]
        place.began_s, place.updates = self._clock(), updates

    def delay_s(self, index: int, death: Death, updates: float) -> float:
        """Count a death in place `index`. Returns how long its successor must wait."""
        place, now_s, own_fault = self._places[index], self._clock(), not death.from_outside
        lived_s = now_s - place.began_s - death.silent_s
        place.early_deaths = 0 if death.played else place.early_deaths + own_fault
        place.failures = 0 if lived_s >= HEALTHY_S else place.failures + own_fault
        if own_fault or updates > place.updates or lived_s >= KILLED_S:
            place.killed_since_s = math.inf
        if death.from_outside:
            place.killed_since_s = min(place.killed_since_s, now_s)
        return FIRST_DELAY_S * 2 ** (place.failures - 2) if place.failures > 1 else 0.0

    def hopeless(self, index: int) -> str:
        """Why a successor in place `index` is pointless; empty if one should be tried."""
        place = self._places[index]
        if place.early_deaths >= MAX_EARLY_DEATHS:
            return f"{MAX_EARLY_DEATHS} in a row ended in its place before their first step"
        if place.failures >= MAX_FAILURES:
            within = f"each within {HEALTHY_S:g} s of its start"
            return f"{MAX_FAILURES} agents in a row failed in its place, {within}"
        if self._clock() - place.killed_since_s >= KILLED_S:
            kills = f"agents in its place have been killed from outside for {KILLED_S:g} s"
            return f"{kills}, in which the run made no update: memory may be short"
        return ""


class Agents:
    """The agent processes. Agent number i owns lanes i * E .. (i + 1) * E.

    An agent that dies is replaced; if agents die repeatedly in one place, the run fails (see
    `Deaths`). An agent that is no longer needed rests until it is needed again, because making its
    environments took seconds of a core. Under a cap on memory it ends instead. Playing and resting
    agents together never exceed the largest number that may play.
    """

    def __init__(
        self,
        *,
        service: ServiceConfig,
        environment: EnvironmentConfig,
        seed: int,
        may_rest: bool,
        frontend: Frontend,
        token: str,
        metrics: Metrics,
        launcher: Launcher,
        updates: Callable[[], int],
    ) -> None:
        """Args: may_rest: False ends an agent that is no longer needed, to free its memory."""
        self.started = 0
        """Number of agents started so far; it makes the seeds of each agent different."""
        self._played: tuple[Path | None, int] = (None, 0)
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
        self._killed: dict[str, str] = {}  # why this service killed an agent, by identity
        self._deaths = Deaths()
        self._due_s: dict[int, float] = {}  # when the successor in a place must start

    def __len__(self) -> int:
        return len(self._identities) + len(self._due_s)

    def play_again(self, actions: Path, steps: int) -> None:
        """In lockstep: the agent first replays `steps` steps from the file `actions`."""
        self._played = actions, steps

    def play(self) -> bool:
        """Whether every agent has made a step."""
        return not self._due_s and self.begun == len(self)

    @property
    def begun(self) -> int:
        """How many agents have made a step."""
        return sum(self._frontend.peers.has_played(name) for name in self._identities.values())

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

        Returns a line for each death. Raises RunFailed if agents die repeatedly.
        """
        timeout_s = self._service.agent_timeout_s
        for identity in self._frontend.silent(timeout_s):
            self._kill(identity, f"it owed a step for {timeout_s:g} s (agent_timeout_s)")
        for identity, fault in self._frontend.peers.faults().items():
            self._kill(identity, f"its message was refused: {fault}")
        events = [self._bury(ended) for ended in self._launcher.reap()]
        for index in [i for i, due_s in self._due_s.items() if due_s <= time.monotonic()]:
            del self._due_s[index]
            self._start(index, succeeds=True)
        return [*self._launcher.news(), *filter(None, events)]

    def _kill(self, identity: str, why: str) -> None:
        self._killed.setdefault(identity, why)
        self._launcher.kill(identity)

    def _bury(self, ended: Exit) -> str:
        """Handle an agent that has ended. Returns a line about it; empty if it was retired."""
        identity = ended.identity
        why = self._killed.pop(identity, "")
        silent_s = self._service.agent_timeout_s if why else 0.0
        from_outside = not why and ended.code in OUTSIDE
        death = Death(self._frontend.peers.has_played(identity), from_outside, silent_s)
        words = self._frontend.peers.forget(identity) or f"{ended.log}\n{why}".strip()
        if identity in self._identities.values():
            return self._replace(ended, words, death)
        if identity in self._retired:
            self._retired.remove(identity)
        return ""

    def dismiss(self) -> None:
        """Order the agents of other machines to end, while they still can be told."""
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
        if self._service.lockstep:
            raise RunFailed(f"agent {name} {how}: no other can take its turn\n{words}")
        if why := self._deaths.hopeless(index):
            raise RunFailed(f"agent {name} {how}: {why}\n{words}")
        del self._identities[index]
        reason = words.splitlines()[-1] if words else "no last words"
        if delay_s:
            self._due_s[index] = time.monotonic() + delay_s
            return f"agent {name} {how} ({reason}): to be replaced in {delay_s:g} s"
        self._start(index, succeeds=True)
        return f"agent {name} {how} ({reason}): replaced by {name_of(self._identities[index])}"

    def _start(self, index: int, succeeds: bool = False) -> None:
        identity = new_identity(f"agent-{index}.{self.started}")
        seeds = np.random.SeedSequence([self._seed, index, self.started])
        seed = None if succeeds else int(seeds.generate_state(1)[0])
        self.started += 1
        per_agent, groups = self._service.envs_per_agent, self._service.groups
        lanes = np.arange(index * per_agent, (index + 1) * per_agent, dtype=np.int32)
        file, played = self._played
        patience_s = played * per_agent / SLOWEST_STEPS_PER_S
        self._frontend.peers.expect(identity, lanes.reshape(groups, -1), played, patience_s)
        self._identities[index] = identity
        self._deaths.began(index, self._updates())
        task = Task(
            *(identity, self._frontend.endpoint, self._token, groups, per_agent // groups),
            *(seed, self._environment, self._service.stagger_steps),
            *(str(file) if file else None, played),
        )
        rests = next((name for name in self._retired if not self._frontend.peers.knows(name)), None)
        if rests is None:
            self._launcher.start(task)
        else:
            self._retired.remove(rests)
            self._launcher.start_again(rests, task)
