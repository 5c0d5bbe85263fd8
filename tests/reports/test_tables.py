"""Score tables, plots, reports and lists of runs: their statistics and their content."""

import contextlib
import csv
import fcntl
import json
import math
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agents.environments import EnvironmentConfig
from ga3c.reports import comparison, history, listing, plots, tables
from ga3c.reports.groups import grouped
from ga3c.reports.history import History
from ga3c.reports.page import page
from ga3c.reports.published_figures import published_scores
from ga3c.runs import records
from ga3c.runs.finding import find_run, newest_figures, runs_in
from ga3c.runs.kept_config import to_json
from ga3c.settings.presets import PRESETS
from ga3c.settings.train import TrainConfig
from tests.commands import ROOT, ended, refused
from tests.histories import made

PONG = ROOT / "benchmarks" / "results" / "pong"
SCORES = [np.array([0.1, 0.5, 0.9]), np.array([2.0, 4.0, 3.0]), np.array([-1.0, 0.0, 8.0])]


def evaluated(run: Path, *entries: tuple[str, float]) -> Path:
    """Give a run evaluations over 30 games, each by a protocol and with the same score in all."""
    lines = []
    for number, (protocol, score) in enumerate(entries):
        known = {"name": protocol, "policy": "sample", "sticky_actions": 0.25}
        lines.append({"steps": 1000 + number, "protocol": known, "episodes": 30, "mean": score})
    text = "".join(json.dumps({**line, "scores": [line["mean"]] * 30}) + "\n" for line in lines)
    (run / "evaluations.jsonl").write_text(text)
    return run


def played(game: str, *scores: tuple[str, float], seed: int = 0, discount: float = 0.99) -> History:
    """A run of a game with a score by each of some protocols, over 30 games after 4,000 steps."""
    base = TrainConfig(environment=EnvironmentConfig(game=game))
    config = replace(base, learning=replace(base.learning, discount=discount))
    entries = [
        {"steps": 4_000, "episodes": 30, "mean": mean, "protocol": {"name": protocol}}
        for protocol, mean in scores
    ]
    return made(f"{game}-{seed}", config, seed, evaluations=entries)


