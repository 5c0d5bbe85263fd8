"""`ga3c doctor`: what limits this run, by how much, and which setting to change.

It takes about a minute: it measures the parts alone, then the service as configured, and then the
service with the most promising change. The expected gain comes from these measurements: time saved
on one part goes to the others, and idle time could be divided as the busy time is. With agents on
other machines (--listen), it also measures how far away they are.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agents.environments import Spaces
from ga3c.measuring.options import DoctorConfig as Config
from ga3c.measuring.parts import prepare
from ga3c.measuring.remedies import NOISE, Remedy, Sizes, learning_limits, remedies
from ga3c.measuring.reporting import keep
from ga3c.measuring.round_trips import bandwidth_mb, described
from ga3c.measuring.serving import figures, measure_parts, measure_service
from ga3c.reports.console import show
from ga3c.service.threads import RunFailed
from ga3c.settings.begin import preset_like
from ga3c.settings.checks import WrongInput
from ga3c.settings.machine import CORES
from ga3c.settings.presets import OF_LANES, SIZES, for_lanes
from ga3c.settings.train import TrainConfig

WARM_UP_S = 3.0
DEFAULT_WINDOW_S = 6.0
WORTH_TRYING = 0.02
FEW_BATCHES = 3.0
CAUSES = {
    "environment": "the emulator",
    "prediction": "predictions",
    "training": "training",
    "wire": "the wire",
    "service_python": "Python in the service",
    "agents_python": "Python in the agents",
    "other_processes": "other programs on this machine",
    "idle": "idle cores",
}


def run(config: Config) -> None:
    """Measure and report, then try the best change and report. Raises RunFailed."""
    spaces, model = prepare(config)
    seconds = config.benchmark.part_seconds
    print(f"ga3c doctor: {config.environment.game}, about a minute", flush=True)
    parts = measure_parts(config, model, seconds)
    if config.hosts.listen:
        print(f"waiting for agents at {config.hosts.listen} (ga3c agents --connect)", flush=True)
    as_it_is = _service(config, spaces, parts)
    account = as_it_is["core_seconds_per_s"]
    largest = sorted(account, key=lambda name: -account[name])
    rows = [(CAUSES[n], f"{account[n] / CORES:.0%}", f"{account[n]:.2f}") for n in largest]
    show(f"where the time of {CORES} cores goes", ("to", "share", "cores"), rows)
    print(
        f"{as_it_is['pps']:,.0f} steps/s{_of_limit(config, as_it_is)}{_lag(config, as_it_is)}\n"
        f"what limits it: {_diagnosis(config, as_it_is)}"
    )
    for line in [*_few_batches(config, as_it_is), *described(as_it_is, config.service)]:
        print(line, flush=True)
    sizes = Sizes(
        lambda batch: model.predict_only(batch, seconds),
        lambda batch: model.train_only(batch, seconds),
    )
    fitting = [r for r in remedies(config, as_it_is, parts, sizes) if _fits(config, r)]
    best = max(fitting, key=lambda remedy: remedy.gain, default=None)
    result: dict[str, Any] = {"parts": parts, "before": as_it_is, "remedy": None}
    if "round_trip_ms" in as_it_is and config.hosts.compress:
        result["bandwidth_mb_per_s"] = _bandwidth(config, spaces, parts, as_it_is)
    if best and best.gain >= WORTH_TRYING:
        result = {**result, **_try(config, spaces, parts, as_it_is["pps"], best)}
    else:
        print("no setting promises more than 2%: it takes more cores, or a cheaper network")
    keep(result, config, config.benchmark, config.run.json)


def _service(config: Config, spaces: Spaces, parts: dict[str, float]) -> dict[str, Any]:
    seconds = config.run.seconds or DEFAULT_WINDOW_S
    measured = measure_service(config, spaces, WARM_UP_S, config.benchmark.repeats, seconds)
    return figures(measured, parts)


def _of_limit(config: Config, figures: dict[str, Any]) -> str:
    """The share of the parts' limit in words; empty if other machines' cores may play, too."""
    if config.hosts.others_may_play:
        return ""
    share, limit_pps = figures["share_of_limit"], figures["limit_pps"]
    return f", {share:.0%} of the {limit_pps:,.0f} that the parts alone allow"


def _few_batches(config: Config, figures: dict[str, Any]) -> Iterator[str]:
    """A warning if the measured time held so few batches that its figures of training are rough."""
    seconds = config.benchmark.repeats * (config.run.seconds or DEFAULT_WINDOW_S)
    batches = figures["updates_per_s"] * seconds / config.service.updates_per_batch
    if not config.learns_from_replay and batches < FEW_BATCHES:
        enough = math.ceil(FEW_BATCHES * config.service.training_batch_max / figures["pps"])
        yield (
            f"only {batches:.1f} batches were learned from in {seconds:g} s, so the figures of "
            f"training are rough: give --seconds {enough}"
        )


def _bandwidth(
    config: Config, spaces: Spaces, parts: dict[str, float], packed: dict[str, Any]
) -> float | None:
    """Measure once more with uncompressed frames, and print the bandwidth to other machines."""
    hosts = replace(config.hosts, compress=False)
    bandwidth = bandwidth_mb(packed, _service(replace(config, hosts=hosts), spaces, parts))
    words = f"{bandwidth:,.0f} MB/s" if bandwidth else "too high for steps to show it"
    print(f"bandwidth to other machines, from compressed and raw frames: {words}", flush=True)
    return bandwidth


def _diagnosis(config: Config, figures: dict[str, Any]) -> str:
    account = figures["core_seconds_per_s"]
    if account["other_processes"] > 0.1 * CORES:
        return f"other programs, which take {account['other_processes']:.1f} of {CORES} cores"
    if account["idle"] <= NOISE * CORES:
        busiest = max((n for n in account if n != "idle"), key=lambda name: account[name])
        share = account[busiest] / CORES
        return f"all cores are busy, {share:.0%} of their time with {CAUSES[busiest]}"
    if learning_limits(config, figures):
        return f"learning: trainers never wait, and {account['idle']:.1f} of {CORES} cores are idle"
    waits = (
        f"agents wait {figures['agents_waiting_share']:.0%} of their time, predictors "
        f"{figures['predictors_waiting_share']:.0%} for work and "
        f"{figures['predictors_blocked_share']:.0%} for trainers, trainers "
        f"{figures['trainers_waiting_share']:.0%}"
    )
    return f"{account['idle']:.1f} of {CORES} cores idle: {waits}"


def _changed(config: Config, remedy: Remedy) -> Config:
    """The settings after the change, as the command would find them with these options.

    Raises ValueError if they contradict each other.
    """
    section = replace(getattr(config, remedy.section), **remedy.options)
    changed = replace(config, **{remedy.section: section})
    before, after = (
        for_lanes(preset_like(each), *(getattr(each.service, name) for name in OF_LANES))
        for each in (config, changed)
    )
    for part, names in (("service", SIZES), ("optimizer", ("learning_rate",))):
        now, default, then = (getattr(each, part) for each in (changed, before, after))
        follow = {n: getattr(then, n) for n in names if getattr(now, n) == getattr(default, n)}
        changed = replace(changed, **{part: replace(now, **follow)})
    return changed


def _fits(config: Config, remedy: Remedy) -> bool:
    try:
        return bool(_changed(config, remedy))
    except ValueError:
        return False


def _try(
    config: Config, spaces: Spaces, parts: dict[str, float], pps: float, remedy: Remedy
) -> dict[str, Any]:
    print(f"what to change: {remedy.command}")
    print(f"  because {remedy.because}; expected {remedy.gain:+.0%}", flush=True)
    promised = {
        "remedy": remedy.command,
        "because": remedy.because,
        "expected_gain": remedy.gain,
    }
    try:
        after = _service(_changed(config, remedy), spaces, parts)
    except (WrongInput, RunFailed) as error:  # there is not enough memory for it, for example
        print(f"it cannot be tried here: {error}")
        return {**promised, "refused": str(error)}
    gain = after["pps"] / pps - 1
    print(f"tried: {after['pps']:,.0f} steps/s, {gain:+.0%}{_lag(config, after)}: {_verdict(gain)}")
    return {**promised, "measured_gain": gain, "after": after}


def _lag(config: TrainConfig, figures: dict[str, Any]) -> str:
    """The policy lag in words; empty for a replay, where it only reflects the replay's length."""
    if config.learns_from_replay:
        return ""
    return f"; policy lag {figures['policy_lag_mean']:.1f} updates"


def _verdict(gain: float) -> str:
    if abs(gain) <= NOISE:
        return "no more than noise, leave it"
    return "it helps" if gain > 0 else "it hurts, leave it"
