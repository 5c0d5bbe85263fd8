"""Fixtures of several test files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import Command


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*arguments: str, program: str | None = None) -> Command:
        run = ["-m", "ga3c"] if program is None else ["-c", program]
        started.append(Command(tmp_path, list(arguments), run))
        return started[-1]

    yield start
    for each in started:
        each.kill_all()
