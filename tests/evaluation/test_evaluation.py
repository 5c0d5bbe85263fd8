"""Evaluation plays whole games by a protocol, and records all its settings with the score."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import ga3c
from agents.actions import Actions
from agents.environments import EnvironmentConfig, Environments, Spaces, spaces
from ga3c.command.parse import parse
from ga3c.evaluation.evaluate import scores
from ga3c.evaluation.evaluator import Evaluator
from ga3c.evaluation.games import Game, choose, evaluate, record
from ga3c.evaluation.options import EvaluateConfig, PlayConfig
from ga3c.evaluation.policy import Policy
from ga3c.evaluation.protocols import PROTOCOLS, Protocol, evaluations
from ga3c.learning import weights
from ga3c.runs import checkpoints, records
from ga3c.runs.finding import PRETRAINED
from ga3c.settings.presets import PRESETS
from ga3c.settings.run import EvaluationConfig
from ga3c.settings.train import TrainConfig
from ga3c.training.evaluating import Evaluations
from tests.commands import BEGIN_S, CORRIDOR, LIGHT, STOP_S, Command, ended, refused
from tests.published_facts import PROTOCOL_FACTS
from tests.tiny import CORRIDOR_LENGTH, ledger_end

PROBABILITIES = np.array([0.1, 0.6, 0.3])
DRAWS = 20_000


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (Protocol("sample"), PROBABILITIES),
        (Protocol("greedy"), [0, 1, 0]),
        (Protocol("epsilon", epsilon=0.3), [0.1, 0.8, 0.1]),
    ],
    ids=["sample", "greedy", "epsilon"],
)
def test_action_frequencies_follow_the_protocol(protocol: Protocol, expected: list[float]) -> None:
    given = np.tile(PROBABILITIES.astype(np.float32), (DRAWS, 1))
    actions = choose(protocol, given, np.random.default_rng(0).random((DRAWS, 2)))
    assert actions.dtype == np.int32
    shares = np.bincount(actions, minlength=3) / DRAWS
    np.testing.assert_allclose(shares, expected, atol=4 * 0.5 / DRAWS**0.5)


def test_a_protocol_overrides_the_environments_settings() -> None:
    trained = EnvironmentConfig(game="Breakout", action_repeat=3, noop_max=30)
    played = PROTOCOLS["paper"].environment(trained)
    assert (played.sticky_actions, played.frame_cap) == (0.25, 400_000)
    assert not played.life_loss_terminates
    assert (played.game, played.action_repeat) == ("Breakout", 3)


def test_protocol_trained_keeps_the_settings_of_training() -> None:
    for given, noop_max, sticky in (
        ({"game": "Breakout"}, 30, 0.0),
        ({"game": "ALE/Breakout-v5"}, 30, 0.25),
        ({"game": "Breakout", "sticky_actions": 0.1, "noop_max": 5}, 5, 0.1),
    ):
        trained = EnvironmentConfig(**given, frame_cap=18_000)
        played = PROTOCOLS["trained"].environment(trained)
        assert (played.noop_max, played.stickiness, played.frame_cap) == (noop_max, sticky, 18_000)
        assert not played.life_loss_terminates
        named = PROTOCOLS["trained"].named("trained", trained, "newest")
        assert (named["noop_max"], named["sticky_actions"]) == (noop_max, sticky)
        other = replace(PROTOCOLS["trained"], sticky_actions=0.25)
        assert other.named("trained", trained, "newest")["name"] == "trained, changed"


def test_settings_that_are_given_change_the_runs_own_protocol() -> None:
    """A setting that is given applies even if its value is the default of the option."""
    trained = TrainConfig(evaluation=EvaluationConfig(evaluate_protocol="nature"))
    shapes = Spaces((84, 84), "uint8", Actions(6), 4)
    given = ["--policy", "sample", "--frame-cap=108000", "--step_cap", "7"]
    for arguments, expected in (
        ([], PROTOCOLS["nature"]),
        (
            given,
            replace(PROTOCOLS["nature"], policy="sample", frame_cap=108_000, step_cap=7),
        ),
        (
            ["--sticky-actions", "None"],
            replace(PROTOCOLS["nature"], sticky_actions=None),
        ),
        (["--protocol=paper"], PROTOCOLS["paper"]),
        (
            ["--protocol", "paper", *given],
            replace(PROTOCOLS["paper"], policy="sample", frame_cap=108_000, step_cap=7),
        ),
    ):
        config = parse(arguments, PlayConfig, "ga3c play", base=PlayConfig.defaults(arguments))
        assert config.played_by(trained, shapes)[1] == expected


@pytest.mark.parametrize("name", [*PROTOCOLS])
def test_a_published_protocol_has_every_published_value(name: str) -> None:
    facts = PROTOCOL_FACTS.get(name, [("policy", "sample", "ours")])
    given = {setting: value for setting, value, _ in facts}
    expected = {**asdict(Protocol()), **given}  # the others do not matter, or are as in training
    assert asdict(PROTOCOLS[name]) == expected


def test_every_setting_of_a_protocol_is_named() -> None:
    trained = EnvironmentConfig(game="Pong")
    named = PROTOCOLS["nature"].named("nature", trained, "newest")
    assert {field.name for field in fields(Protocol)} < set(named)
    assert named["name"] == "nature"
    assert named["action_set"] == "minimal"
    changed = replace(PROTOCOLS["nature"], epsilon=0.01)
    assert changed.named("nature", trained, "newest")["name"] == "nature, changed"
    of_another = changed.named("nature", EnvironmentConfig(game="CartPole-v1"), "best")
    assert "noop_max" not in of_another
    assert of_another["epsilon"] == changed.epsilon, "scores of two epsilons are two columns"


def test_other_environment_arguments_make_another_protocol() -> None:
    """Scores of games with other arguments share no table column, nor compete for the best one."""
    games = [EnvironmentConfig("FrozenLake-v1", args) for args in ((), ("map_name=8x8",))]
    plain, larger = (PROTOCOLS["trained"].named("trained", each, "newest") for each in games)
    assert plain != larger == {**plain, "env_args": "map_name='8x8'"}


def test_the_same_environment_arguments_in_other_words_make_the_same_protocol(
    tmp_path: Path,
) -> None:
    """Also in evaluations.jsonl, where earlier versions kept them as they were given."""
    kept = tmp_path / "evaluations.jsonl"
    for given in (("map_name='8x8'", "is_slippery=False"), ("is_slippery=False", "map_name=8x8")):
        environment = EnvironmentConfig("FrozenLake-v1", given)
        named = PROTOCOLS["trained"].named("trained", environment, "newest")
        for env_args in (named["env_args"], " ".join(given)):
            records.append(kept, {"steps": 1, "protocol": {**named, "env_args": env_args}})
    protocols = [json.dumps(entry["protocol"]) for entry in evaluations(tmp_path)]
    assert protocols == [json.dumps(named)] * 4
    records.append(kept, {"steps": 1, "protocol": {**named, "env_args": "is_slippery=false"}})
    assert evaluations(tmp_path)[-1]["protocol"]["env_args"] == "is_slippery=false", "it stays"


def test_a_policy_without_probabilities_is_kept_as_greedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With or without `--policy greedy`, in the run and after it, these are the same games."""
    config = replace(PRESETS["dqn-vectors"], environment=EnvironmentConfig("CartPole-v1"))
    config = replace(config, evaluation=EvaluationConfig(1000, evaluate_episodes=1))
    evaluator = Evaluator(config, spaces(config.environment), 0)
    read = weights.read({"weights": evaluator._policy.network.weights})
    checkpoint = checkpoints.Checkpoint(tmp_path, {"steps": 0}, read)
    monkeypatch.setattr(
        "ga3c.evaluation.chosen.load", lambda wanted: (config, tmp_path, checkpoint)
    )
    entries = [
        scores(EvaluateConfig(episodes=1, settings=Protocol(policy), given=given))
        for policy, given in (("sample", ()), ("greedy", ("policy",)))
    ]
    assert entries[0]["scores"] == entries[1]["scores"]
    in_the_run = evaluator._play(0)
    assert in_the_run is not None
    protocols = [entry["protocol"] for entry in (*entries, in_the_run)]
    assert protocols == [{**protocols[0], "name": "trained", "policy": "greedy"}] * 3
    nature = PROTOCOLS["nature"].named("nature", config.environment, "newest", is_greedy=True)
    assert (nature["name"], nature["policy"]) == ("nature", "epsilon")

    earlier = {"steps": 1, "protocol": {**protocols[0], "policy": "sample"}}
    (tmp_path / "evaluations.jsonl").write_text(json.dumps(earlier) + "\n")
    for algorithm, policy in (("dqn", "greedy"), ("a3c", "sample")):
        (tmp_path / "config.json").write_text(json.dumps({"algorithm": algorithm}))
        assert evaluations(tmp_path)[0]["protocol"] == {**protocols[0], "policy": policy}


