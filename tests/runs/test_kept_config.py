"""A run's config.json is read back with the settings that the run had, whatever its format."""

import json
import shutil
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from ga3c.reports.groups import LEFT_OUT, grouped
from ga3c.reports.history import Curve, History
from ga3c.runs.finding import RESULT
from ga3c.runs.kept_config import CONFIG, FORMAT, load_config, read_config, to_json
from ga3c.settings.presets import PRESETS
from ga3c.settings.train import TrainConfig
from tests.commands import CORRIDOR, ROOT, ended

KEPT = sorted((ROOT / "benchmarks" / "results").rglob(CONFIG))


def write(directory: Path, values: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / CONFIG).write_text(json.dumps(values, default=str))
    return directory


@pytest.mark.parametrize("name", PRESETS)
def test_settings_are_read_back_as_they_were(name: str, tmp_path: Path) -> None:
    config = PRESETS[name]
    kept = read_config(write(tmp_path, to_json(config)))
    assert kept.config == config
    assert kept.notes == []
    assert json.loads((tmp_path / CONFIG).read_text())["format"] == FORMAT


def test_kept_results_of_the_first_format_are_read() -> None:
    """Some predate two settings whose defaults differ from what those runs did: a note says so."""
    first = [file for file in KEPT if "format" not in json.loads(file.read_text())]
    assert len(first) >= 20
    for file in first:
        config, notes = read_config(file.parent)
        lacking = [note.split("to be: ")[1] for note in notes]
        keys = {key.split(" ")[0] for keys in lacking for key in keys.split(", ")}
        assert keys <= {"network.center", "scheduler.wins"}, file
        older = ("breakout", "pong-32", "pong-32-uncentred", "pong-before")
        assert not notes or file.parent.parent.name in older
        assert config.optimizer.schedule_steps == 10_000_000, "as it was, and not by --steps"
        assert config.learning.discount == 0.99


def test_kept_results_of_later_formats_are_read_whole() -> None:
    later = [file for file in KEPT if "format" in json.loads(file.read_text())]
    assert later
    assert {str(f): notes for f in later if (notes := read_config(f.parent).notes)} == {}


def test_unknown_and_missing_settings_are_named(tmp_path: Path) -> None:
    values = to_json(TrainConfig())
    values["learning"]["momentum_of_what"] = 3
    values["colour"] = "red"
    del values["service"]["groups"]
    del values["optimizer"]["clip_norm"]
    unknown, missing = read_config(write(tmp_path, values)).notes
    assert "unknown settings, which are ignored: colour, learning.momentum_of_what" in unknown
    assert "assumed to be: optimizer.clip_norm 40.0, service.groups 2" in missing
    for key in ("network.separate_value", "dqn.loss_reduction"):
        section, name = key.split(".")
        values = to_json(TrainConfig())
        del values[section][name]
        (note,) = read_config(write(tmp_path, values)).notes
        assert key in note, "only in the first format it was not there yet"


def test_runs_of_format_3_played_whole_first_games_and_trained_each_segment_once(
    tmp_path: Path,
) -> None:
    values = {**to_json(TrainConfig()), "format": 3}
    del values["ppo"], values["service"]["passes"], values["service"]["minibatch"]
    del values["service"]["stagger_steps"]
    config, notes = read_config(write(tmp_path, values))
    assert notes == []
    assert (config.service.stagger_steps, config.service.passes) == (0, 1)
    assert config.service.minibatch is None


def test_runs_before_format_5_had_networks_without_layer_norm(tmp_path: Path) -> None:
    for number in (3, 4):
        values = {**to_json(TrainConfig()), "format": number}
        del values["network"]["layer_norm"]
        config, notes = read_config(write(tmp_path, values))
        assert notes == []
        assert not config.network.layer_norm
    del values["format"], values["network"]
    assert not read_config(write(tmp_path, values)).config.network.layer_norm, "nor format 1"


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 3, "network": 5}',
        '{"format": 2, "a3c": 5}',
        '{"format": {}}',
        "5",
        pytest.param(100_000 * "[", id="deep"),
    ],
)
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"its config\.json cannot be read"):
        read_config(tmp_path)


def test_arguments_that_are_refused_today_are_read_as_text_from_old_files(tmp_path: Path) -> None:
    values = to_json(TrainConfig())
    values["environment"]["env_args"] = ["slippery=false", "deep=True", "name=TRUE"]
    write(tmp_path, {**values, "format": 10})
    kept = load_config(tmp_path).environment
    assert kept.keywords == {"slippery": "false", "deep": True, "name": "TRUE"}


def test_games_in_v0_had_no_sticky_actions_before_format_13(tmp_path: Path) -> None:
    def probability(game: str, number: int, given: float | None = None) -> float | None:
        values = to_json(TrainConfig())
        values["environment"] |= {"game": game, "sticky_actions": given}
        if number < 13:
            del values["environment"]["info_keys"]
        write(tmp_path, {**values, "format": number})
        return load_config(tmp_path).environment.sticky_actions

    assert probability("Pong-v0", 12) == probability("pong-V0", 12) == 0.0
    assert probability("PongNoFrameskip-v0", 12, 0.1) == 0.1
    for game in ("Pong", "Pong-v4", "ALE/Pong-v5", "MountainCar-v0", "tests.tiny:Corridor-v0"):
        assert probability(game, 12) is None
    assert probability("Pong-v0", 13) is None


