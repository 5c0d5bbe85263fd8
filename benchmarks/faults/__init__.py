"""`ga3c benchmark faults`: breaks a run in every way we know, and records what happens.

A case warms up a run, measures it without a fault, injects the fault, and measures it again. A case
that could not inject its fault has failed. Each result is kept in `cases.jsonl` as soon as its case
ends, so after an interruption the same command continues.
"""

import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults import (
    agents,
    counts,
    data,
    machines,
    messages,
    numbers,
    refused,
    service,
    soak,
)
from benchmarks.faults.case import Bench, Case, Seen
from benchmarks.faults.nodes import NoNamespaces
from benchmarks.faults.table import print_table
from benchmarks.kept import Memo, keep_all
from ga3c.runs.scratch import ScratchDirectory

GROUPS = (agents, service, counts, refused, data, messages, numbers, machines, soak)
SOAKS = tuple(case.name for case in soak.CASES)  # whose length --soak-hours sets
CASES: dict[str, Case] = {case.name: case for group in GROUPS for case in group.CASES}


@dataclass(frozen=True)
class Config:
    """Break runs in every way we know, and report what was promised, injected and seen."""

    out_dir: Path
    """Directory for the results; created if it is missing."""
    quick: bool = False
    """Shorter cases, without the longest unless they are named: within ten minutes."""
    cases: tuple[str, ...] = ("all",)
    """Cases to run, as GROUP or GROUP/FAULT; all: every one. `--cases list` prints them."""
    seed: int = 0
    """Seed for what the cases draw at random."""
    soak_hours: float = 2.0
    """Length of the soak test in hours, unless --quick is given."""
    json: bool = False
    """Print the result as one JSON object on the last line."""

    def __post_init__(self) -> None:
        if self.soak_hours <= 0:
            raise ValueError(f"soak_hours {self.soak_hours:g}: must be above 0")
        if not self.cases:
            raise ValueError("cases: must name at least one, or nothing is tested")
        for name in self.cases:
            if name not in ("all", "list") and not _named(name):
                groups = ", ".join(dict.fromkeys(each.partition("/")[0] for each in CASES))
                raise ValueError(
                    f"cases {name}: must be all, list, a group ({groups}) or one of its cases; "
                    "ga3c benchmark faults --cases list prints them"
                )

    @property
    def chosen(self) -> list[Case]:
        """The cases to run, in order."""
        if "all" in self.cases:
            return [case for case in CASES.values() if not (self.quick and case.is_long)]
        names = {each for name in self.cases for each in _named(name)}
        return [case for name, case in CASES.items() if name in names]


def _named(name: str) -> list[str]:
    """The cases that `name` stands for: a group's, or one."""
    return [each for each in CASES if name in (each, each.partition("/")[0])]


def run(config: Config) -> int | None:
    """Run all cases; print and save them. Returns the exit code: 1 if a case has failed."""
    if "list" in config.cases:
        for case in CASES.values():
            form = " (not in the quick form)" if case.is_long else ""
            print(f"{case.name}: {case.promise}{form}")
        return None
    config.out_dir.mkdir(parents=True, exist_ok=True)
    kept = Memo(config.out_dir / "cases.jsonl", "seen")
    seen: dict[str, dict[str, Any]] = {}
    for number, case in enumerate(config.chosen, 1):
        hours = () if config.quick or case.name not in SOAKS else (config.soak_hours,)
        key = kept.key(case.name, config.quick, config.seed, *hours)
        if key not in kept:
            kept.keep(key, attempt(case, config))
        seen[case.name] = kept[key]
        words = "passed" if kept[key]["passed"] else f"FAILED: {'; '.join(kept[key]['problems'])}"
        print(f"{number} of {len(config.chosen)}: {case.name}: {words}", flush=True)
    print_table(seen)
    keep_all("faults", {"cases": seen}, config, config.json)
    return 0 if all(each["passed"] for each in seen.values()) else 1


def attempt(case: Case, config: Config) -> dict[str, Any]:
    """Run one case. It has failed if it raises, or if it cannot run here."""
    began_s = time.monotonic()
    with ScratchDirectory() as directory:
        try:
            figures = case.attempt(
                Bench(directory, config.quick, config.seed, config.soak_hours * 3600)
            ).figures()
        except NoNamespaces as error:
            figures = Seen(problems=[str(error)]).figures()
        except Exception as error:  # the other cases still run
            traceback.print_exc()
            figures = Seen(problems=[f"{type(error).__name__}: {error}"]).figures()
    seconds = round(time.monotonic() - began_s, 1)
    return {"promise": case.promise, **figures, "seconds": seconds}
