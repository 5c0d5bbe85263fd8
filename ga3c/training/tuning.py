"""Builds a run's scheduler, and puts its decisions into words."""

from pathlib import Path

from ga3c.runs.finding import JOURNAL
from ga3c.service.annealer import Decision
from ga3c.service.scheduler import Scheduler
from ga3c.service.service import Service
from ga3c.settings.scheduler import Counts
from ga3c.settings.train import TrainConfig


def build_scheduler(config: TrainConfig, service: Service, path: Path) -> Scheduler | None:
    """The configured scheduler, with its journal in the run's directory `path`."""
    if config.scheduler.scheduler == "off":
        return None
    return Scheduler(
        config=config.scheduler,
        start=config.service.counts,
        most=config.service.most,
        seed=config.run.seed,
        service=service,
        journal=path / JOURNAL,
        clock=lambda: service.tally.seconds,
    )


def words(decision: Decision) -> str:
    """A sentence that says which counts were compared and which are kept."""
    verdict = "kept" if decision.accepted else "undone" + ", to be retried" * (decision.wins > 0)
    kept, tried = decision.figures_kept.rate, decision.figures_tried.rate
    return (
        f"{_counts(decision.kept)} made {kept:.0f} samples/s, "
        f"{_counts(decision.tried)} {tried:.0f}: {verdict}"
    )


def _counts(counts: Counts) -> str:
    return f"NT {counts.trainers} NP {counts.predictors} NA {counts.agents}"
