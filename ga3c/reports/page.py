"""`ga3c report`: one HTML page of runs that needs no other file: tables, curves, videos."""

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

from ga3c.reports import history, plots, tables
from ga3c.reports.history import Curve, History
from ga3c.settings.checks import check_file
from ga3c.settings.machine import machine

DPI = 80  # of pictures: a page of many runs stays small
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
    found = plots.load(config.runs)
    config.out.write_text(page(config.title, found))
    print(f"wrote {config.out}, {config.out.stat().st_size / 2**20:.1f} MiB, of {len(found)} runs")


def page(title: str, found: Sequence[History]) -> str:
    """The whole page."""
    parts = [
        *_overview(found),
        *_scores(found),
        *_curves(found),
        *_videos(found),
        *_settings(found),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n<h1>{escape(title)}</h1>\n{body}\n</html>\n"
    )


def _overview(found: Sequence[History]) -> Iterator[str]:
    made = machine()
    where = f"{made['cores']} cores ({escape(made['processor'])})"
    versions = f"Python {made['python']}, TensorFlow {made['tensorflow']}, revision {made['git']}"
    yield f'<p class="small">Made {made["date"]} on {where}, {versions}.</p>'
    yield "<h2>Runs</h2>"
    rows = []
    for each in found:
        curve, last = each.curve, each.figures[-1] if each.figures else {}
        ended = {
            name: part[-1] for name, part in zip(Curve._fields, curve, strict=True) if len(part)
        }
        reached = {**ended, **{name: last[name] for name in ("steps", "seconds") if last}}
        rows.append(
            [
                each.path.name,
                each.config.environment.game,
                str(each.config.run.seed),
                f"{int(reached.get('steps', 0)):,}",
                f"{reached.get('seconds', 0.0) / 60:,.1f}",
                f"{ended['score']:,.1f}" if ended else "",
                f"{last['pps']:,.0f}" if last else "",
            ]
        )
    headings = ["run", "game", "seed", "steps", "minutes", "score, mean of the last 100", "PPS"]
    yield _table(headings, rows)


def _scores(found: Sequence[History]) -> Iterator[str]:
    for table in tables.tables(found):
        yield f"<h2>Scores by protocol {escape(table.protocol)}</h2>"
        yield f'<p class="small">{escape(table.settings)}</p>'
        yield _table(*tables.cells(table))
        if text := tables.summary(table):
            yield f"<p>{escape(text)}</p>"
            yield _picture(tables.draw(table))


def _curves(found: Sequence[History]) -> Iterator[str]:
    yield "<h2>Curves</h2>"
    for group in history.groups(found):
        yield f"<h3>{escape(group.name)}</h3>"
        panels = plots.PANELS if any(each.figures for each in group.runs) else ("score",)
        yield _picture(plots.draw(group.runs, panels))


def _videos(found: Sequence[History]) -> Iterator[str]:
    for each in found:
        videos = (each.path / "video").glob("*.mp4")
        for video in sorted(videos, key=lambda file: file.stat().st_mtime)[-1:]:
            yield f"<h2>{escape(each.game)}, seed {each.config.run.seed}: a game</h2>"
            data = base64.b64encode(video.read_bytes()).decode()
            yield f'<video controls src="data:video/mp4;base64,{data}"></video>'


def _settings(found: Sequence[History]) -> Iterator[str]:
    yield "<h2>Settings</h2>"
    known: dict[str, list[str]] = {}
    for each in found:
        text = json.dumps(history.settings(each.config), indent=1)
        known.setdefault(text, []).append(each.path.name)
    for text, names in known.items():
        whose = escape(", ".join(names))
        yield f"<details><summary>{whose}</summary><pre>{escape(text)}</pre></details>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in headings)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _picture(figure: Figure) -> str:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI)
    pyplot.close(figure)
    data = base64.b64encode(out.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="">'