def policy_for(environment: EnvironmentConfig) -> Policy:
    keras.utils.set_random_seed(0)  # for the initial weights
    return Policy(TrainConfig(environment=environment), spaces(environment))


def recorded(games: list[Game]) -> dict[str, Any]:
    return record(games, steps=0, protocol={}, seed=0, at_once=1, seconds=1.0)


def test_each_lane_plays_its_first_game_to_the_end_however_long() -> None:
    """Taking the first games to end would favour short ones. Here, the number of an environment
    determines the length of its game."""
    environment = EnvironmentConfig(game="tests.tiny:Ledger-v0")
    policy, protocol = policy_for(environment), Protocol("sample")
    games = evaluate(policy, environment, protocol, episodes=16, at_once=16, seed=3)
    twin = Environments(environment, 16)
    numbers = twin.reset(3).frames[:, 0].astype(int)
    twin.close()
    expected = [next(s for s in range(1, 13) if any(ledger_end(n, 1, s))) for n in numbers]
    assert [game.length for game in games] == expected
    assert len(set(expected)) > 5


def test_the_success_rate_is_of_the_games_that_report_it() -> None:
    environment = EnvironmentConfig(game="tests.tiny:Corridor-v0")
    games = evaluate(
        policy_for(environment), environment, Protocol("sample"), episodes=40, at_once=20, seed=0
    )
    won = [float(game.score > 0) for game in games]
    assert [game.success for game in games] == won
    assert 0 < sum(won) < 40
    assert recorded(games)["success_rate"] == pytest.approx(sum(won) / 40)
    silent = EnvironmentConfig(game="CartPole-v1")
    games = evaluate(policy_for(silent), silent, Protocol("sample"), episodes=3, at_once=3, seed=0)
    assert recorded(games)["success_rate"] is None


