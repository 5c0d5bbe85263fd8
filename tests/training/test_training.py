"""Learning end to end: within a limit of steps, the command reaches a score beyond chance."""

import json
import re
from pathlib import Path

import pytest

from tests.commands import ended
from tests.tiny import CORRIDOR_LENGTH

LIMIT_S = 400  # only a safeguard: --steps ends a run that does not learn
FAST_ADAM = ["--optimizer", "adam", "--optimizer-epsilon", "1e-5", "--learning-rate", "2e-3"]
CORRIDOR = ["--game", "tests.tiny:Corridor-v0", "--algorithm", "a3c", "--envs-per-agent", "16"]
CATCH = ["--game", "tests.tiny:Catch-v0", "--envs-per-agent", "16", *FAST_ADAM]
CARTPOLE = ["--game", "CartPole-v1"]

REACH = ["--game", "tests.tiny:Reach-v0", "--envs-per-agent", "8"]
DPG = ["--algorithm", "dpg", "--max-agents", "2", "--replay-min-steps", "1000", "--noise", "0.2"]
DPG += ["--update-size", "50", "--replay-steps", "5000", "--learning-rate", "1e-3"]
NORMAL = ["--algorithm", "a3c", "--learning-rate", "3e-3"]

BRIEF = ["--precision", "bfloat16"]
SMALL_DQN = ["--algorithm", "dqn", "--replay-min-steps", "1000"]
SMALL_DQN += ["--epsilon-steps", "3000", "--learning-rate", "1e-3"]
DQN = [*SMALL_DQN, "--update-size", "100"]
PRIORITISED = ["--replay-draws", "prioritised", "--no-replay-repeats", "--dueling"]
CONCURRENT = ["--pacing", "target-period", "--period-steps", "800", "--synchronized"]
CONCURRENT += ["--groups", "1"]
PARR = ["--preset", "in-gpu-replay", "--target-period", "200", "--epsilon-steps", "3000"]
PARR += ["--replay-min-steps", "1000", "--optimizer", "adam", "--learning-rate", "5e-4"]
PARR += ["--update-size", "500", "--discount", "0.98", "--envs-per-agent", "8"]


@pytest.mark.parametrize(
    ("settings", "by_chance", "score", "steps"),
    [
        pytest.param([*CORRIDOR, *DQN], 0.0, 0.9, 25_000, id="dqn"),
        pytest.param(
            [*CORRIDOR, *DQN, "--experience", "host"], 0.0, 0.9, 25_000, id="dqn from the host"
        ),
        pytest.param([*CORRIDOR, *DQN, *PRIORITISED], 0.0, 0.9, 25_000, id="dqn by priority"),
        pytest.param([*CORRIDOR, *SMALL_DQN, *CONCURRENT], 0.0, 0.9, 25_000, id="fast-dqn"),
        pytest.param(
            [*CATCH, *DQN], -0.8, 0.6, 50_000, id="dqn on pictures", marks=pytest.mark.slow
        ),
        pytest.param([*CORRIDOR[:2], *PARR], 0.0, 0.9, 30_000, id="in-gpu-replay"),
        pytest.param(CORRIDOR, 0.0, 0.9, 25_000, id="corridor"),
        pytest.param([*REACH, *DPG], -5.0, 1.0, 25_000, id="dpg"),
        pytest.param(
            [*REACH, *DPG, "--eviction", "priority"], -5.0, 1.0, 25_000, id="dpg, eviction"
        ),
        pytest.param(
            [*REACH, *NORMAL], -7.0, -1.0, 150_000, id="a3c, continuous", marks=pytest.mark.slow
        ),
        pytest.param(
            [*CORRIDOR, "--experience", "host"], 0.0, 0.9, 25_000, id="corridor from the host"
        ),
        pytest.param(CATCH, -0.8, 0.6, 150_000, id="pictures", marks=pytest.mark.slow),
        pytest.param(
            [*CATCH, *BRIEF], -0.8, 0.6, 150_000, id="in bfloat16", marks=pytest.mark.slow
        ),
        pytest.param(CARTPOLE, 22.0, 195.0, 300_000, id="CartPole", marks=pytest.mark.slow),
    ],
)
def test_the_score_is_reached(
    settings: list[str], by_chance: float, score: float, steps: int, tmp_path: Path
) -> None:
    """Learning takes about a sixth of `steps`, over which the long schedules hardly advance."""
    limits = ["--score", str(score), "--steps", str(steps), "--seconds", str(LIMIT_S)]
    always = ["--json", "--agents", "2", "--scheduler", "off", "--name", "mine", "--seed", "1"]
    always += ["--schedule-steps", "10000000", "--runs-dir", str(tmp_path)]
    is_corridor = CORRIDOR[1] in settings
    always += ["--info-keys", "position"] if is_corridor else []
    done = ended("train", *settings, *limits, *always, timeout_s=LIMIT_S + 50)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "episodes reached; kept in" in done.stdout, done.stdout[-1000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["episodes"] >= 100
    assert (result.get("success_rate_100", 0.0) > 0.8) == is_corridor
    assert ("Success" in done.stdout) == is_corridor
    goes_right = result.get("info/position", 0.0) > 0.8 * (CORRIDOR_LENGTH - 1)
    assert goes_right == is_corridor == bool(re.search(r" position \d", done.stdout))
    rows = (tmp_path / "mine" / "episodes.csv").read_text().splitlines()[1:]
    scores = [float(row.split(",")[2]) for row in rows]
    beginners = scores[:50]
    assert sum(beginners) / len(beginners) < (by_chance + score) / 2, "it was not learned"
    assert max(sum(scores[k - 100 : k]) / 100 for k in range(100, len(scores) + 1)) >= score
