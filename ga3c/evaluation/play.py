"""`ga3c play`: a video of one game, with score, value and action probabilities beside it."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import imageio.v2 as imageio
import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from agents.environments import EnvironmentConfig, Environments
from agents.pictures import NoPictures, Pictures
from ga3c import backend
from ga3c.evaluation.chosen import PlayedConfig, load, policy_of
from ga3c.evaluation.games import ActionDraws, choose
from ga3c.evaluation.policy import Policy, Stacks
from ga3c.evaluation.protocols import Protocol
from ga3c.settings.checks import WrongInput, check_file
from ga3c.settings.machine import CORES

HEIGHT, PANEL, MARGIN = 480, 340, 20  # pixels
INK, FAINT, PAPER = (35, 38, 43), (170, 175, 180), (250, 250, 248)
VALUE, ACTION = (31, 119, 180), (255, 127, 14)  # value and actions, as in all plots
SHOWN_VALUES = 150
MOST_ACTIONS = 18
END_S = 1.0  # of the last picture


@dataclass(frozen=True)
class Config(PlayedConfig):
    """Render a game played by what a run has learned, as mp4 or gif."""

    out: Path | None = None
    """File to write, .mp4 or .gif; None: video/STEPS-PROTOCOL-SEED.mp4 in the run's directory."""
    window: bool = False
    """Show the game in a window, as it is played, and write no file."""
    max_seconds: float = 120.0
    """Longest video, in seconds of play."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out is not None and self.out.suffix not in (".mp4", ".gif"):
            raise ValueError(f"out {self.out}: must end in .mp4 or .gif")
        check_file("out", self.out)
        if self.max_seconds <= 0:
            raise ValueError(f"max_seconds {self.max_seconds}: must be above 0")


class Moment(NamedTuple):
    """One step of the game."""

    picture: np.ndarray  # [h, w, 3] uint8
    score: float
    length: int
    value: float
    probabilities: np.ndarray  # [actions]
    action: int
    finished: bool  # the game ends here


def moments(
    policy: Policy,
    pictures: Pictures,
    environment: EnvironmentConfig,
    protocol: Protocol,
    seed: int,
) -> Iterator[Moment]:
    """A game from what its reset shows to its end: the first of an evaluation with the seed."""
    environments = Environments(environment, 1)
    draws = ActionDraws(seed, 0, 1)
    stacks = Stacks(environments.spaces, 1)
    step, picture = environments.reset(seed), pictures.reset(seed)
    score, length = 0.0, -1  # the reset is no step
    try:
        while True:
            outcome = step.outcomes[0]
            score, length = score + float(outcome["reward"]), length + 1
            observations = stacks.push(step.frames, step.outcomes["first"] == 1)
            probabilities, values = policy.judge(observations)
            actions = choose(protocol, probabilities, draws.next())
            yield Moment(
                *(picture, score, length, float(values[0]), probabilities[0], int(actions[0])),
                finished=bool(outcome["finished"]),
            )
            if outcome["finished"] or length == protocol.step_cap:
                return
            step, picture = environments.step(actions), pictures.step(actions)
    finally:
        environments.close()


class Canvas:
    """Draws moments: the game at the left, what the policy thinks of it at the right."""

    def __init__(self, title: str, actions: list[str]) -> None:
        fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        self._fonts = {
            size: ImageFont.truetype(str(fonts / "DejaVuSans.ttf"), size) for size in (13, 16, 34)
        }
        self._title = title
        self._actions = actions[:MOST_ACTIONS]
        self._values: deque[float] = deque(maxlen=SHOWN_VALUES)

    def draw(self, moment: Moment) -> np.ndarray:
        """[h, w, 3] uint8, of an even height and width, as video encoders want."""
        self._values.append(moment.value)
        game = Image.fromarray(moment.picture)
        height, width = moment.picture.shape[:2]
        # a console's pixels are wider than high
        stretched = HEIGHT * 4 // 3 if (height, width) == (210, 160) else HEIGHT * width // height
        game = game.resize((stretched // 2 * 2, HEIGHT), Image.Resampling.BICUBIC)
        whole = Image.new("RGB", (game.width + PANEL, HEIGHT), PAPER)
        whole.paste(game, (0, 0))
        self._panel(ImageDraw.Draw(whole), game.width + MARGIN, moment)
        return np.asarray(whole)

    def _panel(self, draw: ImageDraw.ImageDraw, left: int, moment: Moment) -> None:
        right = left + PANEL - 2 * MARGIN
        self._text(draw, (left, 14), self._title, 16)
        self._text(draw, (left, 38), f"{moment.score:,.0f}", 34)
        self._text(draw, (right, 58), f"step {moment.length:,}", 13, FAINT, "ra")
        self._text(draw, (left, 96), "value of the state", 13)
        self._text(draw, (right, 96), f"{moment.value:.2f}", 13, VALUE, "ra")
        self._curve(draw, (left, 118, right, 208))
        self._text(draw, (left, 226), "probability of the actions", 13)
        top, bottom = 248, HEIGHT - 14
        room = (bottom - top) / len(self._actions)
        for number, name in enumerate(self._actions):
            y = top + number * room
            self._bar(draw, (left, y, right, y + room), name, moment, number)

    def _curve(self, draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int]) -> None:
        left, top, right, bottom = box
        draw.rectangle(box, outline=FAINT)
        low, high = min(self._values), max(self._values)
        scale = (bottom - top - 8) / ((high - low) or 1.0)
        across = (right - left - 8) / max(SHOWN_VALUES - 1, 1)
        points = [
            (left + 4 + index * across, bottom - 4 - (value - low) * scale)
            for index, value in enumerate(self._values)
        ]
        if len(points) > 1:
            draw.line(points, fill=VALUE, width=2)

    def _bar(
        self,
        draw: ImageDraw.ImageDraw,
        box: tuple[float, float, float, float],
        name: str,
        moment: Moment,
        number: int,
    ) -> None:
        left, top, right, bottom = box
        names = 120
        probability = float(moment.probabilities[number])
        chosen = number == moment.action
        middle = (top + bottom) / 2
        self._text(draw, (left, middle), name, 13, INK if chosen else FAINT, "lm")
        end = left + names + (right - left - names) * probability
        thick = min((bottom - top) * 0.36, 10)
        colour = ACTION if chosen else FAINT
        draw.rectangle((left + names, middle - thick, end, middle + thick), fill=colour)

    def _text(
        self,
        draw: ImageDraw.ImageDraw,
        at: tuple[float, float],
        text: str,
        size: int,
        colour: tuple[int, int, int] = INK,
        anchor: str = "la",
    ) -> None:
        draw.text(at, text, colour, self._fonts[size], anchor)


def run(config: Config) -> None:
    """Play, draw, write. Raises WrongInput or RuntimeError."""
    try:
        _show(config)
    except NoPictures as error:
        raise WrongInput(str(error)) from error


def _show(config: Config) -> None:
    trained, path, checkpoint = load(config)
    backend.configure(CORES, config.seed)
    policy = policy_of(trained, checkpoint)
    environment = config.settings.environment(trained.environment)
    pictures = Pictures(environment)
    shown = moments(policy, pictures, environment, config.settings, config.seed)
    first = next(shown)
    steps = int(checkpoint.state["steps"])
    title = f"{trained.environment.game} after {steps:,} steps"
    out = config.out or path / "video" / f"{steps}-{config.protocol}-{config.seed}.mp4"
    canvas = Canvas(title, pictures.actions)
    most = int(config.max_seconds * pictures.per_second)
    to = Window(title, pictures.per_second) if config.window else _writer(out, pictures.per_second)
    with to as writer:
        last = first
        frame = canvas.draw(first)
        writer.append_data(frame)
        for last, _ in zip(shown, range(most - 1), strict=False):
            frame = canvas.draw(last)
            writer.append_data(frame)
        for _ in range(int(END_S * pictures.per_second)):
            writer.append_data(frame)
    shown.close()  # type: ignore[attr-defined]  # it is a generator
    pictures.close()
    cap = "--step-cap" if last.length == config.settings.step_cap else "--max-seconds"
    until = "" if last.finished else f", cut there by {cap}"
    where = "" if config.window else f"; video in {out}"
    print(f"score {last.score:,.0f} after {last.length:,} steps{until}{where}")


class Window:
    """Shows pictures one after another, in the game's own time, until it is closed.

    Raises WrongInput where there is no display.
    """

    def __init__(self, title: str, per_second: float) -> None:
        try:
            import tkinter

            from PIL import ImageTk
        except ImportError as error:
            raise WrongInput(f"no window can be shown: {error}; leave --window out") from error
        try:
            self._root = tkinter.Tk()
        except tkinter.TclError as error:
            raise WrongInput(f"no window can be shown: {error}; leave --window out") from error
        self._photo = ImageTk.PhotoImage
        self._root.title(title)
        self._label = tkinter.Label(self._root)
        self._label.pack()
        self._root.protocol("WM_DELETE_WINDOW", self._close)
        self._is_open = True
        self._every_s, self._next_s = 1 / per_second, time.monotonic()

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, *failure: object) -> None:
        self._close()

    def append_data(self, picture: np.ndarray) -> None:
        """Show [h, w, 3] uint8. Raises KeyboardInterrupt once the window is closed."""
        if not self._is_open:
            raise KeyboardInterrupt
        self._shown = self._photo(Image.fromarray(picture), master=self._root)
        self._label.configure(image=self._shown)
        self._root.update()
        now_s = time.monotonic()
        self._next_s = max(self._next_s + self._every_s, now_s)
        time.sleep(self._next_s - now_s)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._root.destroy()


def _writer(out: Path, per_second: float) -> Any:
    out.parent.mkdir(exist_ok=True)
    if out.suffix == ".gif":
        return imageio.get_writer(out, duration=1000 / per_second, loop=0)
    return imageio.get_writer(out, fps=per_second, macro_block_size=1, quality=7)
