"""Published presets have the published values, whatever the defaults are; and each command line
gets the right preset."""

import importlib.util
import json
import sys
import typing
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from agents.actions import Actions
from agents.environments import spaces
from ga3c.__main__ import USAGE
from ga3c.command.parse import parse
from ga3c.evaluation.options import EvaluateConfig
from ga3c.learning.a3c import A3C
from ga3c.runs.kept_config import load_config
from ga3c.settings import machine
from ga3c.settings.begin import given_values, preset_like
from ga3c.settings.choices import PRESET_LINES, PresetName
from ga3c.settings.presets import OURS, PRESETS, ppo_pictures
from ga3c.settings.published import PUBLISHED
from ga3c.settings.train import TrainConfig
from tests.commands import CORRIDOR, LIGHT, ended, refused
from tests.published_facts import FACTS


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_preset_has_every_published_value(name: str) -> None:
    config = PRESETS[name]
    found, expected = {}, {}
    for setting, value, source in FACTS[name]:
        part, field = setting.split(".")
        found[setting, source] = getattr(getattr(config, part), field)
        expected[setting, source] = value
    assert found == expected
    assert len(found) == len(FACTS[name]), "a setting stands in the table twice"


def test_a_proposal_of_the_papers_walk_takes_a_minute() -> None:
    scheduler = PRESETS["paper"].scheduler
    assert 2 * (scheduler.settle_s + scheduler.window_s) == 60.0


# Fields that say where things run, or which weights to start from.
WHERE = {"service.experience", "service.backend", "service.transport", "service.agent_timeout_s"}
WHERE |= {"service.intra_op_threads", "learning.initial_weights"}
PARTS = ("environment", "service", "learning", "network", "optimizer", "scheduler")


def pinned(config: TrainConfig) -> dict[str, Any]:
    """The settings that a published preset must state, instead of relying on defaults."""
    own = ("a3c",) if config.algorithm == "a3c" else (config.algorithm, "replay", "pacing")
    found = {
        f"{name}.{each.name}": getattr(getattr(config, name), each.name)
        for name in (*PARTS, *own)
        for each in fields(getattr(config, name))
    }
    return {name: value for name, value in found.items() if name not in WHERE}


def altered(kind: Any, value: Any) -> Any:
    """A value other than `value` for a field of type `kind`."""
    choices = [c for c in typing.get_args(kind) if c is not type(None)]
    if typing.get_origin(kind) is Literal:
        return next(choice for choice in choices if choice != value)
    if value is None:
        return (1,) if typing.get_origin(choices[0]) is tuple else choices[0](1)
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return tuple(each + 1 for each in value) or ("size=1",)
    if isinstance(value, float):
        return value * 0.9 + 0.01  # a share stays between 0 and 1
    return value + 1 if isinstance(value, int) else "Boxing"


def defaults() -> Iterator[tuple[type, int, str, Any]]:
    """For every default: its class, its place in __init__'s defaults, its name, another value."""
    for part in (*PARTS, "a3c", "dqn", "dpg", "replay", "pacing"):
        kind = type(getattr(TrainConfig(), part))
        hints = typing.get_type_hints(kind)
        for place, each in enumerate(fields(kind)):
            if f"{part}.{each.name}" not in WHERE:
                assert kind.__init__.__defaults__[place] is each.default
                yield kind, place, each.name, altered(hints[each.name], each.default)


def test_a_changed_default_changes_no_published_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, tried = [], 0
    for kind, place, name, value in defaults():
        initialise: Any = kind.__init__
        known = list(initialise.__defaults__)
        known[place] = value
        with monkeypatch.context() as patch:
            patch.setattr(initialise, "__defaults__", tuple(known))
            for each in ("ga3c.settings.published_a3c", "ga3c.settings.published"):
                spec = importlib.util.find_spec(each)
                assert spec and spec.loader
                module = importlib.util.module_from_spec(spec)
                patch.setitem(sys.modules, each, module)
                spec.loader.exec_module(module)
        tried += 1
        for preset, config in module.PUBLISHED.items():
            if pinned(config) != pinned(PUBLISHED[preset]):
                wrong.append(f"{preset}: {kind.__name__}.{name}")
    assert wrong == []
    assert tried > 80


# Which preset a command line gets


