"""However a run ended, it is resumed from its newest whole checkpoint."""

import contextlib
import csv
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ga3c
from agents.environments import EnvironmentConfig
from ga3c.__main__ import main
from ga3c.command.parse import parse
from ga3c.reports import history
from ga3c.reports.groups import grouped
from ga3c.runs import checkpoints, directory, records
from ga3c.runs.directory import RunDirectory
from ga3c.runs.finding import find_run, is_running, new_run_path
from ga3c.runs.kept_config import load_config, to_json
from ga3c.settings.run import RunConfig
from ga3c.settings.train import TrainConfig
from ga3c.training import checks
from ga3c.training.checks import check_resumable
from ga3c.training.starting import check_resumed, known_run
from tests.commands import (
    BEGIN_S,
    CORRIDOR,
    STOP_S,
    Command,
    assert_nothing_is_left,
    ended,
    refused,
    wait_for,
)

Start = Callable[..., Command]
IN_TURN = ["--lockstep", "--agents", "1", "--groups", "1", "--scheduler", "off"]
IN_TURN += ["--envs-per-agent", "8", "--training-batch-min", "80", "--training-batch-max", "80"]
INTERVAL = 300  # steps
OFTEN = ["--checkpoint-every-steps", str(INTERVAL), "--progress-every-s", "0.2"]


def state(run: Path) -> checkpoints.Checkpoint:
    kept, damaged = checkpoints.newest(run / "checkpoints")
    assert kept is not None
    assert damaged == []
    return kept


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "episodes.csv") as file:
        return list(csv.DictReader(file))


def assert_same(one: checkpoints.Checkpoint, other: checkpoints.Checkpoint) -> None:
    assert set(one.arrays) == set(other.arrays)
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)
    untimed = ("steps", "episodes", "scores")
    assert {n: one.state[n] for n in untimed} == {n: other.state[n] for n in untimed}


