"""The benchmarks, run in miniature as users run them, and relations between their figures."""

import contextlib
import itertools
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from packaging.utils import canonicalize_name

from agents.environments import spaces
from benchmarks import ablation, gpu_check, kept, machines, tuning
from benchmarks.gpu_check import compared
from benchmarks.kept import Memo
from benchmarks.points import Point, PointsConfig, conclude, measure, said_by
from benchmarks.readme import table
from ga3c.command.parse import parse
from ga3c.experience.batches import Segments
from ga3c.learning.model import Model
from ga3c.learning.ppo import PPO
from ga3c.measuring import parts
from ga3c.measuring import remedies as remedies_module
from ga3c.measuring.accounting import Usage, usage
from ga3c.measuring.doctor import _changed, _few_batches, _try
from ga3c.measuring.options import DoctorConfig
from ga3c.measuring.parts import ModelAlone
from ga3c.measuring.remedies import Remedy, Sizes, remedies
from ga3c.measuring.reporting import Spread, plain, spread, with_range, write_json
from ga3c.runs.metrics import families, resident_mb
from ga3c.settings.checks import WrongInput
from ga3c.settings.machine import CORES, machine
from ga3c.settings.presets import PRESETS
from ga3c.settings.service import HostsConfig
from ga3c.settings.train import TrainConfig
from tests.commands import (
    BEGIN_S,
    PATIENCE,
    ROOT,
    STOP_S,
    Command,
    assert_nothing_is_left,
    ended,
    refused,
    wait_for,
)
from tests.measuring.test_round_trips import reserved
from tests.test_packaging import needs, read_pins

WINDOW_S = str(PATIENCE)
LIGHT = ["--game", "CartPole-v1", "--part-seconds", "0.2", "--json"]