@pytest.mark.parametrize(
    ("arguments", "preset"),
    [
        ([], "ppo-pictures"),
        (["--game", "breakout"], "ppo-pictures"),
        (["--algorithm", "a3c"], "a3c-pictures"),
        (["--algorithm", "ppo"], "ppo-pictures"),
        (["--algorithm", "ppo", "--game", "CartPole-v1"], "ppo-vectors"),
        (["--game", "CartPole-v1"], "ppo-vectors"),
        (["--game", "Pendulum-v1", "--algorithm", "ppo"], "ppo-control"),
        (["--game", "CartPole-v1", "--algorithm", "a3c"], "a3c-vectors"),
        (["--game=Acrobot-v1", "--algorithm=dqn"], "dqn-vectors"),
        (["--algorithm", "dqn"], "dqn-pictures"),
        (["--game", "tests.tiny:Catch-v0"], "ppo-pictures"),
        (["--game", "tests.tiny:Corridor-v0", "--preset", "default"], "ppo-vectors"),
        (["--game", "CartPole-v1", "--preset", "a3c-pictures"], "a3c-pictures"),
        (["--preset", "dqn-vectors"], "dqn-vectors"),
        (["--preset", "fast-dqn"], "fast-dqn"),
        (["--game", "Pendulum-v1"], "dpg-control"),
        (["--game", "Pendulum-v1", "--algorithm", "a3c"], "a3c-control"),
        (["--game", "Pendulum-v1", "--algorithm", "dpg"], "dpg-control"),
    ],
)
def test_plain_defaults_follow_the_algorithm_and_what_the_game_shows(
    arguments: list[str], preset: str
) -> None:
    config = parse(arguments, TrainConfig, "ga3c train")
    game = config.environment.game
    expected = PRESETS[preset]
    expected = replace(expected, environment=replace(expected.environment, game=game))
    assert config == expected
    assert config.preset == preset


def test_pictures_with_continuous_actions_are_evaluated_without_noise() -> None:
    """The protocol for pictures draws actions by probability; continuous ones have none."""
    for algorithm in ("ppo", "a3c"):
        given = ["--game", "CarRacing-v3", "--algorithm", algorithm]
        config = parse(given, TrainConfig, "ga3c train")
        assert config.preset == f"{algorithm}-pictures"
        found = spaces(config.environment, tried=False)
        assert EvaluateConfig().played_by(config, found)[0] == "control"


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 16, 24, 64, 200])
def test_ppo_on_pictures_follows_the_machine(cores: int) -> None:
    """Batches and segments are the same everywhere, so up to 512 environments learn alike."""
    config = ppo_pictures(cores)
    service = config.service
    lanes = service.agents * service.envs_per_agent
    assert service.agents == max(1, cores // 2)
    assert lanes == 64 * service.agents or 384 < lanes <= 512
    assert service.training_wait_s > 10, "a batch that is not whole is another algorithm's"
    alone = ppo_pictures(2)
    assert (alone.service.training_batch_max, alone.service.minibatch) == (2048, 256)
    threads = {"agents": 1, "envs_per_agent": 64, "intra_op_threads": 2}
    assert replace(config, service=replace(service, **threads)) == alone


@pytest.mark.parametrize("cores", [1, 2, 4, 16, 64, 96])
def test_with_a_gpu_all_cores_play_about_as_many_environments(cores: int) -> None:
    with_gpu, without = ppo_pictures(cores, gpu=True), ppo_pictures(cores)
    service = with_gpu.service
    lanes = service.agents * service.envs_per_agent
    assert service.agents == cores and service.envs_per_agent % 2 == 0
    at_least = 0.75 * without.service.agents * without.service.envs_per_agent
    assert at_least <= lanes <= 512
    counts = {name: getattr(without.service, name) for name in ("agents", "envs_per_agent")}
    assert replace(with_gpu, service=replace(service, **counts)) == without


@pytest.mark.parametrize(
    ("hidden_by", "seen"),
    [
        ({}, True),
        ({"CUDA_VISIBLE_DEVICES": "1"}, True),
        ({"CUDA_VISIBLE_DEVICES": ""}, False),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, False),
        ({"JAX_PLATFORMS": "cpu"}, False),
        ({"JAX_PLATFORMS": ""}, True),
    ],
)
def test_a_gpu_is_seen_by_its_device_file_unless_it_is_hidden(
    hidden_by: dict[str, str], seen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "GPU", str(tmp_path / "nvidia[0-9]*"))
    assert not machine.sees_gpu()
    (tmp_path / "nvidiactl").touch()
    assert not machine.sees_gpu(), "the driver's own file is no GPU"
    (tmp_path / "nvidia0").touch()
    for name, value in hidden_by.items():
        monkeypatch.setenv(name, value)
    assert machine.sees_gpu() == seen


