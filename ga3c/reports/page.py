"""`ga3c report`: one self-contained HTML page of runs, with score tables, curves and videos."""

import base64
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import imageio.v3 as imageio
from matplotlib.figure import Figure
from PIL import Image

from ga3c.reports import comparison, history, plots, tables
from ga3c.reports.groups import grouped, looks_of, settings
from ga3c.reports.history import History
from ga3c.runs.finding import VIDEOS, GivenRuns, newest_figures, short_names
from ga3c.runs.tally import short_score
from ga3c.settings.checks import check_file
from ga3c.settings.machine import machine

DPI = 80  # of pictures; low, so that a page of many runs stays small
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #23262b; background: #fafaf8;
       max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2em; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; }
th, td { padding: .3em .8em; text-align: right; border-bottom: 1px solid #e4e4e0; }
td { white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fafaf8; }
td:first-child { min-width: 6em; white-space: normal; overflow-wrap: anywhere; }
.long { min-width: 9em; }
.ours { position: sticky; right: 0; background: #eef3f8; }
.wide { overflow-x: auto; } .wide img { max-width: 100%; min-width: 640px; }
video { max-width: 100%; } pre { overflow-x: auto; background: #f0f0ec; padding: 1em; }
.small { color: #6b7076; font-size: 13px; }
"""


@dataclass(frozen=True)
class Config:
    """Put the score tables, curves and videos of runs into one HTML page."""

    runs: GivenRuns
    """Runs: directories, or names or numbers in --runs-dir."""
    out: Path = Path("report.html")
    """HTML file to write."""
    runs_dir: Path = Path("runs")
    """Directory in which runs are looked up by name or number."""
    title: str = "ga3c: report"
    """Heading of the page."""

    def __post_init__(self) -> None:
        check_file("out", self.out)
        if self.out.suffix not in (".html", ".htm"):
            raise ValueError(f"out {self.out}: must end in .html or .htm")


def run(config: Config) -> None:
    """Write the page. Raises WrongInput."""
    runs = history.load(config.runs, config.runs_dir)
    config.out.write_text(page(config.title, runs), encoding="utf-8")
    of_runs = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    print(f"wrote {config.out}, {config.out.stat().st_size / 2**20:.1f} MiB, of {of_runs}")


def page(title: str, runs: Sequence[History]) -> str:
    """The whole page."""
    parts = [
        *_overview(runs),
        *_scores(runs),
        *_curves(runs),
        *_videos(runs),
        *_settings(runs),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n<h1>{escape(title)}</h1>\n{body}\n</html>\n"
    )


def _overview(runs: Sequence[History]) -> Iterator[str]:
    here = machine()
    cores = f"{here['cores']} cores ({escape(here['processor'])})"
    framework = {"jax": "JAX"}.get(here["backend"], "TensorFlow")
    versions = (
        f"Python {here['python']}, {framework} {here[here['backend']]}, revision {here['git']}"
    )
    yield f'<p class="small">Made {here["date"]} on {cores}, {versions}.</p>'
    yield "<h2>Runs</h2>"
    rows, names = [], short_names([run.path for run in runs])
    for run in runs:
        reached = newest_figures(run.path)
        score, seconds = reached.get("score_mean_100"), reached.get("seconds")
        rate = reached.get("steps", 0) / seconds if seconds else None
        rows.append(
            [
                names[run.path],
                run.config.environment.game,
                run.config.algorithm,
                str(run.config.run.seed),
                f"{reached.get('steps', 0):,}",
                f"{(seconds or 0.0) / 60:,.1f}",
                "" if score is None else short_score(score),
                "" if rate is None else f"{rate:,.0f}",
            ]
        )
    headings = ["run", "game", "algorithm", "seed", "steps", "minutes"]
    headings += ["score, mean of the last 100", "PPS, predictions a second of the whole run"]
    yield _table(headings, rows)


def _scores(runs: Sequence[History]) -> Iterator[str]:
    for table in comparison.tables(runs):
        yield f"<h2>Scores by protocol {escape(table.protocol)}</h2>"
        yield f'<p class="small">{escape(table.settings)}</p>'
        yield _table(*tables.cells(table))
        for text in tables.notes(table):
            yield f"<p>{escape(text)}</p>"
        if tables.summary(table):
            words = f"Human-normalised scores of each game by protocol {table.protocol}"
            yield _picture(tables.draw([table]), words)


def _curves(runs: Sequence[History]) -> Iterator[str]:
    yield "<h2>Curves</h2>"
    for game in dict.fromkeys(run.game for run in runs):
        here = [run for run in runs if run.game == game]
        groups, rest = grouped(here), plots.PANELS
        yield f"<h3>{escape(game)}</h3>"
        if len(groups) > 1:  # their scores are compared in one picture
            yield from _drawn(here, ("score",))
            rest = tuple(panel for panel in rest if panel != "score")
        for group in groups:
            if group.differs and plots.can_draw(group.runs, rest):
                yield f"<h4>{escape(group.name)}</h4>"
            yield from _drawn(group.runs, rest)


def _drawn(runs: Sequence[History], panels: Sequence[str]) -> Iterator[str]:
    if plots.can_draw(runs, panels):
        yield _picture(plots.draw(runs, panels), f"Curves of {runs[0].game}: {', '.join(panels)}")


def _videos(runs: Sequence[History]) -> Iterator[str]:
    looks = looks_of(runs)
    for run in runs:
        words = looks[run.path].label.removeprefix(run.game).strip(", ")
        videos = (run.path / VIDEOS).glob("[!.]*.mp4")
        for video in sorted(videos, key=lambda file: file.stat().st_mtime)[-1:]:
            yield f"<h2>A game of {escape(run.game)}{escape(f': {words}' if words else '')}</h2>"
            source = _data("video/mp4", video.read_bytes())
            yield f'<video controls playsinline {_poster(video)} src="{source}"></video>'


def _poster(video: Path) -> str:
    """The picture that a video shows before it plays, from its middle; "" if it is unreadable."""
    out = io.BytesIO()
    try:
        about = imageio.immeta(video)
        middle = imageio.imread(video, index=int(about["duration"] * about["fps"] / 2))
    except (OSError, ValueError, IndexError, RuntimeError):  # a video that was cut short
        return ""
    Image.fromarray(middle).save(out, "JPEG")
    return f'poster="{_data("image/jpeg", out.getvalue())}"'


def _settings(runs: Sequence[History]) -> Iterator[str]:
    yield "<h2>Settings</h2>"
    names = short_names([run.path for run in runs])
    names_by_settings: dict[str, list[str]] = {}
    for run in runs:
        text = json.dumps(settings(run.config), indent=1)
        names_by_settings.setdefault(text, []).append(names[run.path])
    for text, alike in names_by_settings.items():
        title = escape(", ".join(alike))
        yield f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table. The column "ours" stays in sight, however narrow the page is."""
    kinds = [
        ' class="ours"' if heading == "ours" else ' class="long"' * (len(heading) > 16)
        for heading in headings
    ]

    def line(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(kinds, cells, strict=True)
        return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in pairs)

    body = "\n".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><tr>{line('th', headings)}</tr>\n{body}</table>"


def _picture(figure: Figure, words: str) -> str:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI)
    source = _data("image/png", out.getvalue())
    return f'<div class="wide"><img src="{source}" alt="{escape(words)}"></div>'


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
