"""Raises the alarm where an event of a numbered topic is missing; nothing waits for it.

Producers number the events of one (topic, key) without a gap, and their first copies come in order.
So a reader that takes every type of a topic sees a loss as a jump. What was heard stands in the
reader's own schema, in the transaction of the event: what comes again is no jump, a rebuild begins
with nothing heard, and neither is one the first event of a key, which retention may have left.
"""

from functools import partial

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from services.runtime import logs
from services.runtime.instruments import SEQUENCE_GAPS
from services.runtime.transaction import Tx

log = logs.get()

# The sub-select sees the row as it was.
_HEAR = """
insert into sequence (topic, key, seq) values ($1, $2, $3)
on conflict (topic, key) do update set seq = greatest(sequence.seq, excluded.seq)
returning (select seq from sequence where topic = $1 and key = $2)
"""


async def hear(tx: Tx, event: Event[Payload]) -> None:
    """Note that this event was heard. Commands are not numbered: anybody may write them."""
    topic, key = event.payload.kind.topic.name, event.payload.key
    if event.seq is None or not topic.startswith("events."):
        return
    before = await tx.connection.fetchval(_HEAR, topic, key, event.seq)
    if before is not None and event.seq > before + 1:
        tx.after_commit(partial(_alarm, topic, key, before, event.seq))


def _alarm(topic: str, key: str, before: int, found: int) -> None:
    SEQUENCE_GAPS.labels(topic).inc()
    log.error("events are missing", topic=topic, key=key, heard_seq=before, found_seq=found)
