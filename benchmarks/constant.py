"""`ga3c benchmark constant`: what a game scores if one action is always played.

A policy that scores less has learned to play no better than a stone on a button, whatever its
curve looks like. Each action plays some games. The best one then plays more of them, other ones,
because the best of several means is too high by chance. Random actions play as many.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.environments import EnvironmentConfig, Spaces, spaces
from agents.games import check
from benchmarks.kept import Memo, keep_all
from ga3c.evaluation.games import evaluate, record
from ga3c.evaluation.protocols import PROTOCOLS, Protocol
from ga3c.reports.console import show
from ga3c.reports.published_figures import published_rows
from ga3c.settings.checks import WrongInput, above_zero
from ga3c.settings.run import ProtocolName

SEARCHED, PLAYED = 0, 1  # seeds of the games that choose the action, and of those that count
SEARCH_CAP = 5000  # steps of a game that chooses the action: some actions end no game at all
AT_ONCE = 10
GA3C_GAMES = tuple(row["game"] for row in published_rows("ga3c_scores.csv"))


@dataclass(frozen=True)
class Config:
    """Play each action alone, then the best of them again; repeat the command to continue."""

    out_dir: Path
    """Directory for the scores; created if it is missing."""
    games: tuple[str, ...] = GA3C_GAMES
    """Games to play."""
    protocol: ProtocolName = "paper"
    """Protocol by which games are played; actions are chosen as said above."""
    search_episodes: int = 10
    """Games by which the best action is found, of each action."""
    episodes: int = 30
    """Games that the best action plays, and random actions."""
    json: bool = False
    """Print the result as one JSON object on the last line."""

    def __post_init__(self) -> None:
        above_zero(self, "search_episodes", "episodes")
        for game in self.games:
            check(game)


class Constant:
    """A policy for `evaluate` that plays one action, or random ones."""

    def __init__(self, found: Spaces, action: int | None) -> None:
        """Args: action: None: every action with the same probability."""
        self.spaces = found
        count = found.actions.count
        self._policy = np.full(count, 1 / count, np.float32)
        if action is not None:
            self._policy = np.eye(count, dtype=np.float32)[action]

    def judge(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities [n, actions], and values [n], which are 0."""
        n = len(observations)
        return np.tile(self._policy, (n, 1)), np.zeros(n, np.float32)


def run(config: Config) -> None:
    """Play what is missing; print and save all. Raises WrongInput if actions are continuous."""
    found = {game: spaces(EnvironmentConfig(game)) for game in config.games}
    for game, each in found.items():
        if each.actions.is_continuous:
            raise WrongInput(
                f"games {game}: its actions, {each.actions}, cannot be played one by one"
            )
    config.out_dir.mkdir(parents=True, exist_ok=True)
    kept = Memo(config.out_dir / "constant.jsonl", "result")
    made = {game: _of_game(game, each, config, kept) for game, each in found.items()}
    rows = [
        (game, f"{each['action']}", *(_shown(each[name]) for name in ("best", "random")))
        for game, each in made.items()
    ]
    titles = ("game", "action", "always that action", "random actions")
    show(f"protocol {config.protocol}: mean score (standard error), steps per game", titles, rows)
    keep_all("constant", {"games": made}, config, config.json)


def _of_game(game: str, found: Spaces, config: Config, kept: Memo) -> dict[str, Any]:
    """The best action, its games, and those of random actions."""
    environment = EnvironmentConfig(game)
    whole = replace(PROTOCOLS[config.protocol], policy="sample")
    short = replace(whole, step_cap=min(SEARCH_CAP, whole.step_cap))

    def played(action: int | None, protocol: Protocol, episodes: int, seed: int) -> dict[str, Any]:
        """The record of these games, as one line of evaluations.jsonl has it."""
        key = kept.key(game, config.protocol, action, episodes, seed)
        if key not in kept:
            policy: Any = Constant(found, action)
            how: dict[str, Any] = {"seed": seed, "at_once": AT_ONCE}
            games = evaluate(policy, environment, protocol, episodes=episodes, **how)
            named = protocol.named(config.protocol, environment, "newest")
            kept.keep(key, record(games, steps=0, protocol=named, seconds=0.0, **how))
            what = "random actions" if action is None else f"action {action}"
            print(f"{game}, {what}: {_shown(kept[key])}", flush=True)
        result: dict[str, Any] = kept[key]
        return result

    actions = range(found.actions.count)
    means = [played(n, short, config.search_episodes, SEARCHED)["mean"] for n in actions]
    best = int(np.argmax(means))
    return {
        "action": best,
        "means": means,
        "best": played(best, whole, config.episodes, PLAYED),
        "random": played(None, whole, config.episodes, PLAYED),
    }


def _shown(played: dict[str, Any]) -> str:
    error = (played["deviation"] or 0.0) / played["episodes"] ** 0.5
    return f"{played['mean']:,.1f} ({error:,.1f}), {np.mean(played['lengths']):,.0f} steps"