@pytest.mark.parametrize(
    ("arguments", "lanes", "batch", "update", "rate"),
    [
        (["--agents", "8", "--envs-per-agent=64"], 512, 2048, 256, 5e-4),
        (["--agents", "1", "--envs-per-agent", "64"], 64, 2048, 256, 5e-4),
        (["--agents", "1", "--envs-per-agent", "8"], 8, 2048, 256, 5e-4),
        (["--agents", "16"], 1024, 4096, 512, 5e-4 * 2**0.5),
        (["--agents", "16", "--learning-rate", "1e-4"], 1024, 4096, 512, 1e-4),
        (["--agents", "64"], 4096, 16_384, 2048, 5e-4 * 8**0.5),
        (["--agents", "64", "--minibatch", "256"], 4096, 16_384, 256, 5e-4 * 8**0.5),
        (["--game", "CartPole-v1", "--agents=8"], 128, 2048, 128, 1e-3),
        (["--game", "CartPole-v1", "--agents=32"], 512, 8192, 512, 2e-3),
        (["--agents", "16", "--t-max", "8"], 1024, 2048, 256, 5e-4),
        (["--algorithm", "a3c", "--agents", "64"], 4096, 80, 80, 7e-4),
    ],
)
def test_batches_grow_where_many_environments_are_asked_for(
    arguments: list[str], lanes: int, batch: int, update: int, rate: float
) -> None:
    config = parse(arguments, TrainConfig, "ga3c train")
    service = config.service
    assert service.agents * service.envs_per_agent == lanes
    assert service.training_batch_min == service.training_batch_max == batch
    assert service.training_queue >= 2 * batch
    assert service.update_max == update
    assert config.optimizer.learning_rate == pytest.approx(rate)


def test_a_rate_that_is_constant_is_constant_for_any_number_of_environments() -> None:
    for arguments in ([], ["--envs-per-agent", "512"]):
        given = ["--game", "CartPole-v1", *arguments]
        optimizer = parse(given, TrainConfig, "ga3c train").scheduled_optimizer
        assert optimizer.learning_rate_end == optimizer.learning_rate


@pytest.mark.parametrize("name", PRESETS)
def test_a_rate_or_an_entropy_weight_that_is_given_falls_or_stays(name: str) -> None:
    """Where the preset's own is constant, it is not the end that a smaller one rises to."""
    given = ["--preset", name, "--learning-rate", "1e-6"]
    config = parse(given, TrainConfig, "ga3c train")
    optimizer = config.scheduled_optimizer
    assert optimizer.rate_at(0.0) == 1e-6 >= optimizer.rate_at(0.5) >= optimizer.rate_at(1.0)
    weights = replace(config.a3c, entropy_weight=0.0)
    algorithm = A3C(weights, Actions(4))
    assert algorithm.rates(1.0) == {"entropy_weight": 0.0}


def test_segments_may_be_longer_than_an_update_of_ppo() -> None:
    service = parse(["--game", "CartPole-v1", "--t-max", "512"], TrainConfig, "ga3c train").service
    assert (service.t_max, service.minibatch) == (512, 128)


def test_a_presets_name_begins_with_its_algorithm() -> None:
    assert PRESETS["a3c-pictures"] == TrainConfig(preset="a3c-pictures")
    assert not PRESETS["a3c-pictures"].a3c.normalize_advantages
    algorithms = {name: name.partition("-")[0] for name in OURS}
    assert {name: OURS[name].algorithm for name in OURS} == {**algorithms, "apex-small": "dqn"}


def test_our_ppo_makes_several_updates_of_a_batch_so_that_its_clip_can_act() -> None:
    for kind in ("pictures", "vectors", "control"):
        assert OURS[f"ppo-{kind}"].service.updates_per_batch >= 24


