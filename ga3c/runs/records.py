"""Files that a run appends lines to, mostly JSON objects. Those that may be thinned stay bounded.

A kill or a full disk may have truncated a line.
"""

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ga3c.runs.durable import rewrite_lines

TAIL_BYTES = 1 << 16  # at the end of a file, searched for its newest object


def read(file: Path) -> list[dict[str, Any]]:
    """The objects of `file`; none if the file is missing. Damaged lines are skipped."""
    if not file.exists():
        return []
    with open(file, "rb") as lines:
        return parsed(lines)


def whole(file: Path) -> dict[str, Any]:
    """The object that a JSON file holds; empty if the file is missing or damaged."""
    try:
        return dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def newest(file: Path) -> dict[str, Any]:
    """The last whole object of `file`, without reading all of it; empty if there is none."""
    if not file.exists():
        return {}
    with open(file, "rb") as tail:
        tail.seek(max(tail.seek(0, 2) - TAIL_BYTES, 0))
        return ([{}] + parsed(tail))[-1]


def parsed(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The objects of these lines. Damaged lines are skipped."""
    objects = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:  # not JSON, or not UTF-8
            continue
        if isinstance(value, dict):
            objects.append(value)
    return objects


def table(file: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV file without quotation marks, by column; none if the file is missing.

    A damaged line is a row without some columns, or with values that no number has.
    """
    if file.exists():
        with open(file, errors="replace") as lines:
            names = next(lines, "").rstrip("\n").split(",")
            for line in lines:
                yield dict(zip(names, line.rstrip("\n").split(","), strict=False))


def append(file: Path, value: Mapping[str, Any]) -> None:
    """Append a line; if the last one was truncated, start a new one first. Raises OSError."""
    with open(file, "ab+") as out:
        if out.tell():
            out.seek(-1, 2)
            if out.read(1) != b"\n":
                out.write(b"\n")
        out.write(json.dumps(value).encode() + b"\n")


class _Appended:
    """A text file that lines are appended to. Subclasses make room in it."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._left_bytes = most_bytes - self._open()

    def write(self, line: str) -> None:
        """Append a line, and make room if that is due. Raises OSError."""
        if self._file.closed:
            self._open()
        self._file.write(line)
        self._left_bytes -= len(line.encode(errors="backslashreplace"))
        if self._left_bytes <= 0:
            self._left_bytes = self._most_bytes // 2  # until the next attempt, if this one fails
            self._file.close()
            self._make_room()
            self._left_bytes = self._most_bytes - self._open()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been written to it yet."""
        return not self._file.tell()

    def _open(self) -> int:
        """Open the file. Returns its size."""
        self._file = open(  # noqa: SIM115
            self._path, "a", 1, encoding="utf-8", errors="backslashreplace", newline=""
        )
        return self._file.tell()

    def _make_room(self) -> None:
        raise NotImplementedError


class Thinned(_Appended):
    """A file that is thinned to half of `most_bytes` whenever it reaches that size."""

    def _make_room(self) -> None:
        thin(self._path, self._most_bytes // 2)


class Rotated(_Appended):
    """A file that is rotated to `NAME.1` when it reaches `most_bytes`, replacing the old one."""

    def _make_room(self) -> None:
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))


def thin(file: Path, most_bytes: int) -> None:
    """Drop lines, evenly over the whole file, until it has at most `most_bytes`.

    The first and the last line stay. Of the others half are dropped, or three quarters, and so on,
    chosen by checksum: so a file that is thinned again and again stays even, and lines that come at
    regular intervals are not all dropped. Raises OSError.
    """
    sizes: Counter[int] = Counter()
    with open(file, "rb") as lines:
        kept_bytes = len(next(lines, b""))
        for line in lines:
            sizes[_rank(line)] += len(line)
    kept_bytes += sizes.total()
    least = 0
    while kept_bytes > most_bytes and sizes.total():
        kept_bytes -= sizes.pop(least, 0)
        least += 1
    rewrite_lines(file, _ranked(file, least))


def _ranked(file: Path, least: int) -> Iterator[bytes]:
    """The first and the last line, and those of at least this rank."""
    with open(file, "rb") as lines:
        yield next(lines, b"")
        before = next(lines, b"")
        for line in lines:
            if _rank(before) >= least:
                yield before
            before = line
        yield before


def _rank(line: bytes) -> int:
    """0 for half of all lines, 1 for a quarter, and so on."""
    checksum = zlib.crc32(line)
    return (checksum & -checksum).bit_length() - 1 if checksum else 32
