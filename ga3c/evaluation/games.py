"""Plays whole games with a policy, many at once."""

import math
import statistics
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from agents.environments import EnvironmentConfig, Environments, Spaces
from agents.messages import NOT_SAID
from agents.vectors import numbers, successes
from ga3c.evaluation.policy import Policy, Stacks
from ga3c.evaluation.protocols import Protocol


class Game(NamedTuple):
    """One game, played to its end or to a length limit."""

    score: float
    length: int  # in steps
    cut: bool  # by the protocol's step_cap or frame_cap, or by another limit of the environment
    success: float = NOT_SAID  # 1 or 0, if the info of the game's last step says so
    infos: tuple[tuple[str, float], ...] = ()  # keys and numbers in that info, nan where none is


Watch = Callable[[int, Collection[Game]], bool]
"""Called before each step with the number of steps that the games in progress have made, and the
games that have ended. Returns whether to go on."""


def evaluate(
    policy: Policy,
    environment: EnvironmentConfig,
    protocol: Protocol,
    *,
    episodes: int,
    at_once: int,
    seed: int,
    threads: int = 1,
    watch: Watch = lambda steps, ended: True,
) -> list[Game]:
    """Play `episodes` whole games, `at_once` in parallel; fewer if `watch` stops it.

    Each lane plays one game per round. Taking the games that end first would favour short games.
    How a game goes depends on the seed and its number, not on how many are played in parallel,
    except for an id that exists only as a vector, where those in parallel share a seed.
    """
    games: dict[int, Game] = {}  # by number
    for first in range(0, episodes, at_once):
        if len(games) < first:
            break  # `watch` stopped the previous round
        lanes = min(at_once, episodes - first)
        environments = Environments(protocol.environment(environment), lanes, threads)
        try:
            _round(policy, protocol, environments, seed, games, watch)
        finally:
            environments.close()
    return [games[number] for number in sorted(games)]


def _round(
    policy: Policy,
    protocol: Protocol,
    environments: Environments,
    seed: int,
    games: dict[int, Game],
    watch: Watch,
) -> None:
    """Play the next games, one in each lane, and add them to `games`.

    Raises RuntimeError if a score is not finite.
    """
    lanes, first = environments.num_envs, len(games)
    draws = ActionDraws(seed, first, lanes)
    stacks, keys = Stacks(environments.spaces, lanes), environments.spaces.info_keys
    scores = np.zeros(lanes)  # of the games so far
    step = environments.reset(seed, first)
    for length in range(protocol.step_cap + 1):  # the reset does not count as a step
        scores += step.outcomes["reward"]
        is_cut = length == protocol.step_cap
        for lane in np.flatnonzero(step.outcomes["finished"] | is_cut).tolist():
            if first + lane not in games:
                outcome = step.outcomes[lane]
                ended = bool(outcome["finished"])
                score = float(outcome["episode_return"] if ended else scores[lane])
                if not math.isfinite(score):
                    raise RuntimeError(
                        f"score {score} of a game: the environment's rewards must "
                        "be finite, or scores cannot be compared"
                    )
                cut = not ended or bool(outcome["truncated"])
                success = float(successes(environments.info, lanes)[lane])
                said = numbers(environments.info, keys, lanes)[lane].tolist()
                games[first + lane] = Game(score, length, cut, success, tuple(zip(keys, said)))
        if len(games) == first + lanes or not watch(length, games.values()):
            break
        observations = stacks.push(step.frames, step.firsts)
        policies, _ = policy.judge(observations)
        step = environments.step(chosen_actions(protocol, policies, draws.next(), policy.spaces))


class ActionDraws:
    """Random numbers for the actions of several games; each game has its own generator."""

    def __init__(self, seed: int, first: int, lanes: int) -> None:
        """For the games of `seed`, from number `first` on."""
        self._random = [np.random.default_rng([seed, first + lane]) for lane in range(lanes)]

    def next(self) -> np.ndarray:
        """Uniform numbers in [0, 1), [n, 2], for one action of each game."""
        return np.array([random.random(2) for random in self._random])


def chosen_actions(
    protocol: Protocol, policies: np.ndarray, draws: np.ndarray, spaces: Spaces
) -> np.ndarray:
    """Actions [n, *shape] by the protocol, for policies as `Policy.judge` returns them.

    Continuous actions are played as they are, without noise. Args: draws: as for `choose`.
    """
    return policies if spaces.actions.is_continuous else choose(protocol, policies, draws)


def choose(protocol: Protocol, probabilities: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Actions, int32 [n], by the protocol's policy, from probabilities [n, actions].

    Args: draws: [n, 2], uniform in [0, 1).
    """
    actions = probabilities.shape[1]
    if protocol.policy == "sample":
        thresholds = draws[:, :1] * probabilities.sum(axis=1, keepdims=True)
        below = np.cumsum(probabilities, axis=1) <= thresholds
        return np.minimum(below.sum(axis=1), actions - 1).astype(np.int32)
    chosen = probabilities.argmax(axis=1)
    if protocol.policy == "epsilon":
        uniform = (draws[:, 1] * actions).astype(np.int32)
        chosen = np.where(draws[:, 0] < protocol.epsilon, uniform, chosen)
    return chosen.astype(np.int32)


def record(
    games: list[Game],
    *,
    steps: int,
    protocol: Mapping[str, Any],
    seed: int,
    at_once: int,
    seconds: float,
) -> dict[str, Any]:
    """One line of evaluations.jsonl."""
    scores = [game.score for game in games]
    successes = [game.success for game in games if game.success != NOT_SAID]
    infos: dict[str, list[float]] = {key: [] for key, _ in games[0].infos}
    for game in games:
        for key, number in game.infos:
            if not math.isnan(number):
                infos[key].append(number)
    return {
        "steps": steps,
        "protocol": dict(protocol),
        "episodes": len(games),
        "mean": statistics.mean(scores),
        "deviation": statistics.stdev(scores) if len(scores) > 1 else None,
        "median": statistics.median(scores),
        "scores": scores,
        "lengths": [game.length for game in games],
        "games_cut": sum(game.cut for game in games),
        "success_rate": statistics.mean(successes) if successes else None,
        "infos": {key: statistics.mean(said) if said else None for key, said in infos.items()},
        "seed": seed,
        "at_once": at_once,
        "seconds": round(seconds, 2),
    }
