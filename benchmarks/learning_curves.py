"""Keep the curves of finished runs in benchmarks/results, small enough for the repository.

    python -m benchmarks.learning_curves NAME RUN...     into benchmarks/results/NAME/

A kept run has its settings, its machine, its figures, its evaluations and `curve.csv` (the mean
score of the last 100 episodes by steps and by seconds). `ga3c plot`, `table` and `report` read it.
"""

import argparse
import csv
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ga3c.reports import history
from ga3c.reports.history import CURVE, Curve
from ga3c.runs.finding import EPISODES, EVALUATIONS, RESULT
from ga3c.runs.kept_config import CONFIG, load_config
from ga3c.runs.trust import META

RESULTS = Path(__file__).parent / "results"
KEPT = (CONFIG, META, RESULT, EVALUATIONS)
FIELDS = ("seconds", "steps", "score_mean_100")


def keep(runs: Sequence[Path], directory: Path) -> None:
    """Copy each run's files that readers need to DIRECTORY/seed-SEED/, replacing what is there.

    Raises ValueError, before copying anything, if two runs share a seed, or one has no episodes.
    """
    targets = {run: directory / f"seed-{load_config(run).run.seed}" for run in runs}
    if len(set(targets.values())) < len(targets):
        raise ValueError(f"{directory}: two of the runs share a seed; keep them under two names")
    for run in runs:
        if not (run / EPISODES).exists():
            raise ValueError(f"{run}: has no {EPISODES}, which its curve is made from")
    for run, target in targets.items():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in KEPT:
            if (run / name).exists():
                shutil.copy(run / name, target / name)
        _write(history.read(run).curve, target / CURVE)
        print(f"kept {run} as {target}")


def _write(curve: Curve, file: Path) -> None:
    with open(file, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(FIELDS)
        for seconds, steps, score in zip(*curve, strict=True):
            writer.writerow((f"{seconds:.2f}", int(steps), f"{score:.3f}"))


def main() -> None:
    """Parse the arguments, and keep the runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("runs", type=Path, nargs="+")
    options = parser.parse_args()
    try:
        keep(options.runs, RESULTS / options.name)
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