@pytest.mark.parametrize(
    ("game", "action_bytes", "steps"), [("Pendulum-v1", 4, 2000), ("Pong", 2, 1200)]
)
def test_in_lockstep_a_run_that_was_stopped_ends_as_one_that_was_not(
    game: str, action_bytes: int, steps: int, tmp_path: Path
) -> None:
    """All saved arrays (weights, optimizer, experience, counters) are equal to the last bit."""
    given = ["train", "--algorithm", "a3c", "--game", game, *IN_TURN, "--seed", "3"]
    given += ["--runs-dir", str(tmp_path)]
    given += ["--schedule-steps", str(steps), "--learning-rate-end", "0"]  # fixed: --steps differs
    whole = ended(*given, "--steps", str(steps), "--name", "whole")
    assert whole.returncode == 0, whole.stderr
    for more in (
        ["--steps", str(steps // 2), "--name", "half"],
        ["--resume", str(tmp_path / "half"), "--steps", str(steps)],
    ):
        done = ended(*(given if "half" in more else ["train"]), *more)
        assert done.returncode == 0, done.stderr
    expected, found = state(tmp_path / "whole"), state(tmp_path / "half")
    assert expected.state["steps"] == steps
    assert_same(expected, found)
    assert expected.arrays["counters"][1] > 10, "updates"
    assert "actions" not in found.arrays, "they are in a file beside"
    assert expected.state["actions"] == found.state["actions"]
    assert (tmp_path / "half" / "actions.bin").stat().st_size == action_bytes * steps
    with open(tmp_path / "half" / "actions.bin", "r+b") as file:
        file.write(b"no")
    done = ended("train", "--resume", str(tmp_path / "half"), "--steps", "4000")
    assert done.returncode == 2
    assert "actions.bin is damaged: the run cannot be repeated" in done.stderr
    games = [
        [(row["steps"], row["score"], row["length"]) for row in rows(tmp_path / n)]
        for n in ("whole", "half")
    ]
    assert games[0] == games[1], "each game is counted once"


def test_a_checkpoint_in_lockstep_holds_whole_batches_and_the_run_ends_the_same_from_it(
    tmp_path: Path,
) -> None:
    """With so many passes, nearly every checkpoint comes due during the updates of a batch."""
    steps, passes, parts = 800, 20, 8
    given = ["train", "--algorithm", "ppo", "--game", "CartPole-v1", *IN_TURN, "--t-max", "10"]
    given += ["--minibatch", "10", "--passes", str(passes), "--runs-dir", str(tmp_path)]
    given += ["--checkpoint-every-steps", "80", "--keep-checkpoints", "100", "--name", "whole"]
    done = ended(*given, "--steps", str(steps))
    assert done.returncode == 0, done.stderr
    kept = [checkpoints.read(p) for p in checkpoints.kept(tmp_path / "whole" / "checkpoints")]
    assert len(kept) > 2
    assert {each.arrays["counters"][1] % (passes * parts) for each in kept} == {0}
    half = tmp_path / "half"
    shutil.copytree(tmp_path / "whole", half)
    for later in checkpoints.kept(half / "checkpoints")[len(kept) // 2 + 1 :]:
        shutil.rmtree(later)
    done = ended("train", "--resume", str(half), "--steps", str(steps))
    assert done.returncode == 0, done.stderr
    assert state(half).state["steps"] == steps
    assert_same(state(tmp_path / "whole"), state(half))


BOTH = ["--algorithm", "dqn", "--pacing", "target-period", "--period-steps", "100"]
BOTH += ["--steps-per-update", "4"]
BOTH += ["--synchronized", "--groups", "1", "--agents", "2", "--envs-per-agent", "2"]
BOTH += ["--replay-min-steps", "800", "--replay-steps", "2000"]
LANES = 4


@pytest.mark.parametrize("draws", ["uniform", "prioritised"])
def test_with_both_of_fast_dqns_ideas_the_same_seed_gives_the_same_weights(
    draws: str, tmp_path: Path
) -> None:
    """They are equal to the last bit, with two agents, a predictor and a trainer in parallel.

    Before the first update, all environments wait several times for a flush that makes room. Each
    prediction is for all of them nevertheless.
    """
    found = []
    for name, seed, steps in (("one", "3", "2800"), ("two", "3", "2800"), ("other", "4", "1200")):
        given = ["--name", name, "--runs-dir", str(tmp_path), "--seed", seed, "--steps", steps]
        given += ["--game", "CartPole-v1", "--replay-draws", draws]
        done = ended("train", *BOTH, *given)
        assert done.returncode == 0, done.stderr
        found.append(state(tmp_path / name))
    counts = found[0].state["counts"]
    assert counts["updates"] >= 450
    assert counts["steps"] == LANES * counts["prediction_batches"]
    assert_same(found[0], found[1])
    kernel = next(name for name in found[0].arrays if name.endswith("kernel"))
    assert (found[0].arrays[kernel] != found[2].arrays[kernel]).any()


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "filled anew"])
@pytest.mark.parametrize("experience", ["device", "host"])
def test_a_resumed_run_uses_its_saved_replay_or_fills_a_new_one(
    keeps: bool, experience: str, tmp_path: Path
) -> None:
    """A saved replay is learned from at once, a new one only after `replay_min_steps`."""
    given = ["--algorithm", "dqn", "--replay-min-steps", "2000", "--update-size", "100"]
    given += ["--experience", experience, "--replay-draws", "prioritised"]
    given += ["--steps-per-update", "4"]
    given += ["--save-replay"] if keeps else []
    names = ["--runs-dir", str(tmp_path), "--name", "mine"]
    assert ended(*CORRIDOR, *given, *names, "--steps", "4000").returncode == 0
    run = tmp_path / "mine"
    before = state(run)
    assert ("ring/frame" in before.arrays) == keeps
    assert ("pacing" in before.state) == keeps
    if not keeps:
        done = ended("train", "--resume", str(run), "--steps", "5500")
        assert done.returncode == 2
        assert "needs 2000 more to refill its replay, which" in done.stderr
    done = ended("train", "--resume", str(run), "--steps", "6500")
    assert done.returncode == 0, done.stderr
    after = state(run)
    updates = after.state["counts"]["updates"] - before.state["counts"]["updates"]
    assert updates == pytest.approx(2500 / 4 if keeps else 500 / 4, abs=20)
    learned = [n for n in before.arrays if n.startswith("weights/") and n.endswith("/kernel")]
    assert any((before.arrays[name] != after.arrays[name]).any() for name in learned)
    for name in before.arrays:
        if name.startswith("target/") and not keeps:
            np.testing.assert_array_equal(before.arrays[name], after.arrays[name])


@pytest.mark.parametrize(
    "change",
    [
        "--agents 2",
        "--groups 2",
        "--predictors 2",
        "--trainers 2",
        "--intra-op-threads 2",
        "--scheduler anneal",
        "--launcher ray",
    ],
)
def test_lockstep_refuses_what_would_change_its_order(change: str, tmp_path: Path) -> None:
    short = ["--steps", "1", "--runs-dir", str(tmp_path)]  # in case it starts after all
    said = refused("train", *CORRIDOR[1:3], *IN_TURN, *short, *change.split())
    name = change.lstrip("-").replace("-", "_")
    assert ("lockstep with --listen or " if "ray" in change else f"lockstep with {name}: ") in said


@pytest.mark.parametrize("change", ["groups 2", "predictors 2", "scheduler anneal"])
def test_synchronized_refuses_what_would_divide_its_predictions(
    change: str, tmp_path: Path
) -> None:
    short = ["--game", "CartPole-v1", "--steps", "500", "--runs-dir", str(tmp_path)]
    said = refused("train", *BOTH, *short, *f"--{change}".split())
    assert f"synchronized with {change}: " in said


def test_a_finished_run_is_extended_with_the_same_counters(tmp_path: Path) -> None:
    first = ended(*CORRIDOR, "--steps", "2000", "--runs-dir", str(tmp_path), "--name", "mine")
    assert first.returncode == 0, first.stderr
    run = tmp_path / "mine"
    before, episodes = state(run), rows(run)
    given = ["--steps", "4000", "--discount", "0.9", "--json"]
    done = ended("train", "--resume", str(run), *given)
    assert done.returncode == 0, done.stderr
    assert "settings that differ from now on: " in done.stdout
    assert "learning.discount 0.9 instead of 0.99" in done.stdout
    assert f"goes on from {int(before.state['steps']):,} steps" in done.stdout
    result = json.loads(done.stdout.splitlines()[-1])
    after = state(run)
    assert result["steps"] == after.state["steps"] >= 4000
    assert after.arrays["counters"][1] > before.arrays["counters"][1]
    assert after.state["seconds"] > before.state["seconds"]
    assert rows(run)[: len(episodes)] == episodes
    assert len(rows(run)) == after.state["episodes"] == result["episodes"]
    assert load_config(run).run.steps == 4000
    (resumed,) = json.loads((run / "meta.json").read_text())["resumed"]
    assert resumed["changed"] == {
        "learning.discount": [0.99, 0.9],
        "optimizer.schedule_steps": [2000, 4000],
    }
    shutil.copytree(run, tmp_path / "other")
    (tmp_path / "other" / "meta.json").write_text("{}")
    both = history.load([run, tmp_path / "other"], tmp_path)
    assert [len(group.runs) for group in grouped(both)] == [1, 1], "no seeds of one"
    words = f"discount 0.9 from {int(before.state['steps']):,} steps on"
    assert words in grouped(both)[0].name
    steps = [json.loads(line)["steps"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert "seed 3: a resumed run keeps" in refused("train", "--resume", str(run), "--seed", "3")
    again = ended("train", "--resume", str(run))
    assert again.returncode == 2
    assert "4,000 steps done already, so nothing is left to do" in again.stderr.splitlines()[-1]
    assert "building" not in again.stdout, "it is said before the framework is loaded"
    assert json.loads((run / "result.json").read_text()) == result


@pytest.mark.parametrize(("new_steps", "ends"), [(True, (None, None)), (False, (40.0, 18.0))])
def test_a_new_step_limit_replaces_the_other_limits_of_a_resumed_run(
    new_steps: bool, ends: tuple[float | None, float | None], tmp_path: Path
) -> None:
    before = TrainConfig(run=RunConfig(steps=100, seconds=40.0, score=18.0))
    (tmp_path / "config.json").write_text(json.dumps(to_json(before), default=str))
    path, after = known_run(tmp_path, tmp_path, new_steps, trust=False)
    assert path == tmp_path
    assert (after.run.seconds, after.run.score) == ends
    assert replace(after, run=before.run) == before


def test_the_command_and_the_api_both_recognise_a_new_step_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = TrainConfig(run=RunConfig(steps=100, seconds=40.0))
    (tmp_path / "config.json").write_text(json.dumps(to_json(before), default=str))
    for steps, has_seconds in ((["--steps", "200"], False), (["--steps=200"], False), ([], True)):
        assert main(["train", "--resume", str(tmp_path), *steps, "--print-config"]) == 0
        assert ("seconds = 40.0" in capsys.readouterr().out) == has_seconds
    for given, seconds in (({"steps": 200}, None), ({}, 40.0)):
        seen = list[TrainConfig]()

        def stop(config: TrainConfig, known: object, seen: list[TrainConfig] = seen) -> None:
            seen.append(config)
            raise ValueError("seen")

        monkeypatch.setattr("ga3c.api.prepared", stop)
        with pytest.raises(ValueError, match="seen"):
            ga3c.train(resume=str(tmp_path), **given)
        assert seen[0].run.seconds == seconds


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_loses_one_interval_at_most(
    command: Start, tmp_path: Path
) -> None:
    draw = random.Random(5)
    run = tmp_path / "runs" / "mine"
    given = [*CORRIDOR, *OFTEN, "--name", "mine"]
    least = 0

    def newest() -> int:
        return max((int(path.name) for path in checkpoints.kept(run / "checkpoints")), default=0)

    for _ in range(4):
        service = command(*given)
        service.until_steps_are_made()
        said = service.steps()
        service.until(lambda: newest() > max(said, least))  # noqa: B023
        time.sleep(draw.uniform(0.0, 1.5))
        written = newest()
        service.process.kill()
        service.process.wait()
        wait_for(lambda: not service.survivors(), STOP_S)  # noqa: B023
        kept = state(run)
        assert kept.state["steps"] >= written, "what was kept before the kill is lost"
        # The run checks after each line of figures whether a checkpoint is due. So when it writes
        # the last line, its newest checkpoint is less than one interval behind the line before.
        shown = [figures["steps"] for figures in records.read(run / directory.METRICS)]
        is_late = "no checkpoint: " in service.err  # one that could not be written is retried
        assert is_late or kept.state["steps"] > max(shown[:-1], default=0) - INTERVAL
        assert all(checkpoints.read(p) for p in checkpoints.kept(run / "checkpoints"))
        least = kept.state["steps"]
        given = ["train", "--resume", str(run)]
    assert not is_running(run)
    records.append(run / directory.METRICS, {"pps": 4.0})  # damage, which a resume leaves out
    done = ended("train", "--resume", str(run), "--steps", str(int(least) + 1000))
    assert done.returncode == 0, done.stderr
    assert f"goes on from {int(least):,} steps" in done.stdout
    final = state(run)
    assert len(rows(run)) == final.state["episodes"]
    steps = [int(row["steps"]) for row in rows(run)]
    assert steps == sorted(steps)


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_is_used(tmp_path: Path) -> None:
    given = ["--runs-dir", str(tmp_path), "--name", "mine"]
    assert ended(*CORRIDOR, "--steps", "2000", *given).returncode == 0
    run = tmp_path / "mine"
    newest = checkpoints.kept(run / "checkpoints")[-1]
    os.truncate(newest / "arrays.npz", 100)
    done = ended("train", "--resume", str(run), "--steps", "2500")
    assert done.returncode == 0
    assert "damaged, so the one before it is used" in done.stderr
    assert "goes on from 0 steps" in done.stdout
    assert (newest.parent / f"damaged-{newest.name}").exists()
    assert state(run).state["steps"] >= 2500
    for each in checkpoints.kept(run / "checkpoints"):
        os.truncate(each / "state.json", 0)
    config = (run / "config.json").read_text()
    done = ended("train", "--resume", str(run), "--steps", "9000")
    assert done.returncode == 1
    assert "no whole checkpoint" in done.stderr.splitlines()[-1]
    assert (run / "config.json").read_text() == config


def test_a_directory_belongs_to_one_process_and_one_run(tmp_path: Path) -> None:
    """Two processes started at once both pass the earlier checks, made before the framework loads.

    RunDirectory must therefore refuse the second one.
    """
    path, again = tmp_path / "run", TrainConfig(run=RunConfig(resume=tmp_path / "run"))
    first = RunDirectory(TrainConfig(), path)
    first.begin(0)
    first.metrics({"steps": 5, "pps": 1.0})
    with pytest.raises(BlockingIOError, match="another process uses"):
        RunDirectory(again, path)
    first.finish({"steps": 5})
    kept = (path / "metrics.jsonl").read_text()
    with pytest.raises(FileExistsError, match="another process has created it"):
        RunDirectory(TrainConfig(), path)
    assert (path / "metrics.jsonl").read_text() == kept and (path / "result.json").exists()
    RunDirectory(again, path).close()


def test_a_folder_without_a_run_is_reported_as_such(tmp_path: Path) -> None:
    config = TrainConfig(run=RunConfig(runs_dir=tmp_path, name="run"))
    begun = RunDirectory(config, tmp_path / "run")
    with pytest.raises(ValueError, match="another process uses it: choose another --name"):
        new_run_path(config)
    begun.close()
    with pytest.raises(ValueError, match=r"a folder without a config.json, .*: remove it"):
        new_run_path(config)


def test_a_run_is_resumed_even_if_latest_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, again = tmp_path / "run", TrainConfig(run=RunConfig(resume=tmp_path / "run"))
    first = RunDirectory(TrainConfig(), path)
    first.begin(0)
    first.finish({"steps": 5})

    def refused(*_: object) -> None:
        raise PermissionError("not yours")

    with monkeypatch.context() as patched, contextlib.closing(RunDirectory(again, path)) as failed:
        patched.setattr(directory, "rewrite_lines", refused)
        with pytest.raises(PermissionError):
            failed.begin(5)
    assert (path / "result.json").exists(), "it was not resumed"
    monkeypatch.setattr(RunDirectory, "_point_latest", refused)
    with contextlib.closing(RunDirectory(again, path)) as resumed:
        resumed.begin(5)
    assert "not written: not yours" in capsys.readouterr().err


def test_the_best_weights_beyond_a_resumed_checkpoint_are_set_aside(tmp_path: Path) -> None:
    """Their evaluation, made after that checkpoint, is removed, so they are no longer the best."""
    path, again = tmp_path / "run", TrainConfig(run=RunConfig(resume=tmp_path / "run"))
    first = RunDirectory(TrainConfig(), path)
    first.begin(0)
    first.evaluation({"steps": 900, "protocol": {"name": "paper"}, "mean": 12.5})
    checkpoints.write_best(path / "best", {"a": np.ones(1)}, {"steps": 900})
    first.close()
    for steps, left in ((900, 1), (500, 0)):
        with contextlib.closing(RunDirectory(again, path)) as resumed:
            resumed.begin(steps)
        assert len(checkpoints.kept(path / "best")) == left
        assert len(records.read(path / "evaluations.jsonl")) == left
    (aside,) = (path / "best").glob("beyond-*900-*")
    assert checkpoints.read(aside).state["steps"] == 900


def test_a_run_that_cannot_be_resumed_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(run=RunConfig(steps=5))
    run = RunDirectory(config, tmp_path / "run")
    run.begin(0)
    with pytest.raises(ValueError, match=r"another process uses it: wait until it ends, or stop"):
        check_resumable(run.path, config)
    for steps in (3, 6):
        place = checkpoints.place_of(steps, run.path / "checkpoints")
        checkpoints.write(place, {"a": np.ones(1)}, {"steps": steps})
    run.finish({"ended": "5 steps done", "steps": 6})
    with pytest.raises(ValueError, match=r"5 steps done already, so nothing is left to do: give a"):
        check_resumable(run.path, config)
    check_resumable(run.path, TrainConfig(run=RunConfig(steps=9)))
    ended_by_time = {"ended": "60 s have passed", "steps": 6, "seconds": 60.01}
    (run.path / "result.json").write_text(json.dumps(ended_by_time))
    check_resumable(run.path, TrainConfig(run=RunConfig(steps=9)))  # the same steps, no seconds
    for limits in (RunConfig(steps=9, seconds=60.0), RunConfig(steps=6)):
        with pytest.raises(ValueError, match="60 s have passed already"):
            check_resumable(run.path, TrainConfig(run=limits))
    (checkpoints.kept(run.path / "checkpoints")[-1] / checkpoints.ARRAYS).write_bytes(b"")
    check_resumable(run.path, config)
    monkeypatch.setattr(checks, "is_writable", lambda folder: False)
    with pytest.raises(ValueError, match="its folder cannot be written to, so it cannot be resum"):
        check_resumable(run.path, config)


def test_a_folder_for_runs_that_takes_no_file_is_refused_at_once() -> None:
    config = TrainConfig(run=RunConfig(runs_dir=Path("/proc/runs")))
    with pytest.raises(ValueError, match="cannot be created: /proc is not a writable folder"):
        new_run_path(config)


def test_two_services_cannot_use_one_directory(command: Start, tmp_path: Path) -> None:
    first = command(*CORRIDOR, "--name", "mine")
    first.until_steps_are_made()
    run = tmp_path / "runs" / "mine"
    assert is_running(run)
    second = ended("train", "--resume", str(run))
    assert second.returncode == 2
    assert "another process uses" in second.stderr
    first.interrupt()
    assert first.wait(STOP_S) == 130
    assert not is_running(run)
    assert_nothing_is_left(first)


def test_a_run_is_not_resumed_as_another(tmp_path: Path) -> None:
    given = ["--runs-dir", str(tmp_path), "--name", "mine"]
    assert ended(*CORRIDOR, "--steps", "500", *given).returncode == 0
    run, empty = tmp_path / "mine", tmp_path / "empty"
    for arguments, words in (
        (["--resume", str(tmp_path / "other")], "other: no directory with a config.json"),
        (["--resume", str(run), "--game", "CartPole-v1"], "start a new run"),
        (["--resume", str(run), *IN_TURN], "lockstep: the run did not use it"),
        (["--resume", str(run), "--preset", "paper"], "preset paper"),
        (["--resume", str(run), "--algorithm", "ppo"], "a resumed run keeps its algorithm a3c"),
        (["--resume", str(run), "--name", "b"], "name b: a resumed run keeps its name"),
        (["--resume", "7", "--runs-dir", str(empty)], f"run 7: the folder {empty} has no runs"),
        (
            ["--resume", str(run), *IN_TURN, "--seed", "9"],
            "the seed, stagger_steps and the environment",
        ),
        (["--resume", str(run), "--optimizer", "rmsprop"], "does not fit the settings"),
    ):
        done = ended("train", *arguments, "--steps", "900")
        assert done.returncode == 2, done.stdout
        assert words in done.stderr.splitlines()[-1]
    (run / "config.json").write_text('{"learning": {"discount": 7}}')
    done = ended("train", "--resume", str(run))
    assert done.returncode == 2
    assert "discount 7" in done.stderr


def test_another_spelling_of_a_game_is_the_same_game() -> None:
    def of(game: str, **settings: Any) -> TrainConfig:
        return TrainConfig(environment=EnvironmentConfig(game, **settings))

    for game in ("pong", "ALE/Pong-v5", "PongNoFrameskip-v4"):
        check_resumed(of(game), of("Pong"))
    with pytest.raises(ValueError, match="game Breakout: the run plays Pong"):
        check_resumed(of("Breakout"), of("Pong"))
    with pytest.raises(ValueError, match="unknown game 'Pogn'"):
        check_resumed(of("Pogn"), of("Pong"))


def test_a_configuration_without_a_name_may_resume_a_named_run() -> None:
    before = TrainConfig(run=RunConfig(name="mine"))
    check_resumed(TrainConfig(), before)
    with pytest.raises(ValueError, match="name yours: a resumed run keeps its name"):
        check_resumed(TrainConfig(run=RunConfig(name="yours")), before)


def test_in_lockstep_other_info_keys_may_be_asked_for() -> None:
    """They change what is reported, not what is played."""
    given = ["--algorithm", "a3c", *IN_TURN, "--game", "CartPole-v1"]
    before = parse(given, TrainConfig, "test")
    check_resumed(parse([*given, "--info-keys", "coins"], TrainConfig, "test"), before)
    other = parse([*given, "--env-args", "sutton_barto_reward=True"], TrainConfig, "test")
    with pytest.raises(ValueError, match="could not be replayed"):
        check_resumed(other, before)


def test_in_lockstep_a_name_that_asks_for_sticky_actions_is_another_environment() -> None:
    given = ["--algorithm", "a3c", *IN_TURN]
    before = parse(given, TrainConfig, "test")
    check_resumed(parse([*given, "--game", "pong"], TrainConfig, "test"), before)
    with pytest.raises(ValueError, match="lockstep: the seed, stagger_steps and"):
        check_resumed(parse([*given, "--game", "ALE/Pong-v5"], TrainConfig, "test"), before)
    with pytest.raises(ValueError, match="lockstep: the seed, stagger_steps and"):
        check_resumed(parse([*given, "--stagger-steps", "50"], TrainConfig, "test"), before)


def test_settings_that_do_not_fit_the_saved_replay_are_refused() -> None:
    def of(*settings: str) -> TrainConfig:
        return parse(["--algorithm", "dqn", *settings], TrainConfig, "test")

    saved = of("--save-replay")
    check_resumed(of("--save-replay", "--trainers", "2"), saved)
    check_resumed(of("--steps-per-update", "8"), saved)
    check_resumed(of("--save-replay", "--steps-per-update", "8"), of())
    with pytest.raises(ValueError, match=r"steps_per_update 8.0: the replay was saved with 4.0"):
        check_resumed(of("--save-replay", "--steps-per-update", "8"), saved)
    for other in (
        *("--replay-min-steps=9000", "--n-step=2", "--discount=0.9", "--slack-steps=300"),
        *("--update-size=500", "--replay-steps=50000", "--envs-per-agent=8", "--pixels=float32"),
        "--replay-draws=prioritised",
    ):
        with pytest.raises(ValueError, match="the replay was saved with"):
            check_resumed(of("--save-replay", other), saved)
    drawn = ("--save-replay", "--replay-draws", "prioritised")
    for other in ("--priority-exponent=1.0", "--first-priority=acting"):
        with pytest.raises(ValueError, match="the replay was saved with"):
            check_resumed(of(*drawn, other), of(*drawn))


def test_settings_are_on_the_disk_before_they_take_the_old_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut there is the old file or the new one, never an empty one."""
    run = RunDirectory(TrainConfig(), tmp_path / "run")
    run.begin(0)
    config = run.path / "config.json"
    before, synced = config.stat().st_ino, []
    sync = os.fsync

    def noted(number: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{number}")), config.stat().st_ino))
        sync(number)

    monkeypatch.setattr(os, "fsync", noted)
    run.begin(0)
    run.finish({})
    at = synced.index((run.path / ".config.json", before))
    assert synced[at + 1] == (run.path, config.stat().st_ino)
    assert config.stat().st_ino != before


def test_a_run_is_resumed_by_name_though_its_trace_folder_has_gone(tmp_path: Path) -> None:
    trace = tmp_path / "gone" / "trace.json"
    trace.parent.mkdir()
    given = ["--runs-dir", str(tmp_path / "runs"), "--name", "mine", "--trace", str(trace)]
    assert ended(*CORRIDOR, "--steps", "500", *given).returncode == 0
    trace.unlink()
    trace.parent.rmdir()
    link = tmp_path / "runs" / ".latest-mine"
    link.symlink_to("mine")  # left by a run that was killed while it wrote `latest`
    result = json.loads((tmp_path / "runs" / "mine" / "result.json").read_text())
    again = ["--resume", "mine", "--runs-dir", str(tmp_path / "runs")]
    done = ended("train", *again, "--steps", str(result["steps"] + 500))
    assert done.returncode == 0, done.stderr


def test_every_setting_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    given: list[Any] = [*CORRIDOR, "--steps", "300", "--seed", "7", "--scheduler", "off"]
    given += ["--training-batch-min", "20"]
    done = ended(*given, "--runs-dir", str(tmp_path), "--name", "mine")
    assert done.returncode == 0, done.stderr
    config = load_config(find_run(Path("mine"), tmp_path))
    assert config.run.seed == 7
    assert config.run.runs_dir == tmp_path
    assert config.scheduler.scheduler == "off"
    assert config.service.training_batch_min == 20
    assert config.run.resume is None


@pytest.mark.slow
def test_a_full_disk_is_reported_once_and_the_run_makes_all_its_steps(command: Start) -> None:
    """A limit on file sizes makes every checkpoint fail."""
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))\n"
        "from ga3c.__main__ import main\n"
        "sys.exit(main())"
    )
    # Progress lines are rare, because the limit applies to standard output too.
    given = ["--checkpoint-every-steps", "300", "--progress-every-s", "10"]
    run = command(*CORRIDOR, *given, "--steps", "6000", "--name", "mine", program=program)
    assert run.wait(BEGIN_S) == 1
    said = run.err.count("no checkpoint: [Errno 27]")
    others = run.err.count("no checkpoint: an update did not end")
    assert 1 <= said <= 1 + others, "again only after another reason, not at each attempt"
    assert "6,000 steps done" in run.out
    assert_nothing_is_left(run)
