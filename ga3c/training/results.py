"""Decides when a run is finished, and collects the figures of its result."""

import shlex
from pathlib import Path
from typing import Any, NamedTuple

from ga3c.runs.metrics import Snapshot, Window
from ga3c.runs.tally import ROLLING_EPISODES
from ga3c.service.service import Service
from ga3c.settings.scheduler import Counts
from ga3c.settings.train import TrainConfig
from ga3c.training import progress
from ga3c.training.checks import STEPS_DONE, TIME_PASSED

ASKED, INTERRUPTED = "ended by on_figures", "interrupted"


class Outcome(NamedTuple):
    """How a run ended."""

    result: dict[str, Any]  # the content of result.json; `ended` is the reason for the end
    kept: bool  # whether the final checkpoint was written
    stuck: list[str]  # names of threads and processes that did not end in time


def finished(config: TrainConfig, service: Service) -> str | None:
    """The limit that the run has reached, in words; None if it has reached none."""
    limits, tally, pacing = config.run, service.tally, service.pacing
    if limits.steps is not None and pacing.steps >= limits.steps and pacing.is_settled:
        return f"{limits.steps:,} {STEPS_DONE}"
    if limits.seconds is not None and tally.seconds >= limits.seconds:
        return f"{limits.seconds:g} {TIME_PASSED}"
    if limits.score is not None and tally.has_full_mean(service.agents.lanes):
        mean = tally.score_mean()
        if mean >= limits.score:
            return f"mean score {mean:.2f} of the last {ROLLING_EPISODES} episodes reached"
    return None


def ending(reason: str, path: Path, kept: bool, updates: int) -> str:
    """A run's last line: why it ended, where it is kept, and how to resume an interrupted one."""
    was_interrupted = reason == INTERRUPTED
    if not updates:
        reason += ", before the first update: nothing was learned"
    if not kept:
        return f"{reason}; {path} has no final checkpoint, only earlier ones"
    more = f"; ga3c train --resume {shlex.quote(str(path))} resumes it" if was_interrupted else ""
    return f"{reason}; kept in {path}{more}"


def figures(config: TrainConfig, service: Service, counts: Counts) -> dict[str, Any]:
    """The figures of the whole run, across all its sessions, from its first step to now."""
    now = service.metrics.snapshot()
    window = Window(Snapshot(now.time_s - service.tally.seconds), now)
    values = progress.figures(window, service.metrics, service.tally, counts, 0, 0)
    return {
        **values,
        **progress.explored(service),
        "game": config.environment.game,
        "seed": config.run.seed,
        "frames": int(window.end["steps"]) * config.environment.frames_per_step,
        "agent_deaths": int(window.end["agent_deaths"]),
        "refused_updates": int(window.end["refused_updates"]),
        "rejected_messages": {
            name.removeprefix("rejected:"): int(count)
            for name, count in window.end.counts.items()
            if name.startswith("rejected:")
        },
    }
