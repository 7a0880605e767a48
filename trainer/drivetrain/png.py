"""Pixels to PNG, with nothing but zlib."""

import struct
import zlib

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Grey, grey with alpha, RGB, RGBA: the colour type by the number of channels.
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
# Noise does not shrink, and pictures of training are small: speed matters more.
_LEVEL = 4


def encode(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    """`pixels`: rows from the top, a byte per channel; width * height * channels of them."""
    row_bytes = width * channels
    if len(pixels) != row_bytes * height:
        raise ValueError(f"{len(pixels)} bytes are not {width} x {height} x {channels}")
    rows = memoryview(pixels)
    squeezer = zlib.compressobj(_LEVEL)
    data = bytearray()
    for at in range(0, len(pixels), row_bytes):
        data += squeezer.compress(b"\0")  # the row is as it is, without a filter
        data += squeezer.compress(rows[at : at + row_bytes])
    data += squeezer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", bytes(data)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(kind))
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
