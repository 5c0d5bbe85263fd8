"""What benchmarks share: medians with their range, and a JSON file that names the machine."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ga3c.measuring.options import BenchmarkConfig
from ga3c.runs.durable import rewrite_whole
from ga3c.settings.machine import machine


class Spread(NamedTuple):
    """Repeated measurements of one thing."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return with_range(*self)


def with_range(value: float, low: float, high: float, form: str = ",.0f") -> str:
    """The value and its range, or the value alone if the range would only repeat it."""
    middle, least, most = (format(number, form) for number in (value, low, high))
    return middle if least == most else f"{middle} ({least} to {most})"


def spread(values: Sequence[float]) -> Spread:
    """The median and the range."""
    return Spread(statistics.median(values), min(values), max(values))


def keep(result: dict[str, Any], config: Any, benchmark: BenchmarkConfig, print_it: bool) -> None:
    """Write the JSON file if --out names one; print the same as the last line with --json."""
    whole = {**plain(result), "machine": machine(), "settings": plain(asdict(config))}
    if benchmark.out is not None:
        write_json(benchmark.out, whole)
    if print_it:
        print(json.dumps(whole), flush=True)


def write_json(out: Path, value: dict[str, Any]) -> None:
    """Write a JSON file. If that fails, such as on a full disk, an earlier one is kept whole."""
    text = json.dumps(value, indent=2) + "\n"
    if out.exists() and not out.is_file():  # /dev/stdout, say, which no file may replace
        out.write_text(text)
    else:
        rewrite_whole(out.resolve(), text)


def plain(value: Any) -> Any:
    """`value` with types that JSON has: spreads become objects, paths become text."""
    if isinstance(value, Spread):
        return value._asdict()
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value
