"""`ga3c evaluate`: whole games by a protocol whose every setting is named, many at once.

A score without its protocol says little (Machado et al. 2018), so each is kept with it, and scores
of different protocols are never put into one column.
"""

import json
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tyro

from agents.environments import EnvironmentConfig, Environments, spaces
from agents.games import check
from ga3c import backend, checkpoints, records
from ga3c.checkpoints import Checkpoint
from ga3c.checks import check_count
from ga3c.config import CORES, STEP_CAP, ProtocolName, TrainConfig, WrongInput, check_seed
from ga3c.machine import machine
from ga3c.policy import Policy, Stacks
from ga3c.presets import given_value
from ga3c.runs import EVALUATIONS, find_run, load_config, newest_run

BEST = "best"
PROGRESS_S = 5.0


@dataclass(frozen=True)
class Protocol:
    """How evaluation games are played. All but policy and step_cap concern Atari games only."""

    policy: Literal["sample", "greedy", "epsilon"] = "sample"
    """sample draws actions from the policy, greedy takes the likeliest, epsilon does that but for
    a share of actions drawn evenly."""
    epsilon: float = 0.05
    """That share."""
    noop_max: int = 0
    """A game begins after fewer than this many idle emulator frames."""
    sticky_actions: float = 0.0
    """Probability a frame of repeating the last action."""
    frame_cap: int = 108_000
    """Emulator frames after which a game is cut short."""
    step_cap: int = STEP_CAP
    """Environment steps after which any game is cut short: it counts with its score so far."""

    def __post_init__(self) -> None:
        self.environment(EnvironmentConfig())  # which has the rules of what it takes
        check_count(self, "step_cap")
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon {self.epsilon}: must be in [0, 1]: it is a share")

    def environment(self, trained: EnvironmentConfig) -> EnvironmentConfig:
        """As `trained` on, played by this protocol: a lost life does not end a game."""
        return replace(
            trained,
            noop_max=self.noop_max,
            sticky_actions=self.sticky_actions,
            frame_cap=self.frame_cap,
            life_loss_terminates=False,
        )

    def named(self, name: str, trained: EnvironmentConfig, weights: str) -> dict[str, Any]:
        """Every setting, with the name if none of them was changed.

        Args: weights: newest, best or chosen: the best of several evaluations is no average one.
        """
        actions = "full" if trained.full_action_space else "minimal"
        fixed: dict[str, Any] = {"life_loss_ends": False, "fire_on_reset": trained.fire_on_reset}
        fixed |= {"action_set": actions, "action_repeat": trained.action_repeat}
        if check(trained.game).is_atari:
            kept = {**asdict(self), **fixed}
        else:
            kept = {"policy": self.policy}
        if self.policy != "epsilon":
            kept.pop("epsilon", None)
        kept.pop("step_cap", None)  # it comes last, as in `runs.evaluations`
        known = name if PROTOCOLS[name] == self else f"{name}, changed"
        return {"name": known, "weights": weights, **kept, "step_cap": self.step_cap}


PROTOCOLS = {
    # GA3C: 30 games, own seeds, sticky actions of that date's gym, 100,000 steps; a few no-ops
    # (unverified: its code filled the first stack with them)
    "paper": Protocol("sample", noop_max=17, sticky_actions=0.25, frame_cap=400_000),
    # Mnih et al. 2015: up to 30 no-ops, epsilon 0.05, five minutes a game
    "nature": Protocol("epsilon", epsilon=0.05, noop_max=31, frame_cap=18_000),
    # Machado et al. 2018: sticky actions are the only randomness of the game
    "machado": Protocol("sample", sticky_actions=0.25, frame_cap=18_000),
}


@dataclass(frozen=True)
class LearnedConfig:
    """Which run's weights are meant."""

    run: tyro.conf.Positional[Path | None] = None
    """The run: its directory, or its name in runs/; without one, the newest of --game."""
    game: str = "Pong"
    """Whose newest run it is, where none is given."""
    checkpoint: str = "newest"
    """newest, best (by --evaluate-every) or a checkpoint's number of steps."""


