"""Reads what aiokafka cannot: no bytes on a topic may stop the services that read it.

aiokafka decodes a batch at once, and raises for all of it, at every start anew, where one header's
name is not UTF-8, where the checksum is wrong, or where the codec is unknown. Here a batch that the
fast decoder refuses is decoded leniently: every record comes, a wrong byte in a header's name as
U+FFFD. A batch that cannot be decoded at all comes as one record at its last offset, with the bytes
of the whole batch as its value, so that it is parked and not lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

from services.runtime import logs

log = logs.get()

# Stands in for the headers of a batch that cannot be decoded; the value says why.
UNDECODABLE = "x-undecodable"


def install() -> None:
    """From now on every consumer of this process reads through `LenientRecords`."""
    fetcher.MemoryRecords = LenientRecords


class LenientRecords(_MemoryRecordsPy):  # type: ignore[misc]
    """The batches of one fetched partition."""

    def next_batch(self, *arguments: Any) -> Any:
        raw = self._next_slice
        batch = super().next_batch(*arguments)
        is_legacy = raw is None or raw[self.MAGIC_OFFSET] < 2  # those have no headers
        return batch if is_legacy else _Batch(batch, raw)


class _Batch:
    """A batch as the fetcher uses it; of its records, none is withheld for another's sake."""

    def __init__(self, batch: Any, raw: memoryview) -> None:
        self._batch = batch
        self._raw = raw
        self._is_intact = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)  # the one record of a control batch

    def validate_crc(self) -> bool:
        self._is_intact = self._batch.validate_crc()
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self._records())

    def _records(self) -> Sequence[Any]:
        problem: Exception = ValueError("the checksum is wrong")
        if self._is_intact:
            try:
                return list(self._batch)
            except Exception:
                try:
                    return list(_LenientBatch(self._raw))
                except Exception as error:
                    problem = error
        log.error("a batch cannot be decoded", offset=self.base_offset, error=repr(problem))
        headers = ((UNDECODABLE, repr(problem).encode()),)
        return [_Whole(self.next_offset - 1, self.max_timestamp, bytes(self._raw), headers)]


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """aiokafka's own decoder on bytes that are always text."""

    _buffer: bytearray

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _LenientBytes(self._buffer)


class _LenientBytes(bytearray):
    def __getitem__(self, where: Any) -> Any:
        part = super().__getitem__(where)
        return _LenientBytes(part) if isinstance(where, slice) else part

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, "replace")


@dataclass(frozen=True, slots=True)
class _Whole:
    """A whole batch in the form of one of aiokafka's records."""

    offset: int
    timestamp: int
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    key: bytes | None = None
    timestamp_type: int = 1
    checksum: int | None = None
