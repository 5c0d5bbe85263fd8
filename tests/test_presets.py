"""Presets: the published ones are what was published, whatever becomes of defaults; and which one a
command line gets."""

import importlib.util
import json
import typing
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from ga3c.__main__ import USAGE
from ga3c.runs.kept_config import load_config
from ga3c.settings import preset_names
from ga3c.settings.parse import parse
from ga3c.settings.presets import OURS, PRESETS
from ga3c.settings.published import PUBLISHED
from ga3c.settings.train import PresetName, TrainConfig
from tests.commands import CORRIDOR, LIGHT, ended

# What was published, where: Babaeizadeh et al. 2017 and the code of GA3C; Mnih et al. 2015; Wang et
# al. 2016; Parr 2018 and its code; Daley and Amato 2021 and its code.
A3C_CODE, GYM = "GA3C's Config.py and NetworkVP.py", "Gym's Atari games of 2017, used as they were"
NATURE, WANG = "Mnih et al. 2015, Methods and table 1", "Wang et al. 2016, section 4.2"
PARR, PARR_CODE = "Parr 2018, section 4", "the public code of Parr 2018"
DALEY, DALEY_CODE = "Daley and Amato 2021", "the public code of Daley and Amato 2021"
Fact = tuple[str, Any, str]

DQN_FACTS: list[Fact] = [
    ("network.network", "nature", NATURE),
    ("network.pixel_scale", "unit", DALEY_CODE),
    ("network.center", False, NATURE),
    ("network.padding", "valid", NATURE),
    ("environment.action_repeat", 4, NATURE),
    ("environment.frame_size", 84, NATURE),
    ("environment.stack", 4, NATURE),
    ("environment.sticky_actions", 0.0, NATURE),
    ("environment.life_loss_terminates", True, NATURE),
    ("environment.full_action_space", False, NATURE),
    ("learning.discount", 0.99, NATURE),
    ("learning.reward_clip", 1.0, NATURE),
    ("dqn.n_step", 1, NATURE),
    ("dqn.huber_delta", 1.0, NATURE),
    ("dqn.loss_reduction", "sum", NATURE),
    ("dqn.batch_size", 32, NATURE),
    ("dqn.epsilon_start", 1.0, NATURE),
    ("dqn.epsilon_end", 0.1, NATURE),
    ("dqn.epsilon_steps", 1_000_000, NATURE),
    ("replay.replay_steps", 1_000_000, NATURE),
    ("replay.replay_min_steps", 50_000, NATURE),
    ("replay.replay_draws", "uniform", NATURE),
    ("pacing.steps_per_update", 4.0, NATURE),
    ("optimizer.optimizer", "rmsprop", NATURE),
    ("optimizer.rms_centered", True, NATURE),
    ("optimizer.rms_decay", 0.95, NATURE),
    ("optimizer.optimizer_epsilon", 0.01, NATURE),
    ("optimizer.momentum", 0.0, NATURE),
    ("scheduler.scheduler", "off", NATURE),
]
DQN_RATE: list[Fact] = [
    ("optimizer.learning_rate", 2.5e-4, NATURE),
    ("optimizer.learning_rate_end", 2.5e-4, NATURE),
    ("optimizer.clip_norm", 0.0, NATURE),
]
ONE_STREAM: list[Fact] = [
    ("dqn.double", False, NATURE),
    ("dqn.dueling", False, NATURE),
    ("dqn.dueling_gradient_scale", 1.0, NATURE),
]
IN_TURN: list[Fact] = [
    ("environment.max_pool", True, NATURE),
    ("environment.noop_max", 31, NATURE),  # fewer than 31
    ("dqn.target_period", 10_000, NATURE),
    ("pacing.pacing", "ratio", NATURE),
    ("pacing.slack_steps", 4, NATURE),
    ("service.agents", 1, NATURE),
    ("service.envs_per_agent", 1, NATURE),
]

