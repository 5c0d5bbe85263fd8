"""The documentation's examples run, its links and commands work, and its figures are right.

The examples run as written, except that they use fewer steps and smaller games.
"""

import importlib
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ga3c
from agents import keys
from ga3c.__main__ import COMMANDS, MEASURED
from ga3c.command.line import WrongUse, parsed
from ga3c.command.parse import TrainArguments
from tests.commands import PATIENCE, ROOT
from tests.test_extending import FILES
from tests.test_packaging import run_make

PAGE = ROOT / "docs" / "python.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LIMIT_S = 300.0
INSTEAD = {  # replacements that let the examples take seconds
    '"Pong"': '"tests.tiny:Catch-v0"',
    "ga3c.train(config, ": 'ga3c.train(config, game="tests.tiny:Catch-v0", ',
    "steps=5_000_000": "steps=300",
    "steps=50_000": "steps=1_200",
    "steps=100_000": "steps=1_200",
    "steps=200_000": "steps=2_500",
    "range(500)": "range(20)",
}
LIGHT = "agents=1, max_agents=1, "  # in every call that names a game, so not where a run is resumed


def examples() -> tuple[dict[str, str], list[str]]:
    """The blocks that begin with a file's name, by that name; and all others, in order."""
    text = PAGE.read_text()
    for original, shorter in INSTEAD.items():
        assert original in text, f"{PAGE.name} has no {original} any more"
        text = text.replace(original, shorter)
    text = re.sub(r"(ga3c\.train\(\s*)((?:config, )?)(game=)", rf"\1\2{LIGHT}\3", text)
    files: dict[str, str] = {}
    others = []
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if named := re.match(r"# (\w+\.py)\n", block):
            files[named[1]] = block
        else:
            others.append(block)
    return files, others


def run(directory: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S * PATIENCE,
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A directory with the files of the page, and `page.py` with all other examples."""
    files, others = examples()
    for name, text in {**files, "page.py": "\n\n".join(others)}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_examples_run_one_after_another(written: Path) -> None:
    done = run(written, "page.py")
    assert done.returncode == 0, done.stderr
    assert "300 steps done" in done.stdout
    assert "CartPole-v1, seed 1, in runs/cartpole-single" in done.stdout
    assert "Guess-v0" in done.stdout
    assert not list(written.glob("ga3c-*"))


def test_the_script_with_an_environment_of_its_own_runs(written: Path) -> None:
    done = run(written, "script.py")
    assert done.returncode == 0, done.stderr
    assert "Backwards-v0" in done.stdout
    assert "1,200 steps done" in done.stdout


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_within_the_documents_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue  # another site
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), target
        assert not anchor or anchor in slugs(there), target


COMMAND = re.compile(r"(?:.* && )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?ga3c ([a-z].*)", re.DOTALL)
MAKE = re.compile(r"(?:.* && )?(make [a-z-]+(?:\s+[A-Z]+=(?:\"[^\"]*\"|\S+))*)", re.DOTALL)
MADE = re.compile(r"(?:^|; )(?:[A-Z]+=\S+ )?\S*(?: -m |/)ga3c ([a-z].*?)(?: & run=.*)?$", re.M)


def lines_of(page: Path) -> tuple[list[str], list[str]]:
    """The lines of a page's shell blocks, and the inline code in its sentences."""
    text = page.read_text()
    fenced = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    blocks = [block for kind, block in fenced if kind in ("", "sh")]
    mentions = re.findall(r"`([^`]+)`", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.M | re.S))
    return [line.strip() for block in blocks for line in block.splitlines()], mentions


def commands(page: Path) -> tuple[list[list[str]], list[list[str]]]:
    """The arguments of every `ga3c` command on a page: those in blocks, and those in sentences."""
    whole, mentioned = (
        [shlex.split(named[1], comments=True) for line in lines if (named := COMMAND.match(line))]
        for lines in lines_of(page)
    )
    return whole, mentioned


def made(page: Path) -> set[str]:
    """Every `make` command on a page, with its variables."""
    lines = [line for lines in lines_of(page) for line in lines]
    return {named[1] for line in lines if (named := MAKE.match(line))}


def settings_of(command: str, arguments: list[str]) -> tuple[type, list[str]]:
    """The class of a command's settings, and the arguments for it."""
    if command == "train":
        return TrainArguments, arguments
    if command != "benchmark":
        return importlib.import_module(COMMANDS[command].args[0]).Config, arguments  # type: ignore
    package = "ga3c.measuring" if arguments[0] in MEASURED else "benchmarks"
    module = importlib.import_module(f"{package}.{arguments[0].replace('-', '_')}")
    return module.Config, arguments[1:]


