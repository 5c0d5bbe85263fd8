"""`ga3c evaluate`: plays whole games by a named protocol, many at once.

A score without its protocol says little (Machado et al. 2018). So each score is kept with its
protocol, and scores of different protocols are never put in one column.
"""

import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from agents.signals import ending, handled, is_same_request, restore
from ga3c.evaluation.chosen import played
from ga3c.evaluation.games import Game, evaluate, record
from ga3c.evaluation.options import EvaluateConfig as Config
from ga3c.runs import records
from ga3c.runs.finding import EVALUATIONS
from ga3c.runs.tally import short, short_score
from ga3c.settings.machine import CORES, machine

PROGRESS_S = 5.0


@contextlib.contextmanager
def _noticed() -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether a signal to end has come; a second signal raises.

    Ask between steps: within one, TensorFlow or an environment may swallow a KeyboardInterrupt.
    """
    came_s: list[float] = []

    def notice(number: int, frame: Any) -> None:
        came_s.append(time.monotonic())
        if not is_same_request(came_s[0]):
            raise KeyboardInterrupt

    before = handled(ending(), notice)
    try:
        yield lambda: bool(came_s)
    finally:
        restore(before)


class _Progress:
    """Reports every `PROGRESS_S` how far the games are. `evaluate` calls it before each step."""

    def __init__(self, wanted: int, interrupted: Callable[[], bool]) -> None:
        self._wanted, self._interrupted = wanted, interrupted
        self._ended: Collection[Game] = ()
        self._said_s = time.monotonic()

    def __str__(self) -> str:
        ended = f"{len(self._ended)} of {self._wanted} games"
        if not self._ended:
            return ended
        return f"{ended}, mean so far {statistics.mean(game.score for game in self._ended):,.1f}"

    def __call__(self, steps: int, ended: Collection[Game]) -> bool:
        """Always True, to go on. Raises KeyboardInterrupt if the user has interrupted."""
        if self._interrupted():
            raise KeyboardInterrupt
        self._ended = ended
        if time.monotonic() - self._said_s > PROGRESS_S:
            self._said_s = time.monotonic()
            print(f"{self}; those in progress are at step {steps:,}", flush=True)
        return True


def _can_be_kept(path: Path) -> bool:
    """Whether scores can be written to the run at `path`; prints a line if not."""
    for each in (path, path / EVALUATIONS):
        if each.exists() and not os.access(each, os.W_OK):
            print(f"ga3c: {each} is not writable: the scores are not kept", file=sys.stderr)
            return False
    return True


def _in_words(entry: Mapping[str, Any]) -> str:
    scores, rate, cut = entry["scores"], entry["success_rate"], entry["games_cut"]
    return (
        f"score {entry['mean']:,.2f} (median {entry['median']:,.2f}, "
        f"{short_score(min(scores))} to {short_score(max(scores))}) over "
        + ("1 game" if len(scores) == 1 else f"{len(scores)} games")
        + ("" if rate is None else f", success rate {rate:.1%}")
        + "".join(f", {key} {short(mean)}" for key, mean in entry["infos"].items())
        + (f", {cut} cut short by a length limit" if cut else "")
    )


def run(config: Config) -> None:
    """Evaluate, print and keep the scores. Raises WrongInput, RuntimeError or OSError."""
    scores(config)


def scores(config: Config) -> dict[str, Any]:
    """The same; returns the entry that is kept.

    Raises WrongInput, RuntimeError, or OSError if the scores, once printed, cannot be kept.
    """
    chosen = played(config)
    path, named = chosen.path, chosen.named
    keeps = config.pretrained is None and _can_be_kept(path)
    settings = ", ".join(f"{name} {value}" for name, value in named.items())
    print(f"{path}: {chosen.title}; protocol {settings}", flush=True)
    if named.get("sticky_actions", 0.0) > chosen.environment.stickiness:
        print("these games have sticky actions, which the run was not trained with", flush=True)
    started_s = time.monotonic()
    with _noticed() as interrupted:
        progress = _Progress(config.episodes, interrupted)
        try:
            games = evaluate(
                chosen.policy,
                chosen.environment,
                chosen.protocol,
                episodes=config.episodes,
                at_once=config.at_once,
                seed=config.seed,
                threads=CORES,
                watch=progress,
            )
        except KeyboardInterrupt:
            print(f"{progress}; not kept, as the games that end first are short ones", flush=True)
            raise
    entry = record(
        games,
        steps=chosen.checkpoint.steps,
        protocol=named,
        seed=config.seed,
        at_once=config.at_once,
        seconds=time.monotonic() - started_s,
    )
    kept, failure = "", None
    if keeps:
        try:
            records.append(path / EVALUATIONS, {**entry, "machine": machine()})
            kept = f"; kept in {path / EVALUATIONS}"
        except OSError as error:
            kept, failure = "; not kept", error
    print(_in_words(entry) + kept)
    if config.json:
        print(json.dumps(entry), flush=True)
    if failure is not None:
        raise failure
    return entry