def measured(*arguments: str) -> dict[str, Any]:
    done = ended("benchmark", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def own(used: dict[str, float]) -> float:
    """Core-seconds a second that the run itself used; how many depends on the machine's load."""
    return sum(each for name, each in used.items() if name not in ("idle", "other_processes"))


@pytest.mark.slow
def test_throughput_accounts_for_every_core_second_and_every_step(tmp_path: Path) -> None:
    out = tmp_path / "throughput.json"
    result = measured(
        *("throughput", *LIGHT, "--algorithm", "a3c", "--agents", "2", "--envs-per-agent", "8"),
        *("--repeats", "2", "--seconds", "2", "--warm-up-seconds", "1", "--out", str(out)),
    )
    used = result["core_seconds_per_s"]
    assert sum(used.values()) == pytest.approx(CORES, rel=0.05)
    assert min(used.values()) >= 0
    assert used["environment"] == 0  # CartPole runs in the agents' main thread: agents_python
    assert used["agents_python"] > 0.05 * own(used)
    assert result["share_of_limit"] == pytest.approx(result["pps"] / result["limit_pps"])
    assert result["pps_low"] <= result["pps"] <= result["pps_high"]
    # The 4 s may contain 3 batches of 80 more or less, over a fifth of all on a slow machine.
    trained = pytest.approx(result["pps"], rel=0.2, abs=3 * 80 / 4)
    assert result["trained_samples_per_s"] == trained
    assert result["training_batch"] == pytest.approx(80, rel=0.05)
    assert "tps" not in result, "updates a second are not TPS, which are trained samples a second"
    samples = result["updates_per_s"] * result["training_batch"]
    assert samples == pytest.approx(result["trained_samples_per_s"])
    assert 0 < result["agents_waiting_share"] < 1
    before, after = result["parts_before"]["limit_pps"], result["parts_after"]["limit_pps"]
    assert result["limit_pps"] == pytest.approx((before + after) / 2)
    assert result["share_of_bare_limit"] == result["pps"] / result["bare_limit_pps"]
    assert result["settings"]["service"]["envs_per_agent"] == 8
    assert json.loads(out.read_text()) == result


def test_a_remedy_that_does_not_fit_the_machine_is_reported_as_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = parse(["--game", "CartPole-v1"], DoctorConfig, "ga3c doctor")
    remedy = Remedy({"envs_per_agent": 60_000_000, "groups": 1000}, 0.5, "more is more")
    tried = _try(config, spaces(config.environment), {}, 100.0, remedy)
    assert "it cannot be tried here: " in capsys.readouterr().out
    assert tried["remedy"] == "--envs-per-agent 60000000 --groups 1000"
    assert "60,000,000 environments" in tried["refused"]


def test_a_remedy_that_fails_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """No update is made in time, for example, if no machine has room for another agent."""
    given = ["--game", "tests.tiny:Fallen-v0", "--envs-per-agent", "2"]
    config = parse(given, DoctorConfig, "ga3c doctor")
    failing = Remedy({"agents": 1}, 0.5, "more is more")
    tried = _try(config, spaces(config.environment), {}, 100.0, failing)
    assert "it cannot be tried here: " in capsys.readouterr().out
    assert tried["refused"]


@pytest.mark.slow
def test_limits_are_those_of_the_best_sizes() -> None:
    result = measured(
        *("limits", *LIGHT, "--agent-counts", "1", "2", "--env-counts", "2", "8"),
        *("--repeats", "1", "--prediction-batches", "1", "16", "--training-batches", "20", "80"),
        # CartPole's observations have 4 floats too: the two must not be confused.
        *("--t-max", "4", "--algorithm", "a3c"),
    )
    pairs = [(each["agents"], each["environments"]) for each in result["environment_only"]]
    assert pairs == [(1, 2), (1, 8), (2, 2), (2, 8)]
    assert [each["batch"] for each in result["predict_only"]] == [1, 16]
    assert [each["batch"] for each in result["train_only"]] == [20, 80]
    parts = result["parts"]
    assert parts["predict_only"] == max(each["median"] for each in result["predict_only"])
    assert parts["train_only"] == max(each["median"] for each in result["train_only"])
    assert all(each["low"] > 0 for each in result["wire_only"])
    assert parts.pop("samples_a_step") == 1
    for name in ("bare_forward", "bare_train"):
        assert parts[name] == max(each["median"] for each in result[name])
    own = [parts[name] for name in ("environment_only", "predict_only", "train_only")]
    assert result["limit_pps"] == pytest.approx(CORES / sum(1 / part for part in own))
    bare = [parts[name] for name in ("environment_only", "bare_forward", "bare_train")]
    assert result["bare_limit_pps"] == pytest.approx(CORES / sum(1 / part for part in bare))


@pytest.mark.parametrize(
    ("preset", "samples"),
    [("a3c-vectors", 240), ("ppo-vectors", 256), ("dqn-vectors", 256)],  # a3c: 12 segments of 20
)
def test_as_many_samples_are_counted_as_are_trained(
    preset: str, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = PRESETS[preset]
    config = replace(config, environment=replace(config.environment, game="CartPole-v1"))
    alone = ModelAlone(config, spaces(config.environment))
    trained: list[int] = []

    def update(self: Model, batch: Sequence[Any], progress: float) -> None:
        trained.append(np.size(self.source.batch(*batch).actions))

    monkeypatch.setattr(Model, "update", update)
    monkeypatch.setattr(parts, "rate", lambda train, seconds, clock: train())
    assert alone.train_only(256, 1.0) == sum(trained)
    assert trained == [samples] * config.service.passes


def test_setting_the_targets_of_ppo_is_a_part_of_its_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This costs a forward pass for each step; without it, the limit would be too high."""
    config = PRESETS["ppo-vectors"]
    config = replace(config, environment=replace(config.environment, game="CartPole-v1"))
    alone = ModelAlone(config, spaces(config.environment))
    prepared: list[tuple[int, ...]] = []
    prepare = PPO.prepare

    def counted(self: PPO, network: Any, segments: Segments) -> Any:
        prepared.append(np.shape(segments.rewards))
        return prepare(self, network, segments)

    monkeypatch.setattr(PPO, "prepare", counted)
    monkeypatch.setattr(parts.backend, "compiled", lambda function, signature: function)
    monkeypatch.setattr(parts, "rate", lambda train, seconds, clock: train())
    alone.train_only(256, 1.0)
    assert prepared == [(256 // config.service.t_max, config.service.t_max)]


@pytest.mark.slow
def test_a_sweep_that_was_cut_short_goes_on_where_it_was(tmp_path: Path) -> None:
    arguments = ["sweep", "--game", "CartPole-v1", "--out-dir", str(tmp_path)]
    arguments += ["--seconds", WINDOW_S]
    arguments += ["--agent-counts", "1", "--predictor-counts", "1", "2", "--trainer-counts", "1"]
    arguments += ["--turns", "2", "--networks", "--json", "--minimum-batches"]
    first = ended("benchmark", *arguments)
    assert first.returncode == 0, first.stderr
    assert "turn 1 of 2: 2 to be measured" in first.stdout
    kept = tmp_path / "points.jsonl"
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert all(line["figures"]["machine"]["cores"] == CORES for line in lines)
    tried = [json.loads(line["key"])[0] for line in lines]
    assert tried == [[1, 1, 1], [1, 2, 1], [1, 2, 1], [1, 1, 1]], "there and back"
    known = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(known[:-1]) + '{"key": "cut sh')  # as if killed while writing
    again = ended("benchmark", *arguments, "20")
    assert "turn 1 of 2: 0 to be measured" in again.stdout
    assert "turn 2 of 2: 1 to be measured" in again.stdout
    *counts, batches = json.loads(again.stdout.splitlines()[-1])["points"]
    assert [(point["part"], point["options"]["predictors"]) for point in counts] == [
        ("counts", "1"),
        ("counts", "2"),
    ]
    turns = [line["figures"]["pps"] for line in lines[1:3]]
    of_two = counts[1]["figures"]
    assert [of_two[n] for n in ("pps_low", "pps", "pps_high")] == pytest.approx(
        [min(turns), sum(turns) / 2, max(turns)]
    )
    assert batches["part"] == "minimum batches"
    assert batches["figures"]["pps"] > 0
    assert all(each["figures"]["machine"]["date"] for each in (*counts, batches))
    assert {path.name for path in tmp_path.iterdir()} == {"points.jsonl", "sweep.json", "sweep.png"}


PROMISED = """
import sys
from ga3c.__main__ import main
from ga3c.measuring import doctor
from ga3c.measuring.remedies import Remedy

found = doctor.remedies

def promised(*given):
    list(found(*given))  # what they are depends on what else the machine does
    return [
        Remedy({{"pending_segments": 3}}, 0.01, "there is room"),
        Remedy({{"envs_per_agent": 64}}, {gain}, "more is more"),
        Remedy({{"groups": 3}}, 0.9, "two environments make no three groups, though"),
    ]

doctor.remedies = promised
sys.exit(main())
"""


def examined(command: Callable[..., Command], gain: float) -> tuple[str, dict[str, Any]]:
    """The doctor's output and figures, if 64 environments promise this gain."""
    light = [*LIGHT, "--agents", "1", "--envs-per-agent", "2", "--repeats", "1", "--seconds", "1"]
    doctor = command("doctor", *light, program=PROMISED.format(gain=gain))
    assert doctor.wait(400.0) == 0, doctor.err
    return doctor.out, json.loads(doctor.out.splitlines()[-1])


@pytest.mark.slow
def test_the_doctor_names_the_limit_and_tries_the_most_promising_remedy(
    command: Callable[..., Command],
) -> None:
    said, result = examined(command, gain=0.25)
    assert "what limits it:" in said
    assert "what to change: --envs-per-agent 64\n  because more is more; expected +25%" in said
    assert "tried:" in said
    assert (result["remedy"], result["expected_gain"]) == ("--envs-per-agent 64", 0.25)
    sizes = [result[when]["prediction_batch"] for when in ("before", "after")]
    assert sizes[0] < 3 and sizes[1] > 16, "it was tried with more environments"
    gain = result["after"]["pps"] / result["before"]["pps"] - 1
    assert result["measured_gain"] == pytest.approx(gain)


@pytest.mark.slow
def test_the_doctor_tries_nothing_that_promises_little(command: Callable[..., Command]) -> None:
    said, result = examined(command, gain=0.019)
    assert "what limits it:" in said
    assert "no setting promises more than 2%" in said
    assert "tried:" not in said
    assert result["remedy"] is None and "after" not in result


def doctored(config: TrainConfig, **found: float) -> list[dict[str, Any]]:
    """The changes that the doctor would propose, best first.

    A prediction takes the same time for any batch size; training is 25% faster in batches above 80.
    """
    account = dict.fromkeys(("environment", "prediction", "training"), CORES / 4)
    figures = {"predictors_blocked_share": 0.0, "prediction_batch": 128.0, "pps": 1000.0, **found}
    figures = {"trainers_waiting_share": 0.5, "agents_waiting_share": 0.5, **figures}
    figures["core_seconds_per_s"] = {**account, "idle": found.get("idle", 0.0)}  # type: ignore[assignment]
    sizes = Sizes(lambda batch: 10.0 * batch, lambda batch: 1000.0 * (1.25 if batch > 80 else 1.0))
    parts = {"train_only": 1000.0, "environment_only": 2000.0 / CORES}
    found_remedies = sorted(remedies(config, figures, parts, sizes), key=lambda each: -each.gain)
    return [remedy.options for remedy in found_remedies if remedy.gain > 0]


def test_the_doctor_tries_what_its_command_would_do() -> None:
    """Beyond 512 environments, the batches and the learning rate of ppo grow with their number."""
    given = ["--agents", "16", "--envs-per-agent", "32", "--training-queue", "9000"]
    remedy = Remedy({"envs_per_agent": 64}, 0.5, "more is more")
    tried = _changed(parse(given, DoctorConfig, "ga3c doctor"), remedy)
    asked = parse([*given, *remedy.command.split()], DoctorConfig, "ga3c doctor")
    assert tried == asked
    assert tried.service.training_batch_max == 4096
    own = replace(PRESETS["dqn-pictures"], algorithm="dpg")
    assert _changed(own, Remedy({"agents": 2}, 0.5, "")).service.agents == 2  # type: ignore[arg-type]


def test_the_doctor_proposes_what_the_figures_call_for() -> None:
    config = TrainConfig()
    service = replace(config.service, agents=1, max_agents=2)
    larger = {"training_batch_max": 160, "training_batch_min": 160, "training_queue": 320}
    assert doctored(config) == [larger]
    room = {"pending_segments": 3}
    assert doctored(config, idle=CORES / 4, predictors_blocked_share=0.3)[0] == room
    learns = {"idle": CORES / 4, "trainers_waiting_share": 0.01}
    assert doctored(config, predictors_blocked_share=0.3, **learns) == [larger]
    if CORES > 1:
        assert doctored(replace(config, service=service), idle=CORES / 4)[0] == {"agents": 2}
    assert doctored(config, idle=CORES / 4)[0] == {"envs_per_agent": 128}
    assert doctored(config, **learns) == [larger]
    assert doctored(config, pps=2000.0, **learns) == [], "the environments allow no more"
    hosts = HostsConfig(launcher="ray")
    assert doctored(replace(config, hosts=hosts), pps=2000.0, **learns) == [larger]
    fewer = {"steps_per_update": 8.0}
    assert doctored(PRESETS["dqn-pictures"], predictors_blocked_share=0.3) == [fewer]
    meets_seldom = {"pacing": "target-period", "period_steps": 2000}
    assert doctored(PRESETS["dqn-pictures"], idle=CORES / 4) == [meets_seldom, fewer]
    whole, served = PRESETS["in-gpu-replay"], {"prediction_batch": 4.0}
    assert {"envs_per_agent": 16, "prediction_batch_min": 8} in doctored(whole, **served)
    pacing = replace(PRESETS["dqn-pictures"].pacing, pacing="target-period")
    assert doctored(replace(PRESETS["dqn-pictures"], pacing=pacing), idle=CORES / 4) == [fewer]


def test_the_doctor_proposes_an_agent_for_each_idle_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedies_module, "CORES", 64)
    config = TrainConfig(service=replace(TrainConfig().service, agents=32, max_agents=128))
    hosts = HostsConfig(launcher="ray")

    def best(config: TrainConfig, **found: float) -> tuple[dict[str, Any], float]:
        account = dict.fromkeys(("prediction", "training"), 1.0) | {"idle": found.pop("idle")}
        figures = {"predictors_blocked_share": 0.0, "prediction_batch": 128.0, "pps": 1000.0}
        figures |= {"trainers_waiting_share": 0.5, "core_seconds_per_s": account, **found}  # type: ignore[dict-item]
        parts = {"train_only": 1000.0, "environment_only": 2000.0}
        found_remedies = remedies(config, figures, parts, Sizes(float, lambda _: 1000.0))
        remedy = max(found_remedies, key=lambda each: each.gain)
        return remedy.options, remedy.gain

    assert best(config, idle=30.0, agents_waiting_share=0.02) == ({"agents": 62}, 30 / 34)
    assert best(config, idle=8.0, agents_waiting_share=0.5) == ({"agents": 40}, 8 / 56)
    for agents, waiting, options in (
        (60, 0.02, {"agents": 64}),  # one for each core first
        (64, 0.02, {"agents": 94}),  # their environments wait for something else than a core
        (64, 0.50, {"envs_per_agent": 2 * config.service.envs_per_agent}),
        (128, 0.02, {"envs_per_agent": 2 * config.service.envs_per_agent}),
    ):
        service = replace(config.service, agents=agents)
        found = best(replace(config, service=service), idle=30.0, agents_waiting_share=waiting)
        assert found[0] == options
    elsewhere = best(replace(config, hosts=hosts), idle=30.0, agents_waiting_share=0.02)
    assert "agents" not in elsewhere[0], "another machine may have no room for it"


def test_the_doctor_says_if_it_saw_too_few_batches() -> None:
    """A batch of 2,048 steps takes twelve seconds at 166 steps/s."""
    given = ["--game", "Pong", "--repeats", "1"]
    config = parse(given, DoctorConfig, "ga3c doctor")
    per_batch = config.service.updates_per_batch
    (said,) = _few_batches(config, {"pps": 166.0, "updates_per_s": per_batch / 6.0})
    assert said.startswith("only 1.0 batches were learned from in 6 s, so")
    assert said.endswith("give --seconds 38")
    assert not [*_few_batches(config, {"pps": 1000.0, "updates_per_s": per_batch / 2.0})]


def test_the_doctor_proposes_no_minibatch_larger_than_the_batch() -> None:
    config = PRESETS["ppo-pictures"]
    for minibatch, expected in ((1024, [{"minibatch": 2048}]), (2048, [])):
        changed = replace(config, service=replace(config.service, minibatch=minibatch))
        found = doctored(changed, idle=CORES / 4, trainers_waiting_share=0.01)
        assert found == expected


@pytest.mark.slow
def test_an_ablation_changes_one_thing_after_another(tmp_path: Path) -> None:
    result = measured(
        *("ablation", "--out-dir", str(tmp_path), "--seconds", WINDOW_S, "--agents", "1"),
        *("--env-counts", "2", "--json"),
    )
    points = result["points"]
    assert [point["part"].split()[0] for point in points] == ["GA3C's", "+", "+", "+", "+"]
    changes = [
        {name for name in after["options"] if after["options"][name] != before["options"].get(name)}
        for before, after in itertools.pairwise(points)
    ]
    assert changes == [{"pixels"}, {"predictors"}, {"envs-per-agent", "groups"}, {"experience"}]
    assert all(point["figures"]["pps"] > 0 for point in points)
    assert (tmp_path / "ablation.png").stat().st_size > 0


@pytest.mark.slow
def test_tuned_counts_are_compared_with_fixed_ones(tmp_path: Path) -> None:
    arguments = ["tuning", "--out-dir", str(tmp_path), "--games", "tests.tiny:Corridor-v0"]
    arguments += ["--seconds", str(4 * PATIENCE**2), "--fixed", "1", "1", "2", "--json"]
    arguments += ["--turns", "2", "--turn-seconds", str(PATIENCE)]
    result = measured(*arguments)
    game = result["games"]["tests.tiny:Corridor-v0"]
    assert {line["trainers"] for line in game["fixed"]["lines"]} == {2}
    assert {line["trainers"] for line in game["anneal"]["lines"]} == {1}
    assert [game[how]["kept"] for how in ("anneal", "fixed")] == [[1, 1, 1], [1, 1, 2]]
    assert all(len(made["in_turn"]) == 2 for made in game.values())
    assert min(rate for made in game.values() for rate in made["in_turn"]) > 0
    assert (tmp_path / "tuning.png").stat().st_size > 0
    again = measured(*arguments)
    assert again["games"] == result["games"], "whole runs were made again"


@pytest.mark.slow
def test_the_cost_of_watching_is_the_mean_over_pairs_of_windows() -> None:
    light = ["--game", "CartPole-v1", "--algorithm", "a3c", "--repeats", "2", "--json"]
    light += ["--agents", "1", "--envs-per-agent", "4"]
    result = measured("watching", *light, "--seconds", "1", "--warm-up-seconds", "0.5")
    assert len(result["costs"]) == 2
    assert result["cost_mean"] == pytest.approx(sum(result["costs"]) / 2)
    assert 0 < result["watched_pps"]["low"] <= result["watched_pps"]["high"]
    assert result["checkpoint_every_s"] == 1


@pytest.mark.slow
def test_the_machinery_carries_a_replayed_stream() -> None:
    result = measured("lanes", "--repeats", "1", "--seconds", "2", "--lanes", "400", "--json")
    (row,) = result["lanes"]
    assert 400 <= row["lanes"] < 400 + 2 * CORES
    assert row["trained_samples_per_s"]["median"] == pytest.approx(row["pps"]["median"], rel=0.3)
    used = row["core_seconds_per_s"]
    assert used["environment"] < 0.1 * own(used) < used["agents_python"], "there is no emulator"
    assert used["tensors"] < 0.1 * own(used), "nothing thinks"


@pytest.mark.slow
def test_lanes_measures_what_a_step_costs_the_model() -> None:
    given = ["--repeats", "1", "--seconds", str(2 * PATIENCE), "--lanes", "16", "--json"]
    (row,) = measured("lanes", "--thinks", *given)["lanes"]
    assert row["microseconds_a_step"] == pytest.approx(1e6 / row["pps"]["median"])
    used = row["core_seconds_per_s"]
    assert used["tensors"] > 0.1 * own(used), "the model learns"


@pytest.mark.slow
def test_a3c_is_measured_beside_the_service() -> None:
    light = ["--game", "CartPole-v1", "--algorithm", "a3c", "--networks", "mlp"]
    given = ["--repeats", "1", "--seconds", "1", "--envs-per-agent", "8", "--json"]
    (row,) = measured("a3c", *light, *given)["networks"]
    assert row["network"] == "mlp"
    assert row["speedup"] == pytest.approx(row["ga3c"]["median"] / row["a3c"]["median"])


@pytest.mark.slow
def test_train_steps_are_compared_by_the_place_of_the_replay(tmp_path: Path) -> None:
    small = ["--batches", "8", "--vector-steps", "4000", "--picture-steps", "4000"]
    small += ["--update-sizes", "100", "200", "--sizes", "5000", "--fanouts", "8", "64"]
    measures = ["--repeats", "1", "--part-seconds", "0.1", "--picture", str(tmp_path / "a.png")]
    result = measured("replay", *small, *measures, "--json")
    for name in ("vectors", "pictures"):
        (row,) = result[name]
        ram, device = row["ram_us"]["median"], row["device_us"]["median"]
        assert row["percent_speedup"]["median"] == pytest.approx(100 * (ram / device - 1), abs=0.1)
    assert [row["update_size"] for row in result["adding"]] == [100, 200]
    assert {row["place"] for row in result["parts"]} == {"RAM", "device"}
    assert all(row["stated_mb"] > 5000 * 36 / 1e6 for row in result["parts"])
    assert {row["fanout"] for row in result["trees"]} == {8, 64}
    assert (tmp_path / "a.png").stat().st_size > 0


@pytest.mark.slow
def test_fast_dqns_ideas_are_measured_on_and_off(tmp_path: Path) -> None:
    arguments = ["fast-dqn", "--out-dir", str(tmp_path), "--seconds", "2", "--samplers", "1"]
    result = measured(*arguments, "--period-steps", "20", "--json")
    assert [point["part"] for point in result["points"]] == ["standard", "concurrent"]
    for point in result["points"]:
        assert point["figures"]["prediction_batch"] == 1
        trained, played = (point["figures"][n] for n in ("trained_samples_per_s", "pps"))
        assert trained == pytest.approx(32 / 4 * played, rel=0.5)
    assert (tmp_path / "fast-dqn.png").stat().st_size > 0


@pytest.mark.slow
def test_agents_on_another_machine_wait_for_the_round_trip(tmp_path: Path) -> None:
    given: dict[str, Any] = {"game": "CartPole-v1", "seconds": 1.0, "agents": 1, "envs": 4}
    with socket.socket() as kept:
        given["port"] = reserved(kept)[1]
        config = machines.Config(tmp_path, **given, round_trips_ms=(100.0,), groups=(1,))
        *near, far = machines.points(config)
        assert [point.part for point in near] == [*machines.LOCAL, *machines.FAR]
        around = partial(machines.far_away, config)
        ((_, figures),) = measure([far], config.game, config.seconds, tmp_path, around)
    most = 4 / 0.1 + 4  # a step per round trip, and one more at the edges of the second
    assert 0 < figures["pps"] <= most, "a group of 4 waits for its answer all the while"
    assert figures["core_seconds_per_s"]["environment"] == 0.0, "nothing is played here"


LEARN = """
import time
from agents.environments import spaces
from benchmarks.a3c import Baseline
from ga3c.settings.train import TrainConfig
from ga3c.command.parse import parse

if __name__ == "__main__":  # the agents' processes import this file as well
    options = ["--algorithm", "a3c", "--game", "tests.tiny:Corridor-v0", "--t-max", "5"]
    options += ["--learning-rate", "1e-3", "--entropy-weight", "0.05"]
    config = parse(options, TrainConfig, "test")
    baseline = Baseline(config, spaces(config.environment), 2)
    with baseline.playing():
        until_s = time.monotonic() + 300
        while time.monotonic() < until_s and not all(s >= 0.9 for s in baseline.shared.scores):
            time.sleep(0.1)
    print(*baseline.shared.scores)
"""


@pytest.mark.slow
def test_the_baseline_learns(tmp_path: Path) -> None:
    """A3C's agents share what each of them learns, so all of them reach the best score.

    Updates take no lock, so no two runs are the same. With a learning rate of 3e-3 and an entropy
    weight of 0.01, one run in twenty walked back and forth in the middle forever, which scores 0.
    """
    script = tmp_path / "learn.py"
    script.write_text(LEARN)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert all(float(score) >= 0.9 for score in done.stdout.split()), done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["without a name", "limits", "throughput"]),
        (["speed"], ["speed", "limits", "throughput"]),
        (["limits", "--repeats", "0"], ["repeats 0", "nothing is measured"]),
        (["limits", "--env-counts", "0"], ["env_counts (0,)", "at least 1"]),
        (
            ["limits", "--part-seconds", "0.05"],
            ["part_seconds 0.05", "at least 0.1", "a call or two"],
        ),
        (["throughput", "--seconds", "0.5"], ["seconds 0.5: must be at least 1", "every 0.1 s"]),
        (["a3c", "--seconds", "0.9"], ["seconds 0.9: must be at least 1"]),
        (["lanes", "--seconds", "1e-3"], ["seconds 0.001: must be at least 1"]),
        (["watching", "--seconds", "0.5"], ["seconds 0.5: must be at least 1"]),
        (["sweep", "--out-dir", "x", "--seconds", "0.5"], ["seconds 0.5: must be at least 1"]),
        (["ablation", "--out-dir", "x", "--seconds", "0"], ["seconds 0: must be at least 1"]),
        (["fast-dqn", "--out-dir", "x", "--seconds", "-1"], ["seconds -1: must be at least 1"]),
        (["tuning", "--out-dir", "x", "--seconds", "2"], ["seconds 2: must be at least 3"]),
        (["tuning", "--out-dir", "x", "--turn-seconds", "0.2"], ["turn_seconds 0.2", "at least 1"]),
        (["peers", "--out-dir", "x", "--minutes", "0.01"], ["minutes 0.01", "at least 0.017"]),
        (["peers", "--out-dir", "x", "--ours", "", "--t-max 8 --seed 3"], ["--seed is set by"]),
        (["replay", "--part-seconds", "0.01"], ["part_seconds 0.01: must be at least 0.1"]),
        (["throughput", "--out", "/nowhere/at/all.json"], ["/nowhere/at/all.json", "directory"]),
        (["throughput", "--game", "Pnog"], ["Pnog", "Pong"]),
        (["throughput", "--game", "CartPole-v1", "--network", "small"], ["small", "vectors"]),
        (["sweep", "--game", "Pong"], ["out-dir"]),
        (["sweep", "--out-dir", "x", "--networks", "huge"], ["huge", "small", "large-1"]),
        (["ablation", "--out-dir", "x", "--env-counts", "3"], ["env_counts (3,)", "even"]),
        (["a3c", "--networks", "huge"], ["huge", "small", "large-1"]),
        (["lanes", "--lanes", "0"], ["lanes (0,)", "at least 1"]),
        (["lanes", "--algorithm", "dqn"], ["algorithm dqn", "must be a3c"]),
        (["a3c", "--game", "CartPole-v1", "--algorithm", "a3c"], ["small", "vectors"]),
        (["a3c", "--algorithm", "dqn"], ["algorithm dqn", "must be a3c"]),
        (["replay", "--batches", "0"], ["batches (0,)", "at least 1"]),
        (["replay", "--vector-steps", "100"], ["a replay of 100 steps", "at least 1000"]),
        (
            ["gpu-check", "--out-dir", "x", "--time-factor", "0"],
            ["time_factor 0.0", "at least 0.5"],
        ),
        (["fast-dqn", "--out-dir", "x", "--samplers", "0"], ["samplers (0,)", "at least 1"]),
        (["fast-dqn", "--out-dir", "x", "--period-steps", "0"], ["period_steps 0", "at least 1"]),
        (["fast-dqn", "--out-dir", "x", "--intra-op-threads", "0"], ["intra_op_threads 0"]),
        (["machines", "--out-dir", "x", "--agents", "0"], ["agents 0: must be at least 1"]),
        (["machines", "--out-dir", "x", "--envs", "0"], ["envs 0: must be at least 1"]),
        (["machines", "--out-dir", "x", "--port", "99999"], ["port 99999", "65535"]),
        (["machines", "--out-dir", "x", "--groups"], ["groups: must name", "nothing is measured"]),
        (["replay", "--picture", "/nowhere/at/all.png"], ["/nowhere/at/all.png", "directory"]),
        (["replay", "--picture", "a.xyz"], ["picture a.xyz: must end in .png"]),
    ],
)
def test_wrong_use_is_refused_in_one_line(arguments: list[str], words: list[str]) -> None:
    line = refused("benchmark", *arguments)
    assert all(word in line for word in words), line
    assert not (ROOT / "x").exists(), "something was begun"


