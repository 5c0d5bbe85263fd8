"""The studies of learning: recipes side by side, Ape-X, the peers, and kept curves."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import fresh, learning, learning_curves, peers
from benchmarks.apex_studies import STUDIES
from benchmarks.learning import RECIPES
from benchmarks.peers import Learned
from ga3c.reports.job import Job
from ga3c.reports.processes import check_commands
from tests.commands import ROOT, ended, refused

LIGHT = "--agents 1 --envs-per-agent 8 --scheduler off"


@pytest.mark.slow
def test_each_recipe_is_trained_and_a_second_call_trains_nothing(tmp_path: Path) -> None:
    given = ["benchmark", "learning", "--out-dir", str(tmp_path), "--games", "CartPole-v1"]
    given += ["--seeds", "1", "--steps", "4000", "--json"]
    given += ["--recipes", f"one={LIGHT} --algorithm a3c"]
    given += [f"two={LIGHT} --algorithm ppo --passes 2"]
    done = ended(*given)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])["results"]
    assert [each["recipe"] for each in results] == ["one", "two"]
    for each in results:
        ((quarter, half, whole),) = each["scores"]
        assert min(quarter, half, whole) > 5 and max(quarter, half, whole) < 500
    assert (tmp_path / "learning.png").stat().st_size > 5000
    config = json.loads((tmp_path / "runs" / "CartPole-v1-two-4000-0" / "config.json").read_text())
    assert (config["algorithm"], config["service"]["passes"]) == ("ppo", 2)
    again = ended(*given)
    assert again.returncode == 0
    assert "ga3c train" not in again.stdout


def test_a_longer_run_is_another_one_and_one_of_another_revision_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Job] = []

    def complete(jobs: list[Job]) -> None:
        asked.extend(jobs)
        for number, job in enumerate(jobs):
            job.path.mkdir(parents=True)
            (job.path / "meta.json").write_text(json.dumps({"git": ("1234567", None)[number]}))

    monkeypatch.setattr(learning, "complete", complete)
    monkeypatch.setattr(learning, "machine", lambda: {"git": "1234567"})
    for steps in (5000, 20000):
        given = learning.Config(tmp_path, games=("CartPole-v1",), recipes=("a3c",), steps=steps)
        with pytest.raises(ValueError, match=r"its config.json cannot be read"):
            learning.run(given)  # there is no run to show
    names = [job.path.name for job in asked]
    assert names == [f"CartPole-v1-a3c-{n}-{seed}" for n in (5000, 20000) for seed in (0, 1)]
    said = "made by revision None, while this is 1234567: CartPole-v1-a3c-5000-1; another --out-dir"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recipes", "best"], "recipe best: must be among"),
        (["--recipes", "mine=--seed 3"], "--seed is set by ga3c benchmark learning itself"),
        (["--games", "Pogn"], "did you mean Pong"),
        (["--seeds", "0"], "seeds 0"),
    ],
)
def test_wrong_use_of_learning_is_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert words in refused("benchmark", "learning", "--out-dir", str(out), *arguments)
    assert not out.exists()


def test_the_best_constant_action_is_found_and_played_again(tmp_path: Path) -> None:
    game = "tests.tiny:Corridor-v0"
    given = ["benchmark", "constant", "--out-dir", str(tmp_path), "--games", game, "--json"]
    given += ["--search-episodes", "2", "--episodes", "3"]
    done = ended(*given)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])["games"][game]
    assert found["means"] == [-1.0, 1.0], "left falls into the pit"
    assert (found["action"], found["best"]["scores"]) == (1, [1.0] * 3)
    assert len(found["random"]["scores"]) == 3
    again = ended(*given)
    assert json.loads(again.stdout.splitlines()[-1])["games"][game] == found
    assert f"{game}, action" not in again.stdout, "nothing is played again"
    wrong = ["--out-dir", str(tmp_path / "none"), "--games", "Pendulum-v1"]
    assert "cannot be played one by one" in refused("benchmark", "constant", *wrong)


@pytest.mark.slow
def test_a_study_of_apex_is_made_once_and_shown_by_updates(tmp_path: Path) -> None:
    given = ["benchmark", "apex", "--out-dir", str(tmp_path), "--game", "CartPole-v1", "--quick"]
    given += ["--studies", "epsilons", "--seeds", "1", "--updates", "30", "--json"]
    done = ended(*given)
    assert done.returncode == 0, done.stderr
    few, all_of_them = json.loads(done.stdout.splitlines()[-1])["results"]["epsilons"]
    assert (few["variant"], all_of_them["variant"]) == ("6 epsilons", "128 epsilons")
    assert float(few["after 30 updates"].split()[0]) > 5
    assert "the paper: the full range is slightly better" in done.stdout
    assert (tmp_path / "epsilons.png").stat().st_size > 5000
    kept = json.loads((tmp_path / "epsilons.json").read_text())
    assert kept["results"] == [few, all_of_them]
    assert kept["machine"]["cores"] > 0
    run = tmp_path / "runs" / f"epsilons-6-epsilons-{5_000 + 30 * 128}-0"
    config = json.loads((run / "config.json").read_text())
    assert config["dqn"]["ladder_rungs"] == 6
    assert config["run"]["steps"] == 5_000 + 30 * 128
    again = ended(*given)
    assert again.returncode == 0
    assert "ga3c train" not in again.stdout


def test_where_acting_is_far_ahead_more_draws_are_fresh() -> None:
    far = fresh.share("CartPole-v1", 200.0, "acting", 12_000, seed=0)
    near = fresh.share("CartPole-v1", 20.0, "acting", 4_000, seed=0)
    assert 0.0 < near < 0.7 * far < 0.7


def test_every_study_has_the_same_number_of_updates_in_each_variant() -> None:
    for study in STUDIES.values():
        for variant in study.variants:
            assert variant.updates(variant.steps(500)) == 500
            assert variant.updates(0) == 0
            assert "--save-replay" in variant.train, "or a resumed run makes fewer updates"
            check_commands(["--game", "CartPole-v1", *shlex.split(variant.train)], [])


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_one_that_train_takes(recipe: str) -> None:
    check_commands(["--game", "Pong", *shlex.split(RECIPES[recipe])], [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--game", "Pong"], "must have vector observations"),
        (["--updates", "0"], "updates 0: must be above 0"),
        (["--studies", "luck"], "actors"),
    ],
)
def test_wrong_use_of_apex_is_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert words in refused("benchmark", "apex", "--out-dir", str(out), *arguments)
    assert not out.exists()


def test_peers_that_are_not_installed_are_named_with_the_command(tmp_path: Path) -> None:
    given = ["--out-dir", str(tmp_path / "out"), "--python", str(tmp_path / "none")]
    assert "make peers" in refused("benchmark", "peers", *given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--games", "CartPole-v1"], "must be an Atari game"), (["--minutes", "0"], "minutes 0")],
)
def test_wrong_use_of_peers_is_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    assert words in refused("benchmark", "peers", "--out-dir", str(tmp_path), *arguments)


PRINTING = """
import sys, time
print("a line about something else", flush=True)
for step in range(1, 1000):
    at = f"global_step={100 * step}"
    print(at, f"{at}, episodic_return=[{step}.5]", sep="\\n", flush=True)  # at once: it is killed
    time.sleep(0.05)
