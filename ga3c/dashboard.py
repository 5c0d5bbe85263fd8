"""What a person sees of a run: one line every few seconds, with GA3C's fields."""

import math

from ga3c.metrics import Metrics, Window
from ga3c.scheduler import Counts

LEGEND = (
    "[time, episodes, last score] [RScore: mean of the last 100, steps] "
    "[PPS: predictions/s, TPS: trained samples/s] [queued predictions, training samples, "
    "lag in updates] [NT trainers, NP predictors, NA agents]"
)


def figures(
    window: Window, metrics: Metrics, counts: Counts, requests: int, samples: int
) -> dict[str, float | None]:
    """The figures of one progress line: those of a rate are over the window."""
    return {
        "seconds": round(metrics.seconds, 2),
        "steps": int(window.end["steps"]),
        "episodes": metrics.episodes,
        "score": _finite(metrics.last_score),
        "score_mean_100": _finite(metrics.score_mean()),
        "pps": round(window.rate("steps"), 1),
        "tps": round(window.rate("trained_samples"), 1),
        "updates": int(window.end["updates"]),
        "updates_per_s": round(window.rate("updates"), 2),
        "prediction_queue": requests,
        "training_queue": samples,
        "policy_lag": round(window.mean("lag_updates", "trained_samples"), 2),
        "prediction_batch": round(window.mean("steps", "prediction_batches"), 1),
        **counts._asdict(),
        **{name: _finite(value, 5) for name, value in metrics.newest().items()},
    }


def line(values: dict[str, float | None]) -> str:
    """The progress line of `figures`."""
    seconds = int(values["seconds"] or 0)
    clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return (
        f"[Time {clock}] [Episode {values['episodes']} Score {_number(values['score'])}] "
        f"[RScore {_number(values['score_mean_100'])} Steps {values['steps']:,}] "
        f"[PPS {values['pps']:.0f} TPS {values['tps']:.0f}] "
        f"[PQ {values['prediction_queue']} TQ {values['training_queue']} "
        f"Lag {values['policy_lag']:.1f}] "
        f"[NT {values['trainers']} NP {values['predictors']} NA {values['agents']}]"
    )


def _finite(value: float, digits: int = 3) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
