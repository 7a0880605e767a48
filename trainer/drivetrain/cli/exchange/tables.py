"""Samples as a table, a row each: CSV, or Parquet. Rows are written as they are read."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.exchange.history import Sample

COLUMNS = ("job", "attempt", "rank", "series", "step", "time", "value")
ROWS_OF_A_GROUP = 100_000

Row = tuple[str, Sample]  # the job's id

# A spreadsheet takes a cell that begins so for a formula, and the job chose the name.
_FORMULA = ("=", "+", "-", "@")
_LAST_SECOND = 253402300799.0  # of the year 9999


def write_csv(target: Path, rows: Iterable[Row]) -> int:
    """Returns the number of rows."""
    num = 0
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for job_id, one in rows:
            time = _time(one).isoformat().replace("+00:00", "Z")
            writer.writerow(
                (job_id, one.attempt, one.rank, _cell(one.name), one.step, time, repr(one.value))
            )
            num += 1
    return num


def _cell(name: str) -> str:
    return f"'{name}" if name.startswith(_FORMULA) else name


def need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        fix = "pip install 'drivetrain[parquet]', or use: --csv FILE"
        raise InvalidInput("pyarrow is not installed", fix=fix) from error


def write_parquet(target: Path, rows: Iterable[Row]) -> int:
    """As `write_csv`. Times are UTC, in microseconds."""
    import pyarrow
    from pyarrow import parquet

    types = (
        pyarrow.string(), pyarrow.int32(), pyarrow.int32(), pyarrow.string(),
        pyarrow.int64(), pyarrow.timestamp("us", tz="UTC"), pyarrow.float64(),
    )  # fmt: skip
    schema = pyarrow.schema(list(zip(COLUMNS, types, strict=True)))
    num = 0
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        for group in _groups(rows):
            columns = _columns(group)
            writer.write_table(pyarrow.table(dict(zip(COLUMNS, columns, strict=True)), schema))
            num += len(group)
    return num


def _columns(group: Sequence[Row]) -> list[list[Any]]:
    samples = [one for _, one in group]
    return [
        [job_id for job_id, _ in group],
        [one.attempt for one in samples],
        [one.rank for one in samples],
        [one.name for one in samples],
        [one.step for one in samples],
        [_time(one) for one in samples],
        [one.value for one in samples],
    ]


def _time(one: Sample) -> datetime:
    # A program can send any time as the step of a system series.
    return datetime.fromtimestamp(min(one.at, _LAST_SECOND), UTC)


def _groups(rows: Iterable[Row]) -> Iterator[Sequence[Row]]:
    iterator = iter(rows)
    while group := list(islice(iterator, ROWS_OF_A_GROUP)):
        yield group