def test_the_doctor_refuses_a_window_that_is_too_short() -> None:
    assert "seconds 0.5: must be at least 1" in refused("doctor", "--seconds", "0.5")


def test_a_replay_that_does_not_fit_is_refused_in_one_line_with_code_2() -> None:
    """Not by `refused`: the command starts a process, to find out how much memory is free."""
    done = ended("benchmark", "replay", "--picture-steps", "900000000")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "GB" in line and "that are free" in line


def unlisted() -> set[str]:
    """Modules installed here that numpy, a framework and gpu-check.txt do not bring along."""
    listed = set(read_pins("gpu-check.txt"))
    todo = ["numpy", "jax", "tensorflow-cpu", "tensorflow"]
    while todo:
        listed.add(name := canonicalize_name(todo.pop()))
        with contextlib.suppress(PackageNotFoundError):  # this framework is not installed
            todo += [n.name for n in needs(name) if canonicalize_name(n.name) not in listed]
    return {
        module
        for module, packages in packages_distributions().items()
        if not listed & {canonicalize_name(each) for each in packages} and module.isidentifier()
    } - {"ga3c", "agents", "benchmarks", "tests"}


@pytest.mark.slow
def test_the_gpu_check_runs_on_its_listed_packages_and_keeps_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check's processes cannot import packages that are not in requirements/gpu-check.txt."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({sorted(unlisted())}))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = ended(
        "benchmark",
        "gpu-check",
        "--quick",
        "--parts",
        "tables",
        "limits",
        "pong",
        "--time-factor",
        "2",
        "--out-dir",
        str(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "gpu-check.json").read_text())
    assert found["limits"]["limit_pps"] > 0
    assert found["tables"]["rows"] > 10_000
    assert not found["tables"]["wrong"]
    assert found["pong"]["steps"] > 0
    assert "age" in found["tables"]["devices"]["a3c small"]
    assert found["device"].startswith("no GPU" if found["machine"]["gpu"] is None else "GPU")
    assert json.loads((tmp_path / "limits.json").read_text()) == found["limits"]


