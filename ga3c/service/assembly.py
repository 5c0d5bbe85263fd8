"""Builds the configured parts. Only this module reads which algorithm is chosen."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from agents.actions import Actions
from agents.environments import Spaces
from agents.games import fault
from ga3c.experience.batches import ACTING_VALUES, Source
from ga3c.experience.book import Book
from ga3c.experience.in_order import InOrder, Shuffled
from ga3c.experience.memory import HOST, Memory
from ga3c.experience.pacing import Free, InTurn, Pacing
from ga3c.experience.replay import RingReplay
from ga3c.experience.replay_book import ReplayBook
from ga3c.experience.replay_pacing import FreeReplay, Ratio, ReplayPacing, TargetPeriod
from ga3c.experience.ring import Experience, RingShape
from ga3c.experience.segments import SegmentBook
from ga3c.experience.slots import SlotReplay
from ga3c.learning.a3c import A3C
from ga3c.learning.algorithm import Algorithm, Preparing, kept_columns
from ga3c.learning.dpg import DPG
from ga3c.learning.dqn import DQN
from ga3c.learning.exploration import greediest_third, ladder
from ga3c.learning.model import Model
from ga3c.learning.own import own_algorithm
from ga3c.learning.ppo import PPO
from ga3c.settings.checks import is_own
from ga3c.settings.train import TrainConfig

ALGORITHMS: dict[str, Callable[[TrainConfig, Actions], Algorithm]] = {
    "a3c": lambda config, actions: A3C(config.a3c, actions),
    "ppo": lambda config, actions: PPO(config.a3c, config.ppo, actions),
    "dqn": lambda config, actions: DQN(
        config.dqn,
        _counted(actions, "dqn"),
        random_steps=config.replay.replay_min_steps,
        ladder=_ladder(config),
        keeps_values=config.replay.has_first_priorities,
    ),
    "dpg": lambda config, actions: DPG(
        config.dpg,
        _continuous(actions, "dpg"),
        keeps_values=config.replay.has_first_priorities,
    ),
}
"""Builds each algorithm from the settings and the environment's actions."""


def _counted(actions: Actions, algorithm: str) -> int:
    """The number of actions. Raises ValueError if they are continuous."""
    if actions.is_continuous:
        raise ValueError(
            f"algorithm {algorithm}: chooses the best of a finite number of actions, but these are "
            f"{actions}; choose --algorithm dpg, a3c or ppo"
        )
    return actions.count


def _continuous(actions: Actions, algorithm: str) -> Actions:
    """The actions. Raises ValueError if there is only a finite number of them."""
    if not actions.is_continuous:
        raise ValueError(
            f"algorithm {algorithm}: needs continuous actions, but these are one of "
            f"{actions}; choose --algorithm dqn, a3c or ppo"
        )
    return actions


def _ladder(config: TrainConfig) -> np.ndarray | None:
    if not config.has_ladder:
        return None
    dqn, agents, envs = config.dqn, config.most_agents, config.service.envs_per_agent
    return ladder(dqn.ladder_base, dqn.ladder_exponent, agents, envs, dqn.ladder_rungs)


def most_scored(config: TrainConfig) -> float:
    """The largest epsilon of an environment whose episodes count for the run's score."""
    epsilons = _ladder(config)
    return math.inf if epsilons is None else greediest_third(epsilons)


def build_algorithm(config: TrainConfig, actions: Actions) -> Algorithm:
    """The algorithm.

    Raises ValueError if it does not support the actions, or is the user's own and cannot be built.
    """
    if config.algorithm in ALGORITHMS:
        return ALGORITHMS[config.algorithm](config, actions)
    return own_algorithm(config.algorithm, actions, config.learning)


def build_pacing(config: TrainConfig) -> ReplayPacing:
    """The pacing of acting and learning when learning draws from a replay."""
    pacing, replay, limit_steps = config.pacing, config.replay, config.run.limit_steps
    if pacing.pacing == "target-period":
        return TargetPeriod(
            pacing.period_steps, pacing.updates_per_period, replay.replay_min_steps, limit_steps
        )
    if pacing.pacing == "free":
        return FreeReplay(
            update_size=replay.update_size,
            min_steps=replay.replay_min_steps,
            target_period=replay.target_period,
            limit_steps=limit_steps,
        )
    return Ratio(
        steps_per_update=pacing.steps_per_update,
        slack_steps=pacing.slack_steps,
        update_size=replay.update_size,
        min_steps=replay.replay_min_steps,
        target_period=replay.target_period,
        limit_steps=limit_steps,
    )