@dataclass(frozen=True)
class PlayedConfig(LearnedConfig):
    """How games are played with them."""

    protocol: ProtocolName = "paper"
    """paper is GA3C's, nature Mnih et al. 2015, machado Machado et al. 2018; every setting below
    changes it."""
    seed: int = 0
    """Seed of games and of actions."""
    settings: Protocol = PROTOCOLS["paper"]

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @classmethod
    def defaults(cls, arguments: list[str]) -> "PlayedConfig":
        """What --protocol, if it is given, makes of all other defaults."""
        given = given_value(arguments, "--protocol")
        known: Any = given if given in PROTOCOLS else "paper"
        return cls(protocol=known, settings=PROTOCOLS[known])


@dataclass(frozen=True)
class Config(PlayedConfig):
    """Play whole games with what a run has learned, and keep the scores with their protocol."""

    episodes: int = 30
    """Games, each with a seed of its own."""
    at_once: int = 30
    """Games played side by side."""
    json: bool = False
    """Print the result as one JSON object in the last line."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("episodes", "at_once"):
            check_count(self, name)


class Game(NamedTuple):
    """One game that was played to its end, or to the protocol's cap."""

    score: float
    length: int  # in steps
    cut: bool  # by the protocol's step_cap


def evaluate(
    policy: Policy,
    environment: EnvironmentConfig,
    protocol: Protocol,
    episodes: int,
    at_once: int,
    seed: int,
    threads: int = 1,
    on_game: Callable[[Game], None] = lambda game: None,
    stop: threading.Event | None = None,
) -> list[Game]:
    """`episodes` whole games, `at_once` side by side; fewer once stopped.

    Each lane plays one game: first come would favour short ones. Seed and number alone say which
    game that is, and not how many are played beside it.
    """
    games: list[Game] = []
    for first in range(0, episodes, at_once):
        lanes = min(at_once, episodes - first)
        environments = Environments(protocol.environment(environment), lanes, threads)
        try:
            games += _round(policy, protocol, environments, seed, first, on_game, stop)
        finally:
            environments.close()
    return games


def _round(
    policy: Policy,
    protocol: Protocol,
    environments: Environments,
    seed: int,
    first: int,
    on_game: Callable[[Game], None],
    stop: threading.Event | None,
) -> list[Game]:
    """Game number `first` in the first lane, and so on. Raises RuntimeError if a score is none."""
    lanes = environments.num_envs
    draws = ActionDraws(seed, first, lanes)
    stacks = Stacks(environments.spaces, lanes)
    games: dict[int, Game] = {}
    scores = np.zeros(lanes, np.float32)  # so far
    step = environments.reset(seed, first)
    for length in range(protocol.step_cap + 1):  # the reset is no step
        scores += step.outcomes["reward"]
        is_cut = length == protocol.step_cap
        for lane in np.flatnonzero(step.outcomes["finished"] | is_cut).tolist():
            if lane not in games:
                outcome = step.outcomes[lane]
                ended = bool(outcome["finished"])
                score = float(outcome["episode_return"] if ended else scores[lane])
                if not math.isfinite(score):
                    raise RuntimeError(
                        f"score {score} of a game: its environment's rewards must "
                        "be finite, or nothing could be compared with it"
                    )
                games[lane] = Game(score, length, cut=not ended)
                on_game(games[lane])
        if len(games) == lanes or (stop and stop.is_set()):
            break
        observations = stacks.push(step.frames, step.outcomes["first"] == 1)
        probabilities, _ = policy.judge(observations)
        step = environments.step(choose(protocol, probabilities, draws.next()))
    return [games[lane] for lane in sorted(games)]


class ActionDraws:
    """Random numbers for the actions of games that are played side by side, each with its own."""

    def __init__(self, seed: int, first: int, lanes: int) -> None:
        """Those of the seed's games number `first` and on."""
        self._random = [np.random.default_rng([seed, first + lane]) for lane in range(lanes)]

    def next(self) -> np.ndarray:
        """[n, 2] in [0, 1), for one action of each game."""
        return np.array([random.random(2) for random in self._random])


