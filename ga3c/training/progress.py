"""A run's progress figures, and the progress line that shows them."""

import math
from collections.abc import Mapping

import numpy as np

from ga3c.runs.metrics import Metrics, Window
from ga3c.runs.tally import INFO, Tally, short
from ga3c.service.service import Service
from ga3c.settings.scheduler import Counts

ROLES = ("agents", "predictors", "trainers")
LEARNED = {  # learning figures that the live view shows if the run has them
    "success_rate_100": "success rate of the last 100",
    "policy_loss": "policy loss",
    "value_loss": "value loss",
    "td_error": "TD error",
    "entropy": "entropy",
    "best_evaluation": "best evaluation",
}
Values = Mapping[str, float | None]


def figures(
    window: Window, metrics: Metrics, tally: Tally, counts: Counts, requests: int, samples: int
) -> dict[str, float | None]:
    """The figures of one progress line. Rates and means are over the window."""
    newest = metrics.newest()
    lag = round(window.mean("lag_updates", "trained_samples"), 2)
    success = _finite(tally.success_rate())
    return {
        **{name: _finite(value, 5) for name, value in newest.items()},  # also of custom algorithms
        **({} if success is None else {"success_rate_100": success}),
        **{INFO + key: _significant(mean) for key, mean in tally.info_means().items()},
        "seconds": round(tally.seconds, 2),
        "steps": int(window.end["steps"]),
        "episodes": tally.episodes,
        "score": _finite(tally.last_score),
        "score_mean_100": _finite(tally.score_mean()),
        "length_mean_100": _finite(tally.length_mean()),
        "reward_per_step": round(window.mean("rewards", "steps"), 5),
        "pps": round(window.rate("steps"), 1),
        "tps": round(window.rate("trained_samples"), 1),
        "updates": int(window.end["updates"]),
        "updates_per_s": round(window.rate("updates"), 2),
        "replay_ratio": round(window.mean("trained_samples", "steps"), 3),
        "steps_per_update": round(window.mean("steps", "updates"), 1),
        "prediction_queue": requests,
        "training_queue": samples,
        "policy_lag": None if "replay_steps" in newest else lag,  # with a replay: just its age
        "prediction_batch": round(window.mean("steps", "prediction_batches"), 1),
        **{f"{role}_waiting": round(window.share(role, "waiting"), 3) for role in ROLES},
        **counts._asdict(),
    }


def explored(service: Service) -> dict[str, float]:
    """How much all environments explore now: `epsilon`, or `noise` of continuous actions.

    Empty if each environment has its own epsilon, or if the algorithm has neither.
    """
    model, experience = service.model, service.model.experience
    lanes = np.arange(experience.ring.lanes)
    rates = model.exploration(lanes, service.pacing.steps)
    explores = "replay_steps" in service.metrics.newest() or model.exploration(lanes, 0).any()
    if not explores or rates.min() != rates.max():
        return {}
    _, dtype = experience.columns["action"]
    return {"noise" if dtype.startswith("float") else "epsilon": round(float(rates[0]), 5)}


def legend(values: Values) -> str:
    """Explains the fields of `line`."""
    queues = "training samples, lag in updates"
    if values.get("replay_steps") is not None:
        queues = "steps in the replay, trained samples per step, epsilon or noise"
    return (
        "[time, episodes, last score] [RScore: mean of the last 100, steps] [PPS: predictions/s, "
        f"TPS: trained samples/s] [queued predictions, {queues}] "
        "[NT trainers, NP predictors, NA agents]"
    )


def line(values: Values) -> str:
    """The figures as one progress line, with the fields that GA3C prints."""
    success = values.get("success_rate_100")
    succeeded = "" if success is None else f"Success {success:.0%} "
    infos = "".join(f"{key} {short(value)} " for key, value in infos_of(values))
    return (
        f"[Time {clock(values['seconds'])}] "
        f"[Episode {values['episodes']} Score {number(values['score'])}] "
        f"[RScore {number(values['score_mean_100'])} {succeeded}{infos}Steps {values['steps']:,}] "
        f"[PPS {values['pps']:.0f} TPS {values['tps']:.0f}] "
        f"{_queued(values)} "
        f"[NT {values['trainers']} NP {values['predictors']} NA {values['agents']}]"
    )


def rows(values: Values) -> list[tuple[str, str]]:
    """The rows of the live view: names and figures."""
    learned = [
        (words, f"{value:,.3f}")
        for name, words in LEARNED.items()
        if (value := values.get(name)) is not None
    ]
    return [
        ("reward per 1,000 steps", f"{1000 * (values['reward_per_step'] or 0):,.1f}"),
        ("PPS, predictions/s", f"{values['pps']:,.0f}"),
        ("TPS, trained samples/s", f"{values['tps']:,.0f}"),
        *_queue_rows(values),
        *(
            (f"{role}: {values[role]}", f"wait {values[f'{role}_waiting'] or 0:.0%}")
            for role in ROLES
        ),
        *learned,
        *((f"{key}, mean of the last 100", short(value)) for key, value in infos_of(values)),
    ]


def _queue_rows(values: Values) -> list[tuple[str, str]]:
    """Queues and policy lag or, with a replay, the replay, exploration and queue."""
    queued = values["prediction_queue"]
    if (replay := values.get("replay_steps")) is None:
        queues = f"{queued}, {values['training_queue']}"
        lag = f"{values['policy_lag']:.1f}"
        return [("policy lag, updates", lag), ("queued predictions, samples", queues)]
    return [
        ("replay, steps to draw from", f"{replay:,.0f}"),
        ("trained samples per step", f"{values['replay_ratio']:.2f}"),
        ("steps per update", f"{values['steps_per_update']:,.1f}"),
        _exploration(values),
        ("queued predictions", f"{queued}"),
    ]


def _queued(values: Values) -> str:
    """The same figures for the progress line."""
    replay = values.get("replay_steps")
    if replay is None:
        queued = f"PQ {values['prediction_queue']} TQ {values['training_queue']}"
        return f"[{queued} Lag {values['policy_lag']:.1f}]"
    queued = f"PQ {values['prediction_queue']} Replay {replay:,.0f}"
    name, explored = _exploration(values)
    return f"[{queued} Ratio {values['replay_ratio']:.2f} {name.capitalize()} {explored}]"


def _exploration(values: Values) -> tuple[str, str]:
    """The exploration parameter's name, and its value if all environments share one."""
    if (noise := values.get("noise")) is not None:
        return "noise", f"{noise:.2f}"
    epsilon = values.get("epsilon")
    return "epsilon", "per environment" if epsilon is None else f"{epsilon:.2f}"


def clock(seconds: float | None) -> str:
    whole = int(seconds or 0)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _finite(value: float, digits: int = 3) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def infos_of(values: Values) -> list[tuple[str, float | None]]:
    """What environments reported in their infos: keys and means."""
    return [(name.removeprefix(INFO), v) for name, v in values.items() if name.startswith(INFO)]


def _significant(value: float) -> float | None:
    """A number of any size, with six digits that count; None if there is none."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
