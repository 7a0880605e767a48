"""Writes what a transaction emits into its service's outbox, always with two statements.

The first raises the counter of every (topic, key), in sorted order, so that two transactions cannot
deadlock. The second inserts the rows in the order of emission; their ids are assigned while the
counters' rows are locked, so ids of one key grow in commit order (docs/architecture.md, rule 2).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
import msgspec

from services.runtime.bus import OutRecord, size_bytes

SEQUENCE_HEADER = "ce_sequence"

_RAISE_COUNTERS = """
insert into outbox_counter (topic, key, seq)
select topic, key, num_events
from unnest($1::text[], $2::text[], $3::bigint[]) as raised (topic, key, num_events)
order by topic collate "C", key collate "C"
on conflict (topic, key) do update set seq = outbox_counter.seq + excluded.seq
returning topic, key, seq
"""
_COLUMNS = ("topic", "key", "value", "headers", "size_bytes")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(tuple[tuple[str, bytes | None], ...])
# The header that carries the number, at most.
_SEQUENCE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Emitted:
    """One record to be published; `counter` is the key under which it is numbered, if it is."""

    record: OutRecord
    counter: str | None = None

    @property
    def size_bytes(self) -> int:
        return size_bytes(self.record) + (_SEQUENCE_BYTES if self.counter is not None else 0)


async def write(connection: asyncpg.Connection, emitted: Sequence[Emitted]) -> None:
    """Insert all of it. The last statement of a transaction: it holds the counters' locks."""
    next_seq = await _raise_counters(connection, emitted)
    rows = []
    for item in emitted:
        record, headers = item.record, item.record.headers
        if item.counter is not None:
            place = (record.topic, item.counter)
            headers = (*headers, (SEQUENCE_HEADER, b"%d" % next_seq[place]))
            next_seq[place] += 1
        packed = _ENCODER.encode(headers)
        rows.append((record.topic, record.key, record.value, packed, item.size_bytes))
    await connection.copy_records_to_table("outbox", records=rows, columns=_COLUMNS)


def unpack(headers: bytes) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a row."""
    return _DECODER.decode(headers)


async def _raise_counters(
    connection: asyncpg.Connection, emitted: Sequence[Emitted]
) -> dict[tuple[str, str], int]:
    """The first number of each (topic, key) that is now taken by this transaction."""
    counts = Counter(
        (item.record.topic, item.counter) for item in emitted if item.counter is not None
    )
    if not counts:
        return {}
    topics = [topic for topic, _ in counts]
    keys = [key for _, key in counts]
    rows = await connection.fetch(_RAISE_COUNTERS, topics, keys, list(counts.values()))
    last = {(row["topic"], row["key"]): row["seq"] for row in rows}
    return {place: last[place] - num_events + 1 for place, num_events in counts.items()}