def test_a_schedule_that_ended_as_it_began_is_constant_also_in_old_files(tmp_path: Path) -> None:
    values = to_json(TrainConfig())
    for rate, weight, ends in ((1e-3, 0.01, ("constant", None)), (2e-3, 0.02, (1e-3, 0.01))):
        values["optimizer"] |= {"learning_rate": rate, "learning_rate_end": 1e-3}
        values["a3c"] |= {"entropy_weight": weight, "entropy_weight_end": 0.01}
        write(tmp_path, {**values, "format": 13})
        config = load_config(tmp_path)
        assert (config.optimizer.learning_rate_end, config.a3c.entropy_weight_end) == ends
    write(tmp_path, {**to_json(config), "optimizer": values["optimizer"] | {"learning_rate": 1e-3}})
    assert load_config(tmp_path).optimizer.learning_rate_end == 1e-3, "asked for, in format 14"


@pytest.mark.parametrize("number", [0, FORMAT + 1, "2", None, [1]])
def test_a_format_of_another_version_is_refused(number: Any, tmp_path: Path) -> None:
    write(tmp_path, {**to_json(TrainConfig()), "format": number})
    with pytest.raises(ValueError, match=f"must be 1 to {FORMAT}; another version"):
        load_config(tmp_path)


@pytest.fixture(scope="module")
def corridor_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of Corridor. Copy it to change it."""
    runs = tmp_path_factory.mktemp("runs")
    done = ended(*CORRIDOR, "--steps", "500", "--runs-dir", str(runs), "--name", "mine")
    assert done.returncode == 0, done.stderr
    return runs / "mine"


def test_evaluating_or_resuming_a_run_reports_settings_its_file_lacks(
    corridor_run: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(corridor_run, tmp_path / "mine")
    values = json.loads((run / CONFIG).read_text())
    assert values["format"] == FORMAT
    del values["learning"]["discount"]
    write(run, values)
    done = ended("evaluate", str(run), "--episodes", "2")
    assert done.returncode == 0, done.stderr
    assert "lacks settings, which are assumed to be: learning.discount 0.99" in done.stderr
    steps = json.loads((run / RESULT).read_text())["steps"] + 500
    done = ended("train", "--resume", str(run), "--steps", str(steps))
    assert done.returncode == 0, done.stderr
    assert "lacks settings, which are assumed to be: learning.discount 0.99" in done.stderr
    assert read_config(run).notes == [], "it is written anew"


def test_a_run_of_the_first_format_has_the_network_that_it_had_then(
    corridor_run: Path, tmp_path: Path
) -> None:
    """A first-format file without `separate_value` means a torso shared by policy and value.

    The checkpoint has a separate one, so it does not fit: settings missing from such a file get the
    values of that time, not those of today's preset.
    """
    run = shutil.copytree(corridor_run, tmp_path / "mine")
    values = json.loads((run / CONFIG).read_text())
    del values["format"]
    for section, name in (("network", "separate_value"), ("learning", "max_refused_updates")):
        del values[section][name]
    values["network"]["value_scale"] = 1.0
    write(run, values)
    done = ended("train", "--resume", str(run), "--steps", "9000")
    assert done.returncode == 2, "its network had a torso of its own for the value"
    assert "does not fit the settings" in done.stderr


# Runs of different settings are never pooled as seeds of one group


def altered(hint: Any, value: Any) -> Any:
    """A different value that the type allows."""
    choices = [choice for choice in get_args(hint) if choice is not type(None)]
    if get_origin(hint) is Literal:
        return next(choice for choice in choices if choice != value)
    if value is None:
        return choices[0]("7")
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value / 2 + 0.01
    return value + 1 if isinstance(value, int) else f"{value}-x"


def changed(part: Any, name: str) -> Any:
    """A copy with another value for setting `name`, made without the checks of `__post_init__`."""
    copy = object.__new__(type(part))
    copy.__dict__.update(part.__dict__)
    copy.__dict__[name] = altered(get_type_hints(type(part))[name], getattr(part, name))
    return copy


def test_every_setting_but_a_named_few_sets_runs_apart() -> None:
    plain = TrainConfig()

    def apart(other: TrainConfig) -> bool:
        curve = Curve(*([[]] * 3))  # type: ignore[arg-type]
        runs = [History(Path(), config, curve, [], []) for config in (plain, other)]
        return len(grouped(runs)) == 2

    assert not apart(replace(plain, run=replace(plain.run, seed=9, name="other")))
    tried = 0
    for each in fields(TrainConfig):
        part = getattr(plain, each.name)
        if each.name in LEFT_OUT or not is_dataclass(part):
            continue
        for setting in fields(part):
            other = object.__new__(TrainConfig)
            other.__dict__.update(plain.__dict__)
            other.__dict__[each.name] = changed(part, setting.name)
            is_apart = setting.name not in LEFT_OUT
            assert apart(other) == is_apart, f"{each.name}.{setting.name}"
            tried += 1
    assert tried > 90
    limited = replace(plain, run=replace(plain.run, steps=5_000_000))
    assert apart(limited), "schedules follow --steps, and learning with them"
