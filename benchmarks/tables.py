"""A program: whether a table beyond 34 GB keeps what is written to it, and where columns lie.

    KERAS_BACKEND=... python -m benchmarks.tables MOST_BYTES

Frames are written to a few rows of a ring, by the experience that runs use, and read back. Then
all rows are read: exactly those few may differ from zero. An index or a byte offset that does not
fit its integer type writes to other rows, or reads from them. The last line is JSON.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import keras
import numpy as np

from benchmarks.parity import cases
from ga3c import backend
from ga3c.experience.memory import DEVICE, free_bytes
from ga3c.experience.ring import Experience, RingShape
from ga3c.service.assembly import small_model

LANES = 64
SHAPE = (84, 84)
SHARE = 0.8  # of the free memory, for the table
MOST_BYTES_IN_RAM = 3e9  # enough for row 304,348; a processor's kernels are not in doubt
CHUNK = 4096  # rows of the whole table that are read at a time
TIMED = 64  # rows of a write or a gather that is timed
REPEATS = 50
OFFSETS = (2**31, 2**32, 2**31 * 4, 2**31 * 16)  # bytes at which an offset or a count may overflow
Found = dict[str, Any]


class Compiled(NamedTuple):
    """A ring's functions."""

    write: Callable[..., Any]  # of rows, frames and ages
    gather: Callable[..., Any]  # of rows
    ages: Callable[..., Any]  # of rows
    stacks: Callable[..., Any]  # of lanes, slots and ages
    used: Callable[..., Any]  # of rows: which of them have a byte that is not 0


def marked(rows: int, row_bytes: int) -> np.ndarray:
    """Rows at which arithmetic may overflow, with their neighbours, and the last one: int32."""
    near = [offset // row_bytes + i for offset in OFFSETS for i in (-1, 0, 1, 2)]
    wanted = {1, rows // 2, rows - 1, *near}
    return np.array(sorted(row for row in wanted if 0 < row < rows), np.int32)


def compiled(experience: Experience) -> Compiled:
    """The ring's functions for this framework."""
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
    """The largest ring of so many bytes that fits the device."""
    if not backend.has_gpu():
        most_bytes = min(most_bytes, MOST_BYTES_IN_RAM)
    capacity = int(min(most_bytes, SHARE * free_bytes(DEVICE)) / math.prod(SHAPE) / LANES)
    return RingShape(LANES, capacity, SHAPE, "uint8", 4)


def check(call: Compiled, ring: RingShape) -> Found:
    """Write, read back, read all. What did not come out as it went in is told in `wrong`."""
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
    """The stacks that end at `rows`, where the ring has these frames and else zeros."""
    known = {int(row): frame for row, frame in zip(rows, frames, strict=True)}
    blank = np.zeros_like(frames[0])

    def at(row: int, back: int) -> np.ndarray:
        lane, slot = divmod(row, ring.capacity)
        return known.get(lane * ring.capacity + (slot - back) % ring.capacity, blank)

    stacks = [[at(int(row), back) for back in reversed(range(ring.stack))] for row in rows]
    return np.moveaxis(np.array(stacks), 1, -1)


def _used(call: Compiled, start: int, end: int) -> list[int]:
    """Which rows from `start` to `end` are not 0. The last chunk is filled up with its last row."""
    rows = np.minimum(np.arange(start, start + CHUNK, dtype=np.int64), end - 1).astype(np.int32)
    return [int(row) for row in np.unique(rows[np.asarray(call.used(rows))])]


def _timed(call: Compiled, rows: int, row_bytes: int) -> Found:
    """Microseconds of a write and of a gather. A write that copied the table would show."""
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


def places() -> dict[str, dict[str, str]]:
    """The device of every column of an A3C's and of a prioritised DQN's experience."""
    found: dict[str, dict[str, str]] = {}
    for name in ("a3c small", "dqn dueling"):
        config, spaces = cases()[name]
        config = replace(config, replay=replace(config.replay, replay_draws="prioritised"))
        found[name] = small_model(config, spaces, DEVICE).source.devices()
    return found


def main() -> None:
    """Print what is found."""
    backend.configure(1, 0)
    devices = places()
    ring = large_ring(float(sys.argv[1]))
    found = check(compiled(Experience(ring, {}, DEVICE)), ring)
    if backend.has_gpu():
        found["wrong"] += [
            f"{model}: {name} lies on {device}"
            for model, columns in devices.items()
            for name, device in columns.items()
            if "cpu" in device.lower()
        ]
    print(json.dumps({"devices": devices, **found}))


if __name__ == "__main__":
    main()
