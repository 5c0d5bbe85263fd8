"""`ga3c runs`: lists all runs, with their steps, score and state."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ga3c.reports.console import show
from ga3c.runs import checkpoints
from ga3c.runs.finding import is_running, newest_figures, runs_in
from ga3c.runs.kept_config import load_config


@dataclass(frozen=True)
class Config:
    """List the runs: game, algorithm, steps, score, state. A narrow terminal shows less of it."""

    runs_dir: Path = Path("runs")
    """The folder of the run directories."""
    json: bool = False
    """Print a JSON list instead of a table."""


def summary(path: Path, name: str) -> dict[str, Any]:
    """The line of one run, called `name`. Raises ValueError if its settings cannot be read."""
    config = load_config(path)
    newest = newest_figures(path)
    return {
        "run": name,
        "game": config.environment.game,
        "algorithm": config.algorithm,
        "seed": config.run.seed,
        "steps": newest.get("steps", 0),
        "score": newest.get("score_mean_100"),
        "minutes": round(newest.get("seconds", 0.0) / 60, 1),
        "state": _state(path, newest),
        "checkpoints": [int(kept.name) for kept in checkpoints.kept(path / "checkpoints")],
    }


def _state(path: Path, newest: dict[str, Any]) -> str:
    if is_running(path):
        return "running"
    return str(newest.get("ended", "killed"))


def run(config: Config) -> None:
    """Print the table, newest run first."""
    lines = []
    for number, path in enumerate(runs_in(config.runs_dir), 1):
        name = str(path.relative_to(config.runs_dir))
        try:
            lines.append({"number": number, **summary(path, name)})
        except ValueError as error:
            print(f"{name}: {error}")
    if config.json:
        print(json.dumps(lines))
    elif not lines:
        print(f"{config.runs_dir} has no runs: make train GAME=Pong starts one")
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
            "-" if line["score"] is None else f"{line['score']:,.1f}",
            f"{line['minutes']:,.1f}",
            line["state"],
        )
        for line in lines
    ]
    headings = ("run", "no.", "game", "algorithm", "seed", "steps", "score", "minutes", "state")
    title = "RUN is a name or a number: ga3c play 1 plays the newest"
    show(title, headings, rows, spare=("algorithm", "seed", "minutes", "game", "state"))
