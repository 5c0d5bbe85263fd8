"""`ga3c benchmark peers`: score and speed next to Stable-Baselines3 and CleanRL, minute by minute.

Each system learns the same game on this machine for the same time, one after another, with the
settings that its authors publish for Atari games. The peers run in a virtual environment of their
own (`make peers`, from requirements/peers.txt), which is never mixed with ours.

A finished run is kept in `out_dir` as soon as it ends; the same command continues with the others.
"""

import re
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from agents.games import check
from benchmarks.kept import Memo, keep_all, revision
from benchmarks.points import json_of
from ga3c.reports import history
from ga3c.reports.console import show
from ga3c.reports.job import Job
from ga3c.reports.jobs import complete
from ga3c.reports.plots import legend_below
from ga3c.reports.processes import check_arguments, end
from ga3c.runs.finding import newest_figures
from ga3c.runs.scratch import ScratchDirectory
from ga3c.runs.tally import ROLLING_EPISODES
from ga3c.settings.checks import WrongInput

SCRIPTS = Path(__file__).parent / "peer_scripts"
START_TIMEOUT_S = 120.0
POLL_S = 0.2
JOIN_S = 5.0
PROGRESS_EVERY_S = 1.0
LINE = re.compile(r"^global_step=(\d+)(?:, episodic_return=\[?([-+.\de]+)\]?)?$")
VERSIONS = """
import json, platform
from importlib import metadata
names = ("torch", "stable-baselines3", "cleanrl", "gymnasium", "ale-py", "numpy")
installed = {each.name.lower(): each.version for each in metadata.distributions() if each.name}
print(json.dumps({"python": platform.python_version(), **{n: installed.get(n) for n in names}}))
"""
PEERS = {
    "Stable-Baselines3 A2C": ("stable_baselines.py", "a2c"),
    "Stable-Baselines3 PPO": ("stable_baselines.py", "ppo"),
    "CleanRL PPO": ("cleanrl_ppo.py",),
}


@dataclass(frozen=True)
class Config:
    """Train on games with each system in turn, for the same number of minutes on this machine."""

    out_dir: Path
    """Directory for the curves, the table and the plot; created if it is missing."""
    games: tuple[str, ...] = ("Pong",)
    """Atari games to learn."""
    minutes: float = 10.0
    """Minutes for which each system trains, from its first progress line."""
    seed: int = 0
    """Seed of every run."""
    ours: tuple[str, ...] = ("", "--algorithm a3c")
    """Our runs, each as arguments for ga3c train; an empty one is the default."""
    python: Path = Path(".venv-peers/bin/python")
    """Python interpreter with the peers installed; `make peers` creates the default one."""
    json: bool = False
    """Print the result as one JSON object on the last line."""

    def __post_init__(self) -> None:
        if self.minutes * 60 < PROGRESS_EVERY_S:
            raise ValueError(
                f"minutes {self.minutes:g}: must be at least {PROGRESS_EVERY_S / 60:.2g}, because "
                f"a curve has a point every {PROGRESS_EVERY_S:g} s"
            )
        for given in self.ours:
            check_arguments("ours", given, "benchmark peers")
        for game in self.games:
            if not check(game).is_atari:
                raise ValueError(f"game {game}: must be an Atari game; the peers are set up for it")


class Learned(NamedTuple):
    """What a system learned, and how fast it was."""

    system: str
    game: str
    steps: int
    steps_per_s: float
    curve: list[list[float]]  # [seconds, steps, mean score of the last 100 games]
    versions: dict[str, str | None]  # of a peer's interpreter; none for ga3c, which has this one


def run(config: Config) -> None:
    """Make the missing runs; print, plot and save all. Raises WrongInput or RuntimeError."""
    if not config.python.exists():
        raise WrongInput(f"no {config.python}: `make peers` installs the peers there")
    config.out_dir.mkdir(parents=True, exist_ok=True)
    learned = [
        *(_ours(config, game, given) for game in config.games for given in config.ours),
        *(_kept(config, game, peer) for game in config.games for peer in PEERS),
    ]
    _print(learned)
    _draw(learned, config.out_dir / "peers.png")
    figures = {"learned": [each._asdict() for each in learned]}
    keep_all("peers", figures, config, config.json)


def _ours(config: Config, game: str, given: str) -> Learned:
    """What ga3c learns with the arguments `given`; a finished run of this revision is reused."""
    name = "ga3c" + "".join(f" {word}" for word in given.split())
    run = f"{game} {name} {config.seed} {config.minutes:g}min"
    path = config.out_dir / "runs" / f"{run} {revision()}".replace(" ", "-")
    arguments = f"--progress-every-s {PROGRESS_EVERY_S:g} {given}"
    complete([Job(path, game, config.seed, None, config.minutes * 60, arguments)])
    figures = newest_figures(path)
    curve = np.stack(history.read(path).curve, axis=1)
    steps = figures["steps"]
    return Learned(name, game, steps, steps / figures["seconds"], curve.tolist(), {})


