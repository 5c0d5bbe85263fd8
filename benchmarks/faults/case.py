"""A case: one fault, what must hold in spite of it, and what was observed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults.processes import Belongings
from benchmarks.faults.watched import Watched

RECOVERED = 0.95  # of the speed before the fault
RECOVERY_WINDOW_S = 2.0  # the recovered speed is measured over this long
LASTING = 0.8  # of the speed before, over all the time after: machines vary by a tenth or more


@dataclass
class Seen:
    """What a case has observed. A figure that does not apply to the case stays None."""

    injected: int = 0
    """Faults that really happened."""
    problems: list[str] = field(default_factory=list)
    """What did not hold; the case passes if this is empty and something was injected."""
    pps_before: float | None = None
    pps_during: float | None = None
    pps_after: float | None = None
    recovery_s: float | None = None
    """Seconds from the end of the fault until the speed was back to RECOVERED of that before."""
    peak_mb: float | None = None
    """Largest resident memory of the service, in MiB."""
    descriptors: int | None = None
    """How many more the service had at the end than before the fault."""
    threads: int | None = None
    """The same for threads."""
    left: int | None = None
    """Processes and temporary files left after the command ended."""
    note: str = ""
    """A sentence or a figure specific to this case."""

    def expect(self, holds: bool, otherwise: str) -> None:
        """Record the problem `otherwise` unless the condition holds."""
        if not holds:
            self.problems.append(otherwise)

    def grown(self, before: Belongings, after: Belongings) -> None:
        """Record how the service's descriptors and threads have grown, which they must not."""
        self.descriptors = after.descriptors - before.descriptors
        self.threads = after.threads - before.threads
        self.expect(self.descriptors <= 0, f"{self.descriptors} more descriptors")
        self.expect(self.threads <= 0, f"{self.threads} more threads")

    @property
    def passed(self) -> bool:
        """Whether the fault was injected and everything held."""
        return bool(self.injected) and not self.problems

    def figures(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**asdict(self), "passed": self.passed}


@dataclass(frozen=True)
class Bench:
    """What a case is given."""

    directory: Path
    """An empty directory of its own."""
    quick: bool
    """Whether the case takes seconds, not minutes."""
    seed: int = 0
    """Seed for what the case draws at random."""
    soak_s: float = 7200.0
    """Length of the soak in its long form."""

    def scaled(self, full: float, quick: float) -> float:
        """The number for this form of the case, full or quick."""
        return quick if self.quick else full

    @contextmanager
    def watched(self, name: str = "run") -> Iterator[Watched]:
        """A `ga3c train` to break, which is killed at the end if it still runs."""
        with Watched(self.directory, name) as run:
            yield run

    def disturb(
        self,
        run: Watched,
        seen: Seen,
        inject: Callable[[], int],
        clean_s: float,
        after_s: float,
        recover_within_s: float,
    ) -> None:
        """Measure a run before the fault, while `inject` causes it, and afterwards.

        Args:
            inject: causes the fault and, once it is over, returns how often it did.
            recover_within_s: within this the speed must be back to RECOVERED of that before.
        """
        time.sleep(clean_s)
        began_s = time.monotonic()
        seen.pps_before = run.pps(began_s - clean_s, began_s)
        before = run.held[-1]
        seen.injected += inject()
        over_s = time.monotonic()
        seen.pps_during = run.pps(began_s, over_s) if over_s - began_s > 1.0 else None
        seen.recovery_s = _recovery(run, seen.pps_before, over_s, recover_within_s)
        back_s = time.monotonic()
        time.sleep(after_s)
        seen.pps_after = run.pps(back_s, time.monotonic())
        seen.expect(
            seen.recovery_s is not None,
            f"not at {RECOVERED:.0%} of {seen.pps_before:,.0f} PPS within {recover_within_s:g} s",
        )
        seen.expect(
            self.quick or seen.pps_after >= LASTING * seen.pps_before,  # seconds prove little
            f"{seen.pps_after:,.0f} PPS afterwards, not {LASTING:.0%} of {seen.pps_before:,.0f}",
        )
        seen.grown(before, run.held[-1])

    def finish(self, run: Watched, seen: Seen, code: int = 130) -> None:
        """Interrupt the run; it must end with `code` and leave nothing behind."""
        ended = run.end()
        seen.expect(ended == code, f"ended with exit code {ended}, not {code}: {run.tail()}")
        self.account(run, seen)

    def account(self, run: Watched, seen: Seen) -> None:
        """Record an ended run's peak memory and what it left behind, which must be nothing."""
        left = run.left()
        seen.left = len(left)
        seen.expect(not left, f"left behind: {', '.join(left)}")
        seen.peak_mb = max((held.memory_mb for held in run.held), default=None)


def _recovery(run: Watched, before: float, since_s: float, within_s: float) -> float | None:
    while True:
        now_s = time.monotonic()
        start_s = max(since_s, now_s - RECOVERY_WINDOW_S)
        if (
            now_s - since_s > RECOVERY_WINDOW_S / 2
            and run.pps(start_s, now_s) >= RECOVERED * before
        ):
            return now_s - since_s
        if now_s - since_s > within_s or not run.runs:
            return None
        time.sleep(0.1)


class Case(NamedTuple):
    """A fault to inject, and what must hold."""

    name: str  # GROUP/FAULT
    promise: str  # what must hold: one sentence for the table
    attempt: Callable[[Bench], Seen]
    is_long: bool = False  # whether the quick form leaves it out, unless it is named
