"""Batches as a client in another language may write them."""

import itertools
import struct
import zlib
from collections.abc import Iterator
from typing import Any, ClassVar

import cramjam
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.util import encode_varint


class NotUtf8(_DefaultRecordBatchBuilderPy):
    """Writes the header name `bad` as bytes that are no text."""

    def append(self, *arguments: Any, **options: Any) -> Any:
        appended = super().append(*arguments, **options)
        self._buffer[:] = self._buffer.replace(b"bad", b"\xff\xfe\xff")
        return appended


def bomb(codec: str, num_bytes: int) -> bytes:
    """One record with a value of so many NUL bytes, compressed; never whole in memory."""
    head = bytearray()
    value_length, rest = bytearray(), bytearray(b"\0\0\0\x01")  # attributes, times, no key
    encode_varint(num_bytes, value_length.append)
    rest += value_length
    encode_varint(len(rest) + num_bytes + 1, head.append)
    chunks = [bytes(head + rest), *_zeros(num_bytes), b"\0"]
    if codec == "gzip":
        packer = zlib.compressobj(9, wbits=31)
        return b"".join([*map(packer.compress, chunks), packer.flush()])
    if codec == "snappy":
        blocks = [bytes(cramjam.snappy.compress_raw(chunk)) for chunk in chunks]
        framed = [struct.pack(">i", len(block)) + block for block in blocks]
        return b"".join([b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1), *framed])
    compressor = {"lz4": _lz4, "zstd": cramjam.zstd.Compressor}[codec]()
    for chunk in chunks:
        compressor.compress(chunk)
    return bytes(compressor.finish())


def _lz4() -> Any:
    return cramjam.lz4.Compressor(level=9, content_checksum=False, block_linked=False)


def _zeros(num_bytes: int) -> Iterator[bytes]:
    chunk = bytes(1 << 20)
    yield from itertools.repeat(chunk, num_bytes >> 20)
    yield chunk[: num_bytes & ((1 << 20) - 1)]


class Packed(_DefaultRecordBatchBuilderPy):
    """A batch of one record, whose body is given as it goes over the wire."""

    body: ClassVar[bytes]

    def build(self) -> bytearray:
        self._buffer[self.HEADER_STRUCT.size :] = self.body
        self._write_header(use_compression_type=True)
        return self._buffer
