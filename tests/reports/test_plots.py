"""What the plots of `ga3c plot` show, checked by the data of their axes, labels and lines."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from ga3c.reports import history, plots
from ga3c.reports.history import Curve, History
from ga3c.reports.page import page
from ga3c.runs.directory import RunDirectory
from ga3c.settings.presets import PRESETS
from ga3c.settings.train import TrainConfig
from tests.commands import ROOT

WINDOW = {"pps": 900.0, "tps": 800.0, "prediction_queue": 8, "training_queue": 40}
WINDOW |= {"policy_lag": 4.0, "agents": 2, "predictors": 1, "trainers": 1}
WINDOW |= {f"{role}_waiting": 0.5 for role in plots.ROLES}
CONFIG = {name: PRESETS[f"{name}-pictures"] for name in ("a3c", "dqn")}


def windows(*trained: float, start: int = 1) -> list[dict[str, Any]]:
    """Windows of 100 steps and 60 seconds, each with its trained samples a second."""
    return [
        {**WINDOW, "steps": 100 * number, "seconds": 60.0 * number, "tps": tps}
        for number, tps in enumerate(trained, start)
    ]


def made(
    name: str, config: TrainConfig, seed: int = 0, end: float = 500.0, **parts: Any
) -> History:
    config = replace(config, run=replace(config.run, seed=seed))
    curve = Curve(*np.array([[60.0, 60.0 * end / 100], [100.0, end], [-20.0, 20.0]]))
    figures = parts.pop("figures", windows(*[800.0] * 5))
    return History(Path(name), config, parts.pop("curve", curve), figures, [], **parts)


def drawn(runs: list[History], panels: tuple[str, ...] = plots.PANELS) -> list[Axes]:
    figure = plots.draw(runs, panels)
    figure.draw_without_rendering()  # this computes the layout
    return figure.axes


def named(axes: Axes) -> dict[str, str]:
    """The legend: the colour of each label."""
    legend = axes.get_legend()
    lines = legend.get_lines() if legend else []
    return {str(line.get_label()): to_hex(line.get_color()) for line in lines}


def colours(axes: Axes) -> set[str]:
    return {to_hex(line.get_color()) for line in axes.lines if len(line.get_xdata())} - {"#808080"}


def test_no_legend_lies_on_a_plot() -> None:
    runs = [made("1", CONFIG["a3c"]), made("2", CONFIG["a3c"], 1), made("3", CONFIG["dqn"])]
    for some in (runs, runs[:1]):
        all_axes = drawn(some)
        boxes = [axes.get_window_extent() for axes in all_axes]
        legends = [axes.get_legend() for axes in all_axes if axes.get_legend()]
        assert len(legends) >= 4
        for legend in legends:
            assert not any(legend.get_window_extent().overlaps(box) for box in boxes)


def test_runs_are_told_apart_in_every_row() -> None:
    replayed = [{**line, "replay_steps": 9} for line in windows(*[800.0] * 5)]
    runs = [made("1", CONFIG["a3c"]), made("2", CONFIG["dqn"], figures=replayed)]
    looks = {look.label: look.colour for look in plots.looks_of(runs).values()}
    assert list(looks) == ["a3c", "dqn"]
    assert len(set(looks.values())) == 2
    for axes in drawn(runs)[::2]:
        is_lag = "lag" in axes.get_ylabel()  # a run with a replay has no lag
        shown = {"a3c": looks["a3c"]} if is_lag else looks
        assert named(axes) == shown, axes.get_ylabel()
        assert colours(axes) == set(shown.values()), axes.get_ylabel()


def test_seeds_and_runs_with_equal_settings_have_distinct_labels() -> None:
    seeds = [made(str(seed), CONFIG["a3c"], seed) for seed in range(3)]
    twins = [made("one/seed-0", CONFIG["dqn"]), made("runs/two/seed-0", CONFIG["dqn"])]
    labels = ["a3c, seed 0", "a3c, seed 1", "a3c, seed 2"]
    looks = list(plots.looks_of([*seeds, *twins]).values())
    labels += ["dqn, seed 0, one/seed-0", "dqn, seed 0, two/seed-0"]
    assert [look.label for look in looks] == labels
    assert len({look.colour for look in looks}) == 5
    assert [look.label for look in plots.looks_of(seeds).values()] == [
        f"seed {n}" for n in range(3)
    ]


def test_the_mean_ends_where_the_first_seed_ends_and_the_legend_says_so() -> None:
    runs = [made("1", CONFIG["a3c"], 0, 500.0), made("2", CONFIG["a3c"], 1, 300.0)]
    by_steps, by_time = drawn(runs, ("score",))
    mean = next(line for line in by_steps.lines if str(line.get_label()).startswith("mean"))
    assert mean.get_label() == "mean and range of 2 seeds, as far as all of them go"
    assert max(mean.get_xdata()) == 300.0
    assert by_steps.get_xlim()[0] == 0.0
    by_steps.figure.draw_without_rendering()
    assert list(named(by_steps)) == ["seed 0", "seed 1", mean.get_label()]
    assert by_time.get_legend() is None


def test_counts_are_drawn_as_steps() -> None:
    (by_steps, _) = drawn([made("1", CONFIG["a3c"])], ("counts",))
    assert {line.get_drawstyle() for line in by_steps.lines} == {"steps-post"}
    assert all(tick == int(tick) for tick in by_steps.get_yticks())


def test_negative_rewards_are_in_sight() -> None:
    figures = [{**line, "reward_per_step": -0.02} for line in windows(*[800.0] * 3)]
    (by_steps, _) = drawn([made("1", CONFIG["a3c"], figures=figures)], ("reward",))
    low, high = by_steps.get_ylim()
    assert low < -0.02 < high


def test_a_resumption_is_a_gap_and_no_fall_to_0() -> None:
    figures = windows(0.0, 800.0, 800.0, 0.0, 300.0, 800.0)
    run = made("1", CONFIG["a3c"], figures=figures, resumed=(320,))
    axes, _ = drawn([run], ("throughput",))
    rates = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines}
    nan = float("nan")
    np.testing.assert_equal(rates["trained samples (TPS)"], [0.0, 800.0, 800.0, nan, nan, 800.0])
    np.testing.assert_equal(rates["predictions (PPS)"], [900.0, 900.0, 900.0, nan, nan, 900.0])
    assert "policy_lag" not in next(history.windows(run)), "no sample was trained"


def test_a_run_keeps_where_it_was_resumed(tmp_path: Path) -> None:
    for steps in (0, 700, 900):
        run = replace(CONFIG["a3c"].run, resume=tmp_path if steps else None)
        directory = RunDirectory(replace(CONFIG["a3c"], run=run), tmp_path / "run")
        directory.begin(steps)
        directory.close()
    assert history.read(tmp_path / "run").resumed == (700, 900)
    meta = tmp_path / "run" / "meta.json"
    meta.write_text(json.dumps({"resumed": [{"date": "of an earlier version"}]}))
    assert history.read(tmp_path / "run").resumed == ()


def test_a_run_without_an_episode_has_no_empty_plot() -> None:
    nothing = Curve(*np.zeros((3, 0)))
    assert len(drawn([made("1", CONFIG["a3c"], curve=nothing)], ("score", "lag"))) == 2


def test_groups_of_kept_runs_are_named_by_algorithm_and_pacing() -> None:
    results = ROOT / "benchmarks" / "results"
    names = ("pong", "dqn-pong", "fast-dqn-pong")
    runs = [history.read(results / name / "seed-0") for name in names]
    found = [group.differs for group in history.groups(runs)]
    assert found == ["a3c", "dqn, pacing ratio", "dqn, pacing target-period"]


def test_a_report_names_each_group_once_and_compares_their_scores() -> None:
    runs = [made("a/1", CONFIG["a3c"]), made("b/1", CONFIG["a3c"], 1), made("c/1", CONFIG["dqn"])]
    text = page("all", runs)
    headings = re.findall(r"<h[1-4]>(.*?)</h[1-4]>", text)
    assert headings == ["all", "Runs", "Curves", "pong", "pong (a3c)", "pong (dqn)", "Settings"]
    assert text.count("<img") == 3, "the scores, and the figures of each group"
    assert re.findall("<td>(./1)</td>", text) == ["a/1", "b/1", "c/1"]
