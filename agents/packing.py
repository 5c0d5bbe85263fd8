"""Compression of frames sent to another machine, with zstd (RFC 8878).

Level 1 takes one or two microseconds per Atari frame and shrinks it to about a hundredth.
"""

from backports import zstd

from agents.headers import MessageError

LEVEL = 1


def packed(data: memoryview) -> bytes:
    """`data`, compressed."""
    return zstd.compress(data, LEVEL)


def unpacked(part: bytes | memoryview, size: int) -> bytes:
    """The `size` bytes packed in `part`. Raises MessageError if it holds anything else.

    The declared size is checked before anything is decompressed: otherwise a few bytes could expand
    to gigabytes.
    """
    try:
        declared = zstd.get_frame_info(part).decompressed_size
        if declared != size:
            raise MessageError("packed size", f"{declared} bytes are declared, not {size}")
        decompressor = zstd.ZstdDecompressor()
        data = decompressor.decompress(part, size)
    except zstd.ZstdError as error:
        raise MessageError("packed", str(error)) from error
    if len(data) != size or not decompressor.eof or decompressor.unused_data:
        raise MessageError("packed size", f"{len(data)} bytes, not {size}")
    return data