@pytest.mark.parametrize("page", [p for p in PAGES if made(p)], ids=lambda page: page.name)
def test_ga3c_accepts_the_commands_that_make_runs_on_a_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry = {line: run_make("--dry-run", *shlex.split(line)[1:]) for line in made(page)}
    monkeypatch.chdir(tmp_path)
    Path("benchmarks/results/quick").mkdir(parents=True)  # as `make benchmark` does
    for line, done in dry.items():
        assert done.returncode == 0, (line, done.stderr)
        for command, *given in map(shlex.split, MADE.findall(done.stdout)):
            kind, arguments = settings_of(command, given)
            parsed(arguments, kind, line)


def test_the_pattern_finds_the_command_of_make_train() -> None:
    done = run_make("--dry-run", "train", "GAME=Pong", "ARGS=--steps 5")
    assert MADE.findall(done.stdout) == ['train --game "Pong" --steps 5']


@pytest.mark.parametrize("page", [p for p in PAGES if any(commands(p))], ids=lambda page: page.name)
def test_every_command_on_a_page_is_one_that_ga3c_takes(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("atlas", "service"):
        keys.run(keys.Config(tmp_path / name))
    whole, mentioned = commands(page)
    monkeypatch.chdir(tmp_path)
    for given in whole + mentioned:
        command, *arguments = (a for a in given if not a.startswith("--help"))
        if command == "help" or arguments in ([], ["NAME"]):
            assert command in {"help", *COMMANDS}
            continue
        kind, arguments = settings_of(command, arguments)
        try:
            parsed(arguments, kind, f"ga3c {command}")
        except WrongUse as error:
            if command == "keys" and "exists already" in str(error):
                continue  # the keys were made above
            assert given in mentioned and "is missing" in str(error), (given, error)
            # in docs/, a command that is shown with options must be complete
            assert page.parent.name != "docs" or not any("--" in each for each in given), error


def test_pages_install_into_a_checkouts_environment_in_editable_mode() -> None:
    """Without -e, pip would replace make's editable install, and edits would have no effect."""
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    into = [line for line in lines if re.search(r"\.venv/bin/pip install .*\.\[", line)]
    assert into and all(" -e " in line for line in into)


@pytest.mark.parametrize(
    ("page", "words", "name", "number"),
    [
        ("runs", "Five failures in a row in one agent", "ga3c.wire.deaths:MAX_FAILURES", 5),
        ("runs", "three before a first step, end", "ga3c.wire.deaths:MAX_EARLY_DEATHS", 3),
        ("runs", "for two minutes in which the run makes no", "ga3c.wire.deaths:SPARED_S", 120),
        ("runs", "and no update for a minute", "ga3c.training.watch:STILL_S", 60),
        (
            *("runs", "100 in a row end the run (`--max-refused-updates`)"),
            *("ga3c.settings.learning:LearningConfig.max_refused_updates", 100),
        ),
        (
            *("runs", "is cut after 100,000 steps (`--evaluate-step-cap`, `--step-cap`)"),
            *("ga3c.settings.run:STEP_CAP", 100_000),
        ),
        (
            *("runs", "beyond 32 MiB of episodes or 16 MiB of progress lines every second"),
            "ga3c.runs.directory:MOST_BYTES",
            {"episodes.csv": 32 << 20, "metrics.jsonl": 16 << 20, "log.txt": 8 << 20},
        ),
        ("runs", "delays its end by at most 30 seconds", "ga3c.runs.tracking:CLOSE_S", 30),
        ("runs", "count as 10,000 samples at most", "ga3c.learning.layers:TAKEN_OVER", 10_000),
        ("machines", "a host says nothing for 15 s", "ga3c.wire.hosts:LOST_S", 15),
        ("machines", "hosts end their agents after 30 s", "agents.orders:SILENT_S", 30),
        ("machines", "and tries Ray again every 10 s", "agents.cluster:RETRY_S", 10),
        ("machines", "says after 20 s that the node waits", "agents.nodes:PATIENCE_S", 20),
        ("machines", "does not identify itself within 5 s", "agents.link:HANDSHAKE_MS", 5000),
        ("machines", "each successor waits 10 s", "ga3c.wire.deaths:ELSEWHERE_DELAY_S", 10),
        ("machines", "of all runs is printed each minute", "ga3c.reports.jobs:SHOW_STATE_S", 60),
    ],
)
def test_numbers_on_a_page_equal_the_constants_in_the_code(
    page: str, words: str, name: str, number: object
) -> None:
    assert words in " ".join((ROOT / "docs" / f"{page}.md").read_text().split())
    assert pkgutil.resolve_name(name) == number


def test_the_reference_has_all_of_the_python_api() -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    for name in set(ga3c.__all__) - {"__version__"}:
        assert f"::: ga3c.{name}\n" in text, name
