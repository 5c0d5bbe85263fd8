"""Starts the parts, changes their numbers while they run, watches them, and ends them in order.

A stop first closes the queues, so that predictors and trainers end; then it ends the frontend, and
then the agents' processes. Every wait has a limit.
"""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass

from ga3c.experience.book import Segment
from ga3c.experience.pacing import Pacing
from ga3c.learning.model import Model
from ga3c.runs.metrics import Metrics, Snapshot, cpu_s_of_others, families, resident_mb
from ga3c.runs.scratch import ScratchDirectory
from ga3c.runs.tally import Tally
from ga3c.service.agents import Agents
from ga3c.service.feeds import Feed
from ga3c.service.state import Kept
from ga3c.service.threads import REMEDIES, SLICE_S, Body, Deadline, RunFailed, Workers
from ga3c.service.trace import Trace
from ga3c.settings.machine import CORES
from ga3c.settings.scheduler import Counts
from ga3c.settings.service import ServiceConfig
from ga3c.wire.frontend import Frontend
from ga3c.wire.queues import BatchQueue
from ga3c.wire.requests import Request

STOP_TIMEOUT_S = 8.0
"""How long a command waits for a service to end."""
AGENTS_END_S = 2.0  # an agent still alive this long after its input ended is considered frozen


@dataclass(eq=False)
class Service:
    """A run's threads and processes. Only the main thread makes, resizes, tends and stops it.

    `wiring.build_service` puts its parts together.
    """

    config: ServiceConfig
    progress: Callable[[], float]
    """Position in the schedules: 0 at the start, 1 at their end, more than 1 beyond."""
    max_refused_updates: int
    model: Model
    pacing: Pacing
    requests: BatchQueue[Request]
    segments: BatchQueue[Segment]
    feed: Feed
    frontend: Frontend
    agents: Agents
    metrics: Metrics
    tally: Tally
    kept: Kept
    trace: Trace | None
    scratch: ScratchDirectory
    predictor: Body
    trainer: Body

    def __post_init__(self) -> None:
        self._predictors = Workers("predictor", self.predictor)
        self._trainers = Workers("trainer", self.trainer)
        self._stuck: list[str] | None = None  # names of what did not end; None until `stop`

    @property
    def counts(self) -> Counts:
        """The numbers of agents, predictors and trainers."""
        return Counts(len(self.agents), len(self._predictors), len(self._trainers))

    def snapshot(self) -> Snapshot:
        """The counters now."""
        return self.metrics.snapshot()

    def plays(self) -> bool:
        """Whether every agent has made a step."""
        return self.agents.plays()

    def memory_mb(self) -> list[float]:
        """Resident memory of this process and of each agent with its simulators, in MiB."""
        return [sum(map(resident_mb, pids)) for pids in self._families()]

    def foreign_cpu_s(self) -> float:
        """CPU seconds of other programs divided by the number of cores. Only differences count."""
        return cpu_s_of_others(itertools.chain(*self._families())) / CORES

    def stopped_s(self) -> float:
        """Seconds for which this process was stopped, as by Ctrl-Z. Only differences count."""
        return self.frontend.peers.stops.total_s()

    def _families(self) -> list[list[int]]:
        """The process ids of the service, and of each agent and what its environments started."""
        return [[os.getpid()], *families(self.agents.pids()).values()]

    def start(self, counts: Counts | None = None) -> None:
        """Start with `counts`, or with the configured counts."""
        self.frontend.start()
        self.resize(self.config.counts if counts is None else counts)

    def resize(self, counts: Counts) -> None:
        """Change the counts while running."""
        self._trainers.resize(counts.trainers)
        self._predictors.resize(counts.predictors)
        self.agents.resize(counts.agents)

    def waits(self) -> str:
        """For a run that makes no progress: which part waits for which, and what to change."""
        config, begun, unanswered = self.config, self.agents.begun, self.frontend.unanswered
        if begun < len(self.agents):
            return (
                f"{begun} of {len(self.agents)} agents have made a step; the others create their "
                f"{config.envs_per_agent} environments, are being replaced or wait for a host"
            )
        if not unanswered:
            return (
                "every observation has been answered, but no agent sends its next step: an "
                "environment may hang; its agent is replaced after --agent-timeout-s "
                f"{config.agent_timeout_s:g}"
            )
        if config.synchronized and 0 < self.requests.size < config.prediction_min:
            return (
                f"the predictor waits for all {config.prediction_min} observations and has only "
                f"{self.requests.size}: an agent's environments may hang"
            )
        waits = self.feed.waits()
        return f"{unanswered} observations await actions until learning catches up; {waits}"

    def tend(self) -> list[str]:
        """Replace dead agents and check the threads. Returns a line for each event.

        Raises RunFailed if a thread has failed, if agents die repeatedly, or if too many updates in
        a row were not finite.
        """
        refused = self.model.refused_in_a_row
        if refused >= self.max_refused_updates:
            raise RunFailed(
                f"{refused} updates in a row were left out, because their loss or gradient was not "
                f"finite: nothing more would be learned; {REMEDIES}"
            )
        if failure := self._predictors.failure or self._trainers.failure:
            raise RunFailed(failure)
        if not self.frontend.alive:
            raise RunFailed(f"the frontend thread has ended\n{self.frontend.failure}")
        return self.agents.tend()

    def stop(
        self, timeout_s: float, hurry: Callable[[], bool] = lambda: False, threads_s: float = 0.0
    ) -> list[str]:
        """End everything within about `timeout_s`, or at once when `hurry` says so.

        Before that, wait up to `threads_s` for the predictions and updates in progress.

        Returns the names of the parts that did not end. A second call only returns them again.
        """
        if self._stuck is not None:
            return self._stuck
        self.agents.dismiss()  # the frontend ends once the queues are closed
        self.requests.close()
        self.segments.close()
        finish = Deadline(threads_s, hurry)
        for workers in (self._trainers, self._predictors):
            workers.join(finish)
        deadline = Deadline(timeout_s, hurry)
        stuck = [
            role
            for role, workers in (("predictors", self._predictors), ("trainers", self._trainers))
            if not workers.join(deadline)
        ]
        if not self.frontend.stop(max(SLICE_S, deadline.left_s())):
            stuck.append("frontend")
        self.agents.stop(min(AGENTS_END_S, max(SLICE_S, deadline.left_s())))
        self.scratch.remove()
        self._stuck = stuck
        return stuck
