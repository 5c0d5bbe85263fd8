"""A program that checks that a table over 34 GB keeps its data, and which device holds its columns.

    KERAS_BACKEND=... python -m benchmarks.tables MOST_BYTES

Frames are written to a few rows of a ring through the `Experience` that runs use, and read back.
Then all rows are read, and only those few may differ from zero. An index or byte offset that
overflows its integer type would write to other rows or read from them. The last line is JSON.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

from benchmarks.parity import cases
from ga3c import backend
from ga3c.backend import Column
from ga3c.experience.memory import DEVICE, free_bytes
from ga3c.experience.ring import Experience, RingShape
from ga3c.service.assembly import small_model

LANES = 64
SHAPE = (84, 84)
SHARE = 0.8  # share of the free memory that the table takes
MOST_BYTES_IN_RAM = 3e9  # enough for row 304,348; CPU kernels are not in doubt
CHUNK = 4096  # rows read at a time when the whole table is read
TIMED = 64  # rows of each timed write or gather
REPEATS = 50
OFFSETS = (2**31, 2**32, 2**31 * 4, 2**31 * 16)  # bytes at which an offset or a count may overflow
Found = dict[str, Any]


class Compiled(NamedTuple):
    """A ring's compiled functions."""

    write: Callable[..., Any]  # takes rows, frames and ages
    gather: Callable[..., Any]  # takes rows, returns their frames
    ages: Callable[..., Any]  # takes rows, returns their ages
    stacks: Callable[..., Any]  # takes lanes, slots and ages
    used: Callable[..., Any]  # takes rows, returns which of them have a byte that is not 0


