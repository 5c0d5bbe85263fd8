"""The command line as people type it: misspelt names, numbers such as 1e6, lists of names."""

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import get_args

import pytest

import ga3c
from ga3c.command.arguments import ELSEWHERE, at_home, near, options, with_whole_numbers
from ga3c.command.line import WrongUse, parsed
from ga3c.command.names import SETTINGS, checked
from ga3c.command.parse import TrainArguments, parse
from ga3c.evaluation import names
from ga3c.evaluation.protocols import PROTOCOLS
from ga3c.runs.finding import PRETRAINED
from ga3c.settings.train import TrainConfig
from tests.commands import ended, refused


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["trian"], "unknown command 'trian': did you mean train? it must be one of train, "),
        (["--verison"], "unknown command '--verison': did you mean --version? "),
        (
            ["train", "--preset", "papr"],
            "--preset papr: did you mean paper? no such preset; ga3c list presets",
        ),
        (["train", "Pong"], "'Pong' belongs to no option: did you mean --game Pong? ga3c train "),
        (["train", "fast"], "'fast' belongs to no option: ga3c train --help-all lists all options"),
        (["train", "--stepz", "5"], "unknown option --stepz: did you mean --steps or "),
        (["train", "--envs=5"], "unknown option --envs: did you mean --envs-per-agent or "),
        (["train", "--zz"], "unknown option --zz: ga3c train --help-all lists all options"),
        (["evaluate", "--zz"], "unknown option --zz: ga3c evaluate --help-all lists all options"),
        (["runs", "--foo"], "unknown option --foo: ga3c runs --help lists all options"),
        (["train", "--agents", "x"], "--agents x: must be a whole number"),
        (["train", "--steps", "1.5"], "--steps 1.5: must be a whole number"),
        (["train", "--steps", "15e-1"], "--steps 15e-1: must be a whole number"),
        (["train", "--actor-units", "3e2", "x"], "--actor-units 300 x: must be numbers, and whole"),
        (["train", "--learning-rate", "low"], "--learning-rate low: must be a number"),
        (
            ["train", "--learning-rate-end", "low"],
            "--learning-rate-end low: must be a number or constant",
        ),
        (["train", "--seconds"], "--seconds: its value is missing"),
        (["train", "--agents", "0"], "agents 0: must be at least 1, or the run could not start"),
        (
            ["train", "--agents", "3", "--max-agents", "2"],
            "agents 3: must be at most max_agents 2, or the run could not start",
        ),
        (["plot", "x", "--panels"], "panels: must be some of score, "),
        (["train", "--algorithm", "pp0"], "algorithm 'pp0': did you mean ppo? must be a3c or "),
        (["play", "--pretrained", "Pogn"], "pretrained Pogn: did you mean pong? must be one of "),
        (["list", "seeds"], "kind seeds: must be one of games, presets, networks, "),
        (["play", "--protocol", "x"], "--protocol x: must be one of apex, control, machado, "),
        (["list"], "ga3c: list: one of games, presets, networks, algorithms, protocols, "),
        (["scores"], "ga3c: scores: --out-dir is missing"),
        (["keys"], "ga3c: keys: PATH is missing"),
        (["train", "--total-timesteps", "9"], "--total-timesteps: did you mean --steps? "),
        (["train", "--resume", ""], "--resume: its value is empty; leave it out, or give a path"),
        (["train", "--config="], "--config: its value is empty; leave it out, or give a path"),
        (["play", "--out", "", "--seed", "1"], "--out: its value is empty; leave it out, or give "),
        (["train", "--resume", "--steps", "5"], "--resume: its value is missing"),
        (["train", "--config", "--steps", "5"], "--config: its value is missing"),
        (["train", "--resume", str(PRETRAINED / "pong")], "cannot be resumed, as it has weights"),
        (["train", "--name", "7"], "name 7: numbers and latest refer to runs by age"),
        (["train", "--name", "a/b/c/d"], "name a/b/c/d: must be at most 3 folders deep to be"),
        (["train", "--minibatch", "0"], "minibatch 0: must be at least 1"),
        (
            ["train", "--algorithm", "my:Own", "--learns-from", "segment"],
            "--learns-from segments or replay must say what it learns from",
        ),
        (
            ["plot", "--runs", "1"],
            "unknown option --runs: did you mean --runs-dir? ga3c plot --help ",
        ),
        (["evaluate", "--episodes", "0"], "episodes 0: must be at least 1"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line_with_a_suggestion(
    arguments: list[str], line: str
) -> None:
    said = refused(*arguments)
    assert line in said
    assert "Error parsing" not in said and "helptext" not in said
    assert len(said.strip().splitlines()) == 1


def test_an_empty_text_is_no_path() -> None:
    with pytest.raises(ValueError, match="runs_dir '': must be a path"):
        checked({"runs_dir": ""})


def test_errors_about_wrong_arguments_have_no_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """tyro colours its messages if standard output is a terminal."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for arguments, words in (
        (["--stepz", "5"], "unknown option --stepz: did you mean --steps or "),
        (["--agents", "x"], "--agents x: must be a whole number"),
    ):
        with pytest.raises(WrongUse) as error:
            parsed(arguments, TrainArguments, "ga3c train")
        assert str(error.value).startswith(words)


def test_help_has_no_colours_where_the_user_wants_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, has_colours in (("OTHER", True), ("NO_COLOR", False)):
        monkeypatch.setenv(name, "1")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        with pytest.raises(SystemExit):
            parsed(["--help"], TrainArguments, "ga3c train")
        assert ("\x1b[" in capsys.readouterr().out) == has_colours
    assert os.environ["TERM"] == "xterm-256color"


def test_whole_numbers_may_be_written_with_a_power_of_ten() -> None:
    given = ["--steps", "1e6", "--replay-steps=2.5E5", "--learning-rate", "1e-3", "--name", "1e6"]
    config = parse(with_whole_numbers(given, TrainConfig), TrainConfig, "ga3c train")
    assert config.run.steps == 1_000_000
    assert config.replay.replay_steps == 250_000
    assert config.optimizer.learning_rate == 1e-3
    assert config.run.name == "1e6", "a name is left as it is"
    given = ["--actor-units", "3e2", "2e2", "--name", "1e6"]
    assert with_whole_numbers(given, TrainConfig)[1:] == ["300", "200", "--name", "1e6"]
    assert with_whole_numbers(["--steps", "5e1", "1e6"], TrainConfig) == ["--steps", "50", "1e6"]


def test_every_option_of_train_is_known_by_its_name() -> None:
    known = options(TrainConfig)
    assert {"--game", "--steps", "--envs-per-agent", "--first-priority"} <= set(known)
    assert known["--passes"] is int


def test_the_version_is_that_of_the_package() -> None:
    assert ga3c.__version__ == metadata.version("ga3c")
    done = ended("--version")
    assert (done.returncode, done.stdout) == (0, f"ga3c {ga3c.__version__}\n")


def test_help_with_a_command_prints_what_its_help_option_does() -> None:
    asked, option = ended("help", "list"), ended("list", "--help")
    assert asked.returncode == option.returncode == 0
    assert asked.stdout == option.stdout
    assert "presets" in asked.stdout
    assert ended("help").stdout == ended("--help").stdout


def test_all_names_are_listed() -> None:
    assert set(names.PROTOCOLS) == set(PROTOCOLS)
    for kind in get_args(names.Kind):
        done = ended("list", kind)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) >= 3, kind
    games = ended("list", "games").stdout.splitlines()
    assert {"Pong", "MsPacman"} <= set(games)
    assert len(games) > 90


def test_a_tilde_is_expanded_even_where_no_shell_does_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in (["--runs-dir=~/runs"], ["--runs-dir", "~/runs"]):
        assert f"{tmp_path}/runs has no run of Pong" in refused("evaluate", *given)
    (tmp_path / "mine.toml").write_text('[run]\nruns_dir = "~/runs"\n')
    assert f"the folder {tmp_path}/runs has no runs" in refused(
        "train", "--config", "~/mine.toml", "--resume", "mine"
    )
    assert checked({"runs_dir": "~/runs"})["runs_dir"] == tmp_path / "runs"
    assert at_home(["--runs-dir=~", "~", "a~/b", "--name=~x"]) == [
        *(f"--runs-dir={tmp_path}", str(tmp_path), "a~/b", "--name=~x")
    ]
    assert not Path("~").exists()


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_of_settings_in_other_libraries_suggest_ours(name: str) -> None:
    assert ELSEWHERE[name] in SETTINGS
    assert near(name, SETTINGS).startswith(f"did you mean {ELSEWHERE[name]}")
    given, ours = ("--" + each.replace("_", "-") for each in (name, ELSEWHERE[name]))
    assert near(given, options(TrainConfig)) == f"did you mean {ours}? "