def test_a_check_of_one_part_keeps_the_others_and_says_where_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "_device", lambda: "GPU")
    monkeypatch.setitem(gpu_check.PARTS, "pong", lambda config, limit_s: {"seconds": 77.0})

    def fails(limit_s: float, *arguments: str) -> dict[str, Any]:
        if "small" in arguments:
            raise RuntimeError("no memory")
        return dict.fromkeys(gpu_check.FIGURES, 1.0)

    monkeypatch.setattr(gpu_check, "_ga3c", fails)
    assert gpu_check.run(gpu_check.Config(tmp_path, parts=("throughput",))) == 1
    said = capsys.readouterr().out
    assert "agents, small: no memory\n" in said and "points failed after" in said
    assert gpu_check.run(gpu_check.Config(tmp_path, parts=("pong",))) == 0
    found = json.loads((tmp_path / "gpu-check.json").read_text())
    assert found["throughput"]["points"][-1]["pps"] == 1.0, "still there"
    pong = json.loads((tmp_path / "pong.json").read_text())
    assert pong == found["pong"] and pong["seconds"] == 77.0 and pong["wall_s"] < 77.0
    assert pong["machine"] == found["machine"] and pong["device"] == "GPU"


def test_a_closed_terminal_ends_a_study_and_all_that_it_started(
    command: Callable[..., Command], tmp_path: Path
) -> None:
    study = command("benchmark", "ablation", "--out-dir", str(tmp_path / "out"), "--agents", "1")
    study.until(lambda: len(study.agents()) > 0)
    os.killpg(study.process.pid, signal.SIGHUP)
    assert study.wait(BEGIN_S) == 130
    assert_nothing_is_left(study)
    assert "Traceback" not in study.err


