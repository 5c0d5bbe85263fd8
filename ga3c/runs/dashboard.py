"""Shows a run: as a live view in a terminal, else as one line every few seconds."""

import math
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ga3c.runs.metrics import Metrics, Window
from ga3c.runs.tally import Tally
from ga3c.settings.run import RunConfig
from ga3c.settings.scheduler import Counts

LEGEND = (
    "[time, episodes, last score] [RScore: mean of the last 100, steps] [PPS: predictions/s, "
    "TPS: trained samples/s] [queued predictions, training samples, lag in updates] "
    "[NT trainers, NP predictors, NA agents]"
)
ROLES = ("agents", "predictors", "trainers")
EVENTS = 6  # event lines in the live view
CURVE_HEIGHT = 8  # lines
BESIDE_CURVE = 64  # columns that the table beside the curve needs
BLOCKS = " ▁▂▃▄▅▆▇█"
Values = Mapping[str, float | None]


def figures(
    window: Window, metrics: Metrics, tally: Tally, counts: Counts, requests: int, samples: int
) -> dict[str, float | None]:
    """The figures of one progress line. Rates and means are over the window."""
    return {
        "seconds": round(tally.seconds, 2),
        "steps": int(window.end["steps"]),
        "episodes": tally.episodes,
        "score": _finite(tally.last_score),
        "score_mean_100": _finite(tally.score_mean()),
        "pps": round(window.rate("steps"), 1),
        "tps": round(window.rate("trained_samples"), 1),
        "updates": int(window.end["updates"]),
        "updates_per_s": round(window.rate("updates"), 2),
        "prediction_queue": requests,
        "training_queue": samples,
        "policy_lag": round(window.mean("lag_updates", "trained_samples"), 2),
        "prediction_batch": round(window.mean("steps", "prediction_batches"), 1),
        **{f"{role}_waiting": round(window.share(role, "waiting"), 3) for role in ROLES},
        **counts._asdict(),
        **{name: _finite(value, 5) for name, value in metrics.newest().items()},
    }


def line(values: Values) -> str:
    """The figures as one progress line, with the fields of GA3C's."""
    return (
        f"[Time {_clock(values['seconds'])}] "
        f"[Episode {values['episodes']} Score {_number(values['score'])}] "
        f"[RScore {_number(values['score_mean_100'])} Steps {values['steps']:,}] "
        f"[PPS {values['pps']:.0f} TPS {values['tps']:.0f}] "
        f"{_queued(values)} "
        f"[NT {values['trainers']} NP {values['predictors']} NA {values['agents']}]"
    )


def _queue_rows(values: Values) -> list[tuple[str, str]]:
    """Rows of the live view: queues and policy lag, or queue, replay and epsilon."""
    queued = values["prediction_queue"]
    if (replay := values.get("replay_steps")) is None:
        queues = f"{queued}, {values['training_queue']}"
        lag = f"{values['policy_lag']:.1f}"
        return [("policy lag, updates", lag), ("queued predictions, samples", queues)]
    return [
        ("replay, steps to draw from", f"{replay:,.0f}"),
        ("epsilon", f"{values.get('epsilon') or 0.0:.2f}"),
        ("queued predictions", f"{queued}"),
    ]


def _queued(values: Values) -> str:
    """The same for the progress line."""
    replay = values.get("replay_steps")
    if replay is None:
        queued = f"PQ {values['prediction_queue']} TQ {values['training_queue']}"
        return f"[{queued} Lag {values['policy_lag']:.1f}]"
    epsilon = values.get("epsilon") or 0.0
    return f"[PQ {values['prediction_queue']} Replay {replay:,.0f} Epsilon {epsilon:.2f}]"


class View(Protocol):
    """Shows a run's event lines and figures."""

    def say(self, text: str, to: IO[str] | None = None) -> None:
        """Show an event's line."""

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
        """Print the line."""
        print(text, file=to, flush=True)

    def show(self, values: Values) -> None:
        """Print the progress line; before the first one, a legend of its fields."""
        if not self._legend_printed:
            print(LEGEND)
        self._legend_printed = True
        self.say(line(values))

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


class LiveView:
    """Redraws in place: curve of the score, figures, waiting times, progress, last events."""

    def __init__(self, run: RunConfig, game: str, console: Console) -> None:
        self._limits = run
        self._title = f"{game}, seed {run.seed}"
        self._events: deque[str] = deque(maxlen=EVENTS)
        self._scores: list[float] = []
        self._values: Values = {}
        self._width = max(console.width - BESIDE_CURVE, 10)  # of the curve
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def say(self, text: str, to: IO[str] | None = None) -> None:
        """Add the line to the last events; an error is also printed above the view, and stays."""
        self._events.append(text.removeprefix("ga3c: "))
        if to is sys.stderr:
            self._live.console.print(Text(text, style="red"))
        self._draw()

    def show(self, values: Values) -> None:
        """Draw the figures."""
        self._values = values
        if (score := values["score_mean_100"]) is not None:
            self._scores.append(score)
        self._draw()

    def close(self) -> None:
        """Stop redrawing; the last picture stays."""
        self._live.stop()

    def _draw(self) -> None:
        parts = [Panel(Text("\n".join(self._events)), title="events", title_align="left")]
        if self._values:
            parts.insert(0, self._picture(self._values))
        self._live.update(Group(*parts), refresh=True)

    def _picture(self, values: Values) -> Panel:
        steps, clock = f"{values['steps']:,} steps", _clock(values["seconds"])
        table = Table.grid(padding=(0, 3))
        for name, text in (
            ("PPS, predictions/s", f"{values['pps']:,.0f}"),
            ("TPS, trained samples/s", f"{values['tps']:,.0f}"),
            *_queue_rows(values),
            *(
                (f"{role}: {values[role]}", f"wait {values[f'{role}_waiting'] or 0:.0%}")
                for role in ROLES
            ),
        ):
            table.add_row(name, Text(text, justify="right"))
        top = Table.grid(padding=(0, 4))
        top.add_row(self._curve(values), table)
        progress = self._progress(values)
        return Panel(
            Group(top, *([progress] if progress else [])),
            title=f"{self._title} · {clock} · {steps} · {values['episodes']:,} episodes",
            title_align="left",
        )

    def _curve(self, values: Values) -> Group:
        if not self._scores:
            return Group(Text("no game has ended yet"))
        newest = f"score, mean of the last 100: {_number(values['score_mean_100'])}"
        return Group(
            Text(newest, style="bold"), *map(Text, curve(self._scores, self._width, CURVE_HEIGHT))
        )

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
            ProgressBar(100, share * 100, width=self._width), f"{share:.0%}, {_clock(seconds)} left"
        )
        return row


def curve(values: Sequence[float], width: int, height: int) -> list[str]:
    """`values` as lines of block characters, with a scale at the left."""
    stride = max(math.ceil(len(values) / width), 1)
    parts = (values[start : start + stride] for start in range(0, len(values), stride))
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    eighths = [(value - low) / ((high - low) or 1.0) * height * 8 for value in means]
    lines = []
    for row in reversed(range(height)):
        cells = (BLOCKS[min(max(round(filled) - row * 8, 0), 8)] for filled in eighths)
        scale = _number(high) if row == height - 1 else _number(low) if row == 0 else ""
        lines.append(f"{scale:>8} {''.join(cells)}")
    return lines


def _clock(seconds: float | None) -> str:
    whole = int(seconds or 0)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _finite(value: float, digits: int = 3) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
