"""`ga3c benchmark replay`: what a replay on the device saves, and what it costs.

As in Parr (2018, Table 1): the time of a train step with the replay in RAM over the time with it on
the device, by batch size, for vectors of 27 floats, and for stacked pictures, which the paper did
not measure. As in Figure 3: the cost of adding one step, by the number of steps added at once.
Also the cost of adding, drawing and setting priorities, by the size of the replay. Without a GPU,
both places are the same memory, and the result says so.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from agents.actions import Actions
from agents.environments import Spaces
from benchmarks.own_process import in_own_process
from benchmarks.replay_alone import LANES, Alone, with_sum
from benchmarks.replay_shown import DRAWN, PLACES, TREE_ROWS, picture, tables
from ga3c import backend
from ga3c.backend import Column
from ga3c.experience.batches import Transitions
from ga3c.experience.memory import DEVICE, HOST, free_bytes
from ga3c.experience.priorities import Priorities
from ga3c.experience.ring import RingShape
from ga3c.measuring.options import BenchmarkConfig
from ga3c.measuring.reporting import keep, spread
from ga3c.settings.checks import WrongInput, check_picture, check_threads

FLOATS = Spaces((27,), "float32", Actions(9), 1)
PICTURES = Spaces((84, 84), "uint8", Actions(6), 4)
SMALL = Spaces((4,), "float32", Actions(2), 1)
SMALLEST = 1000  # fewest steps of a replay, so that each lane has some to draw
WARM_UP = 5  # calls before the measured ones
COLUMNS: dict[str, Column] = {"action": ((), "int32"), "priority": ((), "float32")}


@dataclass(frozen=True)
class Config:
    """Measure train steps with a replay in RAM and on the device, and the replay's operations."""

    benchmark: BenchmarkConfig = field(default_factory=BenchmarkConfig)
    batches: tuple[int, ...] = (16, 32, 64, 128, 256)
    """Batch sizes of a train step, in transitions."""
    vector_steps: int = 1_000_000
    """Capacity of the replay of vectors, in steps."""
    picture_steps: int = 200_000
    """Capacity of the replay of pictures, in steps of 7 kB each."""
    update_sizes: tuple[int, ...] = (250, 500, 1000, 2000, 4000)
    """Numbers of new steps written at once."""
    sizes: tuple[int, ...] = (100_000, 1_000_000, 4_000_000)
    """Capacities, in steps, of the replays whose operations are measured on their own."""
    fanouts: tuple[int, ...] = (4, 16, 64, 256, 1000)
    """Fan-outs of a priority tree of a million rows; 1,000 gives two levels."""
    intra_op_threads: int = 1
    """Threads of the tensor framework within one operation."""
    picture: Path | None = None
    """Image file for a picture of the tables."""
    json: bool = False
    """Print the result as one JSON object on the last line."""

    def __post_init__(self) -> None:
        for steps in (self.vector_steps, self.picture_steps, *self.sizes):
            if steps < SMALLEST:
                raise ValueError(f"a replay of {steps} steps: must have at least {SMALLEST}")
        for name in ("batches", "update_sizes", "sizes", "fanouts"):
            values = getattr(self, name)
            if not values or min(values) < 1 + (name == "fanouts"):
                raise ValueError(f"{name} {values}: must be numbers of at least 1")
        check_threads(self.intra_op_threads)
        check_picture("picture", self.picture)


def run(config: Config) -> None:
    """Measure, print and save the result. Raises WrongInput if memory is too small."""
    has_gpu, lacking = _alone(_place, config)
    if lacking:
        raise WrongInput(lacking)
    result = {
        "places_are_one_memory": not has_gpu,
        "vectors": _train_steps(config, FLOATS, config.vector_steps),
        "pictures": _train_steps(config, PICTURES, config.picture_steps),
        "adding": _alone(_adding, config),
        "parts": [_alone(_part, config, size, at) for size in config.sizes for at in PLACES],
        "trees": _alone(_trees, config),
    }
    tables(result, config.vector_steps, config.picture_steps)
    keep(result, config, config.benchmark, config.json)
    if config.picture:
        picture(result, config.picture)


def _place(config: Config) -> tuple[bool, str]:
    """Whether there is a GPU, and a message if a replay does not fit."""
    wanted = ((FLOATS, config.vector_steps), (PICTURES, config.picture_steps))
    return backend.has_gpu(), "; ".join(filter(None, (_lacking(*each) for each in wanted)))


def _lacking(spaces: Spaces, steps: int) -> str:
    """A message if two replays of `steps` steps, one in each place, do not fit; else empty."""
    ring = RingShape(1, steps, spaces.shape, spaces.dtype, spaces.stack)
    one = ring.bytes(COLUMNS)
    for memory in (DEVICE, HOST):
        needed = one if backend.has_gpu() else 2 * one
        if needed > (free := free_bytes(memory)):
            return (
                f"replays of {steps:,} steps take {needed / 1e9:.1f} GB > {free / 1e9:.1f} GB that "
                "are free: choose fewer"
            )
    return ""


