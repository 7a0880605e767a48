"""Samples as Parquet: a file written as a whole, and single row groups read from ranges of it.

Steps are delta-encoded and the bytes of values are split into streams before compression, so that
both take a fraction of what they take in Postgres. Any reader of Parquet can read the files.
"""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from services.metrics.core.layout import Piece, Samples

_SCHEMA = pa.schema(
    [
        pa.field("job_id", pa.string(), nullable=False),
        pa.field("series", pa.string(), nullable=False),
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
        # Side by side in the file: one request reads both.
        pa.field("step", pa.int64(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
_READ = ("step", "value")
_TAIL_BYTES = 8  # the length of the footer and the magic number


class Damaged(Exception):
    """The bytes are not those of such a file."""


class Span(NamedTuple):
    """Bytes of a file, `end` excluded."""

    start: int
    end: int


class Metadata:
    """The footer of a file: where its row groups are."""

    def __init__(self, footer: bytes, size_bytes: int) -> None:
        """`footer`: the bytes from `footer_offset` to the end of the file. Raises Damaged."""
        try:
            self._parsed: Any = pq.read_metadata(io.BytesIO(b"PAR1" + footer))
        except (pa.ArrowException, OSError) as error:
            raise Damaged(str(error)) from error
        self._size_bytes = size_bytes

    def span(self, row_group: int) -> Span:
        """Where the steps and values of a row group are."""
        group = self._parsed.row_group(row_group)
        columns = [group.column(_SCHEMA.get_field_index(name)) for name in _READ]
        first, last = columns
        return Span(_start(first), _start(last) + last.total_compressed_size)

    def read(self, row_group: int, content: bytes) -> Samples:
        """The row group's samples; `content` is what is at `span`. Raises Damaged."""
        file = _Part(self.span(row_group).start, content, self._size_bytes)
        try:
            reader = pq.ParquetFile(
                pa.PythonFile(file, mode="r"),
                metadata=self._parsed,
                page_checksum_verification=True,
            )
            table = reader.read_row_group(row_group, columns=list(_READ), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise Damaged(str(error)) from error
        return Samples(table["step"].to_numpy(), table["value"].to_numpy())


def encode(pieces: Sequence[Piece]) -> bytes:
    """The file of these pieces, which are in the order of their row groups."""
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        compression="zstd",
        use_dictionary=["job_id", "series", "rank", "attempt", "run_id"],
        column_encoding={"step": "DELTA_BINARY_PACKED", "value": "BYTE_STREAM_SPLIT"},
        write_statistics=True,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        group: list[Piece] = []
        for piece in pieces:
            if group and group[0].row_group != piece.row_group:
                writer.write_table(_table(group))
                group = []
            group.append(piece)
        if group:
            writer.write_table(_table(group))
    return sink.getvalue()


def footer_offset(content: bytes) -> int:
    """Where the footer of a whole file begins."""
    length = int.from_bytes(content[-_TAIL_BYTES:-4], "little")
    return len(content) - _TAIL_BYTES - length


def _table(pieces: Sequence[Piece]) -> Any:
    lengths = [len(piece.samples.steps) for piece in pieces]

    def repeated(name: str) -> Any:
        values = pa.array([getattr(piece.part, name) for piece in pieces], _SCHEMA.field(name).type)
        return values.take(pa.array(np.repeat(np.arange(len(pieces)), lengths)))

    columns = [repeated(name) for name in ("job_id", "series", "rank", "attempt", "run_id")]
    steps = np.concatenate([piece.samples.steps for piece in pieces])
    values = np.concatenate([piece.samples.values for piece in pieces])
    return pa.table([*columns, pa.array(steps), pa.array(values)], schema=_SCHEMA)


def _start(column: Any) -> int:
    """Where a column of a row group begins."""
    dictionary = column.dictionary_page_offset
    return int(column.data_page_offset if dictionary is None else dictionary)


class _Part(io.RawIOBase):
    """A file of which only some bytes are here."""

    def __init__(self, start: int, content: bytes, size_bytes: int) -> None:
        self._start = start
        self._content = content
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = base[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        first = self._position - self._start
        end = len(self._content) if size < 0 else first + size
        if first < 0 or end > len(self._content):
            raise OSError(f"bytes {first}..{end} of the row group were not read")
        self._position += end - first
        return self._content[first:end]
