"""The scheduler in a real run: it changes the counts, and its decisions are logged."""

from pathlib import Path
from typing import Any

import ga3c
from ga3c.service.scheduler import replay
from ga3c.settings.scheduler import Counts

ENOUGH = 2  # decisions
LIMIT_S = 90.0  # only a safeguard: enough decisions end the run


def test_a_runs_counts_are_tuned_and_each_decision_is_shown_and_kept(tmp_path: Path) -> None:
    journal, shown = tmp_path / "mine" / "scheduler.jsonl", set[Counts]()

    def decided(figures: dict[str, Any]) -> bool:
        shown.add(Counts(*(figures[name] for name in Counts._fields)))
        return len(replay(journal)) >= ENOUGH

    run = ga3c.train(
        game="tests.tiny:Corridor-v0",
        algorithm="a3c",
        scheduler="anneal",
        settle_s=0.1,
        window_s=0.2,
        patience=1.0,
        agents=1,
        max_agents=1,
        predictors=2,  # from two, one more or one fewer can be tried, whoever waits
        trainers=2,
        envs_per_agent=4,
        training_batch_min=20,
        progress_every_s=0.05,  # less than any change lasts, so that it is seen
        seconds=LIMIT_S,
        runs_dir=tmp_path,
        name="mine",
        on_figures=decided,
    )
    assert run.result["ended"] == "ended by on_figures"
    decisions = replay(journal)
    assert decisions[0].kept == Counts(1, 2, 2) != decisions[0].tried
    assert {decisions[0].kept, decisions[0].tried} <= shown
    said = (run.path / "log.txt").read_text()
    assert said.count("ga3c: scheduler: NT ") == len(decisions)