def _train_steps(config: Config, spaces: Spaces, steps: int) -> list[dict[str, Any]]:
    """For each batch size, seconds of a train step in each place, measured in turn."""
    return [_alone(_train_step, config, spaces, steps, batch) for batch in config.batches]


def _train_step(config: Config, spaces: Spaces, steps: int, batch: int) -> dict[str, Any]:
    both = [Alone(spaces, steps, batch, place == "device") for place in PLACES]
    times: tuple[list[float], ...] = ([], [])
    for _ in range(config.benchmark.repeats):
        for alone, found in zip(both, times, strict=True):
            found.append(_seconds(alone.train, config.benchmark.part_seconds))
    ram, device = ([1e6 * t for t in found] for found in times)
    faster = [100 * (r / d - 1) for r, d in zip(ram, device, strict=True)]
    row = {
        "batch": batch,
        "ram_us": spread(ram),
        "device_us": spread(device),
        "percent_speedup": spread(faster),
    }
    print(f"{steps:,} x {spaces.shape}, batch {batch}: {row['percent_speedup']}%", flush=True)
    return row


def _alone(work: Callable[..., Any], config: Config, *given: Any) -> Any:
    return in_own_process(config.intra_op_threads, work, config, *given)


def _adding(config: Config) -> list[dict[str, Any]]:
    rows = []
    both = [Alone(FLOATS, config.vector_steps, 32, place == "device") for place in PLACES]
    for size in config.update_sizes:
        steps = max(size // LANES, 1) * LANES
        row: dict[str, Any] = {"update_size": steps}
        for place, alone in zip(PLACES, both, strict=True):
            alone.block(steps)
            times = [
                1e6 * _seconds(partial(alone.add, steps), config.benchmark.part_seconds / 4) / steps
                for _ in range(config.benchmark.repeats)
            ]
            row[f"{place.lower()}_us"] = spread(times)
        rows.append(row)
    return rows


def _trees(config: Config) -> list[dict[str, Any]]:
    return [_tree(config, fanout, place) for fanout in config.fanouts for place in PLACES]


def _part(config: Config, size: int, place: str) -> dict[str, Any]:
    """Microseconds to add a step, to draw and to set priorities, in a prioritised replay."""
    process = psutil.Process()
    before = process.memory_info().rss
    alone = Alone(SMALL, size, DRAWN, place == "device", "prioritised")
    grown = process.memory_info().rss - before
    replay: Any = alone.model.source

    def draw_of(exponent: Any) -> Any:
        return replay.draw({"importance_exponent": exponent})

    draw: Any = draw_of

    def learned(rows: Any, errors: Any) -> None:
        replay.learned(Transitions(rows, *[None] * 7), errors)

    update: Any = learned
    if place == "device":
        draw = backend.compiled(draw_of, [((), "float32")])
        update = backend.compiled(with_sum(learned), [((None,), "int32"), ((None,), "float32")])
    rows = np.asarray(draw(np.float32(0.4)).rows)
    errors = np.random.default_rng(0).random(len(rows)).astype(np.float32)
    alone.block(1000)
    each = config.benchmark.part_seconds / 2
    return {
        "steps": size,
        "place": place,
        "stated_mb": alone.model.experience.ring.bytes(COLUMNS) / 1e6,
        "grown_mb": grown / 1e6,
        "add_us": 1e6 * _seconds(lambda: alone.add(1000), each) / 1000,
        "draw_us": 1e6 * _seconds(lambda: np.asarray(draw(np.float32(0.4)).rows), each),
        "update_us": 1e6 * _seconds(lambda: np.asarray(update(rows, errors)), each),
    }


def _tree(config: Config, fanout: int, place: str) -> dict[str, Any]:
    """Microseconds to draw and to set rows of a tree of a million, by its fan-out."""
    tree = Priorities(DEVICE if place == "device" else HOST, TREE_ROWS, fanout)
    draw: Any = tree.draw
    update: Any = tree.set
    if place == "device":
        draw = backend.compiled(draw, [((None,), "float32")])
        update = backend.compiled(with_sum(update), [((None,), "int32"), ((None,), "float32")])
    random = np.random.default_rng(0)
    rows = np.arange(TREE_ROWS, dtype=np.int32)
    update(rows, random.random(TREE_ROWS).astype(np.float32))
    points = random.random(DRAWN).astype(np.float32)
    some = random.integers(TREE_ROWS, size=DRAWN).astype(np.int32)
    each = config.benchmark.part_seconds / 2
    return {
        "fanout": fanout,
        "place": place,
        "draw_us": 1e6 * _seconds(lambda: np.asarray(draw(points)), each),
        "update_us": 1e6 * _seconds(lambda: np.asarray(update(some, points)), each),
    }


def _seconds(work: Callable[[], Any], seconds: float) -> float:
    """Median seconds of one call, over the calls that fit into `seconds`.

    `work` converts its result to NumPy: JAX only begins to compute it, and this waits for it.
    """
    for _ in range(WARM_UP):
        work()
    times, until_s = list[float](), time.perf_counter() + seconds
    while time.perf_counter() < until_s or len(times) < WARM_UP:
        started_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - started_s)
    return statistics.median(times)
