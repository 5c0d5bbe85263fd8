"""The command as its users meet it: help, wrong input, limits, signals, and what is left behind."""

import fcntl
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.signals import SAME_REQUEST_S
from ga3c.command.parse import parse
from ga3c.command.streams import UNWRITTEN, Tolerant
from ga3c.runs import checkpoints
from ga3c.settings.presets import PRESETS
from ga3c.settings.train import TrainConfig
from tests.commands import (
    BEGIN_S,
    CORRIDOR,
    LIGHT,
    ROOT,
    STOP_S,
    Command,
    assert_nothing_is_left,
    wait_for,
)


def assert_kept(run: Command) -> None:
    """Assert that the newest checkpoint is intact and from the last step."""
    kept, damaged = checkpoints.newest(run.runs / "mine" / "checkpoints")
    assert kept is not None
    assert damaged == []
    result = json.loads((run.runs / "mine" / "result.json").read_text())
    assert kept.state["steps"] == result["steps"]
    assert "no checkpoint" not in run.err


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_help_ends_quietly_where_nobody_reads_on(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as closed:
        command = [sys.executable, "-m", "ga3c", *arguments]
        done = subprocess.run(command, cwd=ROOT, stdout=closed, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


UNREAD = {  # shell redirections, and words that standard error must have (empty: no output)
    "reader that has gone": ("| head -1", "Broken pipe"),
    "full disk": (">/dev/full", "No space left"),
    "both on a full disk": (">/dev/full 2>&1", ""),
    "closed": (">&- 2>&- <&-", ""),
}


@pytest.mark.parametrize("fault", UNREAD)
def test_a_run_that_cannot_print_ends_as_any_other(tmp_path: Path, fault: str) -> None:
    where, words = UNREAD[fault]
    given = [*CORRIDOR, "--steps", "3000", "--json", "--runs-dir", str(tmp_path), "--name", "mine"]
    line = f"{shlex.join([sys.executable, '-m', 'ga3c', *given])} {where}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert len(said) == (1 if words else 0), done.stderr
    assert words in done.stderr
    result = json.loads((tmp_path / "mine" / "result.json").read_text())
    assert result["steps"] >= 3000
    assert "3,000 steps done" in (tmp_path / "mine" / "log.txt").read_text()


def test_a_run_whose_reader_has_stopped_goes_on_and_ends(tmp_path: Path) -> None:
    """As in `ga3c train | less`, or after Ctrl-S in a terminal."""
    given = [*CORRIDOR, "--steps", "4000", "--runs-dir", str(tmp_path), "--name", "mine"]
    unread, out = os.pipe()
    fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 8192)
    os.write(out, bytes(4096))
    run = subprocess.Popen(
        [sys.executable, "-m", "ga3c", *given, "--progress-every-s", "0.5"],
        cwd=ROOT,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, said = run.communicate(timeout=BEGIN_S)
        read = os.read(unread, 8192)
    finally:
        run.kill()
        os.close(out)
        os.close(unread)
    assert run.returncode == 0, said
    assert said.count("standard output cannot be written: its reader has stopped") == 1
    assert read[4096:].startswith(b"ga3c:")
    assert b"4,000 steps done" not in read
    assert "4,000 steps done" in (tmp_path / "mine" / "log.txt").read_text()


def test_what_a_slow_reader_takes_is_complete() -> None:
    unread, out = os.pipe()
    text = "".join(f"{number}\n" for number in range(100_000))
    got: list[str] = []

    def read() -> None:
        with open(unread) as file:
            while part := file.read(4096):
                time.sleep(0.001)
                got.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    with open(out, "w") as file:
        Tolerant(file, UNWRITTEN, True, patience_s=BEGIN_S).write(text)
    reader.join()
    assert "".join(got) == text


def test_four_frames_of_an_atari_game_are_a_step(pong_run: Path) -> None:
    result = json.loads((pong_run / "result.json").read_text())
    assert result["frames"] == 4 * result["steps"] > 0


def test_scores_are_kept_even_if_they_cannot_be_printed(pong_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(pong_run, tmp_path / "mine")
    given = ["evaluate", str(run), "--episodes", "2", "--step-cap", "50", "--json"]
    line = f"{shlex.join([sys.executable, '-m', 'ga3c', *given])} >/dev/full"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "No space left" in done.stderr
    assert len((run / "evaluations.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["runs"]])
def test_a_command_that_cannot_print_its_output_fails_in_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "ga3c", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    said = "ga3c: standard output cannot be written: No space left on device\n"
    assert done.stderr in (said, "ga3c: No space left on device\n")


def test_a_home_that_is_not_writable_is_not_mentioned(tmp_path: Path) -> None:
    """Matplotlib would say that it cannot keep its cache there."""
    program = "from ga3c.command import streams\nstreams.prepare()\nimport matplotlib"
    places = {"HOME": "/proc/none", "XDG_CONFIG_HOME": "", "XDG_CACHE_HOME": "", "MPLCONFIGDIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **places, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_wrong_use_exits_with_2_even_if_stderr_cannot_be_written() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ga3c", "fly"]
        assert subprocess.run(command, cwd=ROOT, stderr=full).returncode == 2


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_usage_names_the_command_train(
    command: Callable[..., Command], arguments: list[str]
) -> None:
    run = command(*arguments)
    assert run.wait(BEGIN_S) == (0 if arguments else 2)
    assert "ga3c train" in run.out


OLD_RUNS = ROOT / "tests" / "runs" / "old_runs"
WRONG: dict[str, tuple[list[str], list[str]]] = {  # arguments, and words that must be in the line
    "unknown command": (["fly"], ["fly", "train"]),
    "misspelt game": (["train", "--game", "Pogn"], ["Pogn", "Pong"]),
    "unknown module": (["train", "--game", "nowhere:Corridor-v0"], ["nowhere"]),
    "no agents": (["train", "--agents", "0"], ["agents 0"]),
    "more agents than the most": (["train", "--agents", "3", "--max-agents", "2"], ["agents 3"]),
    "queue below batch": (
        ["train", "--training-queue", "100", "--training-batch-max", "160"],
        ["100", "160"],
    ),
    "smallest batch above largest": (
        ["train", "--training-batch-min", "200", "--training-batch-max", "160"],
        ["200", "160"],
    ),
    "unknown setting": (["train", "--agnets", "2"], ["agnets"]),
    "unknown preset": (["train", "--preset", "fastest"], ["fastest"]),
    "no number": (["train", "--seconds", "soon"], ["seconds", "soon"]),
    "not a number": (["train", "--seconds", "nan"], ["seconds", "nan"]),
    "learning rate that is no number": (["train", "--learning-rate", "nan"], ["learning_rate"]),
    "video without end": (["play", "--max-seconds", "inf"], ["max_seconds", "inf"]),
    "share that is no number": (["evaluate", "--epsilon", "nan"], ["epsilon nan"]),
    "list without end": (
        ["scores", "--out-dir", "/tmp", "--seconds", "inf"],
        ["seconds inf", "finite"],
    ),
    "more frames than can be counted": (
        ["train", "--frame-cap", "3000000000"],
        ["frame_cap 3000000000", "2**31"],
    ),
    "game that needs another package": (
        ["train", "--game", "GymV21Environment-v0"],
        ["GymV21Environment-v0", "shimmy"],
    ),
    "game that is gone": (["train", "--game", "Hopper-v3"], ["Hopper-v3", "gymnasium-robotics"]),
    "no seconds": (["train", "--seconds", "0"], ["seconds 0"]),
    "negative seed": (["train", "--seed", "-1"], ["seed -1"]),
    "unbounded actions": (["train", "--game", "tests.tiny:Unbounded-v0"], ["no finite bounds"]),
    "network for pictures": (
        ["train", "--game", "CartPole-v1", "--network", "small"],
        ["small", "vectors"],
    ),
    "picture too small": (
        ["train", "--game", "Pong", "--frame-size", "12", "--network", "small"],
        ["12"],
    ),
    "segment above batch": (
        ["train", "--algorithm", "a3c", "--t-max", "100", "--training-batch-max", "80"],
        ["t_max 100", "80"],
    ),
    "segment above minibatch": (
        ["train", "--algorithm", "a3c", "--t-max", "70", "--minibatch", "64"],
        ["t_max 70 > minibatch 64"],
    ),
    "no passes": (["train", "--passes", "0"], ["passes 0: must be at least 1"]),
    "replay beyond memory": (
        ["train", "--algorithm", "dqn", "--replay-steps", "900000000"],
        ["900,000,000", "GB", "fit"],
    ),
    "algorithm of another preset": (
        ["train", "--preset", "paper", "--algorithm", "dqn"],
        ["algorithm dqn", "paper", "a3c"],
    ),
    "slack that stops both": (
        ["train", "--algorithm", "dqn", "--slack-steps", "8"],
        ["slack_steps 8", "forever"],
    ),
    "run that exists": (
        ["train", "--game", "CartPole-v1", "--name", "a3c", "--runs-dir", str(OLD_RUNS)],
        ["a3c exists already: choose another --name"],
    ),
    "name that is no folder": (
        ["train", "--game", "CartPole-v1", "--name", "."],
        ["name '.': must name a folder in runs_dir"],
    ),
    "place for runs that is a file": (
        ["train", "--game", "CartPole-v1", "--runs-dir", str(ROOT / "setup.cfg")],
        ["setup.cfg"],
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_input_is_refused_in_one_line_and_starts_nothing(
    command: Callable[..., Command], tmp_path: Path, fault: str
) -> None:
    arguments, words = WRONG[fault]
    (tmp_path / "runs").mkdir()
    limit = ["--steps", "20000"] if arguments[0] == "train" else []  # in case it is not refused
    run = command(*arguments, *limit)
    assert run.wait(BEGIN_S) == 2, run.err
    lines = run.err.splitlines()
    assert len(lines) == 1, run.err
    assert lines[0].startswith("ga3c: ")
    assert all(word in lines[0] for word in words), lines[0]
    assert run.out == ""
    assert list(run.runs.iterdir()) == []
    assert_nothing_is_left(run)


def test_steps_end_a_run_with_its_figures_as_json(command: Callable[..., Command]) -> None:
    run = command(
        *CORRIDOR, "--steps", "2000", "--json", "--seed", "3", "--name", "mine", fresh=True
    )
    assert run.wait(BEGIN_S) == 0, run.err
    result = json.loads(run.out.splitlines()[-1])
    assert 2000 <= result["steps"] < 2008, "no prediction begins after the last step"
    assert result["frames"] == result["steps"], "the action repeat is of Atari games"
    assert result["tps"] > 0
    assert result["pps"] == pytest.approx(result["steps"] / result["seconds"], rel=0.01)
    assert result["policy_lag"] > 0, "other environments' segments are trained on meanwhile"
    assert -1 <= result["score_mean_100"] <= 1
    assert result["episodes"] > 0
    assert 0 < result["seconds"] < BEGIN_S
    assert [result[role] for role in ("agents", "predictors", "trainers")] == [2, 1, 1]
    assert result["seed"] == 3
    assert json.loads((run.runs / "mine" / "result.json").read_text()) == result
    assert run.err == ""
    assert_nothing_is_left(run)


def test_a_run_needs_no_arguments(command: Callable[..., Command], tmp_path: Path) -> None:
    run = command("train", "--runs-dir", str(tmp_path / "runs"), fresh=True)
    run.until(lambda: "Pong, seed 0" in run.out)
    run.interrupt()
    assert run.wait(STOP_S) == 130, run.err


def test_no_arguments_give_the_preset_ppo_pictures() -> None:
    assert parse([], TrainConfig, "test") == PRESETS["ppo-pictures"]


def test_seconds_end_a_run(command: Callable[..., Command]) -> None:
    run = command(*CORRIDOR, "--seconds", "1.5")
    assert run.wait(BEGIN_S) == 0, run.err
    assert "1.5 s have passed" in run.out
    assert_nothing_is_left(run)


def moments() -> list[tuple[str, float, bool]]:
    """Ten random moments: the signal, its delay in seconds, and whether the run begins first.

    If so, the delay starts when the run has begun, otherwise when the command has started.
    """
    draw = random.Random(20).uniform
    early = [(name, round(draw(0.0, 4.0), 2), False) for name in ("SIGINT", "SIGTERM") * 3]
    return early + [(name, round(draw(0.0, 2.0), 2), True) for name in ("SIGINT", "SIGTERM") * 2]


@pytest.mark.parametrize(("name", "delay_s", "begun"), moments())
def test_a_signal_at_any_moment_ends_all_with_130(
    command: Callable[..., Command], name: str, delay_s: float, begun: bool
) -> None:
    run = command(*CORRIDOR, "--name", "mine", fresh=not begun)
    maps = Path(f"/proc/{run.process.pid}/maps")
    run.until(lambda: "numpy" in maps.read_text())  # main() imports NumPy, so it is running
    if begun:
        run.until(lambda: "in " in run.out)
    time.sleep(delay_s)
    if name == "SIGINT":
        run.interrupt()
    else:
        run.process.terminate()
    assert run.wait(STOP_S if begun else BEGIN_S) == 130, run.err  # it may be importing TensorFlow
    assert_nothing_is_left(run)
    assert "Traceback" not in run.err
    if begun or run.runs.exists():
        result = json.loads((run.runs / "mine" / "result.json").read_text())
        assert result["game"] == "tests.tiny:Corridor-v0"
        assert_kept(run)
        assert f"; ga3c train --resume {run.runs / 'mine'} resumes it" in run.out


SAME_REQUEST = """
import sys
import agents.signals
agents.signals.SAME_REQUEST_S = 60.0  # however late the second signal is on a busy machine
from ga3c.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_comes_twice_at_once_keeps_the_weights(
    command: Callable[..., Command], name: str
) -> None:
    """With `make train`, the whole process group gets the signal, and make forwards it as well."""
    run = command(*CORRIDOR, "--name", "mine", program=SAME_REQUEST)
    run.until_steps_are_made()
    os.killpg(run.process.pid, getattr(signal, name))
    time.sleep(0.05)
    run.process.send_signal(getattr(signal, name))
    assert run.wait(STOP_S) == 130, run.err
    assert_nothing_is_left(run)
    assert_kept(run)


def test_agents_end_when_the_service_is_killed(command: Callable[..., Command]) -> None:
    run = command(*CORRIDOR)
    run.until(lambda: len(run.agents()) == 2)
    run.process.kill()
    run.wait(STOP_S)
    wait_for(lambda: not run.survivors(), STOP_S)


def test_agents_whose_environment_holds_the_interpreter_end_as_well(
    command: Callable[..., Command],
) -> None:
    game = ("--game", "tests.tiny:Broken-holds-the-lock-v0", "--algorithm", "a3c")
    run = command("train", *game, *LIGHT)
    run.until(lambda: len(run.agents()) == 2 and run.steps() > 0)
    time.sleep(1.0)  # both are in the fifth step of a game, which takes 60 s
    run.process.kill()
    run.wait(STOP_S)
    wait_for(lambda: not run.survivors(), STOP_S)  # STOP_S is less than half of the 60 s


def test_a_killed_agent_is_replaced_and_the_run_says_so(command: Callable[..., Command]) -> None:
    run = command(*CORRIDOR, "--json")
    run.until_steps_are_made()
    run.agents()[0].kill()
    run.until(lambda: "was killed by signal 9" in run.err and "replaced by" in run.err)
    steps = run.steps()
    run.until(lambda: run.steps() > steps + 100)
    run.interrupt()
    assert run.wait(STOP_S) == 130
    assert json.loads(run.out.splitlines()[-1])["agent_deaths"] == 1
    assert len(run.err.splitlines()) == 1


def test_agents_that_fail_at_once_end_the_run_with_their_traceback(
    command: Callable[..., Command],
) -> None:
    given = ("--game", "tests.tiny:Fallen-v0", "--algorithm", "a3c", "--name", "mine", *LIGHT)
    run = command("train", *given)
    assert run.wait(BEGIN_S) == 1
    assert "the corridor has fallen in" in run.err
    assert "RuntimeError" in run.err
    assert_nothing_is_left(run)
    log, result = ((run.runs / "mine" / name).read_text() for name in ("log.txt", "result.json"))
    for words in ("Traceback", "RuntimeError: the corridor has fallen in", "it began to crack"):
        assert log.count(words) >= 3, "of each agent that was replaced, and of the last one"
    error = json.loads(result)["error"]
    assert "in its place" in error and ": RuntimeError: the corridor has fallen in (" in error
    assert "observations (7,) float32, vectors; actions 0..1\n" in log


def test_a_breakpoint_in_an_agent_is_an_error_that_says_so(
    command: Callable[..., Command],
) -> None:
    game = ("--game", "tests.tiny:Broken-breakpoint-v0", "--algorithm", "a3c", *LIGHT)
    run = command("train", *game)
    assert run.wait(BEGIN_S) == 1
    assert "RuntimeError: breakpoint() in an agent, which is a process without a te" in run.err


def test_frozen_agents_do_not_hold_up_the_end(command: Callable[..., Command]) -> None:
    run = command(*CORRIDOR)
    run.until_steps_are_made()
    for agent in run.agents():
        agent.suspend()
    run.interrupt()
    assert run.wait(STOP_S) == 130
    assert_nothing_is_left(run)


STUCK = """
import sys, threading
from ga3c.learning.model import Model

stuck = threading.Event()

def learn_and_break(self, *given, **more):
    if self.updates:  # a stop waits longer for the first update, which is compiled
        print("stuck", flush=True)
        stuck.set()
        threading.Event().wait()
    return learn(self, *given, **more)

learn, Model.learn = Model.learn, learn_and_break
{limit}
from ga3c.__main__ import main
sys.exit(main())
"""
UNTIL_STUCK = """
import ga3c.training.run
ga3c.training.run.finished = lambda *_: "it is stuck" if stuck.is_set() else None
"""
PATIENT = """
import ga3c.training.run
ga3c.training.run.STOP_TIMEOUT_S = 600.0  # so that only a second interrupt ends it in time

from ga3c.service.service import Service

stop = Service.stop
def stop_and_say(*given):
    print("stopping", flush=True)
    return stop(*given)

Service.stop = stop_and_say
"""


@pytest.mark.slow
def test_a_thread_that_never_returns_is_named_and_does_not_hold_up_the_end(
    command: Callable[..., Command],
) -> None:
    run = command(*CORRIDOR, "--name", "mine", program=STUCK.format(limit=UNTIL_STUCK))
    assert run.wait(BEGIN_S) == 1
    assert "did not end in time: trainers" in run.err
    assert "no checkpoint: an update did not end" in run.err
    last = run.out.splitlines()[-1]
    assert last.endswith("mine has no final checkpoint, only earlier ones"), last
    assert (run.runs / "mine" / "result.json").exists()
    assert_nothing_is_left(run)


def test_a_second_interrupt_cuts_the_stop_short(command: Callable[..., Command]) -> None:
    run = command(*CORRIDOR, program=STUCK.format(limit=PATIENT))
    run.until(lambda: "stuck" in run.out)
    run.interrupt()
    run.until(lambda: "stopping" in run.out)
    time.sleep(2 * SAME_REQUEST_S)
    assert run.process.poll() is None, "the trainer was to hold up the stop"
    run.interrupt()
    assert run.wait(STOP_S) == 130
    assert_nothing_is_left(run)