def test_a_cut_game_counts_with_what_its_last_step_reports() -> None:
    """Otherwise, a success rate would leave out the games that do not reach the goal in time."""
    environment = EnvironmentConfig(game="tests.tiny:Corridor-v0", info_keys=("position",))
    protocol = Protocol("sample", step_cap=4)  # a game takes three steps, or five, or more
    games = evaluate(
        policy_for(environment), environment, protocol, episodes=20, at_once=10, seed=0
    )
    goal = CORRIDOR_LENGTH - 1
    positions = [dict(game.infos)["position"] for game in games]
    assert [game.cut for game in games] == [0 < position < goal for position in positions]
    assert [game.success for game in games] == [position == goal for position in positions]
    entry = recorded(games)
    assert 0 < entry["games_cut"] < 20
    assert entry["success_rate"] == sum(game.score > 0 for game in games) / 20
    assert entry["infos"]["position"] == pytest.approx(sum(positions) / 20)


def test_means_of_infos_are_over_the_games_that_report_them() -> None:
    keys = ("position", "lost")
    environment = EnvironmentConfig(game="tests.tiny:Corridor-v0", info_keys=keys)
    games = evaluate(
        policy_for(environment), environment, Protocol("sample"), episodes=20, at_once=10, seed=0
    )
    right = sum(game.score > 0 for game in games)
    kept = recorded(games)["infos"]
    assert kept["position"] == pytest.approx(right / 20 * (CORRIDOR_LENGTH - 1))
    assert kept["lost"] is None


