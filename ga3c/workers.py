"""What the service has several of: threads of a role, and agent processes.

Their numbers change while they run; they end in order, each wait with a limit.
"""

import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

from agents.launchers import Exit, LocalLauncher
from agents.worker import Task
from ga3c.config import TrainConfig
from ga3c.deaths import Death, Deaths
from ga3c.frontend import Frontend, name_of, new_identity
from ga3c.metrics import Metrics

SLICE_S = 0.1  # of a wait that can be cut short
SLOWEST_STEPS_PER_S = 100.0  # of an agent that plays recorded actions once more
HURRIED_S = 0.5  # for all threads to end what they do, when the end is wanted at once
OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}  # exit codes


class RunFailed(RuntimeError):
    """The run cannot go on; the message says why, with the traceback of what failed."""


class Deadline:
    """A moment on the monotonic clock, which comes HURRIED_S after `hurry` was seen set."""

    def __init__(self, timeout_s: float, hurry: threading.Event) -> None:
        self._at_s = time.monotonic() + timeout_s
        self._hurry = hurry
        self._hurried = False

    def left_s(self) -> float:
        """Until then."""
        now_s = time.monotonic()
        if self._hurry.is_set() and not self._hurried:
            self._hurried, self._at_s = True, min(self._at_s, now_s + HURRIED_S)
        return max(0.0, self._at_s - now_s)


