"""What the plots of `ga3c plot` show, checked by the data of their axes, labels and lines."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from ga3c.reports import history, plots
from ga3c.reports.groups import grouped, looks_of
from ga3c.reports.history import Curve, History
from ga3c.reports.page import page
from ga3c.runs.directory import RunDirectory
from ga3c.runs.finding import Resume, short_names
from ga3c.runs.kept_config import to_json
from ga3c.settings.checks import WrongInput
from ga3c.settings.presets import PRESETS
from tests.commands import ROOT
from tests.histories import made, windows

CONFIG = {name: PRESETS[f"{name}-pictures"] for name in ("a3c", "dqn")}


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
    looks = {look.label: look.colour for look in looks_of(runs).values()}
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
    looks = list(looks_of([*seeds, *twins]).values())
    labels += ["dqn, seed 0, one/seed-0", "dqn, seed 0, two/seed-0"]
    assert [look.label for look in looks] == labels
    assert len({look.colour for look in looks}) == 5
    assert [look.label for look in looks_of(seeds).values()] == [f"seed {n}" for n in range(3)]


def test_folders_of_any_depth_are_told_apart() -> None:
    twins = [made(f"study{n}/pong/seed-0", CONFIG["a3c"], figures=[]) for n in (1, 2)]
    labels = [look.label for look in looks_of(twins).values()]
    assert labels == ["seed 0, study1/pong/seed-0", "seed 0, study2/pong/seed-0"]
    assert re.findall("<td>(study./pong/seed-0)</td>", page("all", twins))
    assert short_names([Path("a/1"), Path("a/2")]) == {Path("a/1"): "1", Path("a/2"): "2"}


@pytest.mark.parametrize("are_seeds", [True, False])
def test_forty_runs_have_distinct_colours_and_a_short_legend(are_seeds: bool) -> None:
    base = CONFIG["a3c"]
    rates = [replace(base.optimizer, learning_rate=(1 + n) / 1e4) for n in range(40)]
    configs = [base if are_seeds else replace(base, optimizer=rate) for rate in rates]
    runs = [made(str(n), config, n * are_seeds) for n, config in enumerate(configs)]
    assert len({look.colour for look in looks_of(runs).values()}) == 40
    figure = plots.draw(runs, ("score", "counts"))
    (score, _, counts, _) = figure.axes
    assert len(named(counts)) == 40
    assert len(named(score)) == (1 if are_seeds else 40), "of seeds, only the mean"
    assert figure.get_figheight() < 6 + 45 * plots.LINE_INCHES, "the legends have columns"
    agents = [line.get_ydata()[0] for line in counts.lines if len(line.get_xdata())][::3]
    assert len(set(agents)) == 40 and 2.0 <= max(agents) < 2.5, "apart, but still 2 agents"


def test_seeds_without_common_steps_have_no_mean() -> None:
    late = Curve(*np.array([[900.0, 960.0], [15e3, 19e3], [5.0, 6.0]]))
    runs = [made("1", CONFIG["a3c"]), made("2", CONFIG["a3c"], 1, curve=late)]
    by_steps, _ = drawn(runs, ("score",))
    words = "no mean of 2 seeds, as they have no steps in common"
    assert list(named(by_steps)) == ["seed 0", "seed 1", words]
    assert len(by_steps.lines[-1].get_xdata()) == 0


def test_a_name_with_dollar_signs_is_drawn_as_it_is() -> None:
    environment = replace(CONFIG["a3c"].environment, game=r"mine:Cash_$\frac$-v0")
    (axes, _) = drawn([made("1", replace(CONFIG["a3c"], environment=environment))], ("score",))
    assert axes.get_title() == environment.game


def test_a_picture_with_too_many_games_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "MOST_ROWS", 1)
    kept = ROOT / "benchmarks" / "results"
    runs = (kept / "pong" / "seed-0", kept / "control-cartpole-swingup" / "seed-0")
    with pytest.raises(WrongInput, match=r"2 games make 2 rows of plots, .* at most 1: plot"):
        plots.run(plots.Config(runs, out=tmp_path / "plot.png"))
    assert not list(tmp_path.iterdir())


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
    run = made("1", CONFIG["a3c"], figures=figures, resumes=(Resume(320, {}),))
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
    assert [resume.steps for resume in history.read(tmp_path / "run").resumes] == [700, 900]
    meta = tmp_path / "run" / "meta.json"
    meta.write_text(json.dumps({"resumed": [{"date": "of an earlier version"}]}))
    assert history.read(tmp_path / "run").resumes == ()


def stored(path: Path, **files: str) -> Path:
    """A run's directory with these files."""
    (path / "config.json").write_text(json.dumps(to_json(CONFIG["a3c"]), default=str))
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text)
    return path