def test_the_seed_determines_the_games_and_as_many_are_played_as_asked_for() -> None:
    environment = EnvironmentConfig(game="CartPole-v1")
    policy, protocol = policy_for(environment), Protocol("sample")
    one, same, other = (
        evaluate(policy, environment, protocol, episodes=7, at_once=3, seed=seed)
        for seed in (1, 1, 2)
    )
    assert len(one) == len(other) == 7
    assert one == same
    assert one != other


@pytest.mark.parametrize("game", ["CartPole-v1", "ALE/Breakout-v5"])
@pytest.mark.parametrize("protocol", [Protocol("sample"), Protocol("epsilon", epsilon=0.5)])
def test_games_are_the_same_however_many_are_played_at_once(game: str, protocol: Protocol) -> None:
    environment = EnvironmentConfig(game=game, noop_max=30, sticky_actions=0.25)
    policy = policy_for(environment)
    protocol = replace(protocol, noop_max=30, sticky_actions=0.25, step_cap=250)
    alone, some, all_of_them = (
        evaluate(policy, environment, protocol, episodes=5, at_once=at_once, seed=4)
        for at_once in (1, 2, 5)
    )
    assert alone == some == all_of_them
    assert len(set(alone)) > 2


@pytest.mark.parametrize("episodes", [1, 3])
def test_a_game_without_an_end_is_cut_and_counts_with_its_score_so_far(episodes: int) -> None:
    environment = EnvironmentConfig(game="tests.unruly:Endless-v0")
    protocol = Protocol("sample", step_cap=40)
    games = evaluate(
        policy_for(environment), environment, protocol, episodes=episodes, at_once=2, seed=0
    )
    assert games == [Game(score=40 * 0.5, length=40, cut=True)] * episodes


def test_a_game_that_the_emulators_frame_cap_ends_is_cut() -> None:
    environment = EnvironmentConfig(game="Pong")
    protocol = Protocol("sample", noop_max=0, frame_cap=200)
    (game,) = evaluate(
        policy_for(environment), environment, protocol, episodes=1, at_once=1, seed=0
    )
    assert game == Game(score=game.score, length=50, cut=True)


def test_the_watch_callback_sees_each_step_and_the_finished_games_and_may_stop() -> None:
    environment = EnvironmentConfig(game="tests.tiny:Ledger-v0")
    policy, protocol = policy_for(environment), Protocol("sample")
    seen: list[tuple[int, list[Game]]] = []

    def watch(steps: int, ended: Collection[Game]) -> bool:
        seen.append((steps, sorted(ended)))
        return len(seen) < limit

    limit = 1000
    games = evaluate(policy, environment, protocol, episodes=12, at_once=8, seed=3, watch=watch)
    first, second = games[:8], games[8:]
    expected = [
        (steps, sorted([*before, *(game for game in of_round if game.length <= steps)]))
        for before, of_round in (([], first), (first, second))
        for steps in range(max(game.length for game in of_round))
    ]
    assert seen == expected
    limit, whole = 3, len(seen)
    seen.clear()
    stopped = evaluate(policy, environment, protocol, episodes=12, at_once=8, seed=3, watch=watch)
    assert stopped == [game for game in first if game.length < 3]
    assert len(seen) == 3 < whole


