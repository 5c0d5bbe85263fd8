"""`ga3c play`: a video of one game, with score, value and action probabilities beside it."""

import re
import time
import zlib
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

from agents.environments import EnvironmentConfig, Environments
from agents.pictures import NoPictures, Pictures
from ga3c.evaluation.canvas import Canvas, Moment, video
from ga3c.evaluation.chosen import played
from ga3c.evaluation.games import ActionDraws, chosen_actions
from ga3c.evaluation.options import PlayConfig as Config
from ga3c.evaluation.policy import Policy, Stacks
from ga3c.evaluation.protocols import Protocol
from ga3c.evaluation.window import Window
from ga3c.runs.finding import VIDEOS
from ga3c.runs.tally import short_score
from ga3c.settings.checks import WrongInput, check_file

NAMED = 100  # the most characters of a protocol and arguments in a file name
PROGRESS_S = 5.0
END_S = 1.0  # how long the last picture stays


def moments(
    policy: Policy,
    pictures: Pictures,
    environment: EnvironmentConfig,
    protocol: Protocol,
    seed: int,
) -> Generator[Moment]:
    """All steps of a game, reset included: game number 0 of an evaluation with `seed`."""
    with closing(Environments(environment, 1)) as environments:
        draws = ActionDraws(seed, 0, 1)
        stacks = Stacks(environments.spaces, 1)
        step, picture = environments.reset(seed), pictures.reset(seed)
        score, length = 0.0, -1  # the reset does not count as a step
        while True:
            outcome = step.outcomes[0]
            score, length = score + float(outcome["reward"]), length + 1
            observations = stacks.push(step.frames, step.firsts)
            policies, values = policy.judge(observations)
            actions = chosen_actions(protocol, policies, draws.next(), policy.spaces)
            finite = not policy.spaces.actions.is_continuous
            action_values = policy.action_values(observations)
            yield Moment(
                picture=picture,
                score=score,
                length=length,
                value=float(values[0]),
                policy=policies[0],
                action=int(actions[0]) if finite else None,
                finished=bool(outcome["finished"]),
                action_values=None if action_values is None else action_values[0],
            )
            if outcome["finished"] or length == protocol.step_cap:
                return
            step, picture = environments.step(actions), pictures.step(actions)


def _file_name(*parts: str) -> str:
    """The parts in one name that any file system takes; others have another name."""
    whole = "-".join(parts)
    safe = re.sub(r"[^\w.=-]+", "_", whole, flags=re.ASCII)[:NAMED]
    return safe if safe == whole else f"{safe}-{zlib.crc32(whole.encode()):08x}"


def _check_folder(out: Path) -> None:
    """Make the folder of a video. Raises WrongInput if the video could not be written there."""
    try:
        out.parent.mkdir(exist_ok=True)
        check_file("out", out)
    except (OSError, ValueError) as error:
        raise WrongInput(f"the video {out} could not be written: give --out FILE") from error


def run(config: Config) -> None:
    """Play a game and write or show it. Raises WrongInput or RuntimeError."""
    try:
        _show(config)
    except NoPictures as error:
        raise WrongInput(str(error)) from error


def _show(config: Config) -> None:
    chosen = played(config)
    path, learned, protocol = chosen.path, chosen.title, chosen.protocol
    environment = protocol.environment(chosen.environment)
    print(f"{path}: {learned}; protocol {chosen.named['name']}", flush=True)
    changes = (f"{setting}={value}" for setting, value in chosen.changes.items())
    named = f"{_file_name(chosen.name, *changes, *config.env_args)}-{config.seed}.mp4"
    out = config.out or path / VIDEOS / f"{chosen.checkpoint.steps}-{named}"
    if config.pretrained and config.out is None:
        out = Path(f"{path.name}-{named}")
    if not config.window:
        _check_folder(out)
    with (
        closing(Pictures(environment)) as pictures,
        closing(moments(chosen.policy, pictures, environment, protocol, config.seed)) as game,
    ):
        last = next(game)
        canvas, rate = Canvas(learned, pictures.actions), pictures.per_second
        with Window(learned, rate) if config.window else video(out, rate) as writer:
            frame = canvas.draw(last)
            writer.append_data(frame)
            said_s = time.monotonic()
            for last, _ in zip(game, range(int(config.max_seconds * rate) - 1), strict=False):
                frame = canvas.draw(last)
                writer.append_data(frame)
                if time.monotonic() - said_s > PROGRESS_S:
                    said_s = time.monotonic()
                    print(f"step {last.length:,}: score {short_score(last.score)}", flush=True)
            for _ in range(int(END_S * rate)):
                writer.append_data(frame)
    cap = "--step-cap" if last.length == protocol.step_cap else "--max-seconds"
    cut = "" if last.finished else f", cut there by {cap}"
    file = "" if config.window else f"; video in {out}"
    print(f"score {short_score(last.score)} after {last.length:,} steps{cut}{file}")
