"""All commands have two levels of help; options without effect are in neither."""

import importlib
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agents.actions import Actions
from agents.environments import Spaces
from benchmarks import NAMES
from ga3c.__main__ import MEASURED
from ga3c.command.arguments import options
from ga3c.command.effects import without_effect
from ga3c.command.help import COMMON, ignored, rare, setting
from ga3c.command.line import parsed
from ga3c.command.names import SETTINGS
from ga3c.command.parse import TrainArguments
from ga3c.measuring.options import BenchmarkConfig, DoctorConfig
from ga3c.settings.begin import preset_like
from ga3c.settings.presets import PRESETS
from ga3c.settings.run import RunConfig
from ga3c.settings.train import TrainConfig
from tests.commands import refused

BENCHMARKS = [f"ga3c.measuring.{name}" for name in MEASURED]
BENCHMARKS += [f"benchmarks.{name.replace('-', '_')}" for name in NAMES]
OTHERS = ["measuring.doctor", "evaluation.evaluate", "evaluation.play", "evaluation.export"]
OTHERS += [f"reports.{name}" for name in ("scores", "plots", "tables", "page", "listing")]
MODULES = [*BENCHMARKS, *(f"ga3c.{name}" for name in OTHERS)]


def shown(kind: type[Any], level: str, capsys: pytest.CaptureFixture[str]) -> tuple[set[str], str]:
    """The options that a level of help shows, without `--no-` forms; and its text."""
    with pytest.raises(SystemExit) as stop:
        parsed([level], kind, "ga3c x")
    assert not stop.value.code
    text = capsys.readouterr().out
    named = re.findall(r"^\W (--[a-z][a-z0-9-]*)", text, re.MULTILINE)
    return set(named), text


def kind_of(module: str) -> type[Any]:
    kind: type[Any] = importlib.import_module(module).Config
    return kind


@pytest.mark.parametrize("width", [60, 100])
def test_help_is_as_wide_as_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for kind in (TrainArguments, kind_of("ga3c.reports.listing")):
        _, text = shown(kind, "--help", capsys)
        lines = text.splitlines()
        assert max(map(len, lines)) <= width, text
        above = lines[: next(i for i, line in enumerate(lines) if " options " in line)]
        assert max(map(len, above)) > width - 15, "the text fills the line"


def test_the_first_level_of_train_is_short_and_names_the_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, text = shown(TrainArguments, "--help", capsys)
    assert {"--game", "--preset", "--steps", "--resume", "--learning-rate", "--config"} <= first
    assert len(first) < 30
    assert "optimizer options" in text and "replay options" not in text
    assert first == shown(TrainArguments, "-h", capsys)[0]
    every, all_of_it = shown(TrainArguments, "--help-all", capsys)
    assert every == set(options(TrainArguments)) > first
    assert every >= {f"--{name.replace('_', '-')}" for name in SETTINGS}
    assert text.endswith(f"\nga3c x --help-all lists all {len(every)} options.\n")
    assert "--help-all lists" not in all_of_it


