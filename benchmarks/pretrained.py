"""Keep what runs have learned as the policies that ship with ga3c (ga3c/pretrained/).

    python -m benchmarks.pretrained RUN...

A kept policy has its settings, its machine, its figures, and a checkpoint with the weights alone.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from agents.games import resolve
from ga3c.runs import checkpoints
from ga3c.runs.finding import PRETRAINED, RESULT
from ga3c.runs.kept_config import CONFIG, load_config
from ga3c.runs.trust import META

KEPT = (CONFIG, META, RESULT)
STATE = ("steps", "seconds", "episodes")


def keep(runs: Sequence[Path]) -> None:
    """Replace the policy of each run's game with that of the run's newest checkpoint."""
    for run in runs:
        target = PRETRAINED / resolve(load_config(run).environment.game).name
        newest, _ = checkpoints.newest(run / "checkpoints")
        assert newest is not None, f"{run} has no whole checkpoint"
        ended = json.loads((run / RESULT).read_text())
        assert ended["steps"] == newest.steps, f"{run} did not end with that checkpoint"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in KEPT:
            shutil.copy(run / name, target / name)
        arrays = {n: a for n, a in newest.arrays.items() if n.startswith("weights/")}
        state = {name: newest.state[name] for name in STATE}
        checkpoints.write(target / "checkpoints" / newest.path.name, arrays, state)
        size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
        print(f"kept {run} as {target}, {size / 1e6:.1f} MB")


def main() -> None:
    """Parse the arguments, and keep the runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    keep(parser.parse_args().runs)


if __name__ == "__main__":
    main()
