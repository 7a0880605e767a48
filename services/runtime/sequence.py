"""Reports a missing event of a numbered topic; nothing waits for it.

Producers number the events of one (topic, key) without a gap, and their first copies come in order.
So for a reader of every type of a topic a lost event is a gap. The last number of each key is
stored in the reader's own schema, in the transaction of the events: a redelivery is not a gap, and
neither is the first event of a key, because retention may have removed those before it.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from drivetrain_schemas.envelope import Event
from services.runtime import logs
from services.runtime.instruments import SEQUENCE_GAPS
from services.runtime.transaction import Tx

log = logs.get()

# The sub-select sees the row as it was.
_NOTE = """
insert into sequence (topic, key, seq)
select * from unnest($1::text[], $2::text[], $3::bigint[])
on conflict (topic, key) do update set seq = greatest(sequence.seq, excluded.seq)
returning topic, key,
    (select old.seq from sequence old where old.topic = sequence.topic and old.key = sequence.key)
    as before
"""


class Numbered(NamedTuple):
    """The number of one event under its (topic, key)."""

    topic: str
    key: str
    seq: int


class Gap(NamedTuple):
    """Numbers between `before` and `found` are missing."""

    topic: str
    key: str
    before: int
    found: int


def find_gaps(before: Mapping[tuple[str, str], int], numbers: Sequence[Numbered]) -> list[Gap]:
    """The gaps in `numbers`, given the last number of each key before them."""
    last = dict(before)
    gaps = []
    for topic, key, seq in numbers:
        known = last.get((topic, key), seq)
        if seq > known + 1:
            gaps.append(Gap(topic, key, known, seq))
        last[topic, key] = max(known, seq)
    return gaps


async def note(tx: Tx, events: Sequence[Event[Any]]) -> None:
    """Note the numbers of these new events. Commands have none: any client may write them."""
    numbers = [
        Numbered(topic, event.payload.key, event.seq)
        for event in events
        if (topic := event.payload.kind.topic.name).startswith("events.") and event.seq is not None
    ]
    if not numbers:
        return
    highest: dict[tuple[str, str], int] = {}
    for topic, key, seq in numbers:
        highest[topic, key] = max(seq, highest.get((topic, key), seq))
    rows = await tx.connection.fetch(
        _NOTE,
        [topic for topic, _ in highest],
        [key for _, key in highest],
        list(highest.values()),
    )
    before = {
        (row["topic"], row["key"]): row["before"] for row in rows if row["before"] is not None
    }
    for gap in find_gaps(before, numbers):
        tx.after_commit(partial(_alarm, gap))


def _alarm(gap: Gap) -> None:
    SEQUENCE_GAPS.labels(gap.topic).inc()
    log.error("events are missing", **gap._asdict())