def test_a_game_that_ends_with_its_last_step_is_not_cut() -> None:
    environment = EnvironmentConfig(game="CartPole-v1")
    policy = policy_for(environment)
    (whole,) = evaluate(policy, environment, Protocol("sample"), episodes=1, at_once=1, seed=0)
    at_its_end, before = (
        evaluate(
            policy, environment, Protocol("sample", step_cap=cap), episodes=1, at_once=1, seed=0
        )
        for cap in (whole.length, whole.length - 1)
    )
    assert at_its_end == [whole]
    assert before == [Game(whole.score - 1, whole.length - 1, cut=True)]


def test_a_nan_reward_is_an_error() -> None:
    environment = EnvironmentConfig(game="tests.unruly:Nameless-v0")
    with pytest.raises(RuntimeError, match="reward of environment 0 is nan"):
        evaluate(
            policy_for(environment), environment, Protocol("sample"), episodes=1, at_once=1, seed=0
        )


def test_evaluations_from_before_the_step_cap_have_the_same_protocol(tmp_path: Path) -> None:
    named = PROTOCOLS["paper"].named("paper", EnvironmentConfig("Pong"), "newest")
    before = {name: value for name, value in named.items() if name != "step_cap"}
    for protocol in (before, named):
        records.append(tmp_path / "evaluations.jsonl", {"steps": 1, "protocol": protocol})
    old, new = evaluations(tmp_path)
    assert json.dumps(old["protocol"]) == json.dumps(new["protocol"])
    capped = replace(PROTOCOLS["paper"], step_cap=7)
    assert capped.named("paper", EnvironmentConfig("Pong"), "newest")["name"] == "paper, changed"