def _kept(config: Config, game: str, peer: str) -> Learned:
    """What a peer learns, measured only if `out_dir` does not have it yet."""
    kept = Memo(config.out_dir / "peers.jsonl", "learned")
    versions = json_of([str(config.python), "-c", VERSIONS], START_TIMEOUT_S)
    key = kept.key(peer, game, config.minutes, config.seed, versions)
    if key in kept:
        return Learned(**kept[key])
    print(f"{game}: {peer} for {config.minutes:g} minutes", flush=True)
    learned = _measure(config, game, peer, versions)
    kept.keep(key, learned._asdict())
    return learned


def _measure(config: Config, game: str, peer: str, versions: dict[str, str | None]) -> Learned:
    """Run a peer for the given minutes. Raises RuntimeError with its last lines if it fails."""
    script, *words = PEERS[peer]
    rom = "".join(word.capitalize() for word in check(game).name.split("_"))
    command = [str(config.python), "-u", str(SCRIPTS / script), *words, rom, str(config.seed)]
    with (
        ScratchDirectory() as scratch,
        subprocess.Popen(
            [str(Path(command[0]).absolute()), *command[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=scratch,  # CleanRL writes its logs where it runs
        ) as process,
    ):
        output = Output(process)
        try:
            while not (failed := process.poll() is not None or output.is_late):
                if output.seconds >= config.minutes * 60:
                    break
                time.sleep(POLL_S)
        finally:
            end(process)
            output.join()
    if failed:
        raise RuntimeError(f"{peer}: {''.join(output.last_lines)}")
    return Learned(peer, game, output.steps, output.steps_per_s, output.curve, versions)


class Output:
    """Reads what a peer prints, in a thread of its own, until the peer ends."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.steps = 0
        self.curve: list[list[float]] = []
        self.last_lines: deque[str] = deque(maxlen=20)
        self._began_s = time.monotonic()
        self._started_s: float | None = None
        self._first_steps = 0
        self.steps_per_s = 0.0  # from the first progress line to the last one
        self._scores: deque[float] = deque(maxlen=ROLLING_EPISODES)
        self._process = process
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def seconds(self) -> float:
        """Seconds since the first progress line."""
        return time.monotonic() - self._started_s if self._started_s else 0.0

    @property
    def is_late(self) -> bool:
        """Whether no progress line came in time."""
        return not self._started_s and time.monotonic() > self._began_s + START_TIMEOUT_S

    def join(self) -> None:
        """Wait until an ended peer's output is read; its children may keep the pipe open."""
        self._thread.join(JOIN_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last_lines.append(line)
            found = LINE.match(line.strip())
            if found:
                self.steps = int(found[1])
                if self._started_s is None:
                    self._started_s, self._first_steps = time.monotonic(), self.steps
                elif (seconds := self.seconds) > 0:
                    self.steps_per_s = (self.steps - self._first_steps) / seconds
                if found[2]:
                    self._scores.append(float(found[2]))
                    mean = sum(self._scores) / len(self._scores)
                    self.curve.append([round(self.seconds, 2), self.steps, round(mean, 3)])


def _print(learned: list[Learned]) -> None:
    for game in dict.fromkeys(each.game for each in learned):
        rows = [
            (
                each.system,
                f"{each.steps:,}",
                f"{each.steps_per_s:,.0f}",
                f"{each.curve[-1][2]:,.1f}" if each.curve else "no game ended",
            )
            for each in learned
            if each.game == game
        ]
        columns = ("system", "steps", "steps/s", "score, mean of 100 games")
        show(f"{game}, the same time on this machine", columns, rows)


def _draw(learned: list[Learned], file: Path) -> None:
    games = list(dict.fromkeys(each.game for each in learned))
    figure = Figure(figsize=(8, 3.6 * len(games)), layout="constrained")
    rows = figure.subplots(len(games), 1, squeeze=False)
    for game, (axes,) in zip(games, rows, strict=True):
        for each in learned:
            if each.game == game and each.curve:
                seconds, _, scores = np.array(each.curve).T
                label = f"{each.system}, {each.steps_per_s:,.0f} steps/s"
                axes.plot(seconds / 60, scores, label=label)
        axes.set(title=game, xlabel="minutes", ylabel="score, mean of 100 games")
        axes.grid(alpha=0.3)
        legend_below(axes)
    figure.savefig(file, dpi=110)