FACTS: dict[str, list[Fact]] = {
    "paper": [
        ("service.agents", 32, A3C_CODE),
        ("service.predictors", 2, A3C_CODE),
        ("service.trainers", 2, A3C_CODE),
        ("service.envs_per_agent", 1, A3C_CODE),
        ("service.prediction_batch_min", 1, A3C_CODE),
        ("service.prediction_batch_max", 128, A3C_CODE),
        ("service.training_batch_min", 0, A3C_CODE),
        (
            "service.training_batch_max",
            5,
            "GA3C's ThreadTrainer.py: one segment beyond the minimum",
        ),
        ("service.training_queue", 100 * 5, A3C_CODE),
        ("learning.discount", 0.99, A3C_CODE),
        ("learning.reward_clip", 1.0, A3C_CODE),
        ("a3c.t_max", 5, A3C_CODE),
        ("a3c.entropy_weight", 0.01, A3C_CODE),
        ("a3c.entropy_weight_end", 0.01, A3C_CODE),
        ("a3c.value_weight", 0.5, A3C_CODE),
        ("a3c.trace_decay", 1.0, "GA3C: n-step returns"),
        ("a3c.correction", "none", "GA3C, section 5.4"),
        ("a3c.normalize_advantages", False, A3C_CODE),
        ("a3c.log_epsilon", 1e-6, A3C_CODE),
        ("network.network", "small", "GA3C, section 5.1"),
        ("network.separate_value", False, "GA3C, section 5.1"),
        ("network.value_scale", 1.0, "GA3C, section 5.1"),
        ("network.padding", "same", A3C_CODE),
        ("network.center", False, A3C_CODE),
        ("network.initializer", "fan-in", A3C_CODE),
        ("network.pixel_scale", "symmetric", "GA3C's Environment.py: x / 128 - 1"),
        ("optimizer.optimizer", "rmsprop", A3C_CODE),
        ("optimizer.learning_rate", 3e-4, A3C_CODE),
        ("optimizer.learning_rate_end", 3e-4, A3C_CODE),
        ("optimizer.rms_decay", 0.99, A3C_CODE),
        ("optimizer.rms_centered", False, A3C_CODE),
        ("optimizer.momentum", 0.0, A3C_CODE),
        ("optimizer.optimizer_epsilon", 0.1, A3C_CODE),
        ("optimizer.rms_start", 1.0, "TensorFlow 1's RMSProp"),
        ("optimizer.clip_norm", 0.0, A3C_CODE),
        ("scheduler.scheduler", "random", "GA3C, section 4.4"),
        ("environment.action_repeat", 4, A3C_CODE),
        ("environment.frame_size", 84, A3C_CODE),
        ("environment.stack", 4, A3C_CODE),
        ("environment.sticky_actions", 0.25, GYM),
        ("environment.fire_on_reset", False, GYM),
        ("environment.max_pool", False, GYM),
        ("environment.life_loss_terminates", False, GYM),
        ("environment.full_action_space", False, GYM),
        ("environment.frame_cap", 100_000 * 4, GYM),
    ],
    "dqn": DQN_FACTS + DQN_RATE + ONE_STREAM + IN_TURN,
    "dueling": [
        *DQN_FACTS,
        *IN_TURN,
        ("dqn.double", True, WANG),
        ("dqn.dueling", True, WANG),
        ("dqn.dueling_gradient_scale", 2**-0.5, WANG),
        ("optimizer.learning_rate", 6.25e-5, "Schaul et al. 2016, whose rate Wang et al. took"),
        ("optimizer.learning_rate_end", 6.25e-5, "Schaul et al. 2016, whose rate Wang et al. took"),
        ("optimizer.clip_norm", 10.0, WANG),
    ],
    "in-gpu-replay": [
        ("network.network", "parr", PARR),  # its layers: test_dqn.py
        ("dqn.dueling", True, PARR),
        ("dqn.dueling_gradient_scale", 1.0, PARR),
        ("dqn.double", False, PARR_CODE),
        ("dqn.n_step", 1, PARR),
        ("dqn.huber_delta", 1.0, PARR),
        ("dqn.loss_reduction", "mean", PARR_CODE),
        ("dqn.batch_size", 32, PARR_CODE),
        ("dqn.target_period", 10_000, PARR),
        ("learning.discount", 0.99, PARR),
        ("learning.reward_clip", 1.0, PARR_CODE),
        ("replay.replay_steps", 1_000_000, PARR),
        ("replay.replay_draws", "uniform", PARR),
        ("replay.replay_repeats", True, PARR),
        ("replay.update_size", 2000, PARR),
        ("pacing.steps_per_update", 1.0, PARR_CODE),
        ("optimizer.optimizer", "rmsprop", PARR),
        ("optimizer.learning_rate", 2.5e-4, PARR),
        ("optimizer.learning_rate_end", 2.5e-4, PARR),
        ("optimizer.rms_decay", 0.95, PARR),
        ("optimizer.rms_centered", False, PARR),
        ("optimizer.momentum", 0.95, PARR),
        ("optimizer.optimizer_epsilon", 0.01, PARR),
        ("optimizer.rms_start", 1.0, "TensorFlow 1's RMSProp"),
        ("optimizer.clip_norm", 0.0, PARR_CODE),
        ("scheduler.scheduler", "off", PARR),
    ],
    "fast-dqn": [
        *DQN_FACTS,
        *DQN_RATE,
        *ONE_STREAM,
        ("environment.max_pool", False, DALEY_CODE),
        ("environment.noop_max", 30 * 4 + 1, DALEY_CODE),  # 0 to 30 steps of four frames
        ("environment.fire_on_reset", True, DALEY_CODE),
        ("environment.frame_cap", 18_000, DALEY),
        ("dqn.target_period", 2_500, DALEY),  # 10,000 steps
        ("pacing.pacing", "target-period", DALEY),
        ("pacing.period_steps", 10_000, DALEY),
        ("service.agents", 8, DALEY),
        ("service.envs_per_agent", 1, DALEY),
        ("service.synchronized", True, DALEY),
    ],
}


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


