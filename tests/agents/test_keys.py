"""Key pairs: who may read them, and the error for a file that holds no key."""

import os
import stat
from pathlib import Path

import pytest

from agents import keys
from tests.commands import ended, refused


def made(file: Path) -> keys.Pair:
    keys.run(keys.Config(file))
    return keys.own(file)


def test_a_key_pair_is_read_back_and_only_its_owner_can_read_the_secret(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        pairs = [made(tmp_path / name) for name in ("one", "two")]
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o600
    both = tmp_path / "both"
    texts = [(tmp_path / f"{name}.pub").read_text() for name in ("one", "two")]
    both.write_text("# machines of room 5\n\n" + "".join(texts))
    found = keys.public([both])
    assert list(found) == [pair.public for pair in pairs]
    assert [name.partition("@")[0] for name in found.values()] == ["one", "two"]
    assert all(pair.secret not in text for pair in pairs for text in texts)


def test_a_line_is_a_comment_or_begins_with_a_key(tmp_path: Path) -> None:
    # No key begins with #: in Z85 it is the digit 84, and 84 * 85^4 exceeds 32 bits.
    for first in "%-0":
        (tmp_path / "it").write_text(f"#{first} them\n{first}{'0' * 39} {first} name\n")
        assert keys.public([tmp_path / "it"]) == {f"{first}{'0' * 39}": f"{first} name"}


def test_the_command_never_overwrites_a_key(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    done = ended("keys", str(file))
    assert done.returncode == 0, done.stderr
    assert "is secret and stays here" in done.stdout
    before = file.read_text()
    assert before.strip() not in done.stdout, "the secret key is not shown"
    assert f"key {file}: exists already" in refused("keys", str(file))
    file.rename(tmp_path / "elsewhere")
    assert f"key {file}.pub: exists already" in refused("keys", str(file))
    nowhere = tmp_path / "none" / "mine"
    assert f"key {nowhere}: must be in a writable directory" in refused("keys", str(nowhere))
    assert (tmp_path / "elsewhere").read_text() == before


def test_a_file_that_holds_no_key_is_refused_with_how_to_make_one(tmp_path: Path) -> None:
    made(tmp_path / "open")
    (tmp_path / "open").chmod(0o640)
    (tmp_path / "short").write_text("abc def\n")
    (tmp_path / "short").chmod(0o600)
    (tmp_path / "empty").write_text("# none\n")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    for file, words in (
        ("open", "chmod 600"),
        ("gone", "gone: cannot be read: No such file or directory; ga3c keys makes a key$"),
        ("short", "short: holds no secret key; ga3c keys makes one$"),
        ("binary", "binary: holds no secret key; ga3c keys makes one$"),
    ):
        with pytest.raises(ValueError, match=words):
            keys.own(tmp_path / file)
    (tmp_path / "other signs").write_text(40 * "_" + "\n")
    (tmp_path / "too large").write_text("%" + 39 * "#" + "\n")
    for file, words in (
        ("short", "3 characters"),
        ("other signs", "is not a public key .*key has 40 of Z85"),
        ("too large", "is not a public key .*key has 40 of Z85"),
        ("gone", "gone: cannot be read: No such file or directory$"),
        ("binary", "binary: cannot be read: it is not a text file$"),
        ("empty", "no publ"),
    ):
        with pytest.raises(ValueError, match=words):
            keys.public([tmp_path / file])
