"""`ga3c scores`: trains, evaluates and tabulates a list of games; it can be interrupted.

Each game and seed has its own run in `out_dir`. The same command, given again, continues: finished
runs stay, unfinished runs are resumed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agents.cluster import check_ray
from agents.games import are_same, check
from ga3c.evaluation.protocols import PROTOCOLS
from ga3c.reports import comparison, history, page, tables
from ga3c.reports.job import Evaluation, Job
from ga3c.reports.jobs import complete
from ga3c.reports.processes import OnRay, check_arguments
from ga3c.reports.published_figures import CONTROL, published_rows
from ga3c.settings.checks import WrongInput, above_zero, no_effect
from ga3c.settings.machine import CORES
from ga3c.settings.run import ProtocolName

LISTS: dict[str, tuple[str, ProtocolName | None]] = {  # the published table, and its protocol
    "ga3c-paper": ("ga3c_scores.csv", "paper"),  # GA3C's Table 3
    "fast-dqn": ("fast_dqn_scores.csv", "nature"),  # its Table 4
    "atari57": ("atari57_random_human.csv", None),
    "control": (CONTROL, None),
}


@dataclass(frozen=True)
class Config:
    """Train, evaluate and tabulate games. Repeat the command to continue after an interruption."""

    out_dir: Path
    """Directory for the runs, the tables and the report; created if it is missing."""
    games: tuple[str, ...] = ("Pong",)
    """Names of games, or of lists of games: ga3c-paper (9), fast-dqn (49), atari57, control (6
    tasks of the Control Suite)."""
    seeds: int = 3
    """Runs per game, with seeds 0, 1, ..."""
    steps: int | None = 1_000_000
    """Environment steps per run; None: only --seconds limits a run."""
    seconds: float | None = None
    """Maximum training time per run, in seconds; None: only --steps limits a run."""
    protocol: ProtocolName | None = None
    """Evaluation protocol: see ga3c evaluate --help. Its sticky actions are used in training too.
    None: that of a list's published table (ga3c-paper: paper; fast-dqn: nature), or each run's own.
    """
    episodes: int = 30
    """Evaluation games per run."""
    at_once: int = 1
    """Number of runs in parallel, with --on here."""
    on: Literal["here", "ray"] = "here"
    """ray: each run is a task of a Ray cluster, on any node with room. All nodes must reach out_dir
    by the same path."""
    ray_address: str = "127.0.0.1:6379"
    """Address of the cluster's head node, with --on ray: HOST:PORT."""
    cores: int = CORES
    """Cores that Ray reserves for each run, with --on ray. The run's defaults are those for this
    many cores, on whatever node it is."""
    gpus: float = 0.0
    """GPUs that Ray reserves for each run; several may share one: 0.25."""
    train: str = ""
    """Extra arguments for ga3c train, in quotes: --train="--envs-per-agent 32"."""
    evaluate: str = ""
    """Extra arguments for ga3c evaluate, in quotes: --evaluate="--at-once 8"."""

    def __post_init__(self) -> None:
        above_zero(self, "seeds", "steps", "seconds", "episodes", "at_once", "cores")
        if not self.games:
            raise ValueError("games: must be at least one game or list")
        for name in ("at_once",) if self.on == "ray" else ("ray_address", "cores", "gpus"):
            if getattr(self, name) != getattr(type(self), name):
                raise ValueError(no_effect(f"--{name.replace('_', '-')}", f"--on {self.on}"))
        if self.gpus < 0:
            raise ValueError(f"gpus {self.gpus}: must not be negative")
        if self.steps is None and self.seconds is None:
            raise ValueError("neither steps nor seconds: no run would end")
        for name in ("train", "evaluate"):
            check_arguments(name, getattr(self, name), "scores")
        parent = next(p for p in (self.out_dir, *self.out_dir.absolute().parents) if p.exists())
        if not (parent.is_dir() and os.access(parent, os.W_OK)):
            raise ValueError(f"out_dir {self.out_dir}: {parent} is not a writable directory")


def run(config: Config) -> None:
    """Run what is missing. Raises WrongInput, or RuntimeError with the output of a process."""
    jobs = _jobs(config)
    if config.on == "ray":
        try:
            check_ray(config.ray_address)
        except ValueError as error:
            raise WrongInput(str(error)) from error
        complete(jobs, len(jobs), OnRay(config.ray_address, config.cores, config.gpus))
    else:
        complete(jobs, config.at_once)
    _conclude(config, jobs)


def _jobs(config: Config) -> list[Job]:
    games: dict[str, tuple[str, ProtocolName | None]] = {}  # by the game's own name
    for name in config.games:
        file, protocol = LISTS.get(name, ("", None))
        protocol = config.protocol or protocol
        for game in [row["game"] for row in published_rows(file)] if file else [name]:
            try:
                known_game, known = games.setdefault(check(game).name, (game, protocol))
            except ValueError as error:
                raise WrongInput(f"{error}; lists: {', '.join(LISTS)}") from error
            if known != protocol or not are_same(known_game, game):
                raise WrongInput(
                    f"games {' '.join(config.games)}: {game} is in two lists that train or "
                    "evaluate it differently; name one of them, or make two tables"
                )
    return [
        Job(
            path=config.out_dir.absolute() / f"{name.replace('/', '-')}-{seed}",
            game=game,
            seed=seed,
            steps=config.steps,
            seconds=config.seconds,
            arguments=" ".join(filter(None, (_games_of(protocol, game), config.train))),
            evaluation=Evaluation(protocol, config.episodes, config.evaluate),
        )
        for name, (game, protocol) in games.items()
        for seed in range(config.seeds)
    ]


def _games_of(protocol: ProtocolName | None, game: str) -> str:
    """Arguments that train with a protocol's sticky actions, which otherwise cost much score."""
    found = check(game)
    sticky = PROTOCOLS[protocol].sticky_actions if protocol and found.is_atari else None
    # Zero is what most names imply anyway.
    needs = sticky is not None and max(sticky, found.sticky_actions) > 0
    return f"--sticky-actions {sticky}" if needs else ""


def _conclude(config: Config, jobs: Sequence[Job]) -> None:
    runs = [history.read(job.path) for job in jobs]
    scores = comparison.tables(runs)
    print("\n".join(map(tables.markdown, scores)))
    for name in ("scores.md", "scores.csv"):
        tables.write(scores, config.out_dir / name)
    title = f"ga3c: {len({job.game for job in jobs})} games, {config.seeds} seeds"
    (config.out_dir / "report.html").write_text(page.page(title, runs), encoding="utf-8")
    print(f"wrote scores.md, scores.csv and report.html in {config.out_dir}")
