"""The operations of the small network, one by one: how fast this processor computes in each.

    python -m benchmarks.operations --out operations.json

Each operation of a forward and a backward pass over 84x84x4 bytes is timed alone on one thread, in
float32 and in bfloat16, by the process's CPU time. Its GFLOPS follow from its number of additions
and multiplications. Operations without GFLOPS only move, convert or add up numbers.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ga3c import backend
from ga3c.backend.tensorflow import tf
from ga3c.command.parse import parse
from ga3c.measuring.children import rate
from ga3c.measuring.options import BenchmarkConfig
from ga3c.measuring.reporting import keep
from ga3c.reports.console import show

PRECISIONS = ("float32", "bfloat16")
CONV_0, CONV_1, DENSE = 2 * 20 * 20 * 16 * 256, 2 * 9 * 9 * 32 * 256, 2 * 2592 * 256
"""Additions and multiplications of a layer for one observation, in each direction."""


@dataclass(frozen=True)
class Config:
    """Time the operations of the small network, in microseconds of one core an observation."""

    observations: int = 256
    """Observations in each call; an update of ppo has so many."""
    benchmark: BenchmarkConfig = field(default_factory=lambda: BenchmarkConfig(part_seconds=0.3))


class Operations:
    """The small network's layers on random numbers in one precision."""

    def __init__(self, count: int, precision: str) -> None:
        random = np.random.default_rng(0)

        def draw(*shape: int) -> Any:
            return tf.cast(random.normal(size=shape).astype(np.float32), precision)

        self._precision = precision
        self._bytes = tf.constant(random.integers(0, 256, (count, 84, 84, 4), dtype=np.uint8))
        self._pictures = tf.cast(self._bytes, precision)
        self._floats = tf.cast(self._bytes, "float32")
        self._first, self._second = draw(count, 20, 20, 16), draw(count, 9, 9, 32)
        self._flat, self._last = draw(count, 2592), draw(count, 256)
        self._kernels = draw(8, 8, 4, 16), draw(4, 4, 16, 32), draw(2592, 256)
        self._bias = draw(16)

    def all(self) -> dict[str, tuple[Callable[[], Any], int]]:
        """Each operation by name, and its arithmetic per observation: 0 if it moves numbers."""
        first, second, flat, last = self._first, self._second, self._flat, self._last
        conv_0, conv_1, dense = self._kernels
        return {
            "bytes to numbers": (lambda: tf.cast(self._bytes, self._precision), 0),
            "mean of a picture": (lambda: tf.reduce_mean(self._floats, (1, 2, 3)), 0),
            "convolution 1": (lambda: tf.nn.conv2d(self._pictures, conv_0, 4, "VALID"), CONV_0),
            "convolution 1, bias": (lambda: tf.nn.bias_add(first, self._bias), 0),
            "convolution 1, activation": (lambda: tf.nn.relu(first), 0),
            "convolution 2": (lambda: tf.nn.conv2d(first, conv_1, 2, "VALID"), CONV_1),
            "dense": (lambda: flat @ dense, DENSE),
            "gradient of dense, input": (lambda: tf.matmul(last, dense, transpose_b=True), DENSE),
            "gradient of dense, kernel": (lambda: tf.matmul(flat, last, transpose_a=True), DENSE),
            "gradient of convolution 2, input": (self._of_input, CONV_1),
            "gradient of convolution 2, kernel": (
                lambda: self._of_kernel(first, conv_1, second, 2),
                CONV_1,
            ),
            "gradient of convolution 1, bias": (
                lambda: tf.raw_ops.BiasAddGrad(out_backprop=first),
                0,
            ),
            "gradient of convolution 1, kernel": (
                lambda: self._of_kernel(self._pictures, conv_0, first, 4),
                CONV_0,
            ),
        }

    def _of_input(self) -> Any:
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=self._first.shape,
            filter=self._kernels[1],
            out_backprop=self._second,
            strides=[1, 2, 2, 1],
            padding="VALID",
        )

    def _of_kernel(self, inputs: Any, kernel: Any, gradient: Any, stride: int) -> Any:
        return tf.raw_ops.Conv2DBackpropFilter(
            input=inputs,
            filter_sizes=kernel.shape,
            out_backprop=gradient,
            strides=[1, stride, stride, 1],
            padding="VALID",
        )


def per_second(function: Callable[[], Any], config: Config) -> float:
    """Observations per second of CPU time, the median of all repeats."""
    traced = backend.compiled(function, [])

    def call() -> int:
        traced()
        return config.observations

    seconds, turns = config.benchmark.part_seconds, range(config.benchmark.repeats)
    return statistics.median(rate(call, seconds, time.process_time) for _ in turns)


def main(config: Config) -> None:
    """Time the operations; print and save the result."""
    backend.configure(1, 0)
    found: dict[str, dict[str, Any]] = {}
    for precision in PRECISIONS:
        for name, (function, arithmetic) in (
            Operations(config.observations, precision).all().items()
        ):
            each = per_second(function, config)
            speed = arithmetic * each / 1e9 if arithmetic else None
            found.setdefault(name, {})[precision] = {"us": 1e6 / each, "gflops": speed}
    rows = [
        (name, *(_cell(figures[precision]) for precision in PRECISIONS))
        for name, figures in found.items()
    ]
    sums = [sum(each[precision]["us"] for each in found.values()) for precision in PRECISIONS]
    headings = ("operation", *(f"{precision}: us (GFLOPS)" for precision in PRECISIONS))
    rows.append(("sum", *(f"{us:.0f}" for us in sums)))
    show("the small network: one core, one observation", headings, rows)
    keep(found, config, config.benchmark, print_it=False)


def _cell(figures: dict[str, Any]) -> str:
    speed = figures["gflops"]
    return f"{figures['us']:.1f}" + (f" ({speed:.0f})" if speed else "")


if __name__ == "__main__":
    main(parse(sys.argv[1:], Config, "python -m benchmarks.operations"))
