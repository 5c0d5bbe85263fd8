"""`ga3c runs`: lists all runs, with their steps, score and state."""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.launchers import PLACES
from ga3c.reports.console import show
from ga3c.runs import checkpoints
from ga3c.runs.finding import LOG, is_running, newest_figures, runs_in
from ga3c.runs.kept_config import load_config
from ga3c.runs.tally import short_score
from ga3c.settings.checks import WrongInput

RUNNING = "running"


@dataclass(frozen=True)
class Config:
    """List runs with game, algorithm, steps, score and state, and for a running one the machines
    that its agents are on. A narrow terminal shows fewer columns."""

    runs_dir: Path = Path("runs")
    """Directory that holds the run directories."""
    json: bool = False
    """Print a JSON list instead of a table."""


def summary(path: Path, name: str) -> dict[str, Any]:
    """The line of one run, called `name`. Raises ValueError if its settings cannot be read."""
    config = load_config(path)
    newest = newest_figures(path)
    state = _state(path, newest)
    may_be_elsewhere = state == RUNNING and config.hosts.others_may_play
    return {
        "run": name,
        "game": config.environment.game,
        "algorithm": config.algorithm,
        "seed": config.run.seed,
        "steps": newest.get("steps", 0),
        "score": newest.get("score_mean_100"),
        "minutes": round(newest.get("seconds", 0.0) / 60, 1),
        "state": state,
        "places": _places(path) if may_be_elsewhere else "",
        "checkpoints": [int(kept.name) for kept in checkpoints.kept(path / checkpoints.FOLDER)],
    }


def _state(path: Path, newest: dict[str, Any]) -> str:
    if is_running(path):
        return RUNNING
    return str(newest.get("ended", "killed"))


def _places(path: Path) -> str:
    """Where the agents of a run are, as its log last said; empty if it never said."""
    for file in (path / LOG, path / f"{LOG}.1"):  # the older part
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        for line in reversed(lines):
            _, is_said, places = line.partition(f"ga3c: {PLACES}")
            if is_said:
                return places
    return ""


def run(config: Config) -> None:
    """Print the table, newest run first. Raises WrongInput if the given folder is missing."""
    if not config.runs_dir.is_dir() and config.runs_dir != Config.runs_dir:
        raise WrongInput(f"runs_dir {config.runs_dir}: there is no such folder")
    lines = []
    for number, path in enumerate(runs_in(config.runs_dir), 1):
        name = str(path.relative_to(config.runs_dir))
        try:
            lines.append({"number": number, **summary(path, name)})
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
    if config.json:
        print(json.dumps(lines))
    elif not lines:
        print(f"{config.runs_dir} has no runs: ga3c train --game Pong starts one")
    else:
        _print(lines)


def _print(lines: list[dict[str, Any]]) -> None:
    rows = [
        (
            line["run"],
            str(line["number"]),
            line["game"],
            line["algorithm"],
            str(line["seed"]),
            f"{line['steps']:,}",
            "-" if line["score"] is None else short_score(line["score"]),
            f"{line['minutes']:,.1f}",
            ": ".join(filter(None, (line["state"], line["places"]))),
        )
        for line in lines
    ]
    headings = ("run", "no.", "game", "algorithm", "seed", "steps", "score", "minutes", "state")
    title = "RUN is a name or a number: ga3c play 1 plays the newest"
    show(title, headings, rows, spare=("algorithm", "seed", "minutes", "game", "state"))


def show_states(states: Mapping[Path, str]) -> None:
    """Print the steps and the scores of some runs beside their states. Runs need not exist yet."""
    rows = []
    for path, state in states.items():
        newest = newest_figures(path)
        score = newest.get("score_mean_100")
        rows.append(
            (
                path.name,
                f"{newest.get('steps', 0):,}" if newest else "",
                f"{newest.get('seconds', 0.0) / 60:,.1f}" if newest else "",
                "" if score is None else short_score(score),
                state,
            )
        )
    show(f"{time.strftime('%H:%M')}", ("run", "steps", "minutes", "score", "state"), rows)
