"""Connects the parts from `assembly` with queues, threads and processes into a service."""

import math
import secrets
from collections.abc import Callable

from agents import messages
from agents.environments import Spaces
from agents.launchers import LocalLauncher
from ga3c import backend
from ga3c.experience.book import Book, Segment
from ga3c.experience.memory import DEVICE, HOST
from ga3c.experience.pacing import Pacing
from ga3c.experience.replay import Replay
from ga3c.experience.replay_pacing import ReplayPacing
from ga3c.experience.segments import SegmentBook
from ga3c.learning.model import Model
from ga3c.runs.action_log import ActionLog
from ga3c.runs.kept_config import replay_settings
from ga3c.runs.metrics import Metrics
from ga3c.runs.scratch import ScratchDirectory
from ga3c.runs.tally import Tally
from ga3c.service import footprint
from ga3c.service.agents import Agents
from ga3c.service.assembly import (
    build_algorithm,
    build_books,
    build_model,
    build_source,
    most_scored,
)
from ga3c.service.feeds import Feed, Passes, Progress, ReplayFeed, SegmentFeed
from ga3c.service.predictor import Predictor
from ga3c.service.service import Service
from ga3c.service.state import ACTIONS, Kept
from ga3c.service.threads import Body, Gate
from ga3c.service.trace import Trace
from ga3c.service.trainer import Trainer
from ga3c.settings.train import TrainConfig
from ga3c.wire.doors import listening
from ga3c.wire.frontend import Frontend
from ga3c.wire.launching import build_launcher
from ga3c.wire.queues import BatchQueue
from ga3c.wire.requests import Request
from ga3c.wire.sockets import endpoint_in


def build_service(
    config: TrainConfig,
    spaces: Spaces,
    model: Model | None = None,
    tell: Callable[[str], None] = lambda line: None,
    launcher: LocalLauncher | None = None,
) -> Service:
    """A service that is not yet started.

    Args:
        model: replaces the configured model.
        tell: called with a line about each part before it is built.
        launcher: for this machine's agents, some of which may already be prepared.

    Raises ValueError if the settings do not fit the environment or the machine.
    """
    service = config.service
    groups, envs_per_group = service.groups, service.envs_per_group
    messages.check_sizes(spaces.shape, spaces.dtype, spaces.actions, groups, envs_per_group)
    algorithm = build_algorithm(config, spaces.actions)
    if model is None:
        planned = footprint.plan(config, spaces, algorithm)
        if config.learns_from_replay:
            tell(f"replay of {config.replay_room:,} steps, {planned}")
    book, pacing = build_books(config, spaces.stack)
    if model is None:
        compiles = ", which compiles each new batch size: the first minute is slow"
        on_the_way = compiles if backend.FRAMEWORK == "jax" else ""
        tell(f"building the network with {backend.FRAMEWORK}{on_the_way}")
        memory = DEVICE if service.experience == "device" else HOST
        source = build_source(config, spaces, algorithm, book, memory)
        model = build_model(config, spaces, algorithm, source, pacing.acts_on_target)
    common = _Common(config, spaces, book, LocalLauncher() if launcher is None else launcher)
    built = _service(config, spaces, model, pacing, common)
    if listens := built.frontend.listening:
        address = listens.endpoint
        tell(f"other machines may play: ga3c agents --connect {address} (with the real address)")
    return built


class _Common:
    """What several threads share."""

    def __init__(self, config: TrainConfig, spaces: Spaces, book: Book, own: LocalLauncher) -> None:
        service, self.book, self.launcher = config.service, book, own
        self.metrics, self.gate = Metrics(), Gate()
        self.tally = Tally(most_scored=most_scored(config), info_keys=spaces.info_keys)
        self.trace = Trace() if config.run.trace else None
        self.token = secrets.token_hex(16)
        self.requests: BatchQueue[Request] = BatchQueue(
            config.max_lanes,
            service.prediction_min,
            service.largest_prediction(config.max_lanes),
            math.inf if service.synchronized else service.prediction_wait_s,
        )
        self.segments: BatchQueue[Segment] = BatchQueue(
            service.training_queue,
            service.training_min,
            service.training_batch_max,
            math.inf if service.lockstep else service.training_wait_s,
        )
        self.scratch = ScratchDirectory()  # last: nothing after it can fail
        self.actions: ActionLog | None = None
        if service.lockstep:
            self.actions = ActionLog(self.scratch.path / ACTIONS, spaces.actions)