class Workers:
    """Threads of one role, whose number can change while they run.

    A thread that fails is kept in `failure`: the run ends with its traceback.
    """

    def __init__(self, role: str, body: Callable[[threading.Event], Callable[[], None]]) -> None:
        self._role = role
        self._body = body
        self._running: list[tuple[threading.Thread, threading.Event]] = []
        self._leaving: list[threading.Thread] = []
        self._started = 0
        self.failure = ""

    def __len__(self) -> int:
        return len(self._running)

    def resize(self, count: int) -> None:
        """Start or stop threads; one that stops finishes its batch first."""
        while len(self._running) < count:
            stop = threading.Event()
            name = f"{self._role}-{self._started}"
            thread = threading.Thread(
                target=self._guard, args=(self._body(stop),), name=name, daemon=True
            )
            self._started += 1
            thread.start()
            self._running.append((thread, stop))
        while len(self._running) > count:
            thread, stop = self._running.pop()
            stop.set()
            self._leaving.append(thread)
        self._leaving = [thread for thread in self._leaving if thread.is_alive()]

    def join(self, deadline: Deadline) -> bool:
        """Wait until all threads have ended; False if one has not by the deadline."""
        self.resize(0)
        for thread in self._leaving:
            while thread.is_alive() and deadline.left_s() > 0:
                thread.join(min(SLICE_S, deadline.left_s()))
        return not any(thread.is_alive() for thread in self._leaving)

    def _guard(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception:
            self.failure = traceback.format_exc()


class Agents:
    """The agent processes: agent i owns lanes i * E .. (i + 1) * E, whoever plays it.

    One that dies is replaced; where they die again and again, the run fails: see `Deaths`. One
    that is no longer wanted rests until it is: its environments took seconds of a core to make.
    With a cap on memory it ends. Those that play and rest are never more than the most that may
    play.
    """

    def __init__(
        self, config: TrainConfig, frontend: Frontend, token: str, metrics: Metrics
    ) -> None:
        self.started = 0
        """Agents so far: each has seeds of its own."""
        self._played: tuple[Path | None, int] = (None, 0)
        self._config = config
        self._frontend = frontend
        self._token = token
        self._metrics = metrics
        self._launcher = LocalLauncher()
        self._identities: dict[int, str] = {}
        self._retired: list[str] = []  # they rest, or soon will
        self._killed: dict[str, str] = {}  # by us, and why
        self._deaths = Deaths()
        self._due_s: dict[int, float] = {}  # when a dead agent's successor is to start

    def __len__(self) -> int:
        return len(self._identities) + len(self._due_s)

    def play_again(self, actions: Path, steps: int) -> None:
        """In lockstep: the agent plays so many steps of the file `actions` first."""
        self._played = actions, steps

    def play(self) -> bool:
        """Whether every agent has made a step."""
        return not self._due_s and self.begun == len(self)

    @property
    def begun(self) -> int:
        """How many agents have made a step."""
        return sum(self._frontend.has_played(name) for name in self._identities.values())

    def pids(self) -> list[int]:
        """Process ids of the agents: of those that play, then of those that rest."""
        identities = [*self._identities.values(), *self._retired]
        return [self._launcher.pid(identity) for identity in identities]

    def resize(self, count: int) -> None:
        """Start agents, or let the last ones retire after their current step."""
        self._due_s = {index: due_s for index, due_s in self._due_s.items() if index < count}
        for index in range(count):
            if index not in self._identities and index not in self._due_s:
                self._start(index)
        for index in [i for i in self._identities if i >= count]:
            identity = self._identities.pop(index)
            self._retired.append(identity)
            self._frontend.retire(identity)
        capped = self._config.scheduler.max_memory_mb is not None
        may_rest = 0 if capped else max(self._config.service.most.agents - count, 0)
        while len(self._retired) > may_rest:
            self._launcher.end(self._retired.pop(0))

    def tend(self) -> list[str]:
        """Replace the dead; kill those that are silent or send what is refused.

        Returns a line for each death. Raises RunFailed if agents die again and again.
        """
        timeout_s = self._config.service.agent_timeout_s
        for identity in self._frontend.silent(timeout_s):
            self._kill(identity, f"it owed a step for {timeout_s:g} s (agent_timeout_s)")
        for identity, fault in self._frontend.faults().items():
            self._kill(identity, f"its message was refused: {fault}")
        events = [self._bury(ended) for ended in self._launcher.reap()]
        for index in [i for i, due_s in self._due_s.items() if due_s <= time.monotonic()]:
            del self._due_s[index]
            self._start(index)
        return [event for event in events if event]

    def _kill(self, identity: str, why: str) -> None:
        self._killed.setdefault(identity, why)
        self._launcher.kill(identity)

    def _bury(self, ended: Exit) -> str:
        """See to an agent that has ended. Returns a line about it, empty if it is not missed."""
        identity = ended.identity
        why = self._killed.pop(identity, "")
        silent_s = self._config.service.agent_timeout_s if why else 0.0
        from_outside = not why and ended.code in OUTSIDE
        death = Death(self._frontend.has_played(identity), from_outside, silent_s)
        words = self._frontend.forget(identity) or f"{ended.log}\n{why}".strip()
        if identity in self._identities.values():
            return self._replace(ended, words, death)
        if identity in self._retired:
            self._retired.remove(identity)
        return ""

    def stop(self, timeout_s: float) -> None:
        """End every agent process."""
        self._launcher.stop(timeout_s)

    def _replace(self, ended: Exit, words: str, death: Death) -> str:
        index = next(i for i, name in self._identities.items() if name == ended.identity)
        delay_s = self._deaths.delay_s(index, death, self._metrics.total("updates"))
        self._metrics.add(agent_deaths=1)
        name = name_of(ended.identity)
        how = f"was killed by signal {-ended.code}" if ended.code < 0 else f"exited {ended.code}"
        if self._config.service.lockstep:
            raise RunFailed(f"agent {name} {how}: no other can take its turn\n{words}")
        if why := self._deaths.hopeless(index):
            raise RunFailed(f"agent {name} {how}: {why}\n{words}")
        del self._identities[index]
        reason = words.splitlines()[-1] if words else "no last words"
        if delay_s:
            self._due_s[index] = time.monotonic() + delay_s
            return f"agent {name} {how} ({reason}): to be replaced in {delay_s:g} s"
        self._start(index)
        return f"agent {name} {how} ({reason}): replaced by {name_of(self._identities[index])}"

    def _start(self, index: int) -> None:
        config = self._config
        identity = new_identity(f"agent-{index}.{self.started}")
        seeds = np.random.SeedSequence([config.run.seed, index, self.started])
        self.started += 1
        per_agent, groups = config.service.envs_per_agent, config.service.groups
        lanes = np.arange(index * per_agent, (index + 1) * per_agent, dtype=np.int32)
        file, played = self._played
        patience_s = played * per_agent / SLOWEST_STEPS_PER_S
        self._frontend.expect(identity, lanes.reshape(groups, -1), played, patience_s)
        self._identities[index] = identity
        self._deaths.began(index, self._metrics.total("updates"))
        task = Task(
            identity,
            self._frontend.endpoint,
            self._token,
            groups,
            per_agent // groups,
            int(seeds.generate_state(1)[0]),
            config.environment,
            str(file) if file else None,
            played,
        )
        rests = next((name for name in self._retired if not self._frontend.knows(name)), None)
        if rests is None:
            self._launcher.start(task)
        else:
            self._retired.remove(rests)
            self._launcher.start_again(rests, task)
