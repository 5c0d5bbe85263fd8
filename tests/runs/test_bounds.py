"""The files of a run of a billion steps stay within their bounds.

The runs here have a hundredth of the lines, and the bounds are a hundredth of the real ones.
"""

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ga3c.reports import history
from ga3c.runs import directory, durable, events, finding, records
from ga3c.runs.directory import MOST_BYTES, RunDirectory
from ga3c.runs.finding import EPISODES, LOG, METRICS
from ga3c.runs.tally import Episode
from ga3c.settings.run import RunConfig
from ga3c.settings.train import TrainConfig
from tests.commands import ROOT

SCALE = 100
EPISODES_MADE = 50_000_000 // SCALE  # a billion steps of CartPole, at 20 per episode
LINES_MADE = 2_000_000 // SCALE  # a line every 5 s, at 100 steps per second
STEPS = 1_000_000_000
FIGURES: dict[str, Any] = {f"figure_{number}": 0.123456 for number in range(30)}
LINE = "[Time 115:17:46:40] [Episode 50,000,000 Score 500.0] [RScore 499.9 Steps 1,000,000,000]"


def scaled(patch: pytest.MonkeyPatch) -> dict[str, int]:
    """Divide all bounds by SCALE, as the number of lines is. Returns those of the text files."""
    found = {name: size // SCALE for name, size in MOST_BYTES.items()}
    patch.setattr(directory, "MOST_BYTES", found)
    patch.setattr(events, "PART_BYTES", events.PART_BYTES // SCALE)
    return found


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    return scaled(monkeypatch)


def score(steps: int) -> float:
    """A score proportional to the steps, so that it tells when it was made."""
    return round(500 * steps / STEPS, 2)


def episodes(first: int, last: int) -> Iterator[Episode]:
    for number in range(first, last):
        steps = number * STEPS // EPISODES_MADE
        yield Episode(steps / 100, steps, score(steps), 20, 0.0, True)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a run of a billion steps, written without training. Copy them to change them."""
    path = tmp_path_factory.mktemp("billion") / "run"
    with pytest.MonkeyPatch.context() as patch:
        scaled(patch)
        _play(path)
    return path


def _play(path: Path) -> None:
    run = RunDirectory(TrainConfig(), path)
    run.begin(0)
    each = EPISODES_MADE // LINES_MADE
    for number in range(LINES_MADE):
        run.episodes(episodes(number * each, (number + 1) * each))
        steps = (number + 1) * STEPS // LINES_MADE
        figures = {"seconds": steps / 100, "steps": steps, "pps": 100.0, "tps": 80.0}
        run.metrics({**figures, "score_mean_100": score(steps), **FIGURES})
        run.log(f"{LINE} {number}")
    run.close()


def resumed(path: Path) -> TrainConfig:
    return TrainConfig(run=RunConfig(resume=path))


def sizes(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in path.iterdir()}


def test_a_billion_steps_leave_files_below_their_bounds_and_a_whole_history(
    bounds: dict[str, int], played: Path
) -> None:
    found = sizes(played)
    for name in (EPISODES, METRICS):
        assert bounds[name] / 2.5 < found[name] <= bounds[name] + 1000
    assert found[LOG] + found[f"{LOG}.1"] <= 2 * bounds[LOG] + 1000
    (shown,) = (size for name, size in found.items() if name.startswith("events.out"))
    assert shown < 10 * events.PART_BYTES
    kept = history.episodes_in(played / EPISODES)
    assert kept[-1:] == list(episodes(EPISODES_MADE - 1, EPISODES_MADE))
    old = [each.steps for each in kept if each.steps < STEPS // 2]
    parts = np.histogram(old, 10, (0, STEPS // 2))[0]
    assert parts.min() > 0.7 * parts.max() > 50, "and what is left of the others is even"
    lines = records.read(played / METRICS)
    assert lines[-1] == records.newest(played / METRICS) == finding.newest_figures(played)
    assert lines[-1]["steps"] == STEPS
    curve = history.rolling(kept)
    np.testing.assert_allclose(curve.score[1:], 500 * curve.steps[1:] / STEPS, atol=30)
    assert len(curve.steps) >= history.POINTS


def test_a_very_long_run_is_resumed_from_any_of_its_checkpoints(
    bounds: dict[str, int], played: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(played, tmp_path / "run")
    before = history.episodes_in(run / EPISODES)
    lines = records.read(run / METRICS)
    for steps in (STEPS - 5000, STEPS // 3, 0):
        again = RunDirectory(resumed(run), run)
        again.begin(steps)
        again.close()
        kept = [each for each in before if each.steps < steps]
        assert history.episodes_in(run / EPISODES) == kept
        assert bool(kept) == bool(steps)
        left = records.read(run / METRICS)
        assert left == [line for line in lines if line["steps"] <= steps]
        assert bool(left) == bool(steps)


def test_files_of_any_size_are_cut_and_thinned_in_little_memory(tmp_path: Path) -> None:
    """Earlier versions kept every episode, so the files of their runs can have any size."""
    file = tmp_path / EPISODES
    with open(file, "w", newline="") as rows:
        rows.write(",".join(Episode._fields) + "\r\n")
        rows.writelines(f"{n}.0,{20 * n},21.0,20,0,1\r\n" for n in range(100_000))
    assert file.stat().st_size > 2_500_000
    tracemalloc.start()
    durable.rewrite_lines(file, directory._episodes_before(file, 20 * 95_000))
    records.thin(file, 500_000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 500_000
    assert 200_000 < file.stat().st_size <= 500_000
    assert history.episodes_in(file)[-1].steps == 20 * 94_999


@pytest.mark.parametrize("share", [0.5, 0.1, 0.0])
def test_thinning_keeps_the_first_and_last_line_and_a_share_of_each_lane(
    share: float, tmp_path: Path
) -> None:
    """The lines of 64 lanes alternate regularly, and no lane is dropped entirely."""
    file = tmp_path / "file"
    lines = [f"{number},{number % 64}\n" for number in range(64_000)]
    file.write_text("head\n" + "".join(lines))
    most = int(file.stat().st_size * share)
    records.thin(file, most)
    head, *left = file.read_text().splitlines(keepends=True)
    assert (head, left[-1]) == ("head\n", lines[-1])
    numbers = [int(line.split(",")[0]) for line in left]
    assert numbers == sorted(numbers), "in their order"
    assert left == [lines[number] for number in numbers]
    assert most / 3 < file.stat().st_size <= most + 20
    lanes = np.bincount([int(line.split(",")[1]) for line in left], minlength=64)
    assert not share or lanes.min() > 0.4 * lanes.max()
    records.thin(file, most)
    assert file.read_text() == head + "".join(left), "what is small enough stays as it is"


def test_an_event_that_found_no_room_is_left_out_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorBoard reads nothing after a truncated record: half of one would hide all later ones."""
    shown = events.Events(tmp_path, 0)
    shown.figures({"steps": 1, "pps": 1.0})
    file, real = shown._file, shown._file.write

    class Full:
        """Writes only half of the data, as an almost full disk does."""

        def __getattr__(self, name: str) -> Any:
            return getattr(file, name)

        def write(self, data: memoryview) -> int:
            return real(data[: len(data) // 2])

    monkeypatch.setattr(shown, "_file", Full())
    with pytest.raises(OSError, match="No space left"):
        shown.figures({"steps": 2, "pps": 2.0})
    monkeypatch.setattr(shown, "_file", file)
    shown.figures({"steps": 3, "pps": 3.0})
    shown.close()
    read = EventAccumulator(str(tmp_path)).Reload().Scalars("perf/PPS")
    assert [(each.step, each.value) for each in read] == [(1, 1.0), (3, 3.0)]


def test_a_file_that_could_not_be_thinned_is_thinned_once_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be thinned, because the disk is full, grows until it can be."""
    file = records.Thinned(tmp_path / "file", 1000)
    line, tries = json.dumps({"steps": 1}) + "\n", []

    def full(path: Path, most_bytes: int) -> None:
        tries.append(most_bytes)
        raise OSError("full")

    monkeypatch.setattr(records, "thin", full)
    failed = 0
    for _ in range(300):
        try:
            file.write(line)
        except OSError:
            failed += 1
    assert failed == len(tries) < 10
    assert len(records.read(tmp_path / "file")) == 300, "all the same"
    monkeypatch.undo()
    for _ in range(50):
        file.write(line)
    file.close()
    assert (tmp_path / "file").stat().st_size < 1000


def test_a_log_takes_any_text_in_any_locale(tmp_path: Path) -> None:
    """What an environment prints, or a folder's name, may have any character."""
    program = r"""if True:
        import sys
        from pathlib import Path
        from ga3c.runs.records import Rotated
        log = Rotated(Path(sys.argv[1]), 45)
        for _ in range(3):
            log.write("loss \u2192 \udce4\n")
    """
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "log.txt")],
        cwd=ROOT,
        env=environment,
        check=True,
    )
    line = "loss \u2192 \\udce4\n"
    assert (tmp_path / "log.txt.1").read_text() == 3 * line, "rotated by bytes, not by characters"