def _service(
    config: TrainConfig, spaces: Spaces, model: Model, pacing: Pacing, common: _Common
) -> Service:
    service = config.service
    schedule_steps = config.scheduled_optimizer.schedule_steps or math.inf

    def progress() -> float:
        return pacing.schedule_steps / schedule_steps

    feed = _feed(config, common, model, pacing, progress)
    if config.learns_from_replay:
        common.metrics.set(replay_steps=0.0)
    frontend = _frontend(config, spaces, common)
    agents = _agents(config, frontend, common, model)
    saves_replay = config.learns_from_replay and config.replay.save_replay
    return Service(
        config=service,
        progress=progress,
        max_refused_updates=config.learning.max_refused_updates,
        model=model,
        pacing=pacing,
        requests=common.requests,
        segments=common.segments,
        feed=feed,
        frontend=frontend,
        agents=agents,
        metrics=common.metrics,
        tally=common.tally,
        kept=Kept(
            model=model,
            pacing=pacing,
            tally=common.tally,
            metrics=common.metrics,
            agents=agents,
            segments=common.segments,
            gate=common.gate,
            actions=common.actions,
            envs_per_agent=service.envs_per_agent,
            replay_settings=replay_settings(config) if saves_replay else None,
        ),
        trace=common.trace,
        scratch=common.scratch,
        predictor=_predictor(config, common, model, pacing, frontend),
        trainer=_trainer(feed, common),
    )


def _feed(
    config: TrainConfig, common: _Common, model: Model, pacing: Pacing, progress: Progress
) -> Feed:
    """The feed of work for the trainers."""
    book = common.book
    if isinstance(book, SegmentBook):
        return SegmentFeed(
            segments=common.segments,
            book=book,
            model=model,
            progress=progress,
            passes=Passes(config.service.passes, config.service.minibatch, config.run.seed),
            whole_batches=config.service.lockstep,  # a checkpoint holds whole batches
        )
    assert isinstance(pacing, ReplayPacing) and isinstance(model.source, Replay)
    return ReplayFeed(
        pacing=pacing,
        replay=model.source,
        model=model,
        progress=progress,
        batch_size=config.replay.batch_size,
    )


def _frontend(config: TrainConfig, spaces: Spaces, common: _Common) -> Frontend:
    service = config.service
    # With ipc, libzmq aborts if file descriptors run out, and strangers can use them all up.
    transport = "tcp" if config.hosts.others_may_play else service.transport
    try:
        return Frontend(
            endpoint=endpoint_in(common.scratch.path, transport),
            token=common.token,
            spaces=spaces,
            groups=service.groups,
            envs_per_group=service.envs_per_group,
            requests=common.requests,
            metrics=common.metrics,
            on_step=common.trace.stepped if common.trace else None,
            listening=listening(config.hosts),
        )
    except Exception:
        common.scratch.remove()
        raise


def _agents(config: TrainConfig, frontend: Frontend, common: _Common, model: Model) -> Agents:
    return Agents(
        service=config.service,
        environment=config.environment,
        seed=config.run.seed if config.seeds_games else None,
        may_rest=config.scheduler.max_memory_mb is None,
        frontend=frontend,
        token=common.token,
        metrics=common.metrics,
        launcher=build_launcher(config.hosts, config.environment.game, frontend, common.launcher),
        updates=lambda: model.updates,
    )


def _predictor(
    config: TrainConfig, common: _Common, model: Model, pacing: Pacing, frontend: Frontend
) -> Body:
    return lambda stop: (
        Predictor(
            requests=common.requests,
            segments=common.segments,
            book=common.book,
            pacing=pacing,
            model=model,
            frontend=frontend,
            metrics=common.metrics,
            tally=common.tally,
            discount=config.learning.discount,
            gate=common.gate,
            actions=common.actions,
            synchronized=config.service.synchronized,
            trace=common.trace,
            stop=stop,
        ).run
    )


def _trainer(feed: Feed, common: _Common) -> Body:
    gate, metrics, trace = common.gate, common.metrics, common.trace
    return lambda stop: Trainer(feed=feed, gate=gate, metrics=metrics, trace=trace, stop=stop).run
