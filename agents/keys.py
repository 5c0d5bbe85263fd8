"""`ga3c keys`: keys with which a service and the machines that play for it authenticate each other.

A pair is two files. NAME holds the secret key, and only its owner may read it. NAME.pub is one line
with the public key and a name, to be copied to the other side. The keys are ZeroMQ CURVE keys
(Curve25519) in their text form of 40 characters.
"""

import os
import socket
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import tyro
import zmq
from zmq.utils import z85

SIZE = 40  # characters of a key in Z85
OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Config:
    """Make a key pair: NAME, the secret key, and NAME.pub, the public key for the other side."""

    file: tyro.conf.Positional[Path]
    """File for the secret key; the public key goes to the same name with .pub appended."""

    def __post_init__(self) -> None:
        for each in (self.file, self.shared):
            if each.exists():
                raise ValueError(f"key {each}: exists already; choose another name, or remove it")
        if not os.access(self.file.absolute().parent, os.W_OK):
            raise ValueError(f"key {self.file}: must be in a writable directory")

    @property
    def shared(self) -> Path:
        """The public key's file."""
        return self.file.with_name(f"{self.file.name}.pub")


class Pair(NamedTuple):
    """The keys of one side, in their text form."""

    public: str
    secret: str


def run(config: Config) -> None:
    """Write the two files. Raises OSError if one exists or cannot be written."""
    public, secret = new()
    name = f"{config.file.name}@{socket.gethostname()}"
    for file, text, mode in (
        (config.file, secret, 0o600),
        (config.shared, f"{public} {name}", 0o644),
    ):
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as written:
            written.write(f"{text}\n")
    print(f"{config.file} is secret and stays here; copy {config.shared} to the other side")


def new() -> Pair:
    """A new, random pair."""
    return Pair(*(key.decode() for key in zmq.curve_keypair()))


def own(file: Path) -> Pair:
    """The pair whose secret key is in `file`.

    Raises ValueError if it has none, or if others may read the file.
    """
    try:
        is_open = file.stat().st_mode & OTHERS
        secret = file.read_text().strip()
        pair = Pair(zmq.curve_public(secret.encode()).decode(), secret)
    except OSError as error:
        words = f"cannot be read: {error.strerror}"
        raise ValueError(f"key {file}: {words}; ga3c keys makes a key") from None
    except (ValueError, zmq.ZMQError):  # UnicodeDecodeError is a ValueError
        raise ValueError(f"key {file}: holds no secret key; ga3c keys makes one") from None
    if is_open:
        raise ValueError(f"key {file}: others may read it; chmod 600 {file}")
    return pair


def _is_key(text: str) -> bool:
    try:
        z85.decode(text.encode())
    except (KeyError, ValueError, struct.error):  # not a character of Z85, or too large a number
        return False
    return len(text) == SIZE


def public(files: Iterable[Path]) -> dict[str, str]:
    """The names by public key, from files of lines `KEY NAME`, as in NAME.pub.

    Raises ValueError if a file cannot be read, a line has no key, or there is no key at all.
    """
    names = {}
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except OSError as error:
            raise ValueError(f"keys {file}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"keys {file}: cannot be read: it is not a text file") from None
        for line in lines:
            key, _, name = line.strip().partition(" ")
            if not key or key.startswith("#"):  # a comment; no Z85 key begins with #
                continue
            if not _is_key(key):
                raise ValueError(
                    f"keys {file}: {key[:SIZE]!r} is not a public key ({len(key)} characters; a "
                    f"key has {SIZE} of Z85); ga3c keys writes one to NAME.pub"
                )
            names[key] = name.strip() or key
    if not names:
        raise ValueError(f"keys {', '.join(map(str, files))}: no public key in them")
    return names