def choose(protocol: Protocol, probabilities: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Actions int32 [n] by the protocol's policy, from probabilities [n, actions].

    Args: draws: [n, 2], evenly drawn from [0, 1).
    """
    actions = probabilities.shape[1]
    if protocol.policy == "sample":
        drawn = draws[:, :1] * probabilities.sum(axis=1, keepdims=True)
        below = np.cumsum(probabilities, axis=1) <= drawn
        return np.minimum(below.sum(axis=1), actions - 1).astype(np.int32)
    likeliest = probabilities.argmax(axis=1)
    if protocol.policy == "epsilon":
        even = (draws[:, 1] * actions).astype(np.int32)
        likeliest = np.where(draws[:, 0] < protocol.epsilon, even, likeliest)
    return likeliest.astype(np.int32)


def load(wanted: LearnedConfig) -> tuple[TrainConfig, Path, Checkpoint]:
    """The settings, the place and the checkpoint of the run that is wanted.

    Raises WrongInput or RuntimeError.
    """
    try:
        path = newest_run(wanted.game) if wanted.run is None else find_run(wanted.run)
        config = load_config(path)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    directory, checkpoint = path / "checkpoints", wanted.checkpoint
    if checkpoint == "newest":
        found, damaged = checkpoints.newest(directory)
        for each in damaged:
            print(f"ga3c: damaged, so the one before it is used: {each}", file=sys.stderr)
        if found is None:
            raise RuntimeError(f"run {path} has no whole checkpoint")
        return config, path, found
    best = checkpoints.kept(path / BEST)[-1:]
    chosen = best[0] if best and checkpoint == BEST else directory / checkpoint.zfill(12)
    if not chosen.is_dir():
        steps = ", ".join(str(int(each.name)) for each in checkpoints.kept(directory))
        raise WrongInput(
            f"checkpoint {checkpoint}: the run has newest, {steps}, or best if it was evaluated"
        )
    try:
        return config, path, checkpoints.read(chosen)
    except checkpoints.Damaged as error:
        raise RuntimeError(str(error)) from error


def policy_of(config: TrainConfig, checkpoint: Checkpoint) -> Policy:
    """The network with the checkpoint's weights. Raises WrongInput if they do not fit."""
    try:
        policy = Policy(config, spaces(config.environment))
        policy.load(checkpoint.arrays)
    except ValueError as error:
        raise WrongInput(str(error)) from error
    return policy


def record(
    games: list[Game],
    steps: int,
    protocol: Mapping[str, Any],
    seed: int,
    at_once: int,
    seconds: float,
) -> dict[str, Any]:
    """One line of evaluations.jsonl."""
    scores = [game.score for game in games]
    return {
        "steps": steps,
        "protocol": dict(protocol),
        "episodes": len(games),
        "mean": statistics.mean(scores),
        "deviation": statistics.stdev(scores) if len(scores) > 1 else None,
        "median": statistics.median(scores),
        "scores": scores,
        "lengths": [game.length for game in games],
        "games_cut": sum(game.cut for game in games),  # by the protocol's step_cap
        "seed": seed,
        "at_once": at_once,
        "seconds": round(seconds, 2),
    }


def run(config: Config) -> None:
    """Evaluate, tell, keep. Raises WrongInput or RuntimeError."""
    trained, path, checkpoint = load(config)
    if not os.access(path, os.W_OK):
        raise WrongInput(f"run {path} cannot be written to: the scores would be lost")
    backend.configure(CORES, config.seed)
    policy = policy_of(trained, checkpoint)
    weights = config.checkpoint if config.checkpoint in ("newest", BEST) else "chosen"
    protocol = config.settings.named(config.protocol, trained.environment, weights)
    steps = int(checkpoint.state["steps"])
    settings = ", ".join(f"{name} {value}" for name, value in protocol.items())
    print(f"{trained.environment.game} after {steps:,} steps; protocol {settings}", flush=True)
    started_s = last_s = time.monotonic()
    done: list[Game] = []

    def on_game(game: Game) -> None:
        nonlocal last_s
        done.append(game)
        if time.monotonic() - last_s > PROGRESS_S:
            last_s = time.monotonic()
            mean = statistics.mean(each.score for each in done)
            print(f"{len(done)} of {config.episodes} games: mean so far {mean:,.1f}", flush=True)

    games = evaluate(
        policy,
        trained.environment,
        config.settings,
        config.episodes,
        config.at_once,
        config.seed,
        CORES,
        on_game,
    )
    seconds = time.monotonic() - started_s
    entry = record(games, steps, protocol, config.seed, config.at_once, seconds)
    records.append(path / EVALUATIONS, {**entry, "machine": machine()})
    cut = f", {entry['games_cut']} of them cut by --step-cap" if entry["games_cut"] else ""
    print(
        f"score {entry['mean']:,.2f} (median {entry['median']:,.2f}, "
        f"{min(entry['scores']):,.0f} to {max(entry['scores']):,.0f}) over {len(games)} games"
        f"{cut}; kept in {path / EVALUATIONS}"
    )
    if config.json:
        print(json.dumps(entry), flush=True)
