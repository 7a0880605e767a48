"""Writes what a transaction emits into its service's outbox, with one statement.

It raises the counter of every (topic, key), in sorted order, so that two transactions cannot
deadlock. Only when all are raised does it insert the rows, in the order of emission; their ids are
assigned while the counters' rows are locked, so ids of one key grow in commit order
(docs/architecture.md, rule 2).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
import msgspec

from services.runtime.bus import OutRecord, size_bytes

SEQUENCE_HEADER = "ce_sequence"

# A numbered row comes with the place of its counter and with how many more rows of it follow. Its
# headers end before the bytes of the number: their count, one byte, and the number are appended.
_WRITE = """
with raised as (
    insert into outbox_counter (topic, key, seq)
    select topic, key, num_events
    from unnest($1::text[], $2::text[], $3::bigint[]) as raised (topic, key, num_events)
    order by topic collate "C", key collate "C"
    on conflict (topic, key) do update set seq = outbox_counter.seq + excluded.seq
    returning topic, key, seq),
last as (select array_agg(seq order by topic collate "C", key collate "C") as seqs from raised)
insert into outbox (topic, key, value, headers, size_bytes)
select new.topic, new.key, new.value,
       coalesce(
           new.headers || set_byte('\\x00', 0, octet_length(number)) || convert_to(number, 'UTF8'),
           new.headers),
       new.size_bytes
from unnest($4::text[], $5::bytea[], $6::bytea[], $7::bytea[], $8::int[], $9::int[], $10::int[])
         with ordinality
         as new (topic, key, value, headers, size_bytes, counter, num_after, place),
     last, cast(last.seqs[new.counter] - new.num_after as text) as number
order by new.place
"""
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
    left = Counter(
        (item.record.topic, item.counter) for item in emitted if item.counter is not None
    )
    counters = sorted(left)  # by code points, which is the order of the collation "C"
    counts = [left[counter] for counter in counters]
    places = {counter: place for place, counter in enumerate(counters, start=1)}
    rows = []
    for item in emitted:
        record, headers = item.record, item.record.headers
        place = num_after = None
        if item.counter is not None:
            counter = (record.topic, item.counter)
            left[counter] -= 1
            place, num_after = places[counter], left[counter]
            packed = _ENCODER.encode((*headers, (SEQUENCE_HEADER, b"")))[:-1]
        else:
            packed = _ENCODER.encode(headers)
        rows.append(
            (record.topic, record.key, record.value, packed, item.size_bytes, place, num_after)
        )
    topics, keys = [topic for topic, _ in counters], [key for _, key in counters]
    await connection.execute(_WRITE, topics, keys, counts, *zip(*rows, strict=True))


def unpack(headers: bytes) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a row."""
    return _DECODER.decode(headers)