# Fields that say where things run.
WHERE = {"service.experience", "service.backend", "service.transport", "service.agent_timeout_s"}
WHERE |= {"service.intra_op_threads"}
PARTS = ("environment", "service", "learning", "network", "optimizer", "scheduler")


def pinned(config: TrainConfig) -> dict[str, Any]:
    """All that a preset has to say by itself."""
    own = ("a3c",) if config.algorithm == "a3c" else ("dqn", "replay", "pacing")
    found = {
        f"{name}.{each.name}": getattr(getattr(config, name), each.name)
        for name in (*PARTS, *own)
        for each in fields(getattr(config, name))
    }
    return {name: value for name, value in found.items() if name not in WHERE}


def altered(kind: Any, value: Any) -> Any:
    """Another value than `value` for a field of type `kind`."""
    choices = [c for c in typing.get_args(kind) if c is not type(None)]
    if typing.get_origin(kind) is Literal:
        return next(choice for choice in choices if choice != value)
    if value is None:
        return choices[0](1)
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value * 0.9 + 0.01  # shares stay shares
    return value + 1 if isinstance(value, int) else "Boxing"


def defaults() -> Iterator[tuple[type, int, str, Any]]:
    """Every default: its class, its place in __init__'s defaults, its name, another value."""
    for part in (*PARTS, "a3c", "dqn", "replay", "pacing"):
        kind = type(getattr(TrainConfig(), part))
        hints = typing.get_type_hints(kind)
        for place, each in enumerate(fields(kind)):
            if f"{part}.{each.name}" not in WHERE:
                assert kind.__init__.__defaults__[place] is each.default
                yield kind, place, each.name, altered(hints[each.name], each.default)


def test_a_changed_default_changes_no_published_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec("ga3c.settings.published")
    assert spec and spec.loader
    wrong, tried = [], 0
    for kind, place, name, value in defaults():
        initialise: Any = kind.__init__
        known = list(initialise.__defaults__)
        known[place] = value
        with monkeypatch.context() as patch:
            patch.setattr(initialise, "__defaults__", tuple(known))
            module = importlib.util.module_from_spec(spec)
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
        ([], "a3c-pictures"),
        (["--game", "breakout"], "a3c-pictures"),
        (["--game", "CartPole-v1"], "a3c-vectors"),
        (["--game=Acrobot-v1", "--algorithm=dqn"], "dqn-vectors"),
        (["--algorithm", "dqn"], "dqn-pictures"),
        (["--game", "tests.tiny:Catch-v0"], "a3c-pictures"),
        (["--game", "tests.tiny:Corridor-v0", "--preset", "default"], "a3c-vectors"),
        (["--game", "CartPole-v1", "--preset", "a3c-pictures"], "a3c-pictures"),
        (["--preset", "dqn-vectors"], "dqn-vectors"),
        (["--preset", "fast-dqn"], "fast-dqn"),
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


def test_rewards_of_vector_tasks_are_learned_as_they_are() -> None:
    assert {name: OURS[name].learning.reward_clip for name in OURS} == {
        "a3c-pictures": 1.0,
        "a3c-vectors": 0.0,
        "dqn-pictures": 1.0,
        "dqn-vectors": 0.0,
    }


def test_every_preset_has_its_line_in_both_helps() -> None:
    assert typing.get_args(PresetName) == tuple(preset_names.PRESETS)
    assert set(preset_names.PRESETS) == {"default", *PRESETS}
    assert {name: config.preset for name, config in PRESETS.items()} == {n: n for n in PRESETS}
    said = " ".join(ended("train", "--help", "--game", "no-such-game").stdout.split())
    for name, line in preset_names.PRESETS.items():
        assert f"{name} {line}" in said.replace(" │ │ ", " "), name
        assert f"{name} {line}" in " ".join(USAGE.split()), name


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


def test_a_run_kept_before_presets_followed_the_game_is_gone_on_with(tmp_path: Path) -> None:
    """Its config.json says `default`, and has none of the settings that are newer."""
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


@pytest.mark.parametrize("game", ["Pogn", "MountainCarContinuous-v0", "nowhere:Corridor-v0"])
def test_a_game_that_cannot_be_played_is_one_line(game: str) -> None:
    done = ended("train", "--game", game, *LIGHT)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("ga3c: ") and game in line
