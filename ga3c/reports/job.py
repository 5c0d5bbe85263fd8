"""A run to make, and its progress according to what its directory holds."""

import contextlib
import itertools
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from agents.actions import Actions
from agents.environments import Spaces
from agents.games import are_same
from ga3c.command.line import WrongUse, parsed
from ga3c.evaluation.options import EvaluateConfig
from ga3c.reports import history
from ga3c.runs import checkpoints
from ga3c.runs.durable import rewrite_whole
from ga3c.runs.finding import EVALUATIONS, LOCK, LOG, RESULT, newest_figures
from ga3c.runs.kept_config import CONFIG, load_config
from ga3c.runs.trust import META
from ga3c.settings.begin import given_value
from ga3c.settings.checks import WrongInput
from ga3c.settings.choices import TRAITS
from ga3c.settings.train import TrainConfig


class Evaluation(NamedTuple):
    """The evaluation of a finished run."""

    protocol: str | None  # None: the run's own
    episodes: int
    arguments: str = ""  # more arguments for ga3c evaluate


class Job(NamedTuple):
    """A run to make."""

    path: Path
    game: str
    seed: int
    steps: int | None  # environment steps of the run
    seconds: float | None  # the most training time
    arguments: str = ""  # more arguments for ga3c train
    evaluation: Evaluation | None = None

    @property
    def asked(self) -> Path:
        """The file that records the extra arguments of its training."""
        return self.path.parent / f"{self.path.name}.arguments.json"

    @property
    def kept(self) -> list[Path]:
        """The checkpoints of its run, the newest last; none if it has not started."""
        return checkpoints.kept(self.path / checkpoints.FOLDER)

    def check(self) -> None:
        """Raises WrongInput if the run there plays another game or was trained differently.

        Also if its settings cannot be read.
        """
        if not self.kept:
            self._check_folder()
            return
        try:
            game = load_config(self.path).environment.game
            is_same = are_same(game, self.game)
        except ValueError as error:
            raise WrongInput(str(error)) from error
        trained = _known(self.asked).get("train", self.arguments)
        if not is_same or trained != self.arguments:
            raise WrongInput(
                f"{self.path} is a run of {game}, trained with {trained or 'no arguments'!r}, but "
                f"{self.game} with {self.arguments or 'none'!r} is asked for: choose another folder"
            )

    def _check_folder(self) -> None:
        """Raises WrongInput if the folder has more than a run that ended before a checkpoint.

        A new run takes the place of such a folder.
        """
        files = self.path.iterdir() if self.path.is_dir() else ()
        begun = {LOCK, LOG, META}  # the first files of a run; those with a dot are being written
        names = {file.name for file in files if not file.name.startswith(".")} - begun
        has_ended = RESULT in names and "error" not in newest_figures(self.path)
        if names and (CONFIG not in names or EVALUATIONS in names or has_ended):
            raise WrongInput(
                f"{self.path} has files but no checkpoint to go on from, and a new run would "
                "replace it: move it away, or choose another folder"
            )

    def note(self, **arguments: str) -> None:
        """Record the extra arguments of its training (train), which replace all of an earlier one.

        When it is resumed, also the requested `steps`, and `until` when it then runs.
        """
        known = {} if "train" in arguments else _known(self.asked)
        rewrite_whole(self.asked, json.dumps({**known, **arguments}))

    @property
    def next_command(self) -> list[str]:
        """The arguments of the next command; empty if the job is done."""
        if not self.kept:
            return ["train", *self.training]
        if not self._trained:
            until = self.resumed_until
            limits = [*self._limits(until), *self._schedule(until)]
            return ["train", "--resume", str(self.path), "--trust", *limits]
        if self.evaluation and not self._evaluated:
            return ["evaluate", *self.evaluating]
        return []

    @property
    def until(self) -> int | None:
        """The steps at which it ends: more than requested if it had to refill a replay."""
        known = _known(self.asked)
        is_known = self.steps and known.get("steps") == str(self.steps)
        return int(known["until"]) if is_known else self.steps

    @property
    def resumed_until(self) -> int | None:
        """The same if it is resumed now.

        A resumed run first refills a replay that was not saved, and must not end while it does.
        """
        config, until = load_config(self.path), self.until
        if until is None or not config.learns_from_replay or config.replay.save_replay:
            return until
        refill = config.replay.replay_min_steps
        return until + refill if until - int(self.kept[-1].name) <= refill else until

    def _limits(self, steps: int | None) -> list[str]:
        return ["--steps", str(steps), "--seconds", str(self.seconds)]

    def _schedule(self, until: int | None) -> list[str]:
        """The schedules of the steps asked for, for a resumed run that ends later.

        Also where it was given those of fewer steps, to end later than these.
        """
        optimizer = load_config(self.path).optimizer
        own = given_value(shlex.split(self.arguments), "--schedule-steps")
        if own is None and str(optimizer.schedule_steps) == _known(self.asked).get("steps"):
            optimizer = replace(optimizer, schedule_steps=None)
        elif until == self.steps:
            return []
        asked = optimizer.scheduled(self.steps)
        end = ["--learning-rate-end", str(asked.learning_rate_end)]
        return ["--schedule-steps", str(asked.schedule_steps), *end]

    @property
    def training(self) -> list[str]:
        """The arguments of `ga3c train` for a new run."""
        own = ["--game", self.game, "--seed", str(self.seed), "--name", self.path.name]
        own += ["--runs-dir", str(self.path.parent)]
        return [*own, *self._limits(self.steps), *shlex.split(self.arguments)]

    @property
    def evaluating(self) -> list[str]:
        """The arguments of `ga3c evaluate`; empty if it is not to be evaluated."""
        if not self.evaluation:
            return []
        protocol, episodes, arguments = self.evaluation
        own = [str(self.path), "--trust", *(["--protocol", protocol] if protocol else [])]
        return [*own, "--episodes", str(episodes), *shlex.split(arguments)]

    @property
    def _trained(self) -> bool:
        """Whether its newest checkpoint is at a limit. If it is damaged, the run is resumed."""
        try:
            newest = checkpoints.read(self.kept[-1])
        except (checkpoints.Damaged, IndexError):
            return False
        reached = newest.steps, newest.state["seconds"]
        limits = self.until, self.seconds
        return any(limit and done >= limit for done, limit in zip(reached, limits, strict=True))

    @property
    def _evaluated(self) -> bool:
        """Whether its newest checkpoint has been evaluated as is asked for."""
        newest, run = int(self.kept[-1].name), history.read(self.path)
        of_newest = [entry for entry in run.evaluations if entry["steps"] == newest]
        if not of_newest:
            return False
        asked = asked_evaluation(self.evaluating)
        protocols = protocols_of(asked, run.config)
        return any(
            entry["protocol"] in protocols
            and entry["episodes"] >= asked.episodes
            and entry.get("seed") == asked.seed  # that of evaluations during training is another
            and set(asked.info_keys) <= set(entry.get("infos", ()))
            for entry in of_newest
        )


