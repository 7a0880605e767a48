"""Reads what aiokafka cannot, within bounds: no content of a topic may stop its readers.

aiokafka decodes a whole batch, without a limit on its decompressed size, and raises for the whole
batch, again at every start, where one header's name is not UTF-8, the checksum is wrong, or the
codec is unknown. Here a batch is decompressed with a bound (`decompression`), and its records are
checked before they become objects: an empty header of 2 bytes takes 64 as an object. A record over
a bound is returned without its content, an invalid byte in a header's name as U+FFFD, and a batch
that cannot be decoded as one record at its last offset, with the bytes of the whole batch as its
value. Such a record has a reason (`problem_of`), so that it is parked and not lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.record.util import decode_varint

from services.runtime import decompression, logs

log = logs.get()

# One batch, one decompressed record, and one record's headers. Topics allow 1 MB per record.
MAX_RECORDS = 20_000
MAX_RECORD_BYTES = 1_500_000
MAX_HEADERS = 256

_HEADER_BYTES = _DefaultRecordBatchPy.HEADER_STRUCT.size
# The offset of the byte with the codec, in this message format and in older ones.
_CODEC = _DefaultRecordBatchPy.ATTRIBUTES_OFFSET + 1
_LEGACY_CODEC = 17
_CODEC_MASK = 0x07

# The name of the only header of an undecoded record, compared by identity: no client can send this
# object.
_PROBLEM = str("undecodable-record")  # noqa: UP018
# Partitions whose next batch is not to be decoded.
_WITHHELD: set[Any] = set()


def install() -> None:
    """Make every consumer of this process read through `LenientRecords`."""
    fetcher.MemoryRecords = LenientRecords
    fetcher.PartitionRecords = _PartitionRecords


def withhold(partition: Any) -> None:
    """Return the next batch of this partition as one record, not decoded."""
    _WITHHELD.add(partition)


def withheld(partitions: Sequence[Any]) -> list[Any]:
    """Those whose next batch is not to be decoded."""
    return [partition for partition in partitions if partition in _WITHHELD]


def problem_of(headers: Sequence[tuple[str, bytes | None]]) -> str | None:
    """Why the record with these headers was not decoded; None where it was."""
    if headers and headers[0][0] is _PROBLEM:
        return (headers[0][1] or b"").decode("utf-8", "replace")
    return None


class _PartitionRecords(fetcher.PartitionRecords):  # type: ignore[misc]
    """Passes the partition on to its batches."""

    def __init__(self, tp: Any, records: "LenientRecords", *arguments: Any) -> None:
        records.partition = tp
        super().__init__(tp, records, *arguments)


class LenientRecords(_MemoryRecordsPy):  # type: ignore[misc]
    """The batches of one fetched partition."""

    partition: Any = None

    def next_batch(self, *arguments: Any) -> Any:
        raw = self._next_slice
        batch = super().next_batch(*arguments)
        if raw is None or (raw[self.MAGIC_OFFSET] < 2 and not raw[_LEGACY_CODEC] & _CODEC_MASK):
            return batch
        return _Batch(batch, raw, self.partition)


class _Batch:
    """A batch as the fetcher uses it; no record is lost because of another."""

    def __init__(self, batch: Any, raw: memoryview, partition: Any) -> None:
        self._batch = batch
        self._raw = raw
        self._partition = partition
        self._is_intact = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)  # the one record of a control batch

    def validate_crc(self) -> bool:
        self._is_intact = self._batch.validate_crc()
        return True

    def __iter__(self) -> Iterator[Any]:
        """The records one after the other, so that only those taken cost memory."""
        num_read = 0
        try:
            plain = self._unpack()
            is_over = _is_over_bounds(plain)
            for decoder in (_LenientBatch,) if is_over else (DefaultRecordBatch, _LenientBatch):
                try:
                    for record in islice(decoder(plain), num_read, None):
                        num_read += 1
                        yield record
                    return
                except MemoryError:
                    raise
                except Exception:
                    if decoder is _LenientBatch:
                        raise
        except MemoryError:
            raise
        except Exception as error:
            yield self._whole(error)

    def _unpack(self) -> bytes | bytearray | memoryview:
        """The same batch without compression."""
        raw = self._raw
        if self._partition in _WITHHELD:
            _WITHHELD.discard(self._partition)
            raise ValueError("the process ended repeatedly before it had read this batch")
        if not self._is_intact:
            raise ValueError("the checksum is wrong")
        if raw[LenientRecords.MAGIC_OFFSET] < 2:
            raise ValueError("compressed in a message format before version 2")
        num_records = _num_records(raw)
        if not 0 <= num_records <= MAX_RECORDS:
            raise ValueError(f"{num_records} records in one batch (at most {MAX_RECORDS})")
        codec = raw[_CODEC] & _CODEC_MASK
        if codec == 0:
            return raw
        head = bytearray(raw[:_HEADER_BYTES])
        head[_CODEC] &= ~_CODEC_MASK
        return decompression.decompress(codec, bytes(raw[_HEADER_BYTES:]), bytes(head))

    def _whole(self, problem: Exception) -> "_Undecoded":
        offset = self.next_offset - 1
        log.error("a batch cannot be decoded", offset=offset, error=repr(problem))
        timestamp = getattr(self._batch, "max_timestamp", 0)
        return _Undecoded.of(offset, timestamp, bytes(self._raw), repr(problem))


def _num_records(batch: bytes | bytearray | memoryview) -> int:
    return int.from_bytes(batch[_HEADER_BYTES - 4 : _HEADER_BYTES], "big", signed=True)


def _is_over_bounds(batch: bytes | bytearray | memoryview) -> bool:
    """True where a record has too many bytes or headers. Raises where a record is not whole."""
    position = _HEADER_BYTES
    is_over = False
    for _ in range(_num_records(batch)):
        length, start = decode_varint(batch, position)
        position = start + length
        if length < 0 or position > len(batch):
            raise ValueError("a record is longer than its batch")
        is_over |= length > MAX_RECORD_BYTES or _num_headers(batch, start) > MAX_HEADERS
    if position != len(batch):
        raise ValueError("bytes follow the last record")
    return is_over


def _num_headers(batch: bytes | bytearray | memoryview, start: int) -> int:
    """Of the record whose attributes begin at `start`."""
    _, position = decode_varint(batch, start + 1)  # timestamp
    _, position = decode_varint(batch, position)  # offset
    key_bytes, position = decode_varint(batch, position)
    value_bytes, position = decode_varint(batch, position + max(key_bytes, 0))
    num_headers, _ = decode_varint(batch, position + max(value_bytes, 0))
    return int(num_headers)


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """aiokafka's own decoder on bytes that are always text; records over a bound are empty."""

    _buffer: bytearray
    _pos: int

    def _maybe_uncompress(self) -> None:
        self._buffer = _LenientBytes(self._buffer)
        self._decompressed = True

    def _read_msg(self, *arguments: Any) -> Any:
        length, start = decode_varint(self._buffer, self._pos)
        num_headers = _num_headers(self._buffer, start)
        if length <= MAX_RECORD_BYTES and num_headers <= MAX_HEADERS:
            return super()._read_msg(*arguments)
        _, position = decode_varint(self._buffer, start + 1)
        delta, _ = decode_varint(self._buffer, position)
        self._pos = start + length
        problem = f"the record has {length} bytes and {num_headers} headers"
        kept = bytes(self._buffer[start : self._pos]) if length <= MAX_RECORD_BYTES else None
        return _Undecoded.of(self.base_offset + delta, self.max_timestamp, kept, problem)


class _LenientBytes(bytearray):
    def __getitem__(self, where: Any) -> Any:
        part = super().__getitem__(where)
        return _LenientBytes(part) if isinstance(where, slice) else part

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, "replace")


@dataclass(frozen=True, slots=True)
class _Undecoded:
    """A record that is not decoded, or a whole batch, in the form of aiokafka's records."""

    offset: int
    timestamp: int
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    key: bytes | None = None
    timestamp_type: int = 1
    checksum: int | None = None

    @classmethod
    def of(cls, offset: int, timestamp: int, value: bytes | None, problem: str) -> "_Undecoded":
        return cls(offset, timestamp, value, ((_PROBLEM, problem.encode("utf-8", "replace")),))
