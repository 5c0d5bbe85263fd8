"""A list of games is trained, evaluated and tabulated, even if it is interrupted."""

import contextlib
import io
import json
import math
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any
from unittest.mock import MagicMock

import pytest

from ga3c.evaluation.protocols import PROTOCOLS
from ga3c.reports import jobs, processes
from ga3c.reports.job import Evaluation, Job
from ga3c.reports.jobs import complete
from ga3c.reports.processes import LOST
from ga3c.reports.scores import Config, _jobs
from ga3c.runs import checkpoints
from ga3c.runs.finding import EVALUATIONS, LOCK, is_running, locked, newest_figures
from ga3c.runs.kept_config import CONFIG, load_config, to_json
from ga3c.settings.checks import WrongInput
from ga3c.settings.presets import PRESETS
from ga3c.settings.train import TrainConfig
from tests.commands import (
    BEGIN_S,
    STOP_S,
    Command,
    assert_nothing_is_left,
    ended,
    refused,
    wait_for,
)

GAMES = ["tests.tiny:Careless-v0", "CartPole-v1"]
CARTPOLE = ["--games", "CartPole-v1"]
LIGHT = "--algorithm a3c --agents 1 --envs-per-agent 8 --scheduler off --progress-every-s 0.5"

OF_TRAINING = 2**31  # the seed of evaluations during training
STEPS = 8_000  # 16 s at 2 ms per step, so that the list is interrupted in its first game


