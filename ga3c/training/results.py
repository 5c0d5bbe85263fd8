"""What a run comes to: when it is finished, and its figures."""

from typing import Any, NamedTuple

from ga3c.runs import dashboard
from ga3c.runs.metrics import Window
from ga3c.runs.tally import ROLLING_EPISODES
from ga3c.service.service import Service
from ga3c.settings.scheduler import Counts
from ga3c.settings.train import TrainConfig

INTERRUPTED = "interrupted"


class Outcome(NamedTuple):
    """How a run ended."""

    result: dict[str, Any]  # as result.json holds it; `ended` is the reason
    kept: bool  # whether a checkpoint of its end was written
    stuck: list[str]  # what did not end in time, by name


def finished(config: TrainConfig, service: Service) -> str | None:
    """Which limit of the run is reached, in words; None if it goes on."""
    limits, tally, pacing = config.run, service.tally, service.pacing
    if limits.steps is not None and pacing.steps >= limits.steps and pacing.is_settled:
        return f"{limits.steps} steps done"
    if limits.seconds is not None and tally.seconds >= limits.seconds:
        return f"{limits.seconds:g} seconds passed"
    if limits.score is not None and tally.episodes >= ROLLING_EPISODES:
        mean = tally.score_mean()
        if mean >= limits.score:
            return f"mean score {mean:.2f} of the last {ROLLING_EPISODES} episodes reached"
    return None


def figures(
    config: TrainConfig, service: Service, counts: Counts, window: Window
) -> dict[str, Any]:
    """The figures of the whole run, from the first agent's start to the last one's end."""
    values = dashboard.figures(window, service.metrics, service.tally, counts, 0, 0)
    return {
        **values,
        "game": config.environment.game,
        "seed": config.run.seed,
        "frames": int(window.end["steps"]) * config.environment.frames_per_step,
        "trained_samples_per_s": values["tps"],
        "policy_lag_mean": values["policy_lag"],
        "agent_deaths": int(window.end["agent_deaths"]),
        "refused_updates": int(window.end["refused_updates"]),
        "rejected_messages": {
            name.removeprefix("rejected:"): int(count)
            for name, count in window.end.counts.items()
            if name.startswith("rejected:")
        },
    }
