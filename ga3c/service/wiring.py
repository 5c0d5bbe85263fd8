"""Connects the parts from `assembly` with queues, threads and processes into a service."""

import math
import secrets
import threading
from collections.abc import Callable

from agents import messages
from agents.environments import Spaces
from agents.launchers import LocalLauncher
from ga3c.experience.book import Book, Segment
from ga3c.experience.memory import DEVICE, HOST
from ga3c.experience.pacing import Pacing
from ga3c.learning.model import Model
from ga3c.runs.metrics import Metrics
from ga3c.runs.scratch import ScratchDirectory
from ga3c.runs.tally import Tally
from ga3c.service.action_log import ActionLog
from ga3c.service.agents import Agents
from ga3c.service.assembly import (
    build_algorithm,
    build_books,
    build_feed,
    build_model,
    build_source,
    plan,
)
from ga3c.service.predictor import Predictor
from ga3c.service.service import Parts, Service
from ga3c.service.state import ACTIONS, Kept
from ga3c.service.threads import Gate
from ga3c.service.trace import Trace
from ga3c.service.trainer import Trainer
from ga3c.settings.train import TrainConfig
from ga3c.wire.frontend import Frontend
from ga3c.wire.queues import BatchQueue
from ga3c.wire.requests import Request
from ga3c.wire.sockets import endpoint_in


def build_service(
    config: TrainConfig,
    spaces: Spaces,
    model: Model | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Service:
    """A service that is not yet started.

    Args:
        model: replaces the configured model.
        tell: called with a line about a replay's memory, before any is allocated.

    Raises ValueError if the settings do not fit the environment or the machine.
    """
    service = config.service
    groups, envs_per_group = service.groups, service.envs_per_agent // service.groups
    messages.check_sizes(spaces.shape, spaces.dtype, spaces.num_actions, groups, envs_per_group)
    algorithm = build_algorithm(config, spaces.num_actions)
    if model is None:
        planned = plan(config, spaces, algorithm)
        if config.learns_from_replay:
            steps = config.max_lanes * config.replay_window
            tell(f"replay of {steps:,} steps, {planned}")
    book, pacing = build_books(config, spaces.stack)
    if model is None:
        memory = DEVICE if service.experience == "device" else HOST
        source = build_source(config, spaces, algorithm, book, memory)
        model = build_model(config, spaces, algorithm, source, pacing.acts_on_target)
    return Service(_parts(config, spaces, model, book, pacing))


def _parts(config: TrainConfig, spaces: Spaces, model: Model, book: Book, pacing: Pacing) -> Parts:
    service = config.service
    metrics, tally, gate, scratch = Metrics(), Tally(), Gate(), ScratchDirectory()
    trace = Trace() if config.run.trace else None
    actions = ActionLog(scratch.path / ACTIONS) if service.lockstep else None
    requests: BatchQueue[Request] = BatchQueue(
        max(config.max_lanes, service.prediction_max),
        service.prediction_min,
        service.prediction_max,
        math.inf if service.synchronized else service.prediction_wait_s,
    )
    segments: BatchQueue[Segment] = BatchQueue(
        service.training_queue,
        service.training_batch_min,
        service.training_batch_max,
        math.inf if service.lockstep else service.training_wait_s,
    )
    schedule_steps = config.scheduled_optimizer.schedule_steps or math.inf
    feed = build_feed(
        config, model, book, pacing, segments, lambda: pacing.schedule_steps / schedule_steps
    )
    token = secrets.token_hex(16)
    try:
        frontend = Frontend(
            endpoint_in(scratch.path, service.transport),
            token,
            spaces,
            service.groups,
            service.envs_per_agent // service.groups,
            requests,
            metrics,
            trace.stepped if trace else None,
        )
    except Exception:
        scratch.remove()
        raise
    agents = Agents(
        service=service,
        environment=config.environment,
        seed=config.run.seed,
        may_rest=config.scheduler.max_memory_mb is None,
        frontend=frontend,
        token=token,
        metrics=metrics,
        launcher=LocalLauncher(),
        updates=lambda: model.updates,
    )

    def predictor(stop: threading.Event) -> Callable[[], None]:
        return Predictor(
            requests=requests,
            segments=segments,
            book=book,
            pacing=pacing,
            model=model,
            frontend=frontend,
            metrics=metrics,
            tally=tally,
            discount=config.learning.discount,
            gate=gate,
            actions=actions,
            trace=trace,
            stop=stop,
        ).run

    def trainer(stop: threading.Event) -> Callable[[], None]:
        return Trainer(feed=feed, gate=gate, metrics=metrics, trace=trace, stop=stop).run

    return Parts(
        config=service,
        schedule_steps=schedule_steps,
        max_refused_updates=config.learning.max_refused_updates,
        model=model,
        pacing=pacing,
        requests=requests,
        segments=segments,
        feed=feed,
        frontend=frontend,
        agents=agents,
        metrics=metrics,
        tally=tally,
        kept=Kept(
            model=model,
            pacing=pacing,
            tally=tally,
            metrics=metrics,
            agents=agents,
            segments=segments,
            gate=gate,
            actions=actions,
            envs_per_agent=service.envs_per_agent,
            keeps_replay=config.learns_from_replay and config.replay.save_replay,
        ),
        trace=trace,
        scratch=scratch,
        predictor=predictor,
        trainer=trainer,
    )