"""


def test_a_peer_is_read_while_it_plays_and_ended_after_its_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script takes the peer's place, because the real peers are too large for the tests."""
    (tmp_path / "prints.py").write_text(PRINTING)
    monkeypatch.setattr(peers, "SCRIPTS", tmp_path)
    monkeypatch.setitem(peers.PEERS, "a peer", ("prints.py",))
    config = peers.Config(tmp_path / "out", minutes=1.5 / 60, python=Path(sys.executable))
    config.out_dir.mkdir()
    learned = peers._kept(config, "Pong", "a peer")
    assert learned.steps == 100 * len(learned.curve) > 100
    seconds, steps, score = learned.curve[-1]
    assert 0 < seconds < 20
    assert score == pytest.approx(sum(range(1, len(learned.curve) + 1)) / len(learned.curve) + 0.5)
    assert (steps - 100) / seconds == pytest.approx(learned.steps_per_s, rel=0.2)
    assert peers._kept(config, "Pong", "a peer") == learned, "it is kept"
    peers._draw([learned, Learned("none", "Pong", 0, 0.0, [], {})], tmp_path / "peers.png")
    assert learned.versions["numpy"] == np.__version__
    monkeypatch.setattr(peers, "VERSIONS", 'print(\'{"torch": "9.9"}\')')
    newer = peers._kept(config, "Pong", "a peer")
    assert newer.versions == {"torch": "9.9"} and newer != learned, "measured again"


def test_our_own_run_takes_as_many_minutes_and_is_kept_per_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = peers.Config(tmp_path, minutes=2.0 / 60)
    given = "--agents 1 --max-agents 1 --envs-per-agent 4 --algorithm a3c --progress-every-s 0.5"
    learned = peers._ours(config, "Pong", given)
    assert learned.steps > 0
    assert 0 < learned.steps_per_s <= learned.steps / 2.0
    assert all(len(point) == 3 for point in learned.curve)
    assert peers._ours(config, "Pong", given) == learned, "it is kept"
    asked: list[Path] = []

    def stop(jobs: list[Job]) -> None:
        asked.extend(job.path for job in jobs)
        raise RuntimeError("asked")

    monkeypatch.setattr(peers, "complete", stop)
    monkeypatch.setattr(peers, "revision", lambda: "a later revision")
    with pytest.raises(RuntimeError, match="asked"):
        peers._ours(config, "Pong", given)
    (path,) = asked
    assert not path.exists(), "another revision may learn otherwise"


def test_a_failing_peer_is_reported_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails.py").write_text("raise RuntimeError('no such game')")
    monkeypatch.setattr(peers, "SCRIPTS", tmp_path)
    monkeypatch.setitem(peers.PEERS, "a peer", ("fails.py",))
    config = peers.Config(tmp_path, python=Path(sys.executable))
    with pytest.raises(RuntimeError, match="no such game"):
        peers._kept(config, "Pong", "a peer")


def test_the_peers_versions_are_pinned() -> None:
    lines = (ROOT / "requirements" / "peers.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all("==" in pin or "<" in pin for pin in pins)
    assert any(pin.startswith("stable-baselines3==") for pin in pins)


def test_a_kept_curve_replaces_that_of_an_earlier_run(pong_run: Path, tmp_path: Path) -> None:
    other = shutil.copytree(pong_run, tmp_path / "other")
    (other / "evaluations.jsonl").write_text("{}\n")
    learning_curves.keep([other], tmp_path / "kept")
    learning_curves.keep([pong_run], tmp_path / "kept")
    (kept,) = (tmp_path / "kept").iterdir()
    assert not (kept / "evaluations.jsonl").exists(), "of the run before"
    for runs, words in (([pong_run, other], "share a seed"), ([kept], "has no episodes.csv")):
        with pytest.raises(ValueError, match=words):
            learning_curves.keep(runs, tmp_path / "again")
    assert not (tmp_path / "again").exists()
