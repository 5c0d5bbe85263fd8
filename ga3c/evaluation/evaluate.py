"""`ga3c evaluate`: plays whole games by a named protocol, many at once.

A score without its protocol says little (Machado et al. 2018). So each score is kept with its
protocol, and scores of different protocols are never put in one column.
"""

import contextlib
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from agents.signals import handled, is_same_request, restore
from ga3c import backend
from ga3c.evaluation.chosen import load, policy_of, title
from ga3c.evaluation.games import Game, evaluate, record
from ga3c.evaluation.options import EvaluateConfig as Config
from ga3c.runs import records
from ga3c.runs.checkpoints import BEST
from ga3c.runs.finding import EVALUATIONS
from ga3c.settings.machine import CORES, machine

PROGRESS_S = 5.0


def _short(score: float) -> str:
    """A score without digits that say nothing: 12,345, 0.97."""
    return f"{round(score, 2):,.10g}"


@contextlib.contextmanager
def _noticed() -> Iterator[Callable[[], bool]]:
    """Gives whether SIGINT or SIGTERM has come, to be asked between steps; a second one raises.

    KeyboardInterrupt within a step may be lost: TensorFlow and environments catch what they like.
    """
    came_s: list[float] = []

    def notice(number: int, frame: Any) -> None:
        came_s.append(time.monotonic())
        if not is_same_request(came_s[0]):
            raise KeyboardInterrupt

    before = handled((signal.SIGINT, signal.SIGTERM), notice)
    try:
        yield lambda: bool(came_s)
    finally:
        restore(before)


def run(config: Config) -> None:
    """Evaluate, print and keep the scores. Raises WrongInput, RuntimeError or OSError."""
    scores(config)


def scores(config: Config) -> dict[str, Any]:
    """The same, and the line that is kept.

    Raises WrongInput, RuntimeError, or OSError if the scores, once printed, cannot be kept.
    """
    trained, path, checkpoint = load(config)
    trained = config.as_played(trained)
    file, keeps = path / EVALUATIONS, config.pretrained is None
    for each in (path, file) if keeps else ():
        if each.exists() and not os.access(each, os.W_OK):
            print(f"ga3c: {each} is not writable: the scores are not kept", file=sys.stderr)
            keeps = False
    backend.configure(CORES, config.seed)
    policy = policy_of(trained, checkpoint)
    weights = config.checkpoint if config.checkpoint in ("newest", BEST) else "chosen"
    name, played = config.played_by(trained, policy.spaces)
    protocol = played.named(name, trained.environment, weights)
    settings = ", ".join(f"{name} {value}" for name, value in protocol.items())
    print(f"{path}: {title(trained, checkpoint)}; protocol {settings}", flush=True)
    if protocol.get("sticky_actions", 0.0) > trained.environment.stickiness:
        print("these games have sticky actions, which the run was not trained with", flush=True)
    started_s = last_s = time.monotonic()
    played_so_far: Collection[Game] = ()

    def so_far() -> str:
        games = played_so_far
        mean = f", mean so far {statistics.mean(g.score for g in games):,.1f}" if games else ""
        return f"{len(games)} of {config.episodes} games{mean}"

    def show(steps: int, ended: Collection[Game]) -> bool:
        nonlocal last_s, played_so_far
        if interrupted():
            raise KeyboardInterrupt
        played_so_far = ended
        if time.monotonic() - last_s > PROGRESS_S:
            last_s = time.monotonic()
            print(f"{so_far()}; those in progress are at step {steps:,}", flush=True)
        return True

    try:
        with _noticed() as interrupted:
            games = evaluate(
                policy,
                trained.environment,
                played,
                config.episodes,
                config.at_once,
                config.seed,
                CORES,
                show,
            )
    except KeyboardInterrupt:
        print(f"{so_far()}; not kept, as the games that end first are short ones", flush=True)
        raise
    seconds = time.monotonic() - started_s
    entry = record(games, checkpoint.steps, protocol, config.seed, config.at_once, seconds)
    kept, failure = "", None
    if keeps:
        try:
            records.append(file, {**entry, "machine": machine()})
            kept = f"; kept in {file}"
        except OSError as error:
            kept, failure = "; not kept", error
    cut = f", {entry['games_cut']} cut by a limit of their length" if entry["games_cut"] else ""
    rate = entry["success_rate"]
    succeeded = "" if rate is None else f", success rate {rate:.1%}"
    count = "1 game" if len(games) == 1 else f"{len(games)} games"
    print(
        f"score {entry['mean']:,.2f} (median {entry['median']:,.2f}, "
        f"{_short(min(entry['scores']))} to {_short(max(entry['scores']))}) over {count}"
        f"{succeeded}{cut}{kept}"
    )
    if config.json:
        print(json.dumps(entry), flush=True)
    if failure is not None:
        raise failure
    return entry