def asked_evaluation(evaluating: list[str]) -> EvaluateConfig:
    """What these arguments ask of `ga3c evaluate`. Raises WrongInput."""
    base = EvaluateConfig.defaults(evaluating)
    try:
        asked: EvaluateConfig = parsed(evaluating, EvaluateConfig, "ga3c evaluate", base)
    except WrongUse as error:
        raise WrongInput(str(error)) from error
    if asked.pretrained is not None:
        raise WrongInput(f"pretrained {asked.pretrained}: what is evaluated is the trained run")
    return asked


def protocols_of(asked: EvaluateConfig, trained: TrainConfig) -> list[dict[str, Any]]:
    """The protocols that such an evaluation may be kept with, for any actions of the game.

    These show only where it is made, and this machine may lack its packages. If the algorithm is
    the user's own, they are for greedy policies as well as for those that sample.
    """
    ours, found = TRAITS.get(trained.algorithm), []
    greedy = (False, True) if ours is None else ("dqn" in ours.sections,)
    for actions, is_greedy in itertools.product((Actions(2), Actions(0)), greedy):
        spaces = Spaces((1,), "float32", actions, 1)
        with contextlib.suppress(ValueError):  # the protocol is not for such actions
            found.append(protocol_of(asked, trained, spaces, is_greedy))
    return found


def protocol_of(
    asked: EvaluateConfig, trained: TrainConfig, spaces: Spaces, is_greedy: bool = False
) -> dict[str, Any]:
    """The protocol that the evaluation is kept with. Raises ValueError if it cannot be made.

    Args: is_greedy: whether the policy is, as `Protocol.named` says.
    """
    played = asked.as_played(trained)
    name, settings = asked.played_by(played, spaces)
    return settings.named(name, played.environment, asked.checkpoint, is_greedy)


def _known(file: Path) -> dict[str, str]:
    """What the file says; empty for a run made by hand or by an earlier version.

    Raises WrongInput if it cannot be read.
    """
    try:
        return dict(json.loads(file.read_text()))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise WrongInput(
            f"{file}, which says how its run was made, cannot be read: {error}"
        ) from error