@pytest.mark.slow
def test_a_list_of_games_goes_on_where_it_was(
    command: Callable[..., Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "scores"
    given = ["scores", "--games", *GAMES, "--seeds", "1", "--out-dir", str(out)]
    given += ["--steps", str(STEPS), "--episodes", "4", f"--train={LIGHT}"]
    monkeypatch.setenv("GA3C_TEST_CARELESS_S", "0.002")
    first = command(*given)
    run = out / "Careless-v0-0"
    first.until(
        lambda: (
            len((run / "metrics.jsonl").read_text().splitlines()) > 1
            if (run / "metrics.jsonl").exists()
            else False
        )
    )
    first.interrupt()
    assert first.wait(STOP_S + 5.0) == 130
    assert_nothing_is_left(first)
    reached = checkpoints.newest(run / "checkpoints")[0]
    assert reached is not None
    assert 0 < reached.state["steps"] < STEPS
    monkeypatch.delenv("GA3C_TEST_CARELESS_S")
    done = ended(*given)
    assert done.returncode == 0, done.stderr
    assert f"--resume {run}" in done.stdout
    assert f"goes on from {int(reached.state['steps']):,} steps" in (run / "log.txt").read_text()
    for each in ("Careless-v0-0", "CartPole-v1-0"):
        (entry,) = map(json.loads, (out / each / "evaluations.jsonl").read_text().splitlines())
        assert entry["episodes"] == 4
        assert entry["steps"] >= STEPS
    for name in ("scores.md", "scores.csv", "report.html"):
        assert (out / name).stat().st_size > 100
    assert "| CartPole-v1 |" in (out / "scores.md").read_text()
    again = ended(*given)
    assert again.returncode == 0
    assert "ga3c train" not in again.stdout and "ga3c evaluate" not in again.stdout


def test_lists_have_as_many_games_as_the_published_tables(tmp_path: Path) -> None:
    counts = {"ga3c-paper": 9, "fast-dqn": 49, "atari57": 57, "control": 6}
    for name, count in counts.items():
        jobs = _jobs(Config(tmp_path, games=(name,), seeds=2))
        assert len(jobs) == 2 * count
        assert len({job.path for job in jobs}) == 2 * count


def test_a_table_is_trained_and_evaluated_as_it_was_published(tmp_path: Path) -> None:
    def played(**given: Any) -> tuple[str | None, str]:
        job = _jobs(Config(tmp_path, seeds=1, **given))[0]
        assert job.evaluation
        return job.evaluation.protocol, job.arguments

    assert played(games=("ga3c-paper",)) == ("paper", "--sticky-actions 0.25")
    mine = played(games=("ga3c-paper",), train="--sticky-actions 0")
    assert mine == ("paper", "--sticky-actions 0.25 --sticky-actions 0"), "the last one counts"
    assert played(games=("ga3c-paper",), protocol="paper") == ("paper", "--sticky-actions 0.25")
    assert played(games=("ga3c-paper",), protocol="nature") == ("nature", "")
    assert played(games=("fast-dqn",)) == ("nature", "")
    for game in ("ALE/Pong-v5", "Pong-v0"):  # which imply sticky actions
        zero = played(games=(game,), protocol="nature")
        assert zero == ("nature", "--sticky-actions 0.0")
        assert played(games=(game,), protocol="paper") == ("paper", "--sticky-actions 0.25")
        assert played(games=(game,)) == (None, "")
    assert played(games=("Pong-v4",), protocol="nature") == ("nature", "")
    assert played(games=("Pong",)) == (None, "")
    assert played(games=("Pong",), protocol="paper") == ("paper", "--sticky-actions 0.25")
    assert played(games=("CartPole-v1",), protocol="paper") == ("paper", ""), "no Atari game"


def kept_evaluation(
    run: Path, name: str, weights: str, seed: int, is_greedy: bool = False, **changed: Any
) -> None:
    """Give the run one evaluation: its newest checkpoint by a protocol, over 30 games."""
    steps = int(checkpoints.kept(run / "checkpoints")[-1].name)
    settings = replace(PROTOCOLS[name], **changed)
    protocol = settings.named(name, load_config(run).environment, weights, is_greedy)
    entry = {"steps": steps, "protocol": protocol, "episodes": 30, "mean": 1.0, "seed": seed}
    entry["infos"] = {"goals": 1.0}
    (run / EVALUATIONS).write_text(json.dumps(entry) + "\n")


@pytest.mark.parametrize(
    ("name", "changed", "weights", "seed", "done"),
    [
        ("nature", {}, "newest", 0, []),
        ("trained", {}, "best", 0, []),
        ("trained", {}, "newest", 0, ["", "--info-keys goals"]),
        ("trained", {"policy": "greedy"}, "newest", 0, ["--policy greedy"]),
        ("trained", {}, "newest", 1, ["--seed 1"]),
        ("trained", {}, "newest", OF_TRAINING, []),
    ],
)
def test_a_job_is_done_only_by_the_evaluation_that_is_asked_for(
    name: str,
    changed: dict[str, Any],
    weights: str,
    seed: int,
    done: list[str],
    pong_run: Path,
    tmp_path: Path,
) -> None:
    run = shutil.copytree(pong_run, tmp_path / "run")
    kept_evaluation(run, name, weights, seed, **changed)
    infos = ("--info-keys goals", "--info-keys goals coins")
    for arguments in ("", "--policy greedy", "--policy epsilon", "--seed 1", *infos):
        evaluation = Evaluation(protocol=None, episodes=30, arguments=arguments)
        job = Job(run, "Pong", 0, steps=1, seconds=None, evaluation=evaluation)
        assert (job.next_command == []) == (arguments in done), arguments
        more = job._replace(evaluation=evaluation._replace(episodes=31))
        assert more.next_command[:2] == ["evaluate", str(run)]


def test_an_evaluation_of_dqn_is_kept_as_greedy_and_counts(pong_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(pong_run, tmp_path / "run")
    (run / CONFIG).write_text(json.dumps(to_json(PRESETS["dqn-pictures"])))
    kept_evaluation(run, "trained", "newest", 0, is_greedy=True)
    for arguments, is_done in (("", True), ("--policy greedy", True), ("--step-cap 9", False)):
        evaluation = Evaluation(protocol=None, episodes=30, arguments=arguments)
        job = Job(run, "Pong", 0, steps=1, seconds=None, evaluation=evaluation)
        assert (job.next_command == []) == is_done, arguments


def test_a_run_that_is_begun_anew_forgets_how_its_predecessor_was_resumed(tmp_path: Path) -> None:
    job = Job(tmp_path / "run", "Pong", 0, steps=5000, seconds=None, arguments="--algorithm dqn")
    job.note(train=job.arguments)
    job.note(steps="5000", until="7000")
    assert json.loads(job.asked.read_text())["until"] == "7000"
    job.note(train=job.arguments)
    assert json.loads(job.asked.read_text()) == {"train": "--algorithm dqn"}


def test_a_game_that_two_lists_play_in_two_ways_is_refused(tmp_path: Path) -> None:
    def jobs(*games: str, **given: Any) -> int:
        return len(_jobs(Config(tmp_path, seeds=1, games=games, **given)))

    for games in (("ga3c-paper", "atari57"), ("Pong", "ga3c-paper"), ("fast-dqn", "pong")):
        with pytest.raises(WrongInput, match="is in two lists that train or evaluate it"):
            jobs(*games)
    assert jobs("fast-dqn", "atari57", protocol="nature") == 57
    assert jobs("Pong", "atari57", "pong") == 57
    with pytest.raises(WrongInput, match="ALE/Pong-v5 is in two"):  # implies sticky actions
        jobs("Pong", "ALE/Pong-v5")


def test_a_run_trained_with_other_arguments_than_the_requested_is_refused(
    pong_run: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(pong_run, tmp_path / "run")
    first = Job(run, "Pong", 0, steps=1, seconds=None, arguments="--sticky-actions 0.25")
    first.check()  # as if made by hand: its arguments are not recorded
    first.note(train=first.arguments)
    first.check()
    with pytest.raises(WrongInput, match="with 'none' is asked for"):
        complete([first._replace(arguments="")])


@pytest.mark.parametrize("name", ["ALE/Pong-v5", "mine:Pong", "Boxing"])
def test_a_run_of_another_game_than_the_requested_is_refused(name: str, pong_run: Path) -> None:
    Job(pong_run, "PONG", 0, steps=1, seconds=None).check()
    with pytest.raises(WrongInput, match=f"is a run of Pong, .* but {name} with 'none' is asked"):
        complete([Job(pong_run, name, 0, steps=1, seconds=None)])


@pytest.mark.slow
def test_a_run_whose_replay_is_lost_makes_up_for_the_steps_that_refill_it(tmp_path: Path) -> None:
    given = "--algorithm dqn --agents 1 --envs-per-agent 4 --scheduler off --replay-min-steps 2000"
    job = Job(tmp_path / "run", "CartPole-v1", 0, steps=3000, seconds=None, arguments=given)
    complete([job])
    more = job._replace(steps=4500)
    complete([more])
    figures = newest_figures(job.path)
    assert figures["steps"] >= 4500 + 2000, "2,000 steps fill the replay anew"
    assert load_config(job.path).scheduled_optimizer.schedule_steps == 4500, "as of other seeds"
    assert more.next_command == []
    last = checkpoints.read(job.kept[-1])
    checkpoints.remove(job.kept)
    early = job.path / "checkpoints" / f"{4800:012}"  # as if interrupted while refilling
    checkpoints.write(early, last.arrays, {**last.state, "steps": 4800})
    assert more.next_command[:5] == ["train", "--resume", str(job.path), "--trust", "--steps"]
    assert int(more.next_command[5]) == 4500 + 2 * 2000
    assert more._replace(steps=4700).next_command == [], "as many as were asked for"
    schedule = job._replace(steps=20_000).next_command[8:]
    assert schedule[:2] == ["--schedule-steps", "20000"], "not those of the steps asked for before"
    own = job._replace(steps=20_000, arguments=f"{given} --schedule-steps 4500")
    assert own.next_command[8:] == []


def test_a_run_whose_settings_cannot_be_read_is_no_result(pong_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(pong_run, tmp_path / "run")
    (run / CONFIG).unlink()
    with pytest.raises(WrongInput, match=f"its {CONFIG} cannot be read"):
        Job(run, "Pong", 0, steps=1, seconds=None).check()


def test_a_folder_that_is_no_run_without_a_checkpoint_stays(tmp_path: Path) -> None:
    job = Job(tmp_path / "CartPole-v1-0", "CartPole-v1", 0, steps=100, seconds=None)
    job.check()
    job.path.mkdir()
    job.check()
    for name, text, stays in (
        ("lock", "", False),
        ("log.txt", "", False),
        (CONFIG, "{}", False),
        ("result.json", '{"error": "it failed"}', False),
        ("result.json", "{}", True),
    ):
        (job.path / name).write_text(text)
        if stays:
            with pytest.raises(WrongInput, match="has files but no checkpoint to go on from"):
                job.check()
        else:
            job.check()
    (job.path / CONFIG).unlink()
    (job.path / "result.json").rename(job.path / "thesis.txt")
    given = ["--out-dir", str(tmp_path), "--games", "CartPole-v1", "--seeds", "1"]
    assert "has files but no checkpoint" in refused("scores", *given)
    assert (job.path / "thesis.txt").exists()


def test_a_record_of_how_a_run_was_made_is_whole_or_refused(pong_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(pong_run, tmp_path / "run")
    job = Job(run, "Pong", 0, steps=1, seconds=None, arguments="--discount 0.9")
    job.check()  # of a run that was made by hand
    job.asked.write_text('{"train": "--disc')
    with pytest.raises(WrongInput, match="which says how its run was made, cannot be read"):
        job.check()


class Lost:
    """A command whose node is lost at once; its error file holds Ray's message."""

    returncode = LOST

    def __init__(self, job: Job, newest: str) -> None:
        (job.path / "checkpoints" / newest).mkdir(parents=True, exist_ok=True)
        (job.path / CONFIG).write_text(json.dumps(to_json(TrainConfig())))
        (job.path.parent / f"{job.path.name}.err").write_text("OutOfMemoryError: it took all")

    def poll(self) -> int:
        return LOST


def test_a_job_that_is_lost_repeatedly_without_progress_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "POLL_S", 0.0)
    job, starts = Job(tmp_path / "pong-0", "Pong", 0, steps=9, seconds=None), []

    def start(command: list[str], errors: Path) -> Any:
        starts.append(command)
        return Lost(job, f"{min(len(starts), 4):012}")  # only the first four have a new checkpoint

    with pytest.raises(RuntimeError, match=r"lost with its node 3 times .*OutOfMemoryError"):
        complete([job], start=start)
    assert len(starts) == 6


class Ended:
    """A command that has ended successfully."""

    returncode = 0

    def poll(self) -> int:
        return 0


def test_a_run_that_another_process_trains_is_waited_for(
    pong_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "POLL_S", 0.01)
    run, said, running = shutil.copytree(pong_run, tmp_path / "run"), io.StringIO(), list[bool]()
    job = Job(run, "Pong", 0, steps=10**9, seconds=None)

    def start(command: list[str], errors: Path) -> Any:
        running.append(is_running(run))
        errors.write_text("")
        state = {"steps": job.steps, "seconds": 1.0}
        checkpoints.write(run / "checkpoints" / f"{job.steps:012}", {}, state)
        return Ended()

    with open(run / LOCK, "a") as lock, contextlib.redirect_stdout(said):
        assert locked(lock)
        waiting = threading.Thread(target=complete, args=([job],), kwargs={"start": start})
        waiting.start()
        wait_for(
            lambda: "waiting for run: another process is training it\n" in said.getvalue(), STOP_S
        )
        lock.close()
        waiting.join(STOP_S)
    assert running == [False]
    assert job.next_command == []


def test_a_command_without_any_effect_is_not_given_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "POLL_S", 0.0)
    starts = []

    def start(command: list[str], errors: Path) -> Any:
        starts.append(command)
        errors.write_text("")
        return Ended()

    with pytest.raises(RuntimeError, match=r"pong-0: \['train', .*\] ended without any effect"):
        complete([Job(tmp_path / "pong-0", "Pong", 0, steps=9, seconds=None)], start=start)
    assert len(starts) == 1


def test_wrong_arguments_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    for arguments, words in (
        (["--games", "Pogn"], "did you mean Pong"),
        (["--seeds", "0"], "seeds 0"),
        (["--steps", "None"], "no run would end"),
        (["--train=--score 18"], "--score is set by ga3c scores itself"),
        (["--train", "--score 18"], "--score is set by ga3c scores itself"),
        (["--evaluate=--checkpoint best"], "--checkpoint is set by ga3c scores itself"),
        (["--train='"], 'train "\'": No closing quotation'),
        (["--games"], "games: must be at least one"),
        (["--train=--runs_dir x"], "--runs-dir is set by ga3c scores itself"),
        (["--train=--agents 0"], "agents 0: must be at least 1"),
        (["--train=--noise 0.5"], "--noise has no effect on algorithm ppo"),
        (["--evaluate=--nonsense"], "unknown option --nonsense"),
        (["--evaluate=--info-keys coins"], "Pong takes no info_keys: it is an Atari game"),
        (["--evaluate=--env-args a=1"], "Pong takes no env_args: it is an Atari game"),
        (["--evaluate=--pretrained pong"], "pretrained pong: what is evaluated is the trained run"),
        (["--evaluate=otherrun"], "'otherrun' belongs to no option"),
        (["--train=--action-repeat 8", "--evaluate=--frame-cap 5"], "frame_cap 5 < action_repeat"),
        ([*CARTPOLE, "--evaluate=--env-args nonsense"], "env_args nonsense: must be key=value"),
        ([*CARTPOLE, "--evaluate=--env-args foo=1"], "unexpected keyword argument 'foo'"),
        ([*CARTPOLE, "--train=--config x", "--evaluate=--nonsense"], "unknown option --nonsense"),
        (["--protocol", "control"], "protocol control: is for continuous actions"),
        (["--gpus", "3"], "--gpus has no effect on --on here"),
        (["--on", "ray", "--at-once", "2"], "--at-once has no effect on --on ray"),
    ):
        assert words in refused("scores", "--out-dir", str(tmp_path / "out"), *arguments)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("same_request_s", "is_kept"), [(math.inf, True), (0.0, False)])
def test_a_command_is_ended_when_it_has_kept_its_state_or_by_another_signal(
    same_request_s: float, is_kept: bool, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """A signal that comes meanwhile counts as the same request, or as a new one, which kills it."""
    said = threading.Event()

    def say(*words: Any, **given: Any) -> None:
        print(*words, **given)
        said.set()

    monkeypatch.setattr(processes, "print", say, raising=False)
    monkeypatch.setattr(processes, "SAY_S", 0.2)
    monkeypatch.setattr("agents.signals.SAME_REQUEST_S", same_request_s)
    program = (
        "import os, signal, sys, time\n"
        "def keep(*_):\n"
        "    os.write(1, b'\\n')\n"  # print is not reentrant, and the one below may be running
        "    os.read(0, 1)\n"
        "    sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, keep)\n"
        "print(flush=True)\n"
        "while True: time.sleep(0.01)\n"
    )
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe)
    assert process.stdin and process.stdout
    process.stdout.readline()

    def signal_once_asked(asked: IO[bytes], keeps: IO[bytes]) -> None:
        asked.readline()
        assert said.wait(BEGIN_S)
        signal.raise_signal(signal.SIGTERM)
        if is_kept:
            time.sleep(0.2)  # for the main thread to handle the signal
            keeps.close()

    # A signal that comes too late must not end the tests.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        signals = threading.Thread(target=signal_once_asked, args=[process.stdout, process.stdin])
        signals.start()
        processes.end(process, within_s=math.inf)
        signals.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert process.returncode == (7 if is_kept else -signal.SIGKILL)
    assert "waiting until runs have saved their state" in capsys.readouterr().err
    process.stdin.close()
    process.stdout.close()


def test_a_command_that_does_not_end_in_time_is_killed(capsys: pytest.CaptureFixture[str]) -> None:
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
    hangs = [sys.executable, "-c", f"{program}; signal.pause()"]
    with subprocess.Popen(hangs, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        processes.end(process, within_s=0.2)
    assert process.returncode == -signal.SIGKILL
    assert not capsys.readouterr().err


def test_a_cancelled_task_of_a_cluster_is_interrupted_and_not_lost(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    cancelled = ray.exceptions.TaskCancelledError()
    for error in (cancelled, ray.exceptions.RayTaskError("f", "", cancelled).as_instanceof_cause()):
        fake = MagicMock(exceptions=ray.exceptions, wait=lambda tasks, timeout: (tasks, []))
        fake.get.side_effect = error
        assert processes.RayProcess(fake, "task", tmp_path / "err").poll() == 130
    assert not (tmp_path / "err").exists()


def test_what_is_trained_already_is_not_checked_again(pong_run: Path, tmp_path: Path) -> None:
    """An earlier version may have accepted arguments that this one refuses."""
    run, refused = shutil.copytree(pong_run, tmp_path / "run"), "--normalize-observations"
    complete([Job(run, "Pong", 0, steps=1, seconds=None, arguments=refused)])
    with pytest.raises(WrongInput, match=f"{refused} has no effect"):
        complete([Job(tmp_path / "new", "Pong", 0, steps=1, seconds=None, arguments=refused)])


def test_an_evaluation_that_a_begun_run_refuses_is_refused_before_it_goes_on(
    pong_run: Path, tmp_path: Path
) -> None:
    run, coins = shutil.copytree(pong_run, tmp_path / "run"), Evaluation(None, 30, "--info-keys c")
    job = Job(run, "Pong", 0, steps=5000, seconds=None, evaluation=coins)
    assert job.next_command[:2] == ["train", "--resume"]
    with pytest.raises(WrongInput, match="Pong takes no info_keys"):
        complete([job])


def test_a_run_that_fails_ends_the_list_with_its_error(tmp_path: Path) -> None:
    given = ["--games", "tests.tiny:Fallen-v0", "--steps", "100", f"--train={LIGHT}"]
    done = ended("scores", "--out-dir", str(tmp_path), *given, timeout_s=BEGIN_S)
    assert done.returncode == 1
    assert "the corridor has fallen in" in done.stderr
