"""Shows the result of `ga3c benchmark replay` as tables and a picture, with published figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ga3c.reports.console import show
from ga3c.reports.plots import legend_below
from ga3c.reports.published_figures import published_rows

PLACES = ("RAM", "device")
DRAWN = 512  # rows drawn at once by priority
TREE_ROWS = 1_000_000


def _published(name: str, key: str, value: str) -> dict[str, float]:
    return {row[key]: float(row[value]) for row in published_rows(name)}


def _number(published: Mapping[str, float], key: int, form: str, unit: str = "") -> str:
    """The published number of `key`; empty where nothing was published."""
    value = published.get(str(key))
    return "" if value is None else f"{value:{form}}{unit}"


def tables(result: dict[str, Any], vectors: int, pictures: int) -> None:
    """Print all tables. Args: vectors, pictures: steps in the replay of each."""
    rows: list[tuple[str, ...]]
    headings: tuple[str, ...]
    published = _published("in_gpu_replay_speedup.csv", "batch_size", "percent_speedup_over_in_ram")
    if result["places_are_one_memory"]:
        print("no GPU: both replays are in RAM and differ only in how a batch reaches the model")
    for name, steps in (("vectors", vectors), ("pictures", pictures)):
        rows = [
            (
                str(row["batch"]),
                str(row["ram_us"]),
                str(row["device_us"]),
                f"{row['percent_speedup']}%",
                _number(published, row["batch"], ".0f", "%"),
            )
            for row in result[name]
        ]
        headings = ("batch", "replay in RAM, us", "on the device, us", "faster", "published")
        show(f"a train step, {steps:,} {name}", headings, rows)
    costs = _published(
        "in_gpu_replay_update_size.csv", "update_size", "microseconds_per_experience"
    )
    rows = [
        (
            str(row["update_size"]),
            f"{row['ram_us'].median:.2f}",
            f"{row['device_us'].median:.2f}",
            _number(costs, row["update_size"], ".1f"),
        )
        for row in result["adding"]
    ]
    show("adding one step, us", ("steps at once", "in RAM", "on the device", "published"), rows)
    parts = [
        (
            f"{row['steps']:,}, {row['place']}",
            f"{row['stated_mb']:,.0f}",
            f"{row['grown_mb']:,.0f}",
            f"{row['add_us']:.2f}",
            f"{row['draw_us']:,.0f}",
            f"{row['update_us']:,.0f}",
        )
        for row in result["parts"]
    ]
    headings = (
        "steps, place",
        "MB stated",
        "process grew",
        "add one, us",
        f"draw {DRAWN}, us",
        f"set {DRAWN}, us",
    )
    show("a prioritised replay", headings, parts)
    trees = [
        (f"{row['fanout']}, {row['place']}", f"{row['draw_us']:,.0f}", f"{row['update_us']:,.0f}")
        for row in result["trees"]
    ]
    headings = ("fan-out, place", f"draw {DRAWN}, us", f"set {DRAWN}, us")
    show(f"a tree of {TREE_ROWS:,} priorities", headings, trees)


def picture(result: dict[str, Any], output: Path) -> None:
    """Draw the paper's table and its Figure 3, with our figures."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    faster, adding = figure.subplots(1, 2)
    published = _published("in_gpu_replay_speedup.csv", "batch_size", "percent_speedup_over_in_ram")
    faster.plot([int(b) for b in published], published.values(), "k--", label="published: a GPU")
    for name in ("vectors", "pictures"):
        rows = result[name]
        medians = [row["percent_speedup"].median for row in rows]
        faster.plot([row["batch"] for row in rows], medians, "o-", label=f"here: {name}")
    faster.set_xscale("log", base=2)
    faster.set_xlabel("batch")
    faster.set_ylabel("train step: speed-up over RAM, percent")
    costs = _published(
        "in_gpu_replay_update_size.csv", "update_size", "microseconds_per_experience"
    )
    costs.pop("in RAM")
    adding.plot([int(size) for size in costs], costs.values(), "k--", label="published: a GPU")
    for place in PLACES:
        medians = [row[f"{place.lower()}_us"].median for row in result["adding"]]
        sizes = [row["update_size"] for row in result["adding"]]
        adding.plot(sizes, medians, "o-", label=f"here: {place}")
    adding.set_yscale("log")
    adding.set_xlabel("steps written at once")
    adding.set_ylabel("adding one step, microseconds")
    for axes in (faster, adding):
        legend_below(axes)
        axes.grid(alpha=0.3)
    figure.savefig(output, dpi=110)