@pytest.mark.parametrize("name", ["plots", "tables", "page"])
def test_help_of_a_command_that_reads_runs_shows_that_one_is_required(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text = shown(kind_of(f"ga3c.reports.{name}"), "--help", capsys)
    assert "usage: ga3c x [-h] RUN [RUN ...] " in text
    assert "(default: )" not in text


@pytest.mark.parametrize("module", MODULES)
def test_the_second_level_shows_all_that_has_an_effect(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = kind_of(module)
    assert {f"--{name.replace('_', '-')}" for name in ignored(kind)} <= set(options(kind))
    having_effect = {each for each in options(kind) if setting(each) not in ignored(kind)}
    positional = {"--run", "--runs"} if not issubclass(kind, TrainConfig) else set()
    assert shown(kind, "--help-all", capsys)[0] == having_effect - positional
    first, text = shown(kind, "--help", capsys)
    assert first == {e for e in having_effect - positional if setting(e) not in rare(kind)}
    assert len(first) <= 20
    assert ("--help-all lists all" in text) == bool(rare(kind))


@dataclass(frozen=True)
class NewRun(RunConfig):
    """A section with a setting that only this file knows."""

    brand_new: int = 1
    """New."""


@dataclass(frozen=True)
class NewConfig(TrainConfig):
    """The settings of a command with an option of its own."""

    run: NewRun = field(default_factory=NewRun)
    own_option: int = 2
    """Own."""


def test_a_new_setting_is_in_the_second_level_and_a_commands_own_in_both(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinds = {"run": NewRun()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NewConfig, "fixed", kinds, raising=False)
        first, every = (shown(NewConfig, level, capsys)[0] for level in ("--help", "--help-all"))
    assert "--own-option" in first & every
    assert "--brand-new" in every - first


def test_the_settings_of_the_first_level_exist() -> None:
    known = set(map(setting, [*options(TrainConfig), *options(BenchmarkConfig)]))
    assert known >= COMMON


def test_seconds_are_those_of_a_window_in_measurements_and_of_the_run_in_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said(kind: type[Any]) -> str:
        return " ".join(shown(kind, "--help", capsys)[1].replace("│", " ").split())

    assert "Seconds of each window in which the service is measured" in said(DoctorConfig)
    assert "Stop after this many seconds" not in said(DoctorConfig)
    assert "Stop after this many seconds" in said(TrainConfig)


@pytest.mark.parametrize(
    ("arguments", "option", "what"),
    [
        (["benchmark", "limits", "--score", "18"], "--score", "ga3c benchmark limits"),
        (["benchmark", "limits", "--seconds=9"], "--seconds", "ga3c benchmark limits"),
        (["benchmark", "limits", "--agents", "9"], "--agents", "ga3c benchmark limits"),
        (["benchmark", "limits", "--info-keys", "x"], "--info-keys", "ga3c benchmark limits"),
        (["benchmark", "throughput", "--name", "x"], "--name", "ga3c benchmark throughput"),
        (["benchmark", "throughput", "--scheduler=off"], "--scheduler", "ga3c benchmark throughp"),
        (["benchmark", "a3c", "--network", "small"], "--network", "ga3c benchmark a3c"),
        (["benchmark", "lanes", "--game", "Pnog"], "--game", "ga3c benchmark lanes"),
        (["benchmark", "lanes", "--no-max-pool"], "--no-max-pool", "ga3c benchmark lanes"),
        (["benchmark", "watching", "--resume", "1"], "--resume", "ga3c benchmark watching"),
        (["doctor", "--evaluate_every", "5"], "--evaluate_every", "ga3c doctor"),
        (["train", "--batch-size=64"], "--batch-size", "algorithm ppo"),
        (["train", "--algorithm=a3c", "--clip-ratio=0.1"], "--clip-ratio", "algorithm a3c"),
        (["train", "--algorithm", "ppo", "--no-double"], "--no-double", "algorithm ppo"),
        (["train", "--preset", "apex", "--trace-decay", "1"], "--trace-decay", "algorithm dqn"),
        (["train", "--game", "Pendulum-v1", "--dueling"], "--dueling", "algorithm dpg"),
        (["train", "--game=Pendulum-v1", "--separate-value"], "--separate-value", "algorithm dpg"),
        (["train", "--algorithm", "dqn", "--t-max", "5"], "--t-max", "algorithm dqn"),
        (
            ["train", "--preset", "apex", "--training-batch-max=9"],
            "--training-batch-max",
            "algorit",
        ),
        (["train", "--algorithm", "dqn", "--value-scale", "2"], "--value-scale", "algorithm dqn"),
        (["train", "--max-memory-mb", "500"], "--max-memory-mb", "scheduler off"),
        (["train", "--trust"], "--trust", "a run without resume"),
        (["train", "--evaluate-episodes=3"], "--evaluate-episodes", "a run without evaluate_every"),
        (["train", "--game", "CartPole-v1", "--stagger-steps=9"], "--stagger-steps", "game CartP"),
        (["train", "--momentum", "0.9"], "--momentum", "optimizer adam"),
        (["train", "--evaluate-step-cap=9"], "--evaluate-step-cap", "a run without evaluate_every"),
        (["train", "--agents-here", "1"], "--agents-here", "a run that no other machine may join"),
        (["train", "--ray-address=a:1"], "--ray-address", "launcher local"),
        (
            ["train", "--algorithm", "dqn", "--priority-exponent=0.5"],
            "--priority-exponent",
            "replay_draws uniform",
        ),
        (["train", "--algorithm=dqn", "--ladder-base=.5"], "--ladder-base", "exploration schedule"),
        (["train", "--preset=apex-small", "--slack-steps=9"], "--slack-steps", "pacing free"),
        (["train", "--preset=fast-dqn", "--update-size=9"], "--update-size", "pacing target-per"),
        (
            ["train", "--network=tests.own_nets:torso", "--padding", "same"],
            "--padding",
            "a network of your own",
        ),
        (
            ["train", "--network=tests.own_nets:torso", "--no-layer-norm"],
            "--no-layer-norm",
            "a network of your own",
        ),
        (
            [
                "train",
                "--game=Pendulum-v1",
                "--algorithm=ppo",
                "--network=tests.own_nets:torso",
                "--no-layer-norm",
            ],
            "--no-layer-norm",
            "a network of your own",
        ),
        (["train", "--scheduler", "random", "--margin", "0.1"], "--margin", "scheduler random"),
        (
            ["train", "--algorithm", "dqn", "--first-priority", "acting"],
            "--first-priority",
            "a replay without priorities",
        ),
        (
            ["train", "--preset=fast-dqn", "--prediction-batch-max=77"],
            "--prediction-batch-max",
            "synchronized True",
        ),
        (["train", "--game=CartPole-v1", "--no-center"], "--no-center", "observations that are v"),
        (
            ["train", "--normalize-observations"],
            "--normalize-observations",
            "observations that are pictures",
        ),
        (
            ["train", "--game=Pendulum-v1", "--algorithm=a3c", "--log-epsilon=0.5"],
            "--log-epsilon",
            "continuous actions",
        ),
        (["doctor", "--noise", "0.5"], "--noise", "algorithm ppo"),
        (["train", "--game", "Pendulum-v1", "--units", "9"], "--units", "dpg without a torso"),
        (["benchmark", "limits", "--noise=0.5"], "--noise", "algorithm ppo"),
        (["benchmark", "limits", "--agents-here=1"], "--agents-here", "ga3c benchmark limits"),
        (
            ["train", "--game", "CartPole-v1", "--action-repeat=2"],
            "--action-repeat",
            "game CartPole",
        ),
        (
            ["train", "--game=Pendulum-v1", "--sticky-actions", ".5"],
            "--sticky-actions",
            "game Pend",
        ),
    ],
)
def test_an_option_without_effect_is_refused(arguments: list[str], option: str, what: str) -> None:
    said = refused(*arguments)
    assert f"{option} has no effect on {what}" in said
    assert "--help-all lists all options" in said


def test_settings_of_other_algorithms_have_no_effect() -> None:
    pong = Spaces((84, 84), "uint8", Actions(6), 4)
    found = without_effect(PRESETS["ppo-pictures"], pong)
    ppo = found["algorithm ppo"]
    assert not found["game Pong"]
    assert {"double", "noise", "replay_steps", "pacing"} <= ppo
    assert not {"clip_ratio", "entropy_weight", "t_max", "learning_rate"} & ppo
    own = replace(PRESETS["dqn-pictures"], algorithm="mine:Own", learns_from="replay")
    unread = without_effect(own, pong)["algorithm mine:Own"]
    assert {"double", "clip_ratio", "entropy_weight", "t_max"} <= unread, "it is not given these"
    assert not {"discount", "reward_clip", "replay_steps", "learning_rate", "network"} & unread
    assert preset_like(own) == own


def test_options_without_effect_are_not_suggested() -> None:
    said = refused("benchmark", "limits", "--step", "5")
    assert "--steps " not in said
    assert "ga3c benchmark limits --help-all lists all options" in said


def test_help_and_wrong_arguments_do_not_wait_for_the_framework() -> None:
    wrong = [["--seed", "-1"], ["--help"], ["--no-such-option"]]
    thinking = ["evaluate", "play", "export", "doctor", "benchmark limits", "benchmark throughput"]
    program = (
        "import contextlib, io, sys\n"
        "from ga3c.__main__ import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    codes = {{main([*command.split(), *given]) for command in {thinking} "
        f"for given in {wrong}}}\n"
        "print(codes, {'keras', 'tensorflow', 'jax'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "{0, 2} set()\n", done.stderr


def test_help_breaks_lines_where_the_terminal_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = shown(TrainArguments, "--help", capsys)[1]
    assert "its directory, its name in --runs-dir, or its number in `ga3c runs`. The" in text
    assert "  paper          GA3C, Babaeizadeh et al. 2017" in text, "the list stays a list"
