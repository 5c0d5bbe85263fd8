"""`ga3c benchmark throughput`: the whole service against the limit of this machine's parts.

The parts are measured alone right before and right after the service, because a machine's speed
changes over minutes; the limit is the mean of both (`parts.limit`). Predictions and training are
measured without the ring, the queues and the wire, so the time of these counts against the service.
The bare limit (`parts.bare_limit`) leaves out the algorithm, too.
"""

from typing import Any

from ga3c.measuring.options import ThroughputConfig as Config
from ga3c.measuring.parts import prepare
from ga3c.measuring.reporting import Spread, keep
from ga3c.measuring.serving import figures, measure_bare, measure_parts, measure_service
from ga3c.reports.console import show
from ga3c.settings.machine import CORES

DEFAULT_WINDOW_S = 20.0


def run(config: Config) -> None:
    """Measure, print and keep. Raises RunFailed if the service fails."""
    spaces, model = prepare(config)
    seconds = config.benchmark.part_seconds
    before = measure_bare(config, model, seconds, measure_parts(config, model, seconds))
    measured = measure_service(
        config,
        spaces,
        config.warm_up_seconds,
        config.benchmark.repeats,
        config.run.seconds or DEFAULT_WINDOW_S,
    )
    after = measure_bare(config, model, seconds, measure_parts(config, model, seconds))
    parts = {name: (before[name] + after[name]) / 2 for name in before}
    result = {**figures(measured, parts), "parts_before": before, "parts_after": after}
    result["bare_limit_pps"] = parts["bare_limit_pps"]
    result["share_of_bare_limit"] = result["pps"] / parts["bare_limit_pps"]
    _print(result)
    keep(result, config, config.benchmark, config.run.json)


def _print(result: dict[str, Any]) -> None:
    before, after = result["parts_before"], result["parts_after"]
    alone = [(name, f"{before[name]:,.0f}", f"{after[name]:,.0f}") for name in before]
    show("alone, per second and core (the limit: all cores)", ("part", "before", "after"), alone)
    pps = Spread(result["pps"], result["pps_low"], result["pps_high"])
    figures = [("PPS: predictions/s, median (range)", str(pps))]
    for name, value in result.items():
        if "share" in name:
            figures.append((name, f"{value:.1%}"))
        elif isinstance(value, float) and not name.startswith(("pps", "limit")):
            figures.append((name, f"{value:,.1f}"))
    show("the service", ("figure", "value"), figures)
    account = result["core_seconds_per_s"]
    account = {**account, "sum": sum(account.values())}
    spent = [(n, f"{s:.3f}", f"{1e6 * s / result['pps']:.0f}") for n, s in account.items()]
    headings = ("core-seconds", "a second", "microseconds a step")
    show(f"where the time of {CORES} cores goes", headings, spent)