RATE, DISCOUNT = "optimizer.learning_rate", "learning.discount"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({RATE: [0.002, 0.001], DISCOUNT: [0.99, 0.9]}, "discount 0.9 from 500 steps on"),
        ({}, "learning rate 0.002 from 500 steps on"),
    ],
)
def test_a_resume_from_an_earlier_step_undoes_later_ones(
    changed: dict[str, Any], words: str, tmp_path: Path
) -> None:
    first = {"steps": 1000, "changed": {RATE: [0.001, 0.002]}}
    meta = {"resumed": [first, {"steps": 500, "changed": changed}]}
    run = history.read(stored(tmp_path, meta_json=json.dumps(meta)))
    assert [resume.steps for resume in run.resumes] == [500]
    assert grouped([run])[0].differs == words


def test_seeds_that_were_changed_after_similar_steps_are_one_group() -> None:
    def resumed(steps: int, discount: float = 0.9) -> History:
        change = Resume(steps, {DISCOUNT: (0.99, discount)})
        return made(f"{steps} {discount}", CONFIG["a3c"], resumes=(change,))

    runs = [resumed(4000), resumed(9000), resumed(4008), resumed(4000, 0.8), resumed(3990)]
    runs.append(made("0", CONFIG["a3c"]))
    found = [(group.differs, len(group.runs)) for group in grouped(runs)]
    assert found == [
        ("discount 0.9 from about 4,000 steps on", 3),
        ("discount 0.9 from 9,000 steps on", 1),
        ("discount 0.8 from 4,000 steps on", 1),
        ("no setting changed", 1),
    ]


HEAD = "seconds,steps,score,length,epsilon,scored"


def test_the_score_of_thinned_episodes_is_that_of_the_progress_lines(tmp_path: Path) -> None:
    rows = [HEAD, *(f"{n},{10 * n},{n},10,0,1" for n in range(1, 1000, 4))]
    figures = [{"pps": 4}, {"steps": 0, "seconds": 0.0, "episodes": 0, "score_mean_100": None}]
    for number in (500, 999):
        mean = {"episodes": number, "score_mean_100": number - 49.5}
        figures.append({"steps": 10 * number, "seconds": float(number), **mean})
    lines = "\n".join(map(json.dumps, figures))
    run = history.read(stored(tmp_path, episodes_csv="\n".join(rows), metrics_jsonl=lines))
    assert (run.curve.steps.tolist(), run.curve.score.tolist()) == ([5000, 9990], [450.5, 949.5])
    assert run.figures == figures[1:], "without an object that is no progress line"


@pytest.mark.parametrize("damage", ["\0" * 200_000, '"3.0,30,3.0,5,0,1'])
def test_a_damaged_line_of_episodes_hides_no_other(damage: str, tmp_path: Path) -> None:
    rows = [HEAD, "1.0,10,1.0,5,0,1", damage, "4.0,40,4.0,5,0,1"]
    stored(tmp_path, episodes_csv="\n".join(rows))
    assert history.read(tmp_path).curve.steps.tolist() == [10, 40]
    rows = ["seconds,steps,score_mean_100", "1.0,10,1.0", damage, "4.0,40,4.0"]
    stored(tmp_path, curve_csv="\n".join(rows))
    assert history.read(tmp_path).curve.steps.tolist() == [10, 40]


def test_a_run_without_an_episode_has_no_empty_plot() -> None:
    nothing = Curve(*np.zeros((3, 0)))
    assert len(drawn([made("1", CONFIG["a3c"], curve=nothing)], ("score", "lag"))) == 2


def test_groups_of_kept_runs_are_named_by_algorithm_and_pacing() -> None:
    results = ROOT / "benchmarks" / "results"
    names = ("pong", "dqn-pong", "fast-dqn-pong")
    runs = [history.read(results / name / "seed-0") for name in names]
    found = [group.differs for group in grouped(runs)]
    assert found == ["a3c", "dqn, pacing ratio", "dqn, pacing target-period"]


def test_a_report_names_each_group_once_and_compares_their_scores() -> None:
    runs = [made("a/1", CONFIG["a3c"]), made("b/1", CONFIG["a3c"], 1), made("c/1", CONFIG["dqn"])]
    text = page("all", runs)
    headings = re.findall(r"<h[1-4]>(.*?)</h[1-4]>", text)
    assert headings == ["all", "Runs", "Curves", "pong", "pong (a3c)", "pong (dqn)", "Settings"]
    assert text.count("<img") == 3, "the scores, and the figures of each group"
    assert re.findall("<td>(./1)</td>", text) == ["a/1", "b/1", "c/1"]