@pytest.mark.slow
def test_ctrl_c_ends_a_part_of_the_replay_s_study_at_once(command: Callable[..., Command]) -> None:
    endless = ["--repeats", "1000", "--vector-steps", "1000", "--picture-steps", "1000"]
    study = command("benchmark", "replay", *endless, fresh=True)
    study.until(lambda: len(study.agents()) > 1)  # multiprocessing's server imports the framework
    study.interrupt()
    assert study.wait(STOP_S) == 130
    assert "Traceback" not in study.err
    study = command("benchmark", "replay", *endless)

    def measures() -> bool:
        """Whether a child of multiprocessing's server has computed something."""
        ours = {process.pid: process for process in study.agents()}
        with contextlib.suppress(psutil.Error):
            return any(p.ppid() in ours and p.cpu_times().user > 1.0 for p in ours.values())
        return False

    study.until(measures)
    study.interrupt()
    assert study.wait(STOP_S) == 130
    wait_for(lambda: not study.survivors(), STOP_S)
    assert "Traceback" not in study.err


def test_work_in_a_process_of_its_own_ends_with_a_parent_that_is_killed() -> None:
    program = "import time; from benchmarks.own_process import in_own_process as run; "
    program += "print('begun', flush=True); run(1, time.sleep, 600.0)"
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)

    def works() -> bool:
        return any(each.children() for each in psutil.Process(parent.pid).children())

    wait_for(works, BEGIN_S)
    started = psutil.Process(parent.pid).children(recursive=True)
    parent.kill()
    parent.communicate()
    _, alive = psutil.wait_procs(started, STOP_S)
    assert not alive


