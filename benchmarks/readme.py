"""Write the README's table of speeds from kept results.

python -m benchmarks.readme DIRECTORY     with throughput.json, a3c.json, ablation/ and lanes.json
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.kept import ORIGIN
from benchmarks.published import published_pps

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- speeds: make benchmark writes this -->", "<!-- end of speeds -->"
NAMES = {"tensorflow": "TensorFlow", "jax": "JAX"}
AGENTS_WAIT = "39%"  # Multiverse RL, 15 agents
OVER_GA3C, OVER_ONE = "1.53", "1.33"  # 1781 predictions/s over 1164 and 1343 (multiverse_pps.csv)


def table(directory: Path) -> str:
    """The table in Markdown. Raises OSError if a result is missing."""
    throughput, baseline, ablation, lanes = (
        json.loads((directory / name).read_text())
        for name in ("throughput.json", "a3c.json", "ablation/ablation.json", "lanes.json")
    )
    rows = [
        ("Pong, `a3c`, small network: steps/s", _thousands(throughput["pps"]), "1,361"),
        ("limit set by the machine's parts, steps/s", _thousands(throughput["limit_pps"]), ""),
        ("share of that limit", f"{throughput['share_of_limit']:.0%}", ""),
        ("bare limit, of environment and network", _thousands(throughput["bare_limit_pps"]), ""),
        ("share of the bare limit", f"{throughput['share_of_bare_limit']:.0%}", ""),
        *_where_time_goes(throughput["core_seconds_per_s"]),
        ("mean policy lag, updates", f"{throughput['policy_lag_mean']:.0f}", ""),
        ("share of time that agents wait", f"{throughput['agents_waiting_share']:.0%}", ""),
    ]
    for row in baseline["networks"]:
        published = published_pps()[row["network"]]
        speedup = f"{published['ga3c_pps'] / published['a3c_pps']:.1f}"
        rows.append(
            (
                f"speed-up over A3C on the CPU, network {row['network']}",
                f"{row['speedup']:.1f}",
                speedup,
            )
        )
    rows.extend(_ablation_rows(ablation["points"]))
    rows.extend(
        (
            f"steps/s without emulator and model, {row['lanes']:,} environments",
            _thousands(row["pps"]["median"]),
            "",
        )
        for row in lanes["lanes"]
    )
    machines = [result["machine"] for result in (throughput, baseline, ablation, lanes)]
    lines = [
        f"Measured {described(machines)}; kept in `{directory.resolve().relative_to(ROOT)}`.",
        "",
        "| figure | here | published |",
        "| --- | ---: | ---: |",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "\n".join(lines)


def described(machines: Sequence[dict[str, Any]]) -> str:
    """When, where and with which versions. Raises ValueError if the results differ in these."""
    first = machines[0]
    for name in ORIGIN:
        values = {machine.get(name) for machine in machines}
        if len(values) > 1:
            raise ValueError(f"{name}: {', '.join(map(str, values))} cannot be in one table")
    framework = first["backend"]
    gpu = f" and {first['gpu']}" if first.get("gpu") else ""
    return (
        f"{first['date']} on {first['cores']} cores ({first['processor']}){gpu}, Python "
        f"{first['python']}, {NAMES[framework]} {first[framework]}, revision {first['git']}"
    )


def _where_time_goes(account: dict[str, float]) -> list[tuple[str, str, str]]:
    account = {**account, "Python": account["service_python"] + account["agents_python"]}
    total = sum(account[name] for name in account if not name.endswith("_python"))
    rows = []
    for names in (("environment", "prediction", "training"), ("wire", "Python", "idle")):
        shares = " / ".join(f"{account[name] / total:.0%}" for name in names)
        rows.append((f"share of all cores' time: {' / '.join(names)}", shares, ""))
    return rows


def _ablation_rows(points: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    by_envs = {point["options"]["envs-per-agent"]: point for point in points[:-1]}
    one, four = (by_envs[count]["figures"]["pps"] for count in ("1", "4"))
    ga3c_way = points[0]["figures"]["pps"]
    waiting = by_envs["4"]["figures"]["agents_waiting_share"]
    return [
        ("share of time that agents wait, 4 environments each", f"{waiting:.0%}", AGENTS_WAIT),
        (
            "speed-up by 4 environments per agent, over GA3C's way",
            f"{four / ga3c_way:.2f}",
            OVER_GA3C,
        ),
        ("speed-up by 4 environments per agent, over 1", f"{four / one:.2f}", OVER_ONE),
    ]


def _thousands(value: float) -> str:
    return f"{value:,.0f}"


def update(readme: Path, directory: Path) -> None:
    """Replace the table between the markers. Raises ValueError if `readme` has no markers."""
    replace_between(readme, (BEGIN, END), table(directory))


def replace_between(page: Path, markers: tuple[str, str], content: str) -> None:
    """Put `content` between the markers of a page. Raises ValueError if one is missing."""
    begin, end = markers
    text = page.read_text()
    if begin not in text or end not in text:
        raise ValueError(f"{page}: the markers {begin!r} and {end!r} are missing")
    head, tail = text.split(begin)[0], text.split(end)[1]
    page.write_text(f"{head}{begin}\n\n{content}\n\n{end}{tail}")


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