def test_evaluate_keeps_scores_with_their_protocol(pong_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(pong_run, tmp_path / "mine")
    done = ended("evaluate", str(run), "--episodes", "2", "--protocol", "machado", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["protocol"]["name"] == "machado"
    assert result["protocol"]["sticky_actions"] == 0.25
    assert "sticky actions, which the run was not trained with" in done.stdout
    assert result["episodes"] == len(result["scores"]) == 2
    assert all(-21 <= score <= 21 for score in result["scores"])
    assert result["mean"] == sum(result["scores"]) / 2
    assert (result["protocol"]["step_cap"], result["games_cut"]) == (100_000, 0)
    (line,) = (run / "evaluations.jsonl").read_text().splitlines()
    assert json.loads(line)["scores"] == result["scores"]
    assert result["steps"] == int(checkpoints.kept(run / "checkpoints")[-1].name)


def test_scores_of_a_run_that_may_not_be_written_to_are_printed(
    pong_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """`os.access` answers as on a read-only disk: chmod would not stop tests that run as root."""
    run = shutil.copytree(pong_run, tmp_path / "mine")
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_relative_to(run))
    kept = ga3c.evaluate(run, episodes=1, env_args={})
    printed = capsys.readouterr()
    assert f"{run} is not writable: the scores are not kept" in printed.err
    assert "kept in" not in printed.out and len(kept["scores"]) == 1
    assert not (run / "evaluations.jsonl").exists()


def test_a_run_is_evaluated_in_its_environment_with_other_arguments(tmp_path: Path) -> None:
    given = {"game": "FrozenLake-v1", "env_args": {"is_slippery": False, "map_name": "4x4"}}
    run = ga3c.train(**given, algorithm="a3c", steps=500, runs_dir=tmp_path, agents=1)
    kept = ga3c.evaluate(run, episodes=2, env_args={"is_slippery": True}, info_keys=["prob"])
    assert kept["infos"] == {"prob": pytest.approx(1 / 3)}
    assert kept["protocol"]["env_args"] == "is_slippery=True map_name='4x4'"
    assert run.evaluate(episodes=2)["protocol"]["env_args"] == "is_slippery=False map_name='4x4'"
    for options, words in (
        (["--env-args", "map_name=8x8"], "expected"),  # the network has 16 inputs
        (["--env-args", "8x8"], "must be key=value"),
    ):
        assert words in refused("evaluate", str(run.path), *options)
    atari = refused("evaluate", "--pretrained", "Pong", "--env-args", "a=1")
    assert "pong takes no env_args" in atari


@pytest.mark.slow
def test_scores_that_cannot_be_kept_are_printed(pong_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(pong_run, tmp_path / "run")
    (run / "evaluations.jsonl").unlink(missing_ok=True)
    (run / "evaluations.jsonl").mkdir()
    done = ended("evaluate", str(run), "--episodes", "2", "--step-cap", "50", "--json")
    assert done.returncode == 1
    assert "over 2 games, 2 cut short by a length limit; not kept" in done.stdout
    assert len(json.loads(done.stdout.splitlines()[-1])["scores"]) == 2
    assert "evaluations.jsonl" in done.stderr and "Traceback" not in done.stderr


def test_an_interrupted_evaluation_prints_how_far_it_got(
    command: Callable[..., Command], pong_run: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(pong_run, tmp_path / "mine")
    # Ten rounds of 30 games: they last until the first line of progress.
    evaluating = command("evaluate", str(run), "--episodes", "300", "--at-once", "30")
    evaluating.until(lambda: "those in progress are at step" in evaluating.out)
    evaluating.interrupt()
    assert evaluating.wait(STOP_S) == 130
    *_, last = evaluating.out.splitlines()
    assert re.fullmatch(r"\d+ of 300 games.*; not kept, as the games that end first are .*", last)
    assert not (run / "evaluations.jsonl").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_an_environment_catches_ends_an_evaluation_too(
    number: int,
    command: Callable[..., Command],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    game = ["--game", "tests.tiny:Careless-v0", "--algorithm", "a3c", *LIGHT]
    trained = command("train", *game, "--steps", "200", "--name", "mine")
    assert trained.wait(BEGIN_S) == 0, trained.err
    monkeypatch.setenv("GA3C_TEST_CARELESS_S", "0.5")
    evaluating = command("evaluate", str(trained.runs / "mine"), "--at-once", "1")
    evaluating.until(lambda: "protocol name" in evaluating.out)
    time.sleep(1.0)  # the evaluation is nearly always within a step
    evaluating.process.send_signal(number)
    assert evaluating.wait(BEGIN_S) == 130
    assert "not kept" in evaluating.out


def test_what_cannot_be_evaluated_is_refused_in_one_line(pong_run: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(pong_run, tmp_path / "broken")
    for each in checkpoints.kept(broken / "checkpoints"):
        (each / "arrays.npz").write_bytes(b"")
    for arguments, code, words in (
        (["nowhere"], 2, "nowhere"),
        ([str(pong_run), "--checkpoint", "best"], 2, "kept only by train --evaluate-every"),
        ([str(pong_run), "--checkpoint", "17"], 2, "checkpoint 17"),
        ([str(pong_run), "--checkpoint", ""], 2, "checkpoint : the run has newest"),
        ([str(pong_run), "--checkpoint", "9" * 300], 2, "9: the run has newest"),
        ([str(pong_run), "--checkpoint", "9" * 5000], 2, "9: the run has newest"),
        (["--pretrained", "Pong", "--game", "Breakout"], 2, "game Breakout with pretrained Pong"),
        ([str(pong_run), "--episodes", "0"], 2, "episodes 0"),
        ([str(pong_run), "--step-cap", "0"], 2, "step_cap 0"),
        ([str(pong_run), "--sticky-actions", "2"], 2, "sticky_actions 2"),
        ([str(pong_run), "--epsilon", "5"], 2, "epsilon 5"),
        ([str(pong_run), "--epsilon", "0.5"], 2, "--epsilon has no effect on policy sample"),
        ([str(pong_run), "--seed", "-1"], 2, "seed -1"),
        ([str(pong_run), "--protocol", "control"], 2, "control: is for continuous actions"),
        (["1", "--game", "Pong"], 2, "run 1 with game Pong: give one"),
        (["1", "--runs-dir", str(tmp_path / "none")], 2, f"{tmp_path / 'none'} has no runs"),
        ([str(broken)], 1, "no whole checkpoint"),
    ):
        assert words in refused("evaluate", *arguments, code=code)


@pytest.mark.parametrize("command", ["evaluate", "play"])
def test_a_frame_cap_below_the_runs_action_repeat_is_refused(command: str, tmp_path: Path) -> None:
    run = shutil.copytree(PRETRAINED / "pong", tmp_path / "mine")
    settings = json.loads((run / "config.json").read_text())
    settings["environment"]["action_repeat"] = 8
    (run / "config.json").write_text(json.dumps(settings))
    said = refused(command, str(run), "--frame-cap", "5")
    assert said == "ga3c: frame_cap 5 < action_repeat 8: no whole step would fit into a game"


def test_a_protocol_whose_frame_cap_is_below_the_action_repeat_is_refused_at_the_start(
    tmp_path: Path,
) -> None:
    given = ["--action-repeat", "20000", "--evaluate-every", "9", "--evaluate-protocol", "nature"]
    said = refused("train", *given, "--seconds", "1", "--runs-dir", str(tmp_path))
    assert "evaluate_protocol: frame_cap 18000 < action_repeat 20000" in said
    assert list(tmp_path.iterdir()) == []


def test_a_run_evaluates_itself_and_keeps_its_best_weights(tmp_path: Path) -> None:
    often = ["--evaluate-every", "1000", "--evaluate-episodes", "4"]
    given = [*CORRIDOR, *often, "--steps", "8000", "--runs-dir", str(tmp_path), "--name", "mine"]
    done = ended(*given)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "mine"
    entries = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert len(entries) >= 2
    assert all(entry["episodes"] == 4 for entry in entries)
    steps = [entry["steps"] for entry in entries]
    assert steps == sorted(steps)
    assert steps[-1] >= 8000, "also the one that was due at the end"
    best = max(entries, key=lambda entry: entry["mean"])  # the first, if several are equal
    (kept,) = checkpoints.kept(run / "best")
    assert checkpoints.read(kept).state["evaluation"] == best
    assert int(kept.name) == best["steps"]
    assert f"evaluated: {best['mean']:.2f} after {best['steps']:,} steps" in done.stdout
    result = json.loads((run / "result.json").read_text())
    assert result["evaluations_failed"] == 0
    assert result["best_evaluation"] == pytest.approx(best["mean"]), "of the last one too"
    more = str(int(result["steps"]) + 500)  # on a busy machine, a run exceeds --steps
    again = ended("train", "--resume", str(run), "--steps", more, "--evaluate-every", "100000")
    assert again.returncode == 0, again.stderr
    result = json.loads((run / "result.json").read_text())
    assert result["best_evaluation"] == pytest.approx(best["mean"]), "though none was made now"
    by_hand = ended("evaluate", str(run), "--checkpoint", "best", "--episodes", "4")
    assert f"after {best['steps']:,} steps; protocol name trained, weights best" in by_hand.stdout


def test_a_failed_evaluation_does_not_end_the_run_and_the_next_one_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine"
    run = ga3c.train(
        **{"game": "tests.unruly:Unevaluated-v0", "algorithm": "a3c", "name": path.name},
        **{"agents": 2, "max_agents": 2, "envs_per_agent": 4, "progress_every_s": 0.5},
        **{"evaluate_every": 1000, "evaluate_episodes": 2, "seconds": BEGIN_S},
        runs_dir=tmp_path,
        on_figures=lambda figures: evaluations(path),  # the third one went well
    )
    assert run.result["ended"] == "ended by on_figures"
    printed = capsys.readouterr().err
    said = [line for line in printed.splitlines() if "evaluation failed" in line]
    assert len(said) == len(printed.splitlines()) == 2, printed
    assert "v0: RuntimeError: not while it is evaluated (" in said[0]
    assert "v0: SystemExit: nor now (" in said[1]
    assert "in step" in (path / "log.txt").read_text(), "the whole traceback"
    assert run.result["evaluations_failed"] == 2


def test_the_evaluation_due_at_the_last_step_comes_after_one_that_still_runs(
    tmp_path: Path,
) -> None:
    """The first evaluation takes eight seconds, which is longer than training takes."""
    given = ["train", "--game", "tests.unruly:Slow-v0", "--algorithm", "a3c", *LIGHT]
    given += ["--steps", "8000"]
    given += ["--evaluate-every", "1000", "--evaluate-episodes", "1", "--name", "mine"]
    done = ended(*given, "--evaluate-step-cap", "80", "--runs-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "mine" / "result.json").read_text())
    first, *_, last = evaluations(tmp_path / "mine")
    assert 1000 <= first["steps"] < 8000 <= last["steps"] == result["steps"]
    assert (first["games_cut"], first["lengths"]) == (1, [80])


def test_a_hanging_evaluation_is_reported_and_does_not_keep_the_run_from_ending(
    tmp_path: Path,
) -> None:
    given = ["train", "--game", "tests.unruly:Hanging-v0", "--algorithm", "a3c", *LIGHT]
    # For each environment of a group, an agent has 0.5 s more to start, besides the timeout.
    given += ["--steps", "3000", "--agent-timeout-s", "3", "--envs-per-agent", "40"]
    given += ["--evaluate-every", "1000", "--evaluate-episodes", "1", "--name", "mine"]
    done = ended(*given, "--runs-dir", str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "no step for 3.5 s: none will be started until it ends" in done.stderr
    assert "did not end in time: evaluator" in done.stderr
    newest = checkpoints.kept(tmp_path / "mine" / "checkpoints")[-1]
    assert checkpoints.read(newest).state["steps"] >= 3000


def test_after_an_evaluation_that_was_stuck_others_are_started_and_may_be_stuck_too() -> None:
    said: list[str] = []
    begun: list[int] = []
    evaluator = SimpleNamespace(
        take=list,
        take_failures=list,
        patience_s=3.0,
        due=lambda steps: not evaluator.is_stuck,
        begin=begun.append,
    )
    evaluations = Evaluations.__new__(Evaluations)
    evaluations._evaluator, evaluations._best, evaluations._told = evaluator, None, False  # type: ignore[assignment]
    evaluations._say = lambda text, to=None: said.append(text)
    kept = SimpleNamespace(read=lambda timeout_s, experience: (len(said),))
    evaluations._service = SimpleNamespace(kept=kept)  # type: ignore[assignment]
    for evaluator.is_stuck in (True, True, False, True, True, False):
        evaluations.tend(0)
    words = "an evaluation has made no step for 3 s: none will be started until it ends"
    assert said == [words, words]
    assert begun == [1, 2], "after each of them"


def test_an_evaluation_leaves_the_replay_where_it_is(tmp_path: Path) -> None:
    given = [*CORRIDOR, "--algorithm", "dqn", "--replay-min-steps", "1000", "--update-size", "100"]
    given += ["--save-replay", "--evaluate-every", "1000", "--evaluate-episodes", "2"]
    done = ended(*given, "--steps", "2000", "--runs-dir", str(tmp_path), "--name", "mine")
    assert done.returncode == 0, done.stderr
    (best,) = checkpoints.kept(tmp_path / "mine" / "best")
    newest = checkpoints.kept(tmp_path / "mine" / "checkpoints")[-1]
    parts = [{n.split("/")[0] for n in checkpoints.read(p).arrays} for p in (best, newest)]
    assert parts[0] == {"weights", "target", "optimizer", "counters"}
    assert parts[1] >= parts[0] | {"ring", "lanes"}
    by_hand = ended("evaluate", str(tmp_path / "mine"), "--checkpoint", "best", "--episodes", "1")
    assert by_hand.returncode == 0, by_hand.stderr
