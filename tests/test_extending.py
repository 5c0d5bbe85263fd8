"""The user-written parts in `docs/extending.md` work, in a folder outside the checkout."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ga3c import backend
from ga3c.service.assembly import ALGORITHMS
from ga3c.settings.choices import TRAITS
from tests.commands import PATIENCE, ROOT, ended

PAGE = (ROOT / "docs" / "extending.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [
    shlex.split(line)[1:]
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
FEW = ["--steps", "1500", "--agents", "1", "--max-agents", "1", "--envs-per-agent", "8"]
SMALL_REPLAY = ["--replay-steps", "2000", "--replay-min-steps", "500", "--update-size", "50"]
LIMIT_S = 200.0


def ga3c(directory: Path, *arguments: str, code: int = 0) -> str:
    """The output of the command in a user's folder. Its exit code must be `code`."""
    done = ended(*arguments, timeout_s=LIMIT_S, cwd=directory)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def changed_ga3c(tree: Path, directory: Path, *arguments: str) -> str:
    """The same with the changed ga3c in `tree`, which only a new process can import."""
    done = subprocess.run(
        [sys.executable, "-m", "ga3c", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S * PATIENCE,
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with the files of the page."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_part_takes_less_than_40_lines() -> None:
    assert set(FILES) == {"my_games.py", "my_wrapped.py", "my_nets.py", "my_algorithm.py"}
    assert all(len(text.splitlines()) < 40 for text in FILES.values())


def few(command: list[str]) -> list[str]:
    """A command of the page, with fewer steps."""
    replay = SMALL_REPLAY if "dqn" in command else []
    return [*command[: command.index("--steps")], *FEW, *replay, "--name", "mine"]


@pytest.mark.parametrize("command", COMMANDS[1:-1], ids=" ".join)
def test_the_commands_on_the_page_train(command: list[str], own: Path) -> None:
    assert "1,500 steps done" in ga3c(own, *few(command))


def test_a_run_of_a_custom_algorithm_is_resumed_and_evaluated(own: Path) -> None:
    name = "my_algorithm:Reinforce"
    assert name in COMMANDS[-1] and f"{name}(entropy_weight=0.01)" in PAGE
    command = [f"{name}(entropy_weight=0.01)" if word == name else word for word in COMMANDS[-1]]
    ga3c(own, *few(command))
    other = ["--algorithm", f"{name}(entropy_weight=0.005)", "--steps", "3000"]
    assert "goes on from" in ga3c(own, "train", "--resume", "mine", *other)
    assert "over 2 games" in ga3c(own, "evaluate", "runs/mine", "--episodes", "2")


MORE = '''
from keras import ops
from ga3c.learning.dqn import DQN
from ga3c.learning.ppo import PPO
from ga3c.settings.learning import A3CConfig, DQNConfig, PPOConfig
from my_algorithm import Reinforce


class Online(DQN):
    """Q-learning without a target network."""

    has_target = False

    def __init__(self, actions, learning):
        super().__init__(DQNConfig(), actions.count, random_steps=500)

    def loss(self, network, target, batch, rates):
        assert target is None
        return super().loss(network, network, batch, rates)


class OfSteps(PPO):
    def __init__(self, actions, learning):
        super().__init__(A3CConfig(), PPOConfig(), actions)


class Targeted(Reinforce):
    has_target = True


class Faulty(Reinforce):
    def loss(self, network, target, batch, rates):
        raise ArithmeticError("the sums are wrong")


class Misshapen(Reinforce):
    def loss(self, network, target, batch, rates):
        loss, (figures, errors) = super().loss(network, target, batch, rates)
        return loss, ({**figures, "rewards": batch.rewards}, errors)


class Ungrateful(Reinforce):
    """Its loss does not depend on the values."""

    def loss(self, network, target, batch, rates):
        parameters, values = self.unrolled(network, batch)
        loss = -ops.sum(self.log_probs(parameters, batch))
        return loss, ({"mean": loss}, 0.0 * batch.rewards)
'''


def test_a_custom_algorithm_may_learn_from_a_replay_without_a_target_network(own: Path) -> None:
    (own / "more.py").write_text(MORE)
    given = ["--game", "my_games:Maze-v0", "--algorithm", "more:Online", "--learns-from", "replay"]
    given += SMALL_REPLAY
    assert "1,500 steps done" in ga3c(own, "train", *given, "--target-period", "20", *FEW)
    by_period = [*given[: given.index("--update-size")], "--pacing", "target-period"]
    said = ga3c(own, "train", *by_period, code=2)
    assert "more:Online has no target network" in said.splitlines()[-1]


@pytest.mark.parametrize("name", ["more:OfSteps", "my_algorithm:Reinforce"])
def test_updates_of_a_custom_algorithm_may_be_smaller_than_a_segment(name: str, own: Path) -> None:
    """Updates of single steps have the requested size, 4; of whole segments, one segment of 16."""
    (own / "more.py").write_text(MORE)
    given = ["--game", "my_games:Maze-v0", "--algorithm", name, "--learns-from", "segments"]
    given += ["--t-max", "16", "--passes", "2", "--minibatch", "4", "--name", "mine"]
    assert "1,500 steps done" in ga3c(own, "train", *given, *FEW)
    result = json.loads((own / "runs/mine/result.json").read_text())
    size = result["replay_ratio"] * result["steps"] / result["updates"]
    assert size == pytest.approx(4 if name == "more:OfSteps" else 16, rel=0.01)


@pytest.mark.skipif(backend.FRAMEWORK == "jax", reason="it compiles a loss when it is first used")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Targeted", "nothing would copy weights to it"),
        ("Faulty", "algorithm more:Faulty failed: ArithmeticError: the sums are wrong"),
        ("Misshapen", "algorithm more:Misshapen failed: "),
    ],
)
def test_a_faulty_algorithm_is_refused_in_one_line(name: str, words: str, own: Path) -> None:
    (own / "more.py").write_text(MORE)
    given = ["--algorithm", f"more:{name}", "--learns-from", "segments"]
    said = ga3c(own, "train", "--game", "my_games:Maze-v0", *given, code=2)
    assert words in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_loss_need_not_depend_on_all_weights(own: Path) -> None:
    (own / "more.py").write_text(MORE)
    given = ["--algorithm", "more:Ungrateful", "--learns-from", "segments"]
    assert "1,500 steps done" in ga3c(own, "train", "--game", "my_games:Maze-v0", *given, *FEW)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            ["--algorithm", "sarsa"],
            "algorithm 'sarsa': must be a3c or ppo or dqn or dpg, or module:name",
        ),
        (["--algorithm", "my_algorithm:Reinforce"], "--learns-from segments or replay must say"),
        (["--algorithm", "dqn", "--learns-from", "segments"], "algorithm dqn: learns from replay"),
        (["--algorithm", "gone:A", "--learns-from", "replay"], "module gone cannot be imported"),
        (["--algorithm", "my_nets:A", "--learns-from", "replay"], "my_nets.py has no A"),
        (["--algorithm", "fractions:Fraction", "--learns-from", "replay"], "be constructed"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_unfit_algorithm_is_refused_in_one_line(given: list[str], words: str, own: Path) -> None:
    said = ga3c(own, "train", "--game", "my_games:Maze-v0", *given, *SMALL_REPLAY, code=2)
    assert words in said
    assert len(said.splitlines()) == 1


def changed(text: str, hunk: str) -> str:
    """`text` after one hunk of a patch, which must fit in exactly one place."""
    lines = hunk.splitlines()
    old = "\n".join(line[1:] for line in lines if line[:1] in ("-", " "))
    new = "\n".join(line[1:] for line in lines if line[:1] in ("+", " "))
    assert text.count(old) == 1, old
    return text.replace(old, new)


def test_adding_an_algorithm_to_ga3c_takes_four_changes(own: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for package in ("agents", "ga3c"):
        shutil.copytree(
            ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    (tree / "ga3c" / "learning" / "reinforce.py").write_text(FILES["my_algorithm.py"])
    (patch,) = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
    parts = re.findall(r"--- a/(\S+)\n\+\+\+ b/\S+\n(.*?)(?=--- a/|\Z)", patch, re.DOTALL)
    for name, hunks in parts:
        file = tree / name
        for hunk in filter(None, re.split(r"^@@\n", hunks, flags=re.MULTILINE)):
            file.write_text(changed(file.read_text(), hunk.rstrip("\n")))
    places = [Path(name).parent.name for name, _ in parts]
    assert places == ["settings", "service", "settings"]
    given = ["--game", "my_games:Maze-v0", "--preset", "reinforce", *FEW]
    said = changed_ga3c(tree, own, "train", *given)
    assert "REINFORCE with a baseline" in said
    assert "1,500 steps done" in said
    assert "reinforce  policy gradient with a baseline (Williams 1992)" in changed_ga3c(
        tree, own, "list", "algorithms"
    )


def test_every_algorithm_has_its_traits() -> None:
    assert set(ALGORITHMS) == set(TRAITS)