def test_points_are_reused_only_where_all_that_they_depend_on_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {**machine(), "git": "1234567"}
    monkeypatch.setattr(kept, "machine", lambda: known)
    monkeypatch.setattr(kept, "sees_gpu", lambda: False)
    sources = tmp_path / "sources"
    (sources / "agents").mkdir(parents=True)
    monkeypatch.setattr(kept, "ROOT", sources)

    def key() -> str:
        return Memo(tmp_path / "points.jsonl", "figures").key("a point")

    keys = [key()]
    (sources / "agents" / "worker.py").write_text("edited")
    assert key() == keys[0], "the revision says it"
    for name, value in (("python", "3.99"), ("ale-py", "9"), ("git", "1234567-dirty")):
        known[name] = value
        keys += [key()]
        assert key() == keys[-1], "an interrupted study goes on"
    (sources / "agents" / "worker.py").write_text("edited again")
    keys += [key()]
    known["git"] = None
    keys += [key()]
    (sources / "agents" / "worker.py").write_text("another version")
    keys += [key()]
    monkeypatch.setattr(kept, "sees_gpu", lambda: True)
    keys += [key()]
    assert len(set(keys)) == len(keys) == 8


def test_damaged_lines_are_no_results_and_old_ones_are_still_read(tmp_path: Path) -> None:
    old = ROOT / "benchmarks" / "results" / "fast-dqn" / "points.jsonl"
    damaged = ["{}", '{"key": "a"}', '{"figures": {}}', '{"key": ["a"], "figures": {}}', "[1]"]
    damaged += ['{"key": "b", "figures": 3}', '{"key": "c", "fig']
    (tmp_path / "points.jsonl").write_text("\n".join(damaged) + "\n" + old.read_text())
    found = Memo(tmp_path / "points.jsonl", "figures")
    assert found.keys() == Memo(old, "figures").keys() and len(found) > 10


