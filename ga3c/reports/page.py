"""`ga3c report`: one self-contained HTML page of runs, with score tables, curves and videos."""

import base64
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import tyro
from matplotlib import pyplot
from matplotlib.figure import Figure

from ga3c.reports import comparison, history, plots, tables
from ga3c.reports.history import History
from ga3c.runs.finding import newest_figures
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
th:first-child, td:first-child { text-align: left; }
img, video { max-width: 100%; } pre { overflow-x: auto; background: #f0f0ec; padding: 1em; }
.small { color: #6b7076; font-size: 13px; }
"""


@dataclass(frozen=True)
class Config:
    """Put the score tables, curves and videos of runs into one HTML page."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Runs: directories, or names in runs/."""
    out: Path = Path("report.html")
    """File to write."""
    title: str = "ga3c: report"
    """Heading of the page."""

    def __post_init__(self) -> None:
        check_file("out", self.out)


def run(config: Config) -> None:
    """Write the page. Raises WrongInput."""
    runs = plots.load(config.runs)
    config.out.write_text(page(config.title, runs))
    print(f"wrote {config.out}, {config.out.stat().st_size / 2**20:.1f} MiB, of {len(runs)} runs")


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
    rows = []
    for run in runs:
        reached = newest_figures(run.path)
        score, rate = reached.get("score_mean_100"), reached.get("pps")
        rows.append(
            [
                run.path.name,
                run.config.environment.game,
                str(run.config.run.seed),
                f"{reached.get('steps', 0):,}",
                f"{reached.get('seconds', 0.0) / 60:,.1f}",
                "" if score is None else f"{score:,.1f}",
                "" if rate is None else f"{rate:,.0f}",
            ]
        )
    headings = ["run", "game", "seed", "steps", "minutes", "score, mean of the last 100", "PPS"]
    yield _table(headings, rows)


def _scores(runs: Sequence[History]) -> Iterator[str]:
    for table in comparison.tables(runs):
        yield f"<h2>Scores by protocol {escape(table.protocol)}</h2>"
        yield f'<p class="small">{escape(table.settings)}</p>'
        yield _table(*tables.cells(table))
        if text := tables.summary(table):
            yield f"<p>{escape(text)}</p>"
            yield _picture(tables.draw(table))


def _curves(runs: Sequence[History]) -> Iterator[str]:
    yield "<h2>Curves</h2>"
    for group in history.groups(runs):
        yield f"<h3>{escape(group.name)}</h3>"
        yield _picture(plots.draw(group.runs, plots.PANELS))


def _videos(runs: Sequence[History]) -> Iterator[str]:
    for run in runs:
        videos = (run.path / "video").glob("*.mp4")
        for video in sorted(videos, key=lambda file: file.stat().st_mtime)[-1:]:
            yield f"<h2>{escape(run.game)}, seed {run.config.run.seed}: a game</h2>"
            data = base64.b64encode(video.read_bytes()).decode()
            yield f'<video controls src="data:video/mp4;base64,{data}"></video>'


def _settings(runs: Sequence[History]) -> Iterator[str]:
    yield "<h2>Settings</h2>"
    names_by_settings: dict[str, list[str]] = {}
    for run in runs:
        text = json.dumps(history.settings(run.config), indent=1)
        names_by_settings.setdefault(text, []).append(run.path.name)
    for text, names in names_by_settings.items():
        title = escape(", ".join(names))
        yield f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _picture(figure: Figure) -> str:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI)
    pyplot.close(figure)
    data = base64.b64encode(out.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="">'