def test_rewards_of_vector_tasks_are_learned_as_they_are() -> None:
    assert {name: OURS[name].learning.reward_clip for name in OURS} == {
        "a3c-pictures": 1.0,
        "a3c-vectors": 0.0,
        "ppo-pictures": 1.0,
        "ppo-vectors": 0.0,
        "ppo-control": 0.0,
        "dqn-pictures": 1.0,
        "apex-small": 1.0,
        "dqn-vectors": 0.0,
        "dpg-control": 0.0,
        "a3c-control": 0.0,
    }


def test_every_preset_has_its_line_in_both_helps() -> None:
    assert typing.get_args(PresetName) == tuple(PRESET_LINES)
    assert set(PRESET_LINES) == {"default", *PRESETS}
    assert {name: config.preset for name, config in PRESETS.items()} == {n: n for n in PRESETS}
    said = " ".join(ended("train", "--help", "--game", "no-such-game").stdout.split())
    for name, line in PRESET_LINES.items():
        assert f"{name} {line}" in said.replace(" │ │ ", " "), name
        assert f"{name} {line}" in " ".join(USAGE.split()), name


def test_the_defaults_are_those_of_the_algorithm_and_not_of_the_preset() -> None:
    begun = replace(PRESETS["dqn-pictures"], algorithm="dpg")
    assert preset_like(begun).algorithm == "dpg"


def test_a_run_says_which_settings_it_took_and_keeps_their_name(tmp_path: Path) -> None:
    given = ["--runs-dir", str(tmp_path), "--name", "mine"]
    done = ended(*CORRIDOR, "--steps", "300", *given)
    assert done.returncode == 0, done.stderr
    line = "ga3c: settings of preset a3c-vectors (default for a3c on vectors)"
    assert line in done.stdout.splitlines()
    assert line in (tmp_path / "mine" / "log.txt").read_text().splitlines()
    assert json.loads((tmp_path / "mine" / "config.json").read_text())["preset"] == "a3c-vectors"
    resumed = ["train", "--resume", "mine", "--runs-dir", str(tmp_path), "--preset", "default"]
    done = ended(*resumed, "--steps", "9000")
    assert done.returncode == 0, done.stderr
    assert load_config(tmp_path / "mine").preset == "a3c-vectors"


def test_a_run_from_before_presets_followed_the_game_can_be_resumed(tmp_path: Path) -> None:
    """Its config.json says `default`, and lacks the settings that were added since."""
    given = ["--runs-dir", str(tmp_path), "--name", "mine", "--preset", "a3c-pictures"]
    assert ended(*CORRIDOR, *given, "--steps", "300").returncode == 0
    file = tmp_path / "mine" / "config.json"
    kept = json.loads(file.read_text())
    kept["preset"] = "default"
    for part, name in (
        ("network", "separate_value"),
        ("network", "value_scale"),
        ("network", "pixel_scale"),
        ("dqn", "loss_reduction"),
        ("dqn", "dueling_gradient_scale"),
    ):
        del kept[part][name]
    file.write_text(json.dumps(kept))
    resumed = ["train", "--resume", "mine", "--runs-dir", str(tmp_path), "--steps", "9000"]
    done = ended(*resumed)
    assert done.returncode == 0, done.stderr
    assert "goes on from" in done.stdout
    assert load_config(tmp_path / "mine").preset == "default"


@pytest.mark.parametrize("game", ["Pogn", "tests.tiny:Unbounded-v0", "nowhere:Corridor-v0"])
def test_a_game_that_cannot_be_played_is_refused_in_one_line(game: str, tmp_path: Path) -> None:
    short = ["--steps", "1", "--runs-dir", str(tmp_path)]  # in case it begins after all
    line = refused("train", "--game", game, *LIGHT, *short)
    assert line.startswith("ga3c: ") and game in line


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--env-args", "size=3", "wet=no", "--seed", "1"], ("size=3", "wet=no")),
        (["--env_args=size=3", "wet=no"], ("size=3", "wet=no")),
        (["--env-args", "a=1", "--env-args=size=3"], ("size=3",)),
        (["--seed", "1"], ()),
    ],
)
def test_arguments_of_an_environment_are_seen_however_they_are_given(
    arguments: list[str], values: tuple[str, ...]
) -> None:
    assert given_values(arguments, "--env-args") == values
