"""Compressed frames: what is sent, and what is refused without taking much memory."""

import struct
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from backports import zstd

from agents import packing
from agents.headers import Header, Kind, MessageError, decode_header
from agents.messages import Step, decode_step, encode_packed_step
from tests.damage import make_step

SHAPE = (84, 84)
ENVS = 32
SIZE = ENVS * 84 * 84
SIZE_AT = 5  # offset of the declared size in a zstd frame; it takes 4 bytes for these sizes
MIB = 1 << 20


def step_of(frames: np.ndarray) -> Step:
    outcomes = np.concatenate([make_step().outcomes] * ENVS)[:ENVS]
    return Step(frames, outcomes)


def quiet() -> np.ndarray:
    """Frames that are mostly one shade of grey, as in games."""
    frames = np.full((ENVS, *SHAPE), 87, np.uint8)
    frames[:, 30:50, 20:60] = np.arange(40)
    return frames


def test_packed_frames_come_out_as_they_went_in() -> None:
    step = step_of(quiet())
    parts = encode_packed_step(Header(Kind.STEP, 1, ENVS, 7), step)
    assert decode_header(parts[0])[:4] == (Kind.PACKED, 1, ENVS, 7)
    assert len(parts[2]) < SIZE / 20
    decoded = decode_step([bytes(part) for part in parts], SHAPE, np.dtype(np.uint8))
    np.testing.assert_array_equal(decoded.frames, step.frames)
    assert decoded.outcomes.tobytes() == step.outcomes.tobytes()


def test_frames_that_do_not_compress_are_sent_unpacked() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (ENVS, *SHAPE), np.uint8)
    parts = encode_packed_step(Header(Kind.STEP, 0, ENVS), step_of(frames))
    assert decode_header(parts[0]).kind == Kind.STEP
    assert bytes(parts[2]) == frames.tobytes()


def undeclared(data: bytes) -> bytes:
    compressor = zstd.ZstdCompressor(1)
    return compressor.compress(data) + compressor.flush()


def redeclared(data: bytes, size: int) -> bytes:
    packed = bytearray(packing.packed(memoryview(data)))
    assert struct.unpack_from("<I", packed, SIZE_AT) == (len(data),)
    struct.pack_into("<I", packed, SIZE_AT, size)
    return bytes(packed)


FRAMES = quiet().tobytes()
BAD: dict[str, Callable[[], bytes]] = {
    "of another size": lambda: packing.packed(memoryview(FRAMES + b"x")),
    "of 64 MiB of noughts": lambda: packing.packed(memoryview(bytes(64 * MIB))),
    "of a size that is not declared": lambda: undeclared(FRAMES),
    "larger than declared": lambda: redeclared(2 * FRAMES, SIZE),
    "smaller than declared": lambda: redeclared(FRAMES[:-7000], SIZE),
    "cut short": lambda: packing.packed(memoryview(FRAMES))[:-5],
    "with another one after it": lambda: 2 * packing.packed(memoryview(FRAMES)),
    "with more after it": lambda: packing.packed(memoryview(FRAMES)) + b"more",
    "no zstd": lambda: FRAMES,
    "empty": lambda: b"",
}


@pytest.mark.parametrize("part", BAD)
def test_a_damaged_or_lying_part_is_refused_and_takes_no_memory(part: str) -> None:
    bad = BAD[part]()
    tracemalloc.start()  # its peak includes memory that is freed again
    try:
        with pytest.raises(MessageError, match=r"^packed"):
            packing.unpacked(bad, SIZE)
        assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seed", range(20))
def test_damaged_bytes_unpack_to_the_right_size_or_are_refused(seed: int) -> None:
    random = np.random.default_rng(seed)
    good = np.frombuffer(packing.packed(memoryview(FRAMES)), np.uint8)
    for _ in range(50):
        bad = good.copy()
        bad[random.integers(len(bad), size=random.integers(1, 4))] = random.integers(256)
        try:
            assert len(packing.unpacked(bad.tobytes(), SIZE)) == SIZE
        except MessageError as error:
            assert error.reason in ("packed", "packed size")