@pytest.fixture
def runs(pong_run: Path, tmp_path: Path) -> list[Path]:
    """Two seeds of Pong, evaluated by protocol paper; one of them is also evaluated by nature.

    The second is a copy of the first whose settings name another seed.
    """
    one = shutil.copytree(pong_run, tmp_path / "one")
    other = shutil.copytree(pong_run, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    config["run"]["seed"] += 1
    (other / "config.json").write_text(json.dumps(config))
    evaluated(one, ("paper", -18.0), ("paper", 16.0), ("nature", 20.0))
    evaluated(other, ("paper", 14.0))
    return [one, other]


def test_aggregates_match_their_definitions() -> None:
    """The aggregates of Agarwal et al. 2021 agree with slow, obviously correct versions."""
    means = sorted(sum(each) / len(each) for each in SCORES)
    assert comparison.median(SCORES) == pytest.approx(means[1])
    assert comparison.mean(SCORES) == pytest.approx(sum(means) / 3)
    every = sorted(score for each in SCORES for score in each)
    assert comparison.interquartile_mean(SCORES) == pytest.approx(sum(every[2:7]) / 5)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Over 3 games with 20 normally distributed seeds, about 95 of 100 intervals hold the mean."""
    random = np.random.default_rng(0)
    centres = np.array([0.0, 1.0, 5.0])
    covered = 0
    for repeat in range(200):
        scores = [random.normal(centre, 1.0, 20) for centre in centres]
        low, high = comparison.interval(comparison.mean, scores, resamples=300, seed=repeat)
        covered += low <= centres.mean() <= high
    assert 178 <= covered <= 199


def test_seeds_are_resampled_within_each_game() -> None:
    """If the seeds of each game agree, the interval is a point, however different the games are."""
    low, high = comparison.interval(comparison.mean, [np.full(5, 1.0), np.full(5, 100.0)], 200)
    assert low == high == 50.5


def test_kept_intervals_agree_with_rliable() -> None:
    """benchmarks/results/rliable.json was written by rliable 1.2 with its own bootstrap."""
    kept = json.loads((ROOT / "benchmarks" / "results" / "rliable.json").read_text())
    scores = [np.array(each) for each in kept["scores"]]
    for name, theirs in kept["aggregates"].items():
        aggregate = comparison.AGGREGATES[name]
        assert aggregate(scores) == pytest.approx(theirs["point"], rel=1e-9), name
        found = comparison.interval(aggregate, scores)
        width = theirs["high"] - theirs["low"]
        assert found == pytest.approx((theirs["low"], theirs["high"]), abs=0.03 * width), name


# Tables


def test_protocols_are_never_in_one_table(runs: list[Path]) -> None:
    found = comparison.tables([history.read(run) for run in runs])
    assert [table.protocol for table in found] == ["paper", "nature"]
    (row,) = found[0].rows
    assert row.scores.tolist() == [16.0, 14.0], "the newest evaluation of each seed"
    assert found[1].rows[0].scores.tolist() == [20.0]


def test_a_run_that_is_given_twice_counts_once(runs: list[Path]) -> None:
    (runs[0].parent / "latest").symlink_to("one")
    found = history.load([Path("one"), *runs, Path("latest")], runs[0].parent)
    assert len(found) == 2


def test_a_run_that_was_interrupted_early_is_not_averaged_with_a_whole_one(
    runs: list[Path],
) -> None:
    for run, steps in zip(runs, (10_000_032, 500_000), strict=True):
        (entry,) = history.read(run).evaluations[-1:]
        text = json.dumps({**entry, "protocol": {"name": "paper"}, "steps": steps})
        (run / "evaluations.jsonl").write_text(text + "\n")
    (table,) = comparison.tables([history.read(run) for run in runs])
    assert [(row.name, row.scores.tolist(), row.steps[0]) for row in table.rows] == [
        ("pong, trained for 10,000,032 steps", [20.0], 10_000_032),
        ("pong, trained for 500,000 steps", [14.0], 500_000),
    ]
    text = json.dumps({**entry, "protocol": {"name": "paper"}, "steps": 9_000_000})
    (runs[1] / "evaluations.jsonl").write_text(text + "\n")
    (table,) = comparison.tables([history.read(run) for run in runs])
    assert table.rows[0].scores.tolist() == [20.0, 14.0]
    assert "9.00M to 10.00M" in tables.markdown(table)


def test_the_best_weights_of_seeds_are_one_row_unless_a_run_is_short() -> None:
    def best(seed: int, steps: int, whole: int) -> History:
        protocol = {"name": "paper", "weights": "best"}
        entry = {"steps": steps, "episodes": 30, "mean": float(seed), "protocol": protocol}
        figures = [{"steps": whole, "seconds": 9.0}]
        return played("Pong", seed=seed)._replace(evaluations=[entry], figures=figures)

    runs = [best(1, 900, 4000), best(2, 4000, 4000), best(3, 2000, 3900)]
    (table,) = comparison.tables(runs)
    (row,) = table.rows
    assert sorted(row.scores) == [1.0, 2.0, 3.0] and row.steps == (900, 4000)
    assert "Human-normalised, over 1 of 1 games" in tables.summary(table)
    (table,) = comparison.tables([*runs, best(4, 900, 1000)])
    names = ["pong, trained for 4,000 steps", "pong, trained for 1,000 steps"]
    assert [row.name for row in table.rows] == names


def test_runs_of_other_settings_are_not_seeds_of_one(runs: list[Path]) -> None:
    config = json.loads((runs[1] / "config.json").read_text())
    config["network"]["center"] = False
    (runs[1] / "config.json").write_text(json.dumps(config))
    found = [history.read(run) for run in runs]
    assert [group.name for group in grouped(found)] == [
        "pong (center)",
        "pong (no center)",
    ]
    paper = comparison.tables(found)[0]
    assert [row.name for row in paper.rows] == ["pong (center)", "pong (no center)"]
    assert "No mean over games: pong appears with several settings." in tables.markdown(paper)
    assert "Human-normalised, over" not in tables.markdown(paper)


def test_a_game_without_known_scores_is_reported_with_several_settings_too(
    runs: list[Path],
) -> None:
    for run, center in zip(runs, (True, False), strict=True):
        config = json.loads((run / "config.json").read_text())
        config["network"]["center"], config["environment"]["game"] = center, "CartPole-v1"
        (run / "config.json").write_text(json.dumps(config))
    found = [history.read(run) for run in runs]
    paper = comparison.tables(found)[0]
    assert len(paper.rows) == 2 and tables.summary(paper) == ""
    assert "Scores by protocol paper" in page("CartPole", found)


def test_what_the_name_of_a_game_implies_tells_runs_apart() -> None:
    names = ["Pong", "ALE/Pong-v5", "pong", "mine:Game-v0", "other:Game-v0"]
    configs = [TrainConfig(environment=EnvironmentConfig(game=name)) for name in names]
    found = [made(name, config) for name, config in zip(names, configs, strict=True)]
    together = [[run.path.name for run in group.runs] for group in grouped(found)]
    assert together == [["Pong", "pong"], ["Pong-v5"], ["mine:Game-v0"], ["other:Game-v0"]]
    assert grouped(found)[1].name == "pong (sticky actions 0.25)"


def test_groups_are_told_apart_by_the_fewest_settings_in_words() -> None:
    base = TrainConfig()
    configs = [
        base,
        replace(base, network=replace(base.network, layer_norm=False)),
        replace(base, algorithm="ppo", network=replace(base.network, layer_norm=False)),
        replace(
            base,
            network=replace(base.network, layer_norm=False),
            optimizer=replace(base.optimizer, learning_rate=1e-3, clip_norm=0.5),
            service=replace(base.service, training_batch_min=40),
        ),
    ]
    found = [made(str(number), config) for number, config in enumerate(configs)]
    names = [group.differs for group in grouped(found)]
    assert names[0] == "a3c, layer norm"
    assert names[1].startswith("a3c, ") and "no layer norm" in names[1]
    assert names[2] == "ppo"
    assert len(set(names)) == 4
    assert all(name.count(",") <= 2 for name in names)


def test_lines_that_were_cut_short_hide_no_other(runs: list[Path]) -> None:
    with open(runs[1] / "evaluations.jsonl", "ab") as file:
        file.write(b'{"steps": 17, \xff')
    records.append(runs[1] / "evaluations.jsonl", {"steps": 99, "protocol": {"name": "paper"}})
    assert [entry["steps"] for entry in history.read(runs[1]).evaluations] == [1000, 99]


def test_an_evaluation_without_a_protocol_is_left_out(runs: list[Path]) -> None:
    for broken in ({}, {"protocol": None}, {"protocol": {"policy": "sample"}}):
        entry = {"steps": 99, "episodes": 1, "mean": 9.0, **broken}
        records.append(runs[1] / "evaluations.jsonl", entry)
    (table,) = comparison.tables([history.read(runs[1])])
    assert table.rows[0].scores.tolist() == [14.0]


def test_scores_are_normalised_by_the_papers_own_random_and_human(runs: list[Path]) -> None:
    paper, nature = comparison.tables([history.read(run) for run in runs])
    (row,) = paper.rows
    assert (row.random, row.human) == (-18.0, 16.0)
    assert row.normalized is not None
    np.testing.assert_allclose(row.normalized, [1.0, 32 / 34])
    assert row.published == (18.0, 6.0, 16.91, 19.31)
    assert (nature.rows[0].random, nature.rows[0].human) == (-20.7, 9.3)


def test_fast_dqns_medians_over_its_49_games_are_those_that_it_publishes() -> None:
    published = published_scores("fast_dqn_scores.csv")
    runs = [played(game, ("nature", each["dqn_mean"])) for game, each in published.items()]
    (table,) = comparison.tables(runs)
    normalized = [row.normalized for row in table.rows if row.normalized is not None]
    assert len(normalized) == 49 and table.by_atari57 == []
    assert comparison.median(normalized) == pytest.approx(0.935, abs=5e-4)
    fast = [row.published_normalized(1) for row in table.rows]
    assert np.median(fast) == pytest.approx(0.997, abs=5e-4)


def test_games_that_the_protocols_own_table_lacks_are_named() -> None:
    runs = [played("Pong", ("paper", 16.0)), played("Breakout", ("paper", 30.5))]
    (table,) = comparison.tables(runs)
    assert [row.human for row in table.rows] == [30.5, 16.0]
    note = "Normalised by the 57-game table, as the protocol's own published table lacks them: "
    assert f"{note}breakout." in tables.notes(table)
    assert note not in tables.markdown(comparison.tables(runs[:1])[0])


def test_a_changed_protocol_is_normalised_as_the_unchanged_one() -> None:
    (table,) = comparison.tables([played("Pong", ("paper, changed", 16.0))])
    assert (table.rows[0].random, table.rows[0].human) == (-18.0, 16.0)
    assert table.sources == [], "its scores are of the unchanged one"


def test_a_users_own_game_has_no_published_scores() -> None:
    (table,) = comparison.tables([played("mygames:pong", ("paper", 16.0))])
    (row,) = table.rows
    assert row.game == "pong"
    assert row.normalized is None and not any(row.published) and not table.by_atari57


def test_settings_that_hardly_differ_are_not_seeds_of_one_row() -> None:
    runs = [
        played("Pong", ("paper", score), discount=discount)
        for score, discount in ((16.0, 0.9999999), (14.0, 0.99999999))
    ]
    (table,) = comparison.tables(runs)
    found = {row.name: row.scores.tolist() for row in table.rows}
    assert found == {"pong (discount 0.9999999)": [16.0], "pong (discount 0.99999999)": [14.0]}


def test_a_seed_that_appears_twice_is_said() -> None:
    runs = [played("Acrobot-v1", ("trained", -80.0), seed=seed) for seed in (0, 0, 1)]
    note = "Acrobot-v1: several runs have seed 0, and each of them counts as a seed."
    assert note in tables.notes(comparison.tables(runs)[0])
    assert note not in tables.notes(comparison.tables(runs[1:])[0])


@pytest.mark.parametrize(
    ("evaluations", "counted"),
    [
        ([(1000, 100, 16.0), (1000, 1, 3.0)], 16.0),
        ([(1000, 10, 3.0), (1000, 30, 16.0), (1000, 10, 4.0)], 16.0),
        ([(1000, 30, 3.0), (1000, 30, 16.0)], 16.0),
        ([(2000, 10, 16.0), (1000, 30, 3.0)], 16.0),
    ],
)
def test_the_evaluation_after_the_most_steps_and_over_the_most_games_counts(
    evaluations: list[tuple[int, int, float]], counted: float
) -> None:
    entries = [
        {"steps": steps, "episodes": games, "mean": mean, "protocol": {"name": "paper"}}
        for steps, games, mean in evaluations
    ]
    (table,) = comparison.tables([played("Pong")._replace(evaluations=entries)])
    assert table.rows[0].scores.tolist() == [counted]


def test_small_scores_and_short_runs_are_not_rounded_away() -> None:
    scores = (0.949, 0.951, 0.96)
    runs = [played("FrozenLake-v1", ("trained", each), seed=n) for n, each in enumerate(scores)]
    text = tables.markdown(comparison.tables(runs)[0])
    assert "| FrozenLake-v1 | 3 | 30 | 4,000 | 0.95 ± 0.01 |" in text
    runs[0].evaluations[0]["steps"] = 610_000
    assert "| 0.61M |" in tables.markdown(comparison.tables(runs[:1])[0])


def test_names_are_text_in_markdown() -> None:
    (table,) = comparison.tables([played("mine:A|<b>-v0", ("paper", 1.0))])
    assert r"| A\|&lt;b>-v0 | 1 |" in tables.markdown(table)


def test_unequal_numbers_of_seeds_are_said_to_weigh_in_the_interquartile_mean() -> None:
    runs = [played("Pong", ("paper", 1.0), seed=seed) for seed in (0, 1)]
    runs += [played("Qbert", ("paper", 900.0), seed=seed) for seed in (0, 1)]
    note = "In the interquartile mean, a game with more seeds weighs more."
    assert note in tables.summary(comparison.tables(runs[:3])[0])
    assert note not in tables.summary(comparison.tables(runs)[0])


def test_the_table_command_writes_markdown_csv_and_a_picture(
    runs: list[Path], tmp_path: Path
) -> None:
    given = ["table", *map(str, runs)]
    for suffix in (".md", ".csv", ".png"):
        done = ended(*given, "--out", str(tmp_path / f"table{suffix}"))
        assert done.returncode == 0, done.stderr
    text = (tmp_path / "table.md").read_text()
    assert text.strip() in done.stdout
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines[:3]}) == 1
    row = "pong | 2 | 30 | 1,000 to 1,001 | -18 | 16 | 18 | 6 | 16.91 | 19.31 | 15 ± 1.41 | 97%"
    assert f"| {row} |" in lines
    assert "Human-normalised, over 1 of 1 games: median 97%" in text
    assert "no interval, as a game has only 1 seed" in text, "of nature"
    paper, nature = text.split("Protocol nature")
    assert "± is the standard deviation over seeds" in paper
    assert "±" not in nature
    with open(tmp_path / "table.csv") as file:
        paper, nature = csv.DictReader(file)
    assert (paper["protocol"], paper["game"], paper["seeds"]) == ("paper", "pong", "2")
    assert (paper["steps_min"], paper["steps_max"]) == ("1000", "1001")
    assert (paper["score_mean"], paper["score_sd"]) == ("15.0", "1.414")
    assert (paper["human_normalised"], paper["published_ga3c_gpu_1_day"]) == ("0.97059", "18.0")
    assert (nature["score_mean"], nature["score_sd"], nature["random"]) == ("20.0", "", "-20.7")
    assert "sticky_actions 0.25" in paper["settings"]
    assert paper["published_dqn_mean"] == nature["published_ga3c_gpu_1_day"] == ""
    for row in (paper, nature):
        for name in set(row) - {"protocol", "settings", "game"}:
            assert row[name] == "" or math.isfinite(float(row[name])), (name, row[name])
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")


def test_a_control_task_stands_beside_scores_published_at_the_same_steps() -> None:
    kept = ROOT / "benchmarks" / "results" / "control-cartpole-swingup"
    found = [history.read(run) for run in sorted(kept.iterdir())]
    (table,) = comparison.tables(found)
    assert table.protocol == "control"
    (row,) = table.rows
    assert row.published == (443.0, 794.0, 758.0, 792.0, 846.0, 845.0, 829.0, 880.0, 881.0)
    headings, _ = tables.cells(table)
    assert "published: SAC, 500k steps" in headings
    assert not {"random", "human", "ours, human-normalised"} & set(headings), "nobody knows them"
    by_steps, by_time = plots.draw(found, ["score"]).axes
    legend = by_steps.get_legend()
    assert legend is not None
    assert "TD3, published, without noise" in [text.get_text() for text in legend.get_texts()]
    marks = {line.get_label(): line.get_xydata().tolist() for line in by_steps.get_lines()}
    sac = marks["SAC, published, without noise"]
    shown = [[100_000.0, 829.0], [500_000.0, 880.0], [1_000_000.0, 881.0]]
    assert sac == [
        each for each in shown if each[0] <= 2 * max(run.curve.steps[-1] for run in found)
    ]
    assert len(sac) >= 2
    assert not any("published" in str(line.get_label()) for line in by_time.get_lines())


@pytest.mark.parametrize("command", ["table", "plot", "report"])
def test_a_path_that_is_not_a_run_is_refused(command: str, tmp_path: Path) -> None:
    out = str(tmp_path / ("x.html" if command == "report" else "x.png"))
    assert "nowhere" in refused(command, str(tmp_path / "nowhere"), "--out", out)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_an_evaluation_makes_no_table(pong_run: Path) -> None:
    done = ended("table", str(pong_run))
    assert done.returncode == 2
    assert "run ga3c evaluate RUN first" in done.stderr


def test_a_table_says_which_runs_it_leaves_out(runs: list[Path], pong_run: Path) -> None:
    done = ended("table", str(runs[0]), str(pong_run))
    assert done.returncode == 0, done.stderr
    assert f"not in the table, not evaluated: {pong_run}; run ga3c evaluate RUN" in done.stderr


# Plots and reports


def test_the_mean_over_seeds_covers_only_the_steps_that_all_have() -> None:
    one = history.Curve(np.array([0.0, 10.0]), np.array([0.0, 100.0]), np.array([0.0, 10.0]))
    other = history.Curve(np.array([2.0, 8.0]), np.array([20.0, 60.0]), np.array([4.0, 4.0]))
    places, scores = history.mean_of([one, other], "steps")
    assert (places[0], places[-1]) == (20.0, 60.0)
    np.testing.assert_allclose(scores[0], places / 10)
    np.testing.assert_allclose(scores[1], 4.0)


def test_the_rolling_mean_is_of_the_last_hundred_episodes(tmp_path: Path) -> None:
    file = tmp_path / "episodes.csv"
    rows = [f"{i / 10},{i * 5},{i},7" for i in range(300)]
    file.write_text("\n".join(["seconds,steps,score,length", *rows]) + "\n")
    curve = history.rolling(history.episodes_in(file))
    by_steps = dict(zip(curve.steps.tolist(), curve.score.tolist()))
    assert by_steps[0] == 0.0
    assert by_steps[299 * 5] == pytest.approx(sum(range(200, 300)) / 100)
    assert by_steps[50 * 5] == pytest.approx(25.0)


LADDER_ROWS = """seconds,steps,score,length,epsilon,scored
1.0,10,1.0,5,0.001,1
2.0,20,2.0,5,0.4,0
3.0,30,3.0,5,0.001,1
4.0,40,6.0,5,0.4,0
5.0,50,9.0,5,0.02,0
"""


def test_a_ladders_score_is_that_of_its_greediest_environments(tmp_path: Path) -> None:
    (tmp_path / "episodes.csv").write_text(LADDER_ROWS + "6.0,60,4")  # a line that is cut short
    curve = history.rolling(history.episodes_in(tmp_path / "episodes.csv"))
    assert curve.steps.tolist() == [10, 30]
    assert curve.score.tolist() == [1.0, 2.0]
    bands = history.by_epsilon(history.episodes_in(tmp_path / "episodes.csv"))
    assert list(bands) == ["0.001", "0.02", "0.4"], "from the least to the most exploring"
    assert bands["0.4"].score.tolist() == [2.0, 4.0]
    assert bands["0.02"].steps.tolist() == [50]


def test_games_that_end_at_the_same_step_are_one_point_of_a_curve(tmp_path: Path) -> None:
    rows = [f"{i // 4}.0,{i // 4 * 10},{i},5" for i in range(12)]
    head = "seconds,steps,score,length"
    (tmp_path / "episodes.csv").write_text("\n".join([head, *rows]) + "\n")
    curve = history.rolling(history.episodes_in(tmp_path / "episodes.csv"))
    assert curve.steps.tolist() == [0, 10, 20]
    assert curve.score.tolist() == [1.5, 3.5, 5.5], "the mean of all that have ended"


def test_a_band_of_epsilons_has_several_environments(tmp_path: Path) -> None:
    rows = [f"{i},{i},{i},5,{0.4 ** (1 + i)},0" for i in range(12)]
    head = LADDER_ROWS.splitlines()[0]
    (tmp_path / "episodes.csv").write_text("\n".join([head, *rows]) + "\n")
    bands = history.by_epsilon(history.episodes_in(tmp_path / "episodes.csv"))
    assert len(bands) == history.BANDS
    assert list(bands)[-1] == "0.16 to 0.4"
    assert [len(curve.score) for curve in bands.values()] == [2] * 6


def test_plot_draws_the_scores_of_a_ladder_by_epsilon(pong_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "ladder"
    shutil.copytree(pong_run, run)
    (run / "episodes.csv").write_text(LADDER_ROWS)
    (run / "config.json").write_text(json.dumps(to_json(PRESETS["apex-small"]), default=str))
    done = ended("plot", str(run), "--panels", "epsilon", "--out", str(tmp_path / "p.png"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.png").stat().st_size > 10_000
    done = ended("plot", str(pong_run), "--panels", "epsilon")
    assert done.returncode == 2
    assert "none of the runs has figures for epsilon" in done.stderr


def test_plot_draws_runs_and_kept_results(pong_run: Path, tmp_path: Path) -> None:
    done = ended("plot", str(pong_run), str(PONG / "seed-0"), "--out", str(tmp_path / "p.png"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.png").stat().st_size > 10_000
    done = ended("plot", str(PONG / "seed-0"), "--panels", "lag")
    assert done.returncode == 2
    assert "none of the runs has figures for lag" in done.stderr
    done = ended("plot", str(pong_run), "--panels", "speed")
    assert done.returncode == 2
    assert "panels speed: must be among score, epsilon, reward, throughput" in done.stderr


def test_the_report_is_one_page_that_needs_nothing_else(runs: list[Path], tmp_path: Path) -> None:
    (runs[0] / "video").mkdir()
    (runs[0] / "video" / "1-0.mp4").write_bytes(b"a video")
    text = page("Games & <scores>", [history.read(run) for run in runs])
    assert "Games &amp; &lt;scores&gt;" in text
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert sources and all(source.startswith("data:") for source in sources)
    assert text.count("<video") == 1
    assert "protocol paper" in text and "protocol nature" in text
    done = ended("report", *map(str, runs), "--out", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stderr
    assert re.search(r"wrote \S+, \S+ MiB, of \d runs\n", done.stdout)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert "notes.md: must end in .html" in refused("report", "1", "--out", "notes.md")


# Listing


def test_scores_are_those_of_the_result_and_not_of_the_last_progress_line(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    result = json.loads((runs[0] / "result.json").read_text())
    changed = {**result, "score_mean_100": 0.949, "steps": 7_654_321, "seconds": 1e4}
    (runs[0] / "result.json").write_text(json.dumps(changed))
    text = page("one", [history.read(runs[0])])
    for cell in (">7,654,321</td>", ">0.95</td>", ">765</td>"):
        assert cell in text
    listing.run(listing.Config(runs[0].parent))
    listing.show_states({runs[0]: "done"})
    assert [" 0.95 " in line for line in capsys.readouterr().out.splitlines()].count(True) == 2
    (runs[0] / "result.json").unlink()
    last = records.read(runs[0] / "metrics.jsonl")[-1]
    assert newest_figures(runs[0]) == last, "of a run that has not ended"
    (runs[0] / "metrics.jsonl").unlink()
    assert newest_figures(runs[0]) == {}
    assert page("one", [history.read(runs[0])]), "a run that was killed at its start"


def test_runs_are_listed_with_their_state(runs: list[Path]) -> None:
    (runs[1] / "result.json").unlink()
    (runs[1].parent / "latest").symlink_to("other")
    done = ended("runs", "--runs-dir", str(runs[0].parent), "--json")
    assert done.returncode == 0, done.stderr
    found = {line["run"]: line for line in json.loads(done.stdout)}
    assert found["one"]["state"] == "4,000 steps done"
    assert found["other"]["state"] == "killed"
    assert found["one"]["steps"] >= 4000
    assert found["one"]["checkpoints"][0] == 0
    shown = ended("runs", "--runs-dir", str(runs[0].parent)).stdout
    assert "Pong" in shown and "killed" in shown
    (runs[0].parent / "empty").mkdir()
    assert "has no runs" in ended("runs", "--runs-dir", str(runs[0].parent / "empty")).stdout
    missing = ended("runs", "--runs-dir", str(runs[0] / "missing"))
    assert missing.returncode == 2 and "there is no such folder" in missing.stderr


def test_a_run_that_cannot_be_read_spoils_neither_the_list_nor_its_json(
    runs: list[Path],
) -> None:
    (runs[0] / "result.json").write_text("null")
    (runs[1] / "config.json").write_text("{")
    done = ended("runs", "--runs-dir", str(runs[0].parent), "--json")
    assert [line["run"] for line in json.loads(done.stdout)] == ["one"]
    assert "config.json cannot be read" in done.stderr


def test_names_with_brackets_are_shown_as_they_are(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (runs[0].parent / "pong[lr=3e-4] :smile: [").mkdir()
    runs[0].rename(runs[0].parent / "pong[lr=3e-4] :smile: [" / "b]")
    listing.run(listing.Config(runs[0].parent))
    assert "pong[lr=3e-4] :smile: [/b]" in capsys.readouterr().out


def test_runs_in_folders_are_found_and_have_numbers(pong_run: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("old", "scores/pong-0", "a-name-of-a-run-that-is-rather-long")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copytree(pong_run, tmp_path / name)
        os.utime(tmp_path / name / "config.json", (number, number))
    (tmp_path / "latest").symlink_to("old")
    done = ended("runs", "--runs-dir", str(tmp_path))
    lines = [line for line in done.stdout.splitlines() if "Pong" in line]
    names = ["a-name-of-a-run-that-is-rather-long", "scores/pong-0", "old"]
    assert [line.split()[1] for line in lines] == names, "whole, newest first"
    assert [line.split()[3] for line in lines] == ["1", "2", "3"]
    assert [line.split()[7] for line in lines] == ["ppo"] * 3
    listed = ("-m", "ga3c", "runs", "--runs-dir", str(tmp_path))
    wide, narrow = (in_terminal(width, *listed) for width in (130, 66))
    assert "algorithm" in wide and "algorithm" not in narrow
    assert all(name in narrow and name in wide for name in names), "whole"
    assert "score" in narrow
    assert find_run(Path("2"), tmp_path) == tmp_path / "scores" / "pong-0"
    assert find_run(Path("scores/pong-0"), tmp_path) == tmp_path / "scores" / "pong-0"
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    assert len(runs_in(link)) == 3, "a link above the folder of runs hides none"
    for wrong in ("0", "4"):
        with pytest.raises(ValueError, match=f"run {wrong}: .* has runs 1 to 3; ga3c runs lists"):
            find_run(Path(wrong), tmp_path)
    with pytest.raises(ValueError, match=r"run -1: no directory with a config\.json"):
        find_run(Path("-1"), tmp_path)


def in_terminal(width: int, *arguments: str) -> str:
    """What Python prints in a terminal of `width` columns, without escape sequences."""
    terminal, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 20, width, 0, 0))
    environment = {**os.environ, "COLUMNS": str(width)}
    command = [sys.executable, *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=child, env=environment)
    os.close(child)
    said = b""
    try:
        with contextlib.suppress(OSError):  # raised once the other end is closed
            while part := os.read(terminal, 65536):
                said += part
        assert process.wait(30.0) == 0
    finally:
        process.kill()
        os.close(terminal)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())


def test_no_digit_of_a_table_is_lost_in_a_narrow_terminal() -> None:
    program = (
        "from ga3c.reports.console import show; show('t', ['n', 'v'], [['a' * 40, '123456789']])"
    )
    said = in_terminal(24, "-c", program)
    assert "…" not in said
    assert said.count("a") == 40
    assert "".join(re.findall(r"[0-9]", said)) == "123456789"
