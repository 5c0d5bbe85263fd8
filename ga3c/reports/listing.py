"""`ga3c runs`: lists all runs, with their steps, score and state."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ga3c.runs import checkpoints, records
from ga3c.runs.finding import RESULT, is_running, runs_in
from ga3c.runs.kept_config import load_config


@dataclass(frozen=True)
class Config:
    """List the runs: game, steps, score, state."""

    runs_dir: Path = Path("runs")
    """The folder of the run directories."""
    json: bool = False
    """Print a JSON list instead of a table."""


def summary(path: Path) -> dict[str, Any]:
    """The line of one run. Raises ValueError if its settings cannot be read."""
    config = load_config(path)
    newest = _newest_figures(path)
    return {
        "run": path.name,
        "game": config.environment.game,
        "seed": config.run.seed,
        "steps": newest.get("steps", 0),
        "score": newest.get("score_mean_100"),
        "minutes": round(newest.get("seconds", 0.0) / 60, 1),
        "state": _state(path, newest),
        "checkpoints": [int(kept.name) for kept in checkpoints.kept(path / "checkpoints")],
    }


def _newest_figures(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((path / RESULT).read_bytes()))
    except (OSError, ValueError):  # the run has not ended
        return ([{}] + records.read(path / "metrics.jsonl"))[-1]


def _state(path: Path, newest: dict[str, Any]) -> str:
    if is_running(path):
        return "running"
    return str(newest.get("ended", "killed"))


def run(config: Config) -> None:
    """Print the table, newest run first."""
    lines = []
    for path in runs_in(config.runs_dir):
        try:
            lines.append(summary(path))
        except ValueError as error:
            print(f"{path.name}: {error}")
    if config.json:
        print(json.dumps(lines))
    elif not lines:
        print(f"{config.runs_dir} has no runs: make train GAME=Pong starts one")
    else:
        _print(lines)


def _print(lines: list[dict[str, Any]]) -> None:
    table = Table()
    for heading in ("run", "game", "seed", "steps", "score", "minutes", "state"):
        right = heading in ("seed", "steps", "score", "minutes")
        table.add_column(heading, justify="right" if right else "left")
    for line in lines:
        score = "-" if line["score"] is None else f"{line['score']:,.1f}"
        table.add_row(
            line["run"],
            line["game"],
            str(line["seed"]),
            f"{line['steps']:,}",
            score,
            f"{line['minutes']:,.1f}",
            line["state"],
        )
    Console(soft_wrap=True).print(table)
