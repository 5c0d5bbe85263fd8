"""The studies of the Ape-X paper as runs: how their variants differ, and what the paper found.

Every study fixes the learner's rate: a variant makes a given number of updates, with a fixed number
of steps for each. More actors therefore play more steps in the same number of updates.
"""

from typing import Literal, NamedTuple

StudyName = Literal["actors", "priorities", "recency", "epsilons", "replay", "fresh"]

# Ape-X's settings, except for the network, the optimizer and the batch size, which are ours for
# vectors. The ratio fixes the learner's rate: acting waits for learning and never runs ahead. The
# replay is saved, because a resumed run that refilled it would make fewer updates than the others.
COMMON = (
    "--algorithm dqn --preset dqn-vectors --scheduler off --agents 1 --max-agents 1 --dueling "
    "--exploration ladder --n-step 3 --pacing ratio --update-size 1000 "
    "--checkpoint-every-s 1000000 --save-replay"
)
PRIORITISED = "--replay-draws prioritised --importance-exponent-end 0.4"
ACTING = f"{PRIORITISED} --first-priority acting"
MIN_STEPS = 5_000
REPLAY_STEPS = 200_000
ACTORS = (8, 32, 128, 256)
PAPER_RATIO = 658  # steps per update: 12,500 transitions and 19 updates a second
RUNGS = 6


class Variant(NamedTuple):
    """One curve of a study."""

    name: str
    actors: int  # environments
    steps_per_update: int
    replay_steps: int = REPLAY_STEPS
    arguments: str = ACTING

    @property
    def train(self) -> str:
        """Arguments for `ga3c train`."""
        return (
            f"{COMMON} --envs-per-agent {self.actors} --prediction-batch-min {self.actors // 2} "
            f"--steps-per-update {self.steps_per_update} --replay-steps {self.replay_steps} "
            f"--slack-steps {4 * max(self.steps_per_update, self.actors)} "
            f"--replay-min-steps {MIN_STEPS} {self.arguments}"
        )

    def steps(self, updates: int) -> int:
        """Environment steps of a run with this many updates."""
        return MIN_STEPS + updates * self.steps_per_update

    def updates(self, steps: float) -> float:
        """Updates made after this many environment steps."""
        return max(steps - MIN_STEPS, 0.0) / self.steps_per_update


class Study(NamedTuple):
    """A question, and the paper's answer."""

    question: str
    paper: str
    variants: tuple[Variant, ...]


STUDIES: dict[StudyName, Study] = {
    "actors": Study(
        "more actors, the same updates",
        "more actors learn more with the same number of updates (figure 4)",
        tuple(Variant(f"{n} actors", n, n) for n in ACTORS),
    ),
    "priorities": Study(
        "which steps to draw, at 658 steps per update",
        "prioritised draws are as good or better in 7 of 9 games (appendix); first priorities from "
        "acting were not compared with the largest",
        tuple(
            Variant(name, 256, PAPER_RATIO, arguments=arguments)
            for name, arguments in (
                ("uniform", "--replay-draws uniform"),
                ("prioritised, first the largest", f"{PRIORITISED} --first-priority largest"),
                ("prioritised, first from acting", ACTING),
            )
        ),
    ),
    "recency": Study(
        "does newer experience help, or more varied experience?",
        "32 actors, each step added 8 times, are not as good as 256 actors (figure 6)",
        (
            Variant("32 actors", 32, 32),
            Variant("32 actors, each step counted 8 times", 32, 32, REPLAY_STEPS // 8),
            Variant("256 actors", 256, 256),
        ),
    ),
    "epsilons": Study(
        "six epsilons, or one for each actor",
        "the full range is slightly better overall (appendix)",
        (
            Variant(f"{RUNGS} epsilons", 128, 128, arguments=f"{ACTING} --ladder-rungs {RUNGS}"),
            Variant("128 epsilons", 128, 128),
        ),
    ),
    "replay": Study(
        "how large a replay, with 256 actors",
        "a larger one is better in some games (figure 5)",
        tuple(
            Variant(f"{steps:,} steps", 256, 256, steps) for steps in (20_000, 200_000, 1_000_000)
        ),
    ),
}
"""All studies of learning; `fresh` is measured without runs (`fresh.py`)."""
