"""How many of a replay's draws are fresh, never drawn before, by first priority and by ratio.

A real network plays a real game in this process, step by step, with the configured number of steps
between updates, and the rows of every draw are tracked.
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from agents.environments import EnvironmentConfig, Environments
from ga3c.experience.memory import HOST
from ga3c.experience.ring import Arrivals, outcome_rows
from ga3c.service.assembly import (
    build_algorithm,
    build_books,
    build_model,
    build_pacing,
    build_source,
)
from ga3c.settings.presets import PRESETS
from ga3c.settings.train import TrainConfig

FirstPriority = Literal["largest", "acting"]
LANES = 64
BATCH = 512
PRIORITIES: tuple[FirstPriority, ...] = ("largest", "acting")
RATIOS = (658.0, 164.0, 41.0, 14.6)  # steps per update; the first is Ape-X's


class Watched:
    """A source of batches that counts how many rows are drawn for the first time."""

    def __init__(self, source: Any) -> None:
        self._source = source
        ring = source.experience.ring
        self.was_drawn = np.zeros(ring.lanes * ring.capacity, np.bool_)
        self.fresh = self.drawn = 0  # draws so far

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def draw(self, *inputs: Any) -> Any:
        """A batch from the watched source."""
        batch = self._source.draw(*inputs)
        rows = np.asarray(batch.rows)
        self.fresh += int((~self.was_drawn[np.unique(rows)]).sum())
        self.drawn += len(rows)
        self.was_drawn[rows] = True
        return batch


def shares(game: str, steps: int, seed: int) -> list[dict[str, Any]]:
    """The share of fresh draws, for each ratio and first priority.

    Args: steps: environment steps behind each figure.
    """
    return [
        {"steps_per_update": ratio, **{p: share(game, ratio, p, steps, seed) for p in PRIORITIES}}
        for ratio in RATIOS
    ]


def share(game: str, ratio: float, first: FirstPriority, steps: int, seed: int) -> float:
    """The share of fresh draws in the second half of `steps` steps."""
    config = _configured(game, ratio, first, seed)
    environments = Environments(config.environment, LANES)
    try:
        return _played(config, environments, steps)
    finally:
        environments.close()


def _played(config: TrainConfig, environments: Environments, steps: int) -> float:
    spaces = environments.spaces
    algorithm = build_algorithm(config, spaces.actions)
    (book, _), pacing = build_books(config, spaces.stack), build_pacing(config)
    source: Any = Watched(build_source(config, spaces, algorithm, book, HOST))
    model = build_model(config, spaces, algorithm, source)
    lanes, ring = np.arange(LANES, dtype=np.int32), source.experience.ring
    step = environments.reset(config.run.seed)
    updates, before = 0, (0, 0)
    for made in range(0, steps, LANES):
        firsts = step.firsts
        slots, ages = book.advance(lanes, firsts, model.updates)
        source.was_drawn[ring.rows(lanes, slots)] = False
        outcomes = outcome_rows(step.outcomes, config.learning.discount)
        exploration = model.exploration(lanes, made)
        arrivals = Arrivals(lanes, slots, ages, outcomes, step.frames, exploration)
        step = environments.step(model.act(arrivals))
        book.complete(lanes)
        if made % config.replay.update_size < LANES:
            source.flush()
        if made < config.replay.replay_min_steps:
            continue
        while updates * config.pacing.steps_per_update < made - config.replay.replay_min_steps:
            model.learn(progress=0.0)
            updates += 1
            if pacing.copies_target(updates):
                model.copy_target()
        if made < steps // 2:
            before = source.fresh, source.drawn
    return float((source.fresh - before[0]) / (source.drawn - before[1]))


def _configured(game: str, ratio: float, first: FirstPriority, seed: int) -> TrainConfig:
    config = PRESETS["dqn-vectors"]
    return replace(
        config,
        environment=EnvironmentConfig(game=game),
        service=replace(
            config.service, agents=1, max_agents=1, envs_per_agent=LANES, experience="host"
        ),
        dqn=replace(config.dqn, dueling=True, exploration="ladder"),
        replay=replace(
            config.replay,
            n_step=3,
            batch_size=BATCH,
            replay_draws="prioritised",
            first_priority=first,
            importance_exponent_end=0.4,
            update_size=LANES * 4,
        ),
        pacing=replace(config.pacing, steps_per_update=ratio, slack_steps=4 * 658),
        run=replace(config.run, seed=seed),
    )
