"""Draws the pictures of a video: the game on the left, the policy's view of it on the right."""

import contextlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import imageio.v2 as imageio
import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ga3c.runs.tally import short_score

HEIGHT, PANEL, MARGIN = 480, 340, 20  # pixels
SCALE, NUMBERS = 48, 160  # width of the curve's scale, right edge of the actions' numbers
INK, GREY, FAINT = (35, 38, 43), (107, 112, 118), (170, 175, 180)
PAPER = (250, 250, 248)
VALUE, ACTION = (31, 119, 180), (255, 127, 14)  # colours of value and actions, as in all plots
SHOWN_VALUES = 150
MOST_ACTIONS = 24


class Moment(NamedTuple):
    """One step of the game, and what the policy thinks of it."""

    picture: np.ndarray  # [h, w, 3] uint8
    score: float
    length: int
    value: float
    policy: np.ndarray  # probabilities [actions], or a continuous action [size] in [-1, 1]
    action: int | None  # None if actions are continuous
    finished: bool  # this is the last step of the game
    action_values: np.ndarray | None = None  # Q [actions], if the algorithm learns it


@contextlib.contextmanager
def video(out: Path, per_second: float) -> Iterator[Any]:
    """A writer for the pictures of a video, .mp4 or .gif.

    The file gets its name once it is complete; an interrupted video leaves nothing behind.
    """
    partial = out.with_name(f".partial-{out.name}")
    timing: dict[str, Any] = {"fps": per_second, "macro_block_size": 1, "quality": 7}
    if out.suffix == ".gif":
        timing = {"duration": 1000 / per_second, "loop": 0}
    try:
        with imageio.get_writer(partial, **timing) as writer:
            yield writer
        partial.rename(out)
    finally:
        partial.unlink(missing_ok=True)


class Canvas:
    """Draws one moment after another."""

    def __init__(self, title: str, actions: list[str]) -> None:
        fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        self._fonts = {
            size: ImageFont.truetype(str(fonts / "DejaVuSans.ttf"), size)
            for size in (11, 13, 16, 34)
        }
        room = PANEL - 2 * MARGIN
        sizes = [size for size in (16, 13, 11) if self._fonts[size].getlength(title) <= room]
        self._title, self._title_size = title, max(sizes, default=11)
        self._actions = actions[:MOST_ACTIONS]
        self._values: deque[float] = deque(maxlen=SHOWN_VALUES)
        self._lowest: deque[float] = deque(maxlen=SHOWN_VALUES)  # of action values
        self._highest: deque[float] = deque(maxlen=SHOWN_VALUES)

    def draw(self, moment: Moment) -> np.ndarray:
        """The picture, [h, w, 3] uint8; height and width are even, as video encoders need."""
        self._values.append(moment.value)
        game = Image.fromarray(moment.picture)
        height, width = moment.picture.shape[:2]
        # The console's pixels are wider than they are high.
        stretched = HEIGHT * 4 // 3 if (height, width) == (210, 160) else HEIGHT * width // height
        game = game.resize((stretched // 2 * 2, HEIGHT), Image.Resampling.BICUBIC)
        whole = Image.new("RGB", (game.width + PANEL, HEIGHT), PAPER)
        whole.paste(game, (0, 0))
        self._panel(ImageDraw.Draw(whole), game.width + MARGIN, moment)
        return np.asarray(whole)

    def _panel(self, draw: ImageDraw.ImageDraw, left: int, moment: Moment) -> None:
        right = left + PANEL - 2 * MARGIN
        self._text(draw, (left, 14), self._title, self._title_size)
        self._text(draw, (left, 38), short_score(moment.score), 34)
        self._text(draw, (right, 58), f"step {moment.length:,}", 13, GREY, "ra")
        shown = f"last {SHOWN_VALUES} steps"
        self._text(draw, (left, 96), f"value of the state, {shown}", 13)
        self._text(draw, (right, 96), f"{moment.value:z.2f}", 13, VALUE, "ra")
        self._curve(draw, (left + SCALE, 118, right, 208))
        numbers, shares = moment.policy, moment.policy
        heading, digits = "probabilities of the actions", 2
        if moment.action is None:
            shares, heading = (moment.policy + 1) / 2, "actions, from -1 to 1"
        if moment.action_values is not None:
            numbers, shares = moment.action_values, self._within(moment.action_values)
            heading, digits = f"Q values of the actions, bars: {shown}", 3
        self._text(draw, (left, 226), heading, 13)
        top, bottom = 248, HEIGHT - 14
        room = (bottom - top) / len(self._actions)
        for number, name in enumerate(self._actions):
            y = top + number * room
            is_chosen = number == moment.action
            told = (name, f"{numbers[number]:z.{digits}f}")
            self._bar(draw, (left, y, right, y + room), told, float(shares[number]), is_chosen)
        if moment.action is None:  # a mark at 0
            start = left + NUMBERS + 8
            draw.line([((start + right) / 2, top), ((start + right) / 2, bottom)], GREY)

    def _within(self, action_values: np.ndarray) -> np.ndarray:
        """The action values as shares of their range over the steps shown."""
        self._lowest.append(float(action_values.min()))
        self._highest.append(float(action_values.max()))
        low, high = min(self._lowest), max(self._highest)
        return (action_values - low) / ((high - low) or 1.0)

    def _curve(self, draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int]) -> None:
        left, top, right, bottom = box
        draw.rectangle(box, outline=FAINT)
        low, high = min(self._values), max(self._values)
        self._text(draw, (left - 6, top + 4), f"{high:.3g}", 13, GREY, "rm")
        self._text(draw, (left - 6, bottom - 4), f"{low:.3g}", 13, GREY, "rm")
        scale = (bottom - top - 8) / ((high - low) or 1.0)
        if low < 0 < high:
            draw.line([(left, bottom - 4 + low * scale), (right, bottom - 4 + low * scale)], FAINT)
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
        told: tuple[str, str],
        share: float,
        is_chosen: bool,
    ) -> None:
        """A row of the panel. Args: told: an action's name and number; share: length of its bar."""
        left, top, right, bottom = box
        middle, size = (top + bottom) / 2, 13 if bottom - top > 14 else 11
        colour = INK if is_chosen else GREY
        self._text(draw, (left, middle), told[0], size, colour, "lm")
        self._text(draw, (left + NUMBERS, middle), told[1], size, colour, "rm")
        start = left + NUMBERS + 8
        end = start + (right - start) * share
        half = min((bottom - top) * 0.36, 10)
        colour = ACTION if is_chosen else FAINT
        draw.rectangle((start, middle - half, end, middle + half), fill=colour)

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