def test_points_of_several_days_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days = ("2026-11-27", "2026-11-28")
    measured = [(Point(day, {}), {"pps": 1.0, "machine": {"date": day}}) for day in days]
    conclude("points", measured, PointsConfig(tmp_path))
    assert "measured on several days: 2026-11-27, 2026-11-28\n" in capsys.readouterr().out
    points = json.loads((tmp_path / "points.json").read_text())["points"]
    assert [point["figures"]["machine"]["date"] for point in points] == list(days)


def test_a_result_that_cannot_be_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    write_json(out, {"pps": 1.0})
    largest = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, largest[1]))  # as on a full disk
        with pytest.raises(OSError):
            write_json(out, {"pps": 2.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, largest)
        signal.signal(signal.SIGXFSZ, before)
    assert json.loads(out.read_text()) == {"pps": 1.0}
    assert list(tmp_path.iterdir()) == [out]
    write_json(Path(os.devnull), {"pps": 2.0})
    assert not Path(os.devnull).is_file(), "a device is not replaced by a file"


def test_a_run_of_tuning_replaces_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def train(command: list[str], timeout_s: float) -> str:
        trained.append(command[command.index("--name") + 1])
        (tmp_path / trained[-1] / "checkpoints").mkdir(parents=True)
        if len(trained) == 2:
            raise RuntimeError("it failed")
        line = {"seconds": 1.0, "tps": 1.0, "agents": 1, "predictors": 1, "trainers": 1}
        (tmp_path / trained[-1] / "metrics.jsonl").write_text(json.dumps(line) + "\n")
        return ""

    def learned(seconds: float) -> dict[str, Any]:
        return tuning._train(tuning.Config(tmp_path, seconds=seconds), "Pong", "fixed")

    monkeypatch.setattr(tuning, "said_by", train)
    (tmp_path / "Pong-fixed").mkdir()  # of an earlier version, or of somebody else
    first = learned(60.0)
    with pytest.raises(RuntimeError, match="it failed"):
        learned(90.0)
    assert learned(60.0) == first and len(trained) == 2, "it is kept"
    assert learned(90.0) == first and trained[1] == trained[2]
    whole = {name.removesuffix("-unfinished") for name in trained}
    assert {path.name for path in tmp_path.iterdir()} == {"Pong-fixed", *whole}
    (tmp_path / trained[0].removesuffix("-unfinished") / "arguments.json").write_text('["cut')
    with pytest.raises(WrongInput, match=r"has no arguments.json of this run, .* move it away"):
        learned(60.0)
    assert len(trained) == 3


def test_quick_studies_measure_the_points_that_are_asked_for(tmp_path: Path) -> None:
    def envs(*counts: int) -> list[str]:
        given = {"env_counts": counts} if counts else {}
        points = ablation._points(ablation.Config(tmp_path, quick=True, **given))
        return list(dict.fromkeys(point.options["envs-per-agent"] for point in points))

    assert envs() == ["1", "4", "16"]
    assert envs(4) == ["1", "4"]
    assert machines.Config(tmp_path, quick=True).far == [(5.0, 2), (5.0, 8)]
    asked = machines.Config(tmp_path, quick=True, groups=(4,), round_trips_ms=(1.0, 2.0))
    assert asked.far == [(1.0, 4), (2.0, 4)]


def test_a_command_that_takes_too_long_leaves_no_process_of_its_own() -> None:
    mark = f"child-of-the-test-{os.getpid()}"
    child = f"import time; time.sleep(60)  # {mark}"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with pytest.raises(RuntimeError, match="not done after 2 s"):
        said_by([sys.executable, "-c", program], 2.0)
    until_s = time.monotonic() + 5.0
    while left := [p for p in psutil.process_iter(["cmdline"]) if mark in str(p.info["cmdline"])]:
        assert time.monotonic() < until_s, left
        time.sleep(0.05)


def test_the_readme_s_table_is_what_the_kept_results_say() -> None:
    kept = table(ROOT / "benchmarks" / "results" / "speed")
    assert kept in (ROOT / "README.md").read_text()
    assert "share of all cores' time" in kept


def test_a_table_of_results_from_two_revisions_is_refused(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "benchmarks" / "results" / "speed", tmp_path, dirs_exist_ok=True)
    other = json.loads((tmp_path / "lanes.json").read_text())
    other["machine"]["git"] = "1234567"
    (tmp_path / "lanes.json").write_text(json.dumps(other))
    with pytest.raises(ValueError, match=r"git: .*1234567"):
        table(tmp_path)


def test_usage_tells_this_process_from_others() -> None:
    before = usage([])
    until_s = time.monotonic() + 0.5
    worker = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        while time.monotonic() < until_s:
            sum(range(1000))
    finally:
        worker.kill()
        worker.wait()
    used = usage([]).since(before)
    assert 0 < used["service_python"] <= 0.6
    assert used["other_processes"] > 0.2


def test_what_an_environment_starts_counts_as_the_environment() -> None:
    program = "import subprocess, sys, time; {}time.sleep(60)"
    simulator = "while True: pass"
    begin = f"subprocess.Popen([sys.executable, '-c', '{simulator}']); "
    agent = subprocess.Popen([sys.executable, "-c", program.format(begin)], start_new_session=True)
    try:
        wait_for(lambda: len(families([agent.pid])[agent.pid]) == 2, 60.0)
        before, alone = usage([agent.pid]), usage([])
        time.sleep(1.0)
        used, unknown = usage([agent.pid]).since(before), usage([]).since(alone)
        assert used["environment"] > 0.1
        assert used["other_processes"] < unknown["other_processes"]
        _, simulator_pid = families([agent.pid])[agent.pid]
        assert resident_mb(simulator_pid) > 1.0
    finally:
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()
    assert resident_mb(agent.pid) == 0.0


def test_an_agent_that_is_replaced_takes_nothing_from_the_account() -> None:
    """It had used 40 s before the window, and its successor 6 s in it."""
    before = Usage({1: ("environment", 40.0), 2: ("wire", 1.0)}, 100.0, 0.0, 0.0)
    after = Usage({2: ("wire", 2.0), 3: ("environment", 6.0)}, 107.0, 7.0, 14.0 / CORES)
    used = after.since(before)
    assert (used["environment"], used["wire"], used["other_processes"]) == (6.0, 1.0, 0.0)
    assert used["idle"] == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("busy", "idle", "others", "left"),
    [(6.0, 4.0, 2.0, 4.0), (16.0, 4.0, 2.0, 4.0), (11.0, -1.0, 6.0, 0.0), (14.0, 6.0, 0.0, 6.0)],
)
def test_the_account_covers_the_cores_that_count(
    busy: float, idle: float, others: float, left: float
) -> None:
    """The kernel's times may be of more cores (GA3C_CORES), or of fractions of one (containers)."""
    ours = 10.0 * CORES - 6.0
    before = Usage({1: ("environment", 0.0)}, 0.0, 0.0, 0.0)
    after = Usage({1: ("environment", ours)}, busy - 4.0 + ours, idle, 10.0)
    used = after.since(before)
    assert used["idle"] == left
    assert used["other_processes"] == pytest.approx(others)


def test_a_spread_is_the_median_and_the_range() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert str(Spread(2000.0, 1000.0, 3000.0)) == "2,000 (1,000 to 3,000)"
    assert str(Spread(985.2, 984.9, 985.4)) == "985", "a range that shows no difference is left out"
    assert with_range(0.5, 0.25, 0.5, ".0%") == "50% (25% to 50%)"
    assert plain({"a": [Spread(2.0, 1.0, 3.0)], 1: Path("x")}) == {
        "a": [{"median": 2.0, "low": 1.0, "high": 3.0}],
        "1": "x",
    }


def test_a_nan_fails_the_comparison() -> None:
    one = {"loss": np.ones(3), "weights": np.ones(3)}
    assert (
        compared(one, {name: values * (1 + 1e-6) for name, values in one.items()})["compared"] == 2
    )
    for name in one:
        with pytest.raises(RuntimeError, match=f"{name} differs by nan"):
            compared(one, {**one, name: np.array([1.0, np.nan, 1.0])})
