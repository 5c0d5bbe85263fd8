"""`ga3c benchmark limits`: how fast each part is alone on this machine, and the limit that follows.

The limit is `parts.limit` of the best of the measured sizes. The bare limit is that of a system
that only steps environments and computes the network in plain Keras (`bare`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from agents.environments import Spaces
from ga3c.measuring.options import BenchmarkConfig
from ga3c.measuring.options import LimitsConfig as Config
from ga3c.measuring.parts import (
    ModelAlone,
    bare_limit,
    environment_only,
    limit,
    prepare,
    samples_a_step,
    wire_only,
)
from ga3c.measuring.reporting import Spread, keep, spread
from ga3c.reports.console import show
from ga3c.settings.machine import CORES

Size = tuple[int, ...]
PAIR, BATCH = ("agents", "environments"), ("batch",)  # the names of a size's numbers


class Part(NamedTuple):
    """A part that is measured alone, for several sizes."""

    title: str
    names: tuple[str, ...]  # of a size's numbers
    sizes: Sequence[Size]
    rate: Callable[..., float]  # of a size's numbers and the seconds to measure


def run(config: Config) -> None:
    """Measure, print and keep. Raises RuntimeError if a process fails."""
    parts = _parts(config, *prepare(config))
    measured = {name: _measure(part, config.benchmark) for name, part in parts.items()}
    steps = measured["environment_only"].items()
    best = {
        "environment_only": max(s.median / min(agents, CORES) for (agents, _), s in steps),
        **{
            name: max(s.median for s in measured[name].values())
            for name, part in parts.items()
            if part.names == BATCH
        },
        "samples_a_step": samples_a_step(config),
    }
    limit_pps, bare_limit_pps = limit(best), bare_limit(best)
    rates = {name: _shown(part, measured[name]) for name, part in parts.items()}
    print(
        f"limit of {CORES} cores: {limit_pps:,.0f} steps/s, from {best['environment_only']:,.0f} "
        f"steps, {best['predict_only']:,.0f} predictions and {best['train_only']:,.0f} trained "
        "samples per second and core"
    )
    print(
        f"bare limit: {bare_limit_pps:,.0f} steps/s, if the network alone were computed, at "
        f"{best['bare_forward']:,.0f} forward passes and {best['bare_train']:,.0f} "
        "forward and backward passes per second and core"
    )
    limits = {"limit_pps": limit_pps, "bare_limit_pps": bare_limit_pps, "parts": best}
    keep({**limits, **rates}, config, config.benchmark, config.run.json)


def _parts(config: Config, spaces: Spaces, model: ModelAlone) -> dict[str, Part]:
    pairs = [*product(config.agent_counts, config.env_counts)]
    predicted = [(batch,) for batch in config.prediction_batches]
    trained = [(batch,) for batch in config.training_batches]
    step, send = partial(environment_only, config.environment), partial(wire_only, spaces)
    forward = "network alone, plain Keras, observations/s"
    return {
        "environment_only": Part("environment only, steps/s", PAIR, pairs, step),
        "predict_only": Part("predict only, observations/s", BATCH, predicted, model.predict_only),
        "train_only": Part("train only, samples/s", BATCH, trained, model.train_only),
        "bare_forward": Part(forward, BATCH, predicted, model.bare_forward),
        "bare_train": Part("its training alone, observations/s", BATCH, trained, model.bare_train),
        "wire_only": Part("wire only, messages/s", PAIR, pairs, send),
    }


def _measure(part: Part, benchmark: BenchmarkConfig) -> dict[Size, Spread]:
    """Rates of each size. All sizes are measured in turn, so that a slow minute affects all."""
    rates: dict[Size, list[float]] = {size: [] for size in part.sizes}
    for _ in range(benchmark.repeats):
        for size in part.sizes:
            rates[size].append(part.rate(*size, benchmark.part_seconds))
    return {size: spread(values) for size, values in rates.items()}


def _shown(part: Part, measured: dict[Size, Spread]) -> list[dict[str, float]]:
    """Print the rates of each size, and return them for JSON."""
    rows = [(*map(str, size), str(rates)) for size, rates in measured.items()]
    show(part.title, (*part.names, "median (range)"), rows)
    return [{**dict(zip(part.names, size)), **rates._asdict()} for size, rates in measured.items()]
