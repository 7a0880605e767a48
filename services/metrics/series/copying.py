"""Chunks of samples as Postgres reads them in a binary COPY.

asyncpg encodes each number of an array by itself, which took a third of the service's time while
samples came in; here an array is laid out at once. The format is described in Postgres's manual
under COPY; that of an array is what its function `array_recv` reads.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

_BEGIN = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_END = struct.pack(">h", -1)
# One dimension, without nulls; the type of the elements, how many they are, the first has number 1.
_ARRAY = struct.Struct(">iiiiii")
_INT8, _FLOAT8 = (20, ">i8"), (701, ">f8")


class ChunkRow(NamedTuple):
    """The samples of one series in one batch; the fields are columns of the table."""

    job_id: str
    run_id: str
    attempt: int
    rank: int
    series: str
    num_samples: int
    min_step: int
    max_step: int
    steps: list[int]
    values: list[float]


def binary(chunks: Iterable[ChunkRow]) -> bytes:
    """The fields of `ChunkRow` in their order."""
    return b"".join((_BEGIN, *(part for chunk in chunks for part in _row(chunk)), _END))


def _row(chunk: ChunkRow) -> Iterator[bytes]:
    yield struct.pack(">h", len(chunk))
    yield _text(chunk.job_id)
    yield _text(chunk.run_id)
    yield struct.pack(">iiii", 4, chunk.attempt, 4, chunk.rank)
    yield _text(chunk.series)
    yield struct.pack(">iiiqiq", 4, chunk.num_samples, 8, chunk.min_step, 8, chunk.max_step)
    yield _array(chunk.steps, *_INT8)
    yield _array(chunk.values, *_FLOAT8)


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack(">i", len(content)) + content


def _array(numbers: Sequence[float], type_oid: int, layout: str) -> bytes:
    elements = np.empty(len(numbers), dtype=[("size", ">i4"), ("number", layout)])
    elements["size"] = 8
    elements["number"] = numbers
    content = elements.tobytes()
    head = _ARRAY.pack(len(content) + 20, 1, 0, type_oid, len(numbers), 1)
    return head + content
