"""Segments of a log as objects: blocks of lines that follow each other, each compressed by itself.

So a search reads and unpacks one block at a time, and none that has no line of the wanted level.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import cramjam
import msgspec

from services.metrics.core.log_levels import NONE
from services.metrics.core.log_search import Chunk
from services.runtime.errors import StoreError

BLOCK_BYTES = 512 * 1024
_LEVEL = 3  # of zstd: a tenth of the size, at hundreds of megabytes a second
_decoder = msgspec.msgpack.Decoder(list[Chunk])


class StoredChunk(NamedTuple):
    """`size_bytes` is that of its lines, an estimate where it was not stored."""

    chunk: Chunk
    max_level: int
    size_bytes: int


class Block(NamedTuple):
    """`end_position`: that of its last line; its bytes in the object, and unpacked."""

    end_position: int
    size_bytes: int
    num_bytes: int
    max_level: int


def encode(chunks: Sequence[StoredChunk]) -> tuple[bytes, list[Block]]:
    """The object with these chunks, which follow each other."""
    content: list[bytes] = []
    blocks = []
    for group in _groups(chunks):
        plain = msgspec.msgpack.encode([one.chunk for one in group])
        packed = bytes(cramjam.zstd.compress(plain, level=_LEVEL))
        level = max((one.max_level for one in group), default=NONE)
        blocks.append(Block(group[-1].chunk.end_position, len(packed), len(plain), level))
        content.append(packed)
    return b"".join(content), blocks


def decode(packed: bytes, num_bytes: int) -> list[Chunk]:
    """The chunks of one block, which unpacks to that many bytes. Raises StoreError."""
    plain = bytearray(num_bytes)
    try:
        cramjam.zstd.decompress_into(packed, plain)
        return _decoder.decode(plain)
    except (cramjam.DecompressionError, msgspec.MsgspecError) as error:
        raise StoreError(f"a block of a log is damaged: {error}") from error


def _groups(chunks: Sequence[StoredChunk]) -> Iterator[list[StoredChunk]]:
    group: list[StoredChunk] = []
    size = 0
    for one in chunks:
        if group and size + one.size_bytes > BLOCK_BYTES:
            yield group
            group, size = [], 0
        group.append(one)
        size += one.size_bytes
    if group:
        yield group
