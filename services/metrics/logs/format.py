"""Segments of a log as objects: blocks of lines that follow each other, each compressed by itself.

So a search reads and unpacks one block at a time, and none that has no line of the wanted level.
Each block ends with its checksum, in a frame that decoders of zstd skip: damage may leave a block
that unpacks to other lines.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import cramjam
import msgspec

from services.metrics.core.log_levels import NONE
from services.metrics.core.log_search import Chunk
from services.runtime.errors import StoreError

BLOCK_BYTES = 512 * 1024
_LEVEL = 3  # of zstd: a tenth of the size, at hundreds of megabytes a second
# Magic number of a skippable frame, the length of its content, and this: a CRC-32.
_CHECK = struct.Struct("<III")
_CHECK_MAGIC = 0x184D2A50
_decoder = msgspec.msgpack.Decoder(list[Chunk])


class StoredChunk(NamedTuple):
    """`size_bytes` is that of its lines."""

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
        packed = _with_checksum(bytes(cramjam.zstd.compress(plain, level=_LEVEL)))
        level = max((one.max_level for one in group), default=NONE)
        blocks.append(Block(group[-1].chunk.end_position, len(packed), len(plain), level))
        content.append(packed)
    return b"".join(content), blocks


def decode(packed: bytes, num_bytes: int) -> list[Chunk]:
    """The chunks of one block, which unpacks to that many bytes. Raises StoreError."""
    if not _is_intact(packed):
        raise StoreError("a block of a log is damaged: its checksum is another one")
    plain = bytearray(num_bytes)
    try:
        cramjam.zstd.decompress_into(packed, plain)
        return _decoder.decode(plain)
    except (cramjam.DecompressionError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"a block of a log is damaged: {error}") from error


def _with_checksum(packed: bytes) -> bytes:
    return packed + _CHECK.pack(_CHECK_MAGIC, 4, zlib.crc32(packed))


def _is_intact(packed: bytes) -> bool:
    content, check = packed[: -_CHECK.size], packed[-_CHECK.size :]
    return check == _CHECK.pack(_CHECK_MAGIC, 4, zlib.crc32(content))


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