def marked(rows: int, row_bytes: int) -> np.ndarray:
    """Rows near which arithmetic may overflow, and a few others, the last included: int32."""
    near = [offset // row_bytes + i for offset in OFFSETS for i in (-1, 0, 1, 2)]
    wanted = {1, rows // 2, rows - 1, *near}
    return np.array(sorted(row for row in wanted if 0 < row < rows), np.int32)


def compiled(experience: Experience) -> Compiled:
    """The ring's functions, compiled by the framework."""
    index, frame = ((None,), "int32"), ((None, *experience.ring.columns()["frame"][0]), "uint8")

    def write(rows: Any, frames: Any, ages: Any) -> None:
        experience.write(rows, {"frame": frames, "age": ages})

    def used(rows: Any) -> Any:
        return keras.ops.any(experience.gather("frame", rows) != 0, axis=1)

    return Compiled(
        backend.compiled(write, [index, frame, index]),
        backend.compiled(lambda rows: experience.gather("frame", rows), [index]),
        backend.compiled(lambda rows: experience.gather("age", rows), [index]),
        backend.compiled(experience.stacks, [index] * 3),
        backend.compiled(used, [index]),
    )


def large_ring(most_bytes: float) -> RingShape:
    """The largest ring of at most `most_bytes` bytes that fits the device."""
    if not backend.has_gpu():
        most_bytes = min(most_bytes, MOST_BYTES_IN_RAM)
    capacity = int(min(most_bytes, SHARE * free_bytes(DEVICE)) / math.prod(SHAPE) / LANES)
    return RingShape(LANES, capacity, SHAPE, "uint8", 4)


def check(call: Compiled, ring: RingShape) -> Found:
    """Write some rows, read them back, and read all rows. `wrong` lists every difference."""
    row_bytes, capacity = math.prod(ring.shape), ring.capacity
    rows = ring.lanes * capacity
    some = marked(rows, row_bytes)
    frames = np.random.default_rng(0).integers(1, 256, (len(some), row_bytes), np.uint8)
    ages = np.arange(len(some), dtype=np.int32) % ring.stack
    call.write(some, frames, ages)
    wrong = [f"frame of row {row:,}" for row in _differing(some, call.gather(some), frames)]
    wrong += [f"age of row {row:,}" for row in _differing(some, call.ages(some), ages)]
    expected = _stacked(ring, some, frames)
    full = np.full(len(some), ring.stack - 1, np.int32)
    stacks = np.asarray(call.stacks(some // capacity, some % capacity, full))
    stacks = stacks.reshape(expected.shape)
    wrong += [f"stack at row {row:,}" for row in _differing(some, stacks, expected)]
    used = [row for at in range(0, rows, CHUNK) for row in _used(call, at, min(at + CHUNK, rows))]
    wrong += [f"row {row:,}, not written, is not 0" for row in sorted({*used} - {*some.tolist()})]
    wrong += [f"row {row:,}, written, is 0" for row in sorted({*some.tolist()} - {*used})]
    return {
        "rows": rows,
        "bytes": rows * row_bytes,
        "marked": some.tolist(),
        "wrong": wrong,
        **_timed(call, rows, row_bytes),
    }


def _differing(rows: np.ndarray, found: Any, expected: np.ndarray) -> list[int]:
    different = (np.asarray(found) != expected).reshape(len(rows), -1).any(axis=1)
    return [int(row) for row in rows[different]]


def _stacked(ring: RingShape, rows: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """The expected stacks ending at `rows`, if the ring has `frames` there and zeros elsewhere."""
    known = {int(row): frame for row, frame in zip(rows, frames, strict=True)}
    blank = np.zeros_like(frames[0])

    def at(row: int, back: int) -> np.ndarray:
        lane, slot = divmod(row, ring.capacity)
        return known.get(lane * ring.capacity + (slot - back) % ring.capacity, blank)

    stacks = [[at(int(row), back) for back in reversed(range(ring.stack))] for row in rows]
    return np.moveaxis(np.array(stacks), 1, -1)


def _used(call: Compiled, start: int, end: int) -> list[int]:
    """The rows from `start` to `end` that are not 0. Short chunks repeat their last row."""
    rows = np.minimum(np.arange(start, start + CHUNK, dtype=np.int64), end - 1).astype(np.int32)
    return [int(row) for row in np.unique(rows[np.asarray(call.used(rows))])]


def _timed(call: Compiled, rows: int, row_bytes: int) -> Found:
    """Microseconds of a write and of a gather. A write that copied the table would be slow."""
    random = np.random.default_rng(1)
    some = random.choice(rows, TIMED, replace=False).astype(np.int32)
    frames, ages = np.zeros((TIMED, row_bytes), np.uint8), np.zeros(TIMED, np.int32)
    found = {}
    for name, once in (
        ("write_us", lambda: (call.write(some, frames, ages), call.ages(some[:1]))[1]),
        ("gather_us", lambda: call.gather(some)),
    ):
        np.asarray(once())
        started_s = time.monotonic()
        for _ in range(REPEATS):
            np.asarray(once())
        found[name] = round((time.monotonic() - started_s) / REPEATS * 1e6, 1)
    return found


def recorded(made: list[Any], columns: Mapping[str, Column], rows: int) -> Any:
    """A table on the device, also added to `made`."""
    made.append(backend.DeviceTable(columns, rows))
    return made[-1]


def places() -> dict[str, dict[str, str]]:
    """The device of every column of the experience of A3C and of prioritised DQN."""
    found: dict[str, dict[str, str]] = {}
    for name in ("a3c small", "dqn dueling"):
        config, spaces = cases()[name]
        config = replace(config, replay=replace(config.replay, replay_draws="prioritised"))
        tables: list[Any] = []  # the ring's comes first; its columns keep their plain names
        small_model(config, spaces, replace(DEVICE, table=partial(recorded, tables)))
        found[name] = {
            f"{column} of table {number}" if number else column: device
            for number, table in enumerate(tables)
            for column, device in table.devices().items()
        }
    return found


def main() -> None:
    """Check a large ring, and print the result."""
    backend.configure(1, 0)
    devices = places()
    ring = large_ring(float(sys.argv[1]))
    found = check(compiled(Experience(ring, {}, DEVICE)), ring)
    if backend.has_gpu():
        found["wrong"] += [
            f"{model}: {name} is on {device}"
            for model, columns in devices.items()
            for name, device in columns.items()
            if "cpu" in device.lower()
        ]
    print(json.dumps({"devices": devices, **found}))


if __name__ == "__main__":
    main()
