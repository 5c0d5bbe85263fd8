"""Shows a run: as a live view in a terminal, else as one line every few seconds."""

import math
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import IO, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ga3c.settings.run import RunConfig
from ga3c.training.progress import Values, clock, legend, line, number, rows

EVENTS = 6  # event lines in the live view
CURVE_HEIGHT = 8  # lines, at least
LEAST_SPAN = 0.1  # of the curve's axis, as a fraction of the largest score
BESIDE_CURVE = 64  # columns that the table beside the curve needs
BLOCKS = " ▁▂▃▄▅▆▇█"


class View(Protocol):
    """Shows a run's event lines and figures."""

    def say(self, text: str, to: IO[str] | None = None) -> None:
        """Show an event."""

    def show(self, values: Values) -> None:
        """Show the figures of the last window."""

    def close(self) -> None:
        """Restore the terminal."""


def view(run: RunConfig, game: str) -> View:
    """A live view if there is a terminal and no --plain, else plain lines."""
    console = Console()
    if run.plain or not console.is_terminal or console.is_dumb_terminal:
        return Plain()
    return LiveView(run, game, console)


class Plain:
    """Prints lines."""

    def __init__(self) -> None:
        self._legend_printed = False

    def say(self, text: str, to: IO[str] | None = None) -> None:
        """Print the event's line."""
        print(f"ga3c: {text}", file=to, flush=True)

    def show(self, values: Values) -> None:
        """Print the progress line; before the first one, a legend of its fields."""
        if not self._legend_printed:
            print(legend(values))
        self._legend_printed = True
        print(line(values), flush=True)

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


class LiveView:
    """Redraws each second: curve of the score, figures, waiting times, progress, last events.

    It fills the terminal's alternate screen at its current size. The last picture is printed when
    the view closes.
    """

    def __init__(self, run: RunConfig, game: str, console: Console) -> None:
        self._limits = run
        self._title = f"{game}, seed {run.seed}"
        self._events: deque[str] = deque(maxlen=EVENTS)
        self._errors: list[str] = []
        self._closed = False
        self._scores: list[float] = []
        self._values: Values = {}
        self._shown_s = 0.0  # when the figures arrived
        self._console = console
        self._live = Live(
            console=console, screen=True, refresh_per_second=1, get_renderable=self._picture
        )
        self._live.start()

    def say(self, text: str, to: IO[str] | None = None) -> None:
        """Add it to the last events; an error is also printed once the view has closed."""
        self._events.append(text)
        if to is sys.stderr:
            self._errors.append(f"ga3c: {text}")
        self._live.refresh()

    def show(self, values: Values) -> None:
        """Draw the figures."""
        self._values, self._shown_s = values, time.monotonic()
        if (score := values["score_mean_100"]) is not None:
            self._scores.append(score)
        self._live.refresh()

    def close(self) -> None:
        """Restore the terminal, and print the last picture and the errors."""
        if self._closed:
            return
        self._closed = True
        self._live.stop()
        self._console.print(self._picture())
        for error in self._errors:
            print(error, file=sys.stderr, flush=True)

    def _picture(self) -> Group:
        parts = [Panel(Text("\n".join(self._events)), title="events", title_align="left")]
        if self._values:
            parts.insert(0, self._figures(self._values))
        return Group(*parts)

    def _figures(self, values: Values) -> Panel:
        passed_s = 0.0 if self._closed else time.monotonic() - self._shown_s
        now = f"{clock((values['seconds'] or 0.0) + passed_s)} · {values['steps']:,} steps"
        table = Table.grid(padding=(0, 3))
        for name, text in rows(values):
            table.add_row(name, Text(text, justify="right"))
        top = Table.grid(padding=(0, 4))
        top.add_row(self._curve(values), table)
        progress = self._progress(values)
        return Panel(
            Group(top, *([progress] if progress else [])),
            title=f"{self._title} · {now} · {values['episodes']:,} episodes",
            title_align="left",
        )

    @property
    def _width(self) -> int:
        """Columns of the curve."""
        return max(self._console.width - BESIDE_CURVE, 10)

    def _curve(self, values: Values) -> Group:
        if not self._scores:
            return Group(Text("no game has ended yet"))
        newest = f"score, mean of the last 100: {number(values['score_mean_100'])}"
        height = max(len(rows(values)) - 1, CURVE_HEIGHT)
        lines = curve(self._scores, self._width, height)
        return Group(Text(newest, style="bold"), *map(Text, lines))

    def _progress(self, values: Values) -> Table | None:
        done = [
            (reached or 0) / limit
            for reached, limit in (
                (values["steps"], self._limits.steps),
                (values["seconds"], self._limits.seconds),
            )
            if limit
        ]
        if not done:
            return None
        share = min(max(done), 1.0)
        seconds = (values["seconds"] or 0) * (1 - share) / max(share, 1e-9)
        row = Table.grid(padding=(0, 2))
        row.add_row(
            ProgressBar(100, share * 100, width=self._width), f"{share:.0%}, {clock(seconds)} left"
        )
        return row


def curve(values: Sequence[float], width: int, height: int) -> list[str]:
    """`values` as lines of block characters, with a scale at the left."""
    stride = max(math.ceil(len(values) / width), 1)
    parts = (values[start : start + stride] for start in range(0, len(values), stride))
    means = [sum(part) / len(part) for part in parts]
    low, high = scale(means)
    eighths = [(value - low) / (high - low) * height * 8 for value in means]
    lines = []
    for row in reversed(range(height)):
        cells = (BLOCKS[min(max(round(filled) - row * 8, 0), 8)] for filled in eighths)
        mark = number(high) if row == height - 1 else number(low) if row == 0 else ""
        lines.append(f"{mark:>8} {''.join(cells)}")
    return lines


def scale(values: Sequence[float]) -> tuple[float, float]:
    """The limits of an axis for `values`: at least a tenth of the largest apart, and at least 1.

    Otherwise the noise of a constant score would look like progress.
    """
    low, high = min(values), max(values)
    least = max(1.0, LEAST_SPAN * max(abs(low), abs(high)))
    beyond = max(least - (high - low), 0.0) / 2
    return low - beyond, high + beyond
