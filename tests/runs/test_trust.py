"""Code that a run's directory names is imported only if this user began the run or allows it."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import ga3c
from ga3c.runs import trust
from ga3c.runs.finding import newest_run
from ga3c.runs.kept_config import load_config
from ga3c.runs.trust import check_trust, is_begun_by_user, own_code, seal
from tests.commands import CORRIDOR, ended, refused

GIFT = """
import pathlib
pathlib.Path(__file__).with_name("imported").touch()
import tests.tiny
"""


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a custom environment (tests.tiny:Corridor-v0), begun by this user."""
    place = tmp_path_factory.mktemp("trust")
    done = ended(*CORRIDOR, "--steps", "200", "--runs-dir", str(place), "--name", "mine")
    assert done.returncode == 0, done.stderr
    return place / "mine"


GAME = (("environment", "game"), "stranger:Corridor-v0")
NAMED = [GAME, (("network", "network"), "stranger:torso"), (("algorithm",), "stranger:Learner")]
"""Where settings may name code, and what is named."""


@pytest.fixture
def gift(
    request: pytest.FixtureRequest, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A run begun by somebody else, whose settings name a module that can be imported here."""
    (*sections, setting), named = getattr(request, "param", GAME)
    given = tmp_path / "runs" / "gift"
    shutil.copytree(begun, given)
    values = json.loads((given / "config.json").read_text())
    section = values
    for name in sections:
        section = section[name]
    section[setting] = named
    values["learns_from"] = "segments"
    (given / "config.json").write_text(json.dumps(values))
    (tmp_path / "stranger.py").write_text(GIFT)
    monkeypatch.syspath_prepend(tmp_path)
    yield given


def imported(gift: Path) -> bool:
    return (gift.parents[1] / "imported").exists()


def test_a_run_that_the_user_started_is_trusted(begun: Path) -> None:
    config = load_config(begun)
    assert own_code(config) == ["tests.tiny:Corridor-v0"]
    assert is_begun_by_user(begun, config)
    check_trust(begun, config, trusted=False)
    assert ended("evaluate", str(begun), "--episodes", "1").returncode == 0


@pytest.mark.parametrize(
    "command",
    [["evaluate"], ["play"], ["export", "--out", "no-such"], ["train", "--resume"]],
    ids=lambda words: words[0],
)
def test_code_of_a_strangers_run_is_not_imported(gift: Path, command: list[str]) -> None:
    line = refused(*command, str(gift))
    assert "stranger:Corridor-v0" in line and "--trust" in line
    assert not imported(gift)


@pytest.mark.parametrize("gift", NAMED, ids=lambda named: named[1], indirect=True)
def test_code_of_a_strangers_run_is_not_imported_from_python(gift: Path) -> None:
    for use in (lambda: ga3c.load(gift), lambda: ga3c.train(resume=gift, steps=900)):
        with pytest.raises(ValueError, match=r"names code, .*stranger:.*trust"):
            use()
    assert not imported(gift)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_seal_in_another_users_file_is_not_trusted(begun: Path, tmp_path: Path) -> None:
    """All users of a machine can read what a seal is computed from, so they could forge one."""
    shutil.copy(begun / "meta.json", tmp_path)
    assert is_begun_by_user(tmp_path, load_config(begun))
    os.chown(tmp_path / "meta.json", 65534, 65534)
    assert not is_begun_by_user(tmp_path, load_config(begun))


def test_a_strangers_run_is_accepted_with_trust(gift: Path) -> None:
    check_trust(gift, load_config(gift), trusted=True)


def test_looking_for_the_newest_run_of_a_game_imports_nothing(gift: Path) -> None:
    with pytest.raises(ValueError, match="no run of Pong"):
        newest_run("Pong", gift.parent)
    assert not imported(gift)


def test_a_seal_is_valid_only_on_the_machine_that_made_it(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, here = load_config(begun), seal(load_config(begun))
    other = tmp_path / "machine-id"
    other.write_text("0123456789abcdef\n")
    monkeypatch.setattr(trust, "MACHINE_ID", other)
    assert here and seal(config) and seal(config) != here
    assert not is_begun_by_user(begun, config)
    other.unlink()
    assert seal(config) is None
    assert not is_begun_by_user(begun, config)
    with pytest.raises(ValueError, match=f"{other}, which .* is missing or empty here"):
        check_trust(begun, config, trusted=False)


@pytest.mark.parametrize(
    "meta", ["", "[]", "{}", '{"owner": 1}', '{"owner": null}', '{"owner": ""}']
)
def test_a_damaged_or_missing_seal_is_not_trusted(begun: Path, tmp_path: Path, meta: str) -> None:
    (tmp_path / "meta.json").write_text(meta)
    assert not is_begun_by_user(tmp_path, load_config(begun))
