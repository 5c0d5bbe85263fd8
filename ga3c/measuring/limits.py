"""`ga3c benchmark limits`: how fast each part is alone on this machine, and the limit that follows.

The limit is `parts.limit` of the best of the measured sizes. The bare limit is that of a system
that only steps environments and computes the network in plain Keras (`bare`).
"""

from collections.abc import Callable, Sequence
from typing import Any

from ga3c.measuring.options import LimitsConfig as Config
from ga3c.measuring.parts import (
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


def run(config: Config) -> None:
    """Measure, print and keep. Raises RuntimeError if a process fails."""
    spaces, model = prepare(config)
    seconds = config.benchmark.part_seconds
    pairs = [(agents, envs) for agents in config.agent_counts for envs in config.env_counts]

    def environments(pair: tuple[int, int]) -> float:
        return environment_only(config.environment, *pair, seconds)

    def wire(pair: tuple[int, int]) -> float:
        return wire_only(spaces, *pair, seconds)

    def predictions(batch: int) -> float:
        return model.predict_only(batch, seconds)

    def training(batch: int) -> float:
        return model.train_only(batch, seconds)

    def bare_forward(batch: int) -> float:
        return model.bare_forward(batch, seconds)

    def bare_train(batch: int) -> float:
        return model.bare_train(batch, seconds)

    repeats = config.benchmark.repeats
    stepped = _measure(environments, pairs, repeats)
    predicted = _measure(predictions, config.prediction_batches, repeats)
    trained = _measure(training, config.training_batches, repeats)
    forward = _measure(bare_forward, config.prediction_batches, repeats)
    learned = _measure(bare_train, config.training_batches, repeats)
    carried = _measure(wire, pairs, repeats)
    steps = max(s.median / min(agents, CORES) for (agents, _), s in stepped.items())
    parts = {
        "environment_only": steps,
        "predict_only": max(s.median for s in predicted.values()),
        "train_only": max(s.median for s in trained.values()),
        "samples_a_step": samples_a_step(config),
        "bare_forward": max(s.median for s in forward.values()),
        "bare_train": max(s.median for s in learned.values()),
    }
    limit_pps, bare_limit_pps = limit(parts), bare_limit(parts)
    by_pair = ("agents", "environments", "median (range)")
    show("environment only, steps/s", by_pair, [(*map(str, p), str(s)) for p, s in stepped.items()])
    show("predict only, observations/s", ("batch", "median (range)"), _rows(predicted))
    show("train only, samples/s", ("batch", "median (range)"), _rows(trained))
    show("network alone, plain Keras, observations/s", ("batch", "median (range)"), _rows(forward))
    show("its training alone, observations/s", ("batch", "median (range)"), _rows(learned))
    show("wire only, messages/s", by_pair, [(*map(str, p), str(s)) for p, s in carried.items()])
    print(
        f"limit of {CORES} cores: {limit_pps:,.0f} steps/s, from {parts['environment_only']:,.0f} "
        f"steps, {parts['predict_only']:,.0f} predictions and {parts['train_only']:,.0f} trained "
        "samples a second and core"
    )
    print(
        f"bare limit: {bare_limit_pps:,.0f} steps/s, if the network alone were computed, which "
        f"makes {parts['bare_forward']:,.0f} forward passes and {parts['bare_train']:,.0f} "
        "forward and backward passes a second and core"
    )
    keep(
        {
            "limit_pps": limit_pps,
            "bare_limit_pps": bare_limit_pps,
            "parts": parts,
            "environment_only": _list(stepped, ("agents", "environments")),
            "predict_only": _list(predicted, ("batch",)),
            "train_only": _list(trained, ("batch",)),
            "bare_forward": _list(forward, ("batch",)),
            "bare_train": _list(learned, ("batch",)),
            "wire_only": _list(carried, ("agents", "environments")),
        },
        config,
        config.benchmark,
        config.run.json,
    )


def _measure(work: Callable[[Any], float], sizes: Sequence[Any], repeats: int) -> dict[Any, Spread]:
    """Rates of each size. All sizes are measured in turn, so that a slow minute affects all."""
    rates: dict[Any, list[float]] = {size: [] for size in sizes}
    for _ in range(repeats):
        for size in sizes:
            rates[size].append(work(size))
    return {size: spread(values) for size, values in rates.items()}


def _rows(measured: dict[int, Spread]) -> list[tuple[str, str]]:
    return [(str(size), str(rates)) for size, rates in measured.items()]


def _list(measured: dict[Any, Spread], names: tuple[str, ...]) -> list[dict[str, float]]:
    return [
        {**dict(zip(names, size if isinstance(size, tuple) else (size,))), **rates._asdict()}
        for size, rates in measured.items()
    ]
