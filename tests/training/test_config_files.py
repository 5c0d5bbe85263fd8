"""Settings in files: what is printed is read back, the command line wins, wrong keys are named."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from ga3c.__main__ import main
from ga3c.command.files import as_arguments, read, settings, to_toml
from ga3c.command.names import SECTIONS, SETTINGS, changed
from ga3c.command.parse import TrainArguments, parse
from ga3c.settings.presets import PRESETS
from ga3c.settings.train import TrainConfig
from tests.commands import BEGIN_S, CORRIDOR, Command, assert_nothing_is_left, ended, refused

GAME = "tests.tiny:Corridor-v0"


def parsed(*arguments: str) -> TrainConfig:
    return parse(list(arguments), TrainArguments, "test").settings


def read_back(text: str, directory: Path) -> TrainConfig:
    """The settings that --config reads from a file with `text`."""
    file = directory / "settings.toml"
    file.write_text(text)
    return parsed(*as_arguments(settings(file, read(file))))


@pytest.mark.parametrize("name", PRESETS)
def test_printed_settings_are_read_back_as_they_were(name: str, tmp_path: Path) -> None:
    config = PRESETS[name]
    assert read_back(to_toml(config, config), tmp_path) == config


def test_a_file_can_set_a_value_of_the_preset_to_none(tmp_path: Path) -> None:
    paper = PRESETS["paper"]
    assert paper.optimizer.learning_rate_end is not None
    config = parsed("--preset", "paper", "--learning-rate-end", "None")
    text = to_toml(config, paper)
    assert 'learning_rate_end = "None"' in text
    assert read_back(text, tmp_path) == config


@pytest.mark.parametrize("name", ['a "quoted" \\ name', "tab\tand\x7f", "grüße 🙂", "--json"])
def test_any_text_is_read_back(name: str, tmp_path: Path) -> None:
    config = changed(TrainConfig(), {"name": name, "trace": tmp_path / name.replace("/", "")})
    text = to_toml(config, config)
    assert tomllib.loads(text)["run"]["name"] == name
    assert read_back(text, tmp_path).run == config.run


def test_settings_with_an_algorithm_of_ones_own_are_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--game", "CartPole-v1", "--algorithm", "mine:Own", "--learns-from", "segments"]
    printed = []
    for arguments in (given, ["--config", str(tmp_path / "own.toml")]):
        assert main(["train", *arguments, "--print-config"]) == 0
        printed.append(capsys.readouterr().out)
        (tmp_path / "own.toml").write_text(printed[-1])
    assert printed[0] == printed[1]
    assert 'preset = "a3c-vectors"' in printed[0] and 'algorithm = "mine:Own"' in printed[0]
    other = refused("train", *given, "--preset", "dqn-vectors")
    assert "algorithm mine:Own with preset dqn-vectors" in other


def test_a_list_of_text_is_read_back_and_kept(tmp_path: Path) -> None:
    given = ["train", "--game", "FrozenLake-v1", "--env-args", "map_name=8x8", "is_slippery=False"]
    printed = ended(*given, "--print-config")
    assert printed.returncode == 0, printed.stderr
    assert 'env_args = ["map_name=8x8", "is_slippery=False"]' in printed.stdout
    (tmp_path / "lake.toml").write_text(printed.stdout)
    again = ended("train", "--config", str(tmp_path / "lake.toml"), "--print-config")
    assert again.stdout == printed.stdout
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[environment]\nenv_args = 3\n")
    assert "env_args 3: must be a list of text" in refused("train", "--config", str(wrong))
    for given in ("3", "[3]", "[3, 4, 5]", '["3", "4"]'):
        wrong.write_text(f"[dpg]\nactor_units = {given}\n")
        said = refused("train", "--config", str(wrong))
        assert "must be a list of 2 entries: a whole number" in said


def test_every_setting_is_found_by_its_name_and_keeps_its_value() -> None:
    config = TrainConfig()
    for setting in SETTINGS.values():
        part = getattr(config, setting.section) if setting.section else config
        assert hasattr(part, setting.name)
        assert setting.converted(getattr(part, setting.name)) == getattr(part, setting.name)
    assert len(SETTINGS) > 50
    assert "service" in SECTIONS


def test_print_config_prints_a_file_that_reads_back_and_starts_no_run(tmp_path: Path) -> None:
    given = ["train", "--game", GAME, "--algorithm", "dqn", "--agents", "2", "--no-double"]
    printed = ended(*given, "--runs-dir", str(tmp_path / "runs"), "--print-config")
    assert (printed.returncode, printed.stderr) == (0, "")
    file = tmp_path / "mine.toml"
    file.write_text(printed.stdout)
    values = tomllib.loads(printed.stdout)
    assert values["preset"] == "dqn-vectors"
    assert values["dqn"]["double"] is False
    again = ended("train", "--config", str(file), "--print-config")
    assert again.stdout == printed.stdout
    over = ended("train", "--config", str(file), "--double", "--agents=1", "--print-config")
    changes = set(over.stdout.splitlines()) - set(printed.stdout.splitlines())
    assert changes == {"double = true", "agents = 1"}
    assert not (tmp_path / "runs").exists()


def test_a_run_gets_the_settings_of_a_file(command: Callable[..., Command], tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    service = {"agents": 2, "envs_per_agent": 4, "max_agents": 2}
    learning = {"training_batch_min": 20, "training_batch_max": 80}
    values = {
        "algorithm": "a3c",
        "environment": {"game": GAME},
        "service": {**service, **learning},
        "run": {"steps": 10_000_000, "progress_every_s": 0.5},
    }
    file.write_text(json.dumps(values))
    run = command("train", "--config", str(file), "--steps", "1000", "--name", "mine")
    assert run.wait(BEGIN_S) == 0, run.err
    kept = json.loads((run.runs / "mine" / "config.json").read_text())
    assert kept["preset"] == "a3c-vectors"
    assert kept["run"]["steps"] == 1000
    assert kept["service"].items() >= service.items()
    assert_nothing_is_left(run)
    of_run = ended("train", "--config", str(run.runs / "mine" / "config.json"), "--print-config")
    assert of_run.returncode == 0, of_run.stderr
    assert tomllib.loads(of_run.stdout)["service"]["envs_per_agent"] == 4
    again = ended("train", "--config", str(run.runs / "mine" / "config.json"))
    assert again.returncode == 2
    assert "exists already" in again.stderr


WRONG = {  # a file's name and text, arguments, and words that must be in the line
    "unknown key": ("a.toml", "[service]\nagnets = 2", [], ["service.agnets", "agents", "groups"]),
    "unknown section": ("a.toml", "[servce]\nagents = 2", [], ["servce", "service"]),
    "key of another section": ("a.toml", "agents = 2", [], ["agents", "[service]"]),
    "value in place of a section": ("a.toml", "service = 2", [], ["service 2", "[service]"]),
    "wrong type": ("a.toml", '[service]\nagents = "two"', [], ["service.agents 'two'", "number"]),
    "float in place of a whole": (
        "a.toml",
        "[run]\nsteps = 1.5",
        [],
        ["run.steps", "whole"],
    ),
    "truth in place of a number": ("a.toml", "[run]\nseed = true", [], ["run.seed True"]),
    "unknown choice": ("a.toml", 'preset = "fastest"', [], ["preset 'fastest'", "paper"]),
    "null": ("a.json", '{"run": {"seed": null}}', [], ["run.seed None", "whole number"]),
    "not a number": ("a.toml", "[learning]\ndiscount = nan", [], ["discount nan", "in [0, 1]"]),
    "no agents": ("a.toml", "[service]\nagents = 0", [], ["agents 0"]),
    "settings that do not fit": (
        "a.toml",
        'algorithm = "dqn"',
        ["--preset", "paper"],
        ["algorithm dqn", "paper"],
    ),
    "unknown game": ("a.toml", '[environment]\ngame = "Pogn"', [], ["Pogn", "Pong"]),
    "no TOML": ("a.toml", "agents: 2", [], ["cannot be read"]),
    "no JSON": ("a.json", "{", [], ["cannot be read"]),
    "not UTF-8": ("a.toml", "\udcff", [], ["cannot be read: it is not text in UTF-8"]),
    "list": ("a.json", "[1]", [], ["list"]),
    "YAML": ("a.yaml", "agents: 2", [], [".toml or .json"]),
    "of a later version": ("config.json", '{"format": 99}', [], ["format 99"]),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_file_is_refused_in_one_line_that_names_it(fault: str, tmp_path: Path) -> None:
    name, text, arguments, words = WRONG[fault]
    (tmp_path / name).write_text(text, errors="surrogateescape")
    runs = tmp_path / "runs"
    given = ["--config", str(tmp_path / name), *arguments, "--runs-dir", str(runs)]
    line = refused("train", *given)
    assert all(word in line for word in [str(tmp_path), *words]), line
    assert not runs.exists()


@pytest.mark.parametrize("file", ["nowhere.toml", "."])
def test_a_missing_file_is_refused_by_name(file: str) -> None:
    assert file in refused(*CORRIDOR, "--config", file)


def test_options_can_correct_a_file_whose_settings_do_not_fit_together(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f'[environment]\ngame = "{GAME}"\n[service]\nagents = 3\nmax_agents = 2\n')
    without = ended("train", "--config", str(file), "--print-config")
    assert without.returncode == 2
    assert f"config {file}: agents 3" in without.stderr
    named = ended("train", "--config", str(file), "--name", "agents")
    assert f"config {file}: agents 3" in named.stderr, "a value is no option"
    typed = ended("train", "--config", str(file), "--agents", "0")
    assert typed.stderr.startswith("ga3c: agents 0: must be at least 1"), "it is not in the file"
    mended = ended("train", "--config", str(file), "--max-agents", "4", "--print-config")
    assert mended.returncode == 0, mended.stderr
    assert tomllib.loads(mended.stdout)["service"]["agents"] == 3
