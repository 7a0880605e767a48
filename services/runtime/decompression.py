"""Decompression of record batches with a stated bound on memory.

A record of 30 kB may unpack to 1 GB. So no codec here writes more than `MAX_BATCH_BYTES`: declared
sizes are checked before anything is unpacked, and data without one is unpacked into a buffer of
fixed size. While a batch is copied out of it, it is in memory twice.
"""

import mmap
import struct
import zlib
from collections.abc import Callable, Mapping

import cramjam

# The limit for one unpacked batch. Topics allow 1 MB per batch (`topics`); JSON compresses 5 to 20
# times.
MAX_BATCH_BYTES = 32 * 1024 * 1024

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

_GZIP_CONTAINER = 31
_CHUNK_BYTES = 256 * 1024
# Each member of gzip copies what follows it, each block of snappy takes a call; clients write one
# member, and blocks of 1 KiB or more.
_MAX_MEMBERS = 1_000
_MAX_BLOCKS = MAX_BATCH_BYTES // 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16


class CannotDecompress(ValueError):
    """The data is damaged, of an unknown codec, or unpacks to too much."""


def decompress(codec: int, packed: bytes, head: bytes = b"") -> bytearray:
    """`head` followed by the unpacked content of `packed`. Raises CannotDecompress."""
    unpack = _CODECS.get(codec)
    if unpack is None:
        raise CannotDecompress(f"there is no codec {codec}")
    try:
        return unpack(packed, head)
    except (zlib.error, cramjam.DecompressionError, struct.error) as error:
        if "failed to write whole buffer" in str(error):
            raise _too_large() from error
        raise CannotDecompress(f"codec {codec}: {error}") from error


def _too_large() -> CannotDecompress:
    return CannotDecompress(f"the batch unpacks to more than {MAX_BATCH_BYTES} bytes")


def _gzip(packed: bytes, head: bytes) -> bytearray:
    unpacked = bytearray(head)
    end = len(head) + MAX_BATCH_BYTES
    for _ in range(_MAX_MEMBERS):  # several members may follow each other
        if not packed:
            return unpacked
        member = zlib.decompressobj(_GZIP_CONTAINER)
        while not member.eof:
            chunk = member.decompress(packed, _CHUNK_BYTES)
            packed = member.unconsumed_tail
            unpacked += chunk
            if len(unpacked) > end:
                raise _too_large()
            if not chunk and not packed and not member.eof:
                raise CannotDecompress("gzip: the data is cut off")
        packed = member.unused_data
    raise CannotDecompress(f"gzip: more than {_MAX_MEMBERS} members")


def _snappy(packed: bytes, head: bytes) -> bytearray:
    unpacked = bytearray(head)
    end = len(head) + MAX_BATCH_BYTES
    if not packed.startswith(_XERIAL_MAGIC):
        _snappy_block(packed, unpacked, end)
        return unpacked
    position = _XERIAL_HEADER_BYTES
    for _ in range(_MAX_BLOCKS):
        if position >= len(packed):
            return unpacked
        (length,) = struct.unpack_from(">i", packed, position)
        position += 4
        if length <= 0 or position + length > len(packed):
            raise CannotDecompress("snappy: a block is cut off")
        _snappy_block(packed[position : position + length], unpacked, end)
        position += length
    raise CannotDecompress(f"snappy: more than {_MAX_BLOCKS} blocks")


def _snappy_block(packed: bytes, unpacked: bytearray, end: int) -> None:
    if len(unpacked) + cramjam.snappy.decompress_raw_len(packed) > end:
        raise _too_large()
    unpacked += cramjam.snappy.decompress_raw(packed)


def _lz4(packed: bytes, head: bytes) -> bytearray:
    with mmap.mmap(
        -1, MAX_BATCH_BYTES
    ) as buffer:  # its pages use memory only once they are written
        return _joined(head, buffer, cramjam.lz4.decompress_into(packed, buffer))


def _zstd(packed: bytes, head: bytes) -> bytearray:
    with mmap.mmap(-1, MAX_BATCH_BYTES) as buffer:
        return _joined(head, buffer, cramjam.zstd.decompress_into(packed, buffer))


def _joined(head: bytes, buffer: mmap.mmap, length: int) -> bytearray:
    joined = bytearray(head)
    with memoryview(buffer) as view, view[:length] as unpacked:
        joined += unpacked
    return joined


_CODECS: Mapping[int, Callable[[bytes, bytes], bytearray]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
