"""Puts a configured system together: the only reader of which algorithm and pacing are chosen."""

from functools import partial

from agents.environments import Spaces
from ga3c.experience.pacing import Pacing, Ratio, TargetPeriod
from ga3c.experience.replay import InOrder, Replay, Source
from ga3c.experience.ring import Experience, RingShape
from ga3c.experience.segments import Lanes
from ga3c.experience.window import ReplayLanes
from ga3c.learning.a3c import A3C
from ga3c.learning.algorithm import Algorithm
from ga3c.learning.dqn import DQN
from ga3c.learning.model import Model
from ga3c.settings.train import TrainConfig


def build_algorithm(config: TrainConfig, num_actions: int) -> Algorithm:
    """What is learned."""
    clip = config.learning.reward_clip
    if config.algorithm == "dqn":
        return DQN(config.dqn, num_actions, clip, config.replay.replay_min_steps)
    return A3C(config.a3c, num_actions, clip)


def build_source(config: TrainConfig, experience: Experience) -> Source:
    """What learning draws from the ring."""
    if not config.learns_from_replay:
        return InOrder(experience, config.a3c.t_max)
    dqn = config.dqn
    return Replay(experience, config.replay, dqn.n_step, dqn.batch_size, config.run.seed)


def build_pacing(config: TrainConfig) -> Pacing | None:
    """Who waits for whom where learning draws from a replay; None where it does not."""
    if not config.learns_from_replay:
        return None
    wanted, min_steps = config.pacing, config.replay.replay_min_steps
    limit = float("inf") if config.run.steps is None else config.run.steps
    if wanted.pacing == "target-period":
        return TargetPeriod(wanted.period_steps, wanted.updates_per_period, min_steps, limit)
    return Ratio(
        wanted.steps_per_update,
        wanted.slack_steps,
        config.service.prediction_max,
        config.replay.update_size,
        min_steps,
        limit,
    )


def build_book(config: TrainConfig, stack: int, pacing: Pacing | None) -> Lanes | ReplayLanes:
    """The host's book about the ring: which slot of a lane comes next.

    Raises ValueError if no transition would fit the replay.
    """
    lanes = config.max_lanes
    if pacing is None:
        return Lanes(lanes, config.a3c.t_max, config.service.pending_segments, stack)
    reserve, n_step = config.replay_reserve, config.dqn.n_step
    return ReplayLanes(lanes, config.replay_window, reserve, n_step, stack, pacing)


def build_model(config: TrainConfig, spaces: Spaces, ring: RingShape, on_device: bool) -> Model:
    """The model, with its experience. Raises ValueError if the network does not fit the spaces."""
    return Model(
        build_algorithm(config, spaces.num_actions),
        config.network,
        config.scheduled_optimizer,
        spaces,
        ring,
        on_device,
        config.run.seed,
        partial(build_source, config),
        acts_on_target=config.learns_from_replay and config.pacing.pacing == "target-period",
    )