def build_books(config: TrainConfig, stack: int) -> tuple[Book, Pacing]:
    """The host's book about the ring, and the pacing.

    Raises ValueError if no transition would fit the replay.
    """
    service, lanes = config.service, config.max_lanes
    if config.learns_from_replay:
        drawn = build_pacing(config)
        book = ReplayBook(
            lanes=lanes,
            window=config.replay_window(stack),
            reserve=config.replay_reserve,
            n_step=config.replay.n_step,
            stack=stack,
            idle_leave=config.replay.eviction == "fifo",
            on_full=drawn.hurry,
        )
        return book, drawn
    segments = SegmentBook(lanes, service.t_max, service.pending_segments, stack)
    limit_steps = config.run.limit_steps
    if not service.lockstep:
        return segments, Free(limit_steps)
    batch = service.training_batch_max // service.t_max
    return segments, InTurn(limit_steps, batch, segments.settle)


def build_source(
    config: TrainConfig, spaces: Spaces, algorithm: Algorithm, book: Book, memory: Memory
) -> Source:
    """The source that learning draws from, with its ring.

    Raises ValueError if the ring has too many rows, lacks a column that first priorities need, or
    would keep pictures in slots.
    """
    check_eviction(config, spaces)
    ring = RingShape(book.lanes, book.capacity, spaces.shape, spaces.dtype, spaces.stack)
    clip = config.learning.reward_clip
    experience = Experience(ring, kept_columns(algorithm), memory, clip)
    if isinstance(book, SegmentBook):
        return (Shuffled if isinstance(algorithm, Preparing) else InOrder)(experience, book)
    assert isinstance(book, ReplayBook)
    if config.replay.has_first_priorities and not ACTING_VALUES.keys() <= algorithm.columns.keys():
        raise ValueError(
            f"algorithm {config.algorithm} with first_priority acting: must keep the columns q and "
            "value, or no first priority could be computed; choose --first-priority largest"
        )
    source = SlotReplay if config.replay.eviction == "priority" else RingReplay
    return source(experience, book, config.replay, seed=(config.run.seed + 2**30) % 2**31)


def check_eviction(config: TrainConfig, spaces: Spaces) -> None:
    """Raises ValueError if a replay would keep whole transitions of pictures."""
    if config.learns_from_replay and config.replay.eviction == "priority" and spaces.is_picture:
        raise ValueError(
            "eviction priority with pictures: keeps both observations of each transition whole, "
            f"which are {2 * spaces.stack} frames instead of one, and is published for vectors "
            "only; choose --eviction fifo"
        )


def build_model(
    config: TrainConfig,
    spaces: Spaces,
    algorithm: Algorithm,
    source: Source,
    acts_on_target: bool = False,
) -> Model:
    """The model.

    Raises ValueError if the network does not fit the spaces, a target would never be updated or is
    needed but missing, or an algorithm of the user's own fails.
    """
    _check_target(config, algorithm, acts_on_target)
    try:
        return Model(
            algorithm=algorithm,
            network=config.network,
            optimizer=config.scheduled_optimizer,
            source=source,
            is_picture=spaces.is_picture,
            seed=config.run.seed,
            acts_on_target=acts_on_target,
        )
    except Exception as error:
        if not is_own(config.algorithm):
            raise
        raise ValueError(f"algorithm {config.algorithm} failed: {fault(error)}") from error


def _check_target(config: TrainConfig, algorithm: Algorithm, acts_on_target: bool) -> None:
    if algorithm.has_target and not config.learns_from_replay:
        raise ValueError(
            f"algorithm {config.algorithm} has a target network and learns from segments: nothing "
            "would copy weights to it; choose --learns-from replay"
        )
    if acts_on_target and not algorithm.has_target:
        raise ValueError(
            f"algorithm {config.algorithm} has no target network: --pacing target-period would "
            "have none to act with; choose --pacing ratio"
        )


def small_model(config: TrainConfig, spaces: Spaces, memory: Memory = HOST) -> Model:
    """The configured model with room for a few steps of one environment, to be measured alone."""
    algorithm = build_algorithm(config, spaces.actions)
    book: Book
    if config.learns_from_replay:
        n_step = config.replay.n_step
        window = 2 * (n_step + spaces.stack)
        book = ReplayBook(lanes=1, window=window, reserve=1, n_step=n_step, stack=spaces.stack)
        few = replace(config.replay, replay_steps=config.replay.replay_min_steps)
        config = replace(config, replay=few)
    else:
        book = SegmentBook(1, config.service.t_max, 2, spaces.stack)
    return build_model(
        config, spaces, algorithm, build_source(config, spaces, algorithm, book, memory)
    )
