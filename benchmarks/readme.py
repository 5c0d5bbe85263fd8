"""Write the README's table of speeds from kept results.

python -m benchmarks.readme DIRECTORY     of throughput.json, a3c.json, ablation/, lanes.json
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ga3c.reports.figures import published_pps
from ga3c.settings.machine import ORIGIN

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- speeds: make benchmark writes this -->", "<!-- end of speeds -->"
NAMES = {"tensorflow": "TensorFlow", "jax": "JAX"}
AGENTS_WAIT = "39%"  # of Multiverse RL with 4 environments an agent
OVER_GA3C, OVER_ONE = "1.53", "1.33"  # 1781 predictions/s over 1164 and 1343 (multiverse_pps.csv)


def table(directory: Path) -> str:
    """The table in Markdown. Raises OSError where a result is missing."""
    whole, baseline, ablation, lanes = (
        json.loads((directory / name).read_text())
        for name in ("throughput.json", "a3c.json", "ablation/ablation.json", "lanes.json")
    )
    rows = [
        ("Pong, small network: steps/s while training", _thousands(whole["pps"]), "1,361"),
        ("limit of the same machine's parts, steps/s", _thousands(whole["limit_pps"]), ""),
        ("share of that limit", f"{whole['share_of_limit']:.0%}", ""),
        *_where_time_goes(whole["core_seconds_per_s"]),
        ("mean policy lag, updates", f"{whole['policy_lag_mean']:.0f}", ""),
        ("time that agents wait", f"{whole['agents_waiting_share']:.0%}", AGENTS_WAIT),
    ]
    for row in baseline["networks"]:
        theirs = published_pps()[row["network"]]
        published = f"{theirs['ga3c_pps'] / theirs['a3c_pps']:.1f}"
        rows.append((f"times A3C on the CPU, {row['network']}", f"{row['speedup']:.1f}", published))
    rows.extend(_of_ablation(ablation["points"]))
    rows.extend(
        (
            f"machinery alone, {row['lanes']:,} lanes, steps/s",
            _thousands(row["pps"]["median"]),
            "",
        )
        for row in lanes["lanes"]
    )
    machines = [found["machine"] for found in (whole, baseline, ablation, lanes)]
    lines = [
        f"Measured {_told(machines)}; kept in `{directory.resolve().relative_to(ROOT)}`.",
        "",
        "| figure | here | published |",
        "| --- | ---: | ---: |",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "\n".join(lines)


def _told(machines: Sequence[dict[str, Any]]) -> str:
    """When, where and with what. Raises ValueError where these are not all the same."""
    first = machines[0]
    for name in ORIGIN:
        found = {machine.get(name) for machine in machines}
        if len(found) > 1:
            raise ValueError(f"{name}: {', '.join(map(str, found))} cannot be in one table")
    framework = first["backend"]
    gpu = f" and {first['gpu']}" if first.get("gpu") else ""
    return (
        f"{first['date']} on {first['cores']} cores ({first['processor']}){gpu}, Python "
        f"{first['python']}, {NAMES[framework]} {first[framework]}, revision {first['git']}"
    )


def _where_time_goes(account: dict[str, float]) -> list[tuple[str, str, str]]:
    account = {**account, "Python": account["service_python"] + account["agents_python"]}
    whole = sum(account[name] for name in account if not name.endswith("_python"))
    rows = []
    for names in (("environment", "prediction", "training"), ("wire", "Python", "idle")):
        shares = " / ".join(f"{account[name] / whole:.0%}" for name in names)
        rows.append((f"time of all cores: {' / '.join(names)}", shares, ""))
    return rows


def _of_ablation(points: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    by_envs = {point["options"]["envs-per-agent"]: point for point in points[:-1]}
    one, four = (by_envs[count]["figures"]["pps"] for count in ("1", "4"))
    bare = points[0]["figures"]["pps"]
    resident = points[-1]["figures"]["pps"] / points[-2]["figures"]["pps"]
    return [
        ("4 environments an agent: times PPS of GA3C's way", f"{four / bare:.2f}", OVER_GA3C),
        ("4 environments an agent: times PPS of one", f"{four / one:.2f}", OVER_ONE),
        ("times PPS of RAM, experience on the device", f"{resident:.2f}", ""),
    ]


def _thousands(value: float) -> str:
    return f"{value:,.0f}"


def update(readme: Path, directory: Path) -> None:
    """Put the table between its marks. Raises ValueError if `readme` has none."""
    text = readme.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"{readme}: the marks {BEGIN!r} and {END!r} are missing")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    readme.write_text(f"{head}{BEGIN}\n\n{table(directory)}\n\n{END}{tail}")


def main() -> None:
    """Update README.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    try:
        update(ROOT / "README.md", parser.parse_args().directory)
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
