"""The unit of work of a handler: its connection, what it emits, and what to do once it is kept.

`emit` writes an outbox row in the same transaction, numbered gapless per (topic, key) under the
counter's row lock; the row's id is drawn while that lock is held, so ids of one key grow in commit
order. Causation, correlation and trace follow from the event that is being handled.
"""

import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import MAX_EVENT_BYTES, Event, Headers, encode
from services.runtime.bus import Record

# One statement: the counter's row is locked before the outbox id is drawn.
_INSERT_NUMBERED = """
with counted as (
    insert into outbox_counter (topic, key, seq) values ($1, $2, 1)
    on conflict (topic, key) do update set seq = outbox_counter.seq + 1
    returning seq)
insert into outbox (topic, key, value, header_names, header_values)
select $1, $3, $4, $5::text[] || 'ce_sequence'::text,
    $6::bytea[] || convert_to(seq::text, 'UTF8') from counted
"""
_INSERT = """
insert into outbox (topic, key, value, header_names, header_values)
values ($1, $2, $3, $4, $5)
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who emits: the CloudEvents `source`, and the prefix of topic names."""

    source: str
    topic_prefix: str


class Tx:
    """One open transaction."""

    def __init__(self, connection: asyncpg.Connection, origin: Origin) -> None:
        self.connection = connection
        self.has_emitted = False
        self._origin = origin
        self._callbacks: list[Callable[[], None]] = []
        self._traceparent: str | None = None

    async def emit(
        self, payload: Payload, *, tenant_id: str, cause: Event[Payload] | None = None
    ) -> str:
        """Publish `payload` on its own topic once this transaction commits. Returns the event id.

        Commands carry no `seq`: anybody may write them.
        """
        topic = self._origin.topic_prefix + payload.kind.topic.name
        event = Event(
            event_id=uuid.uuid4().hex,
            source=self._origin.source,
            occurred_at=datetime.now(UTC),
            tenant_id=tenant_id,
            payload=payload,
            correlation_id=(cause.correlation_id or cause.event_id) if cause else None,
            causation_id=cause.event_id if cause else None,
            traceparent=self._trace(cause),
            subject=payload.key,
        )
        headers, key, value = encode(event)
        assert len(value) <= MAX_EVENT_BYTES, f"{event.type} has {len(value)} bytes"
        names, values = _columns(headers)
        self.has_emitted = True
        if payload.kind.topic.name.startswith("events."):
            await self.connection.execute(
                _INSERT_NUMBERED, topic, payload.key, key, value, names, values
            )
        else:
            await self.connection.execute(_INSERT, topic, key, value, names, values)
        return event.event_id

    async def forward(
        self, topic: str, record: Record, extra_headers: Sequence[tuple[str, bytes]]
    ) -> None:
        """Publish a record's original bytes on another topic (parking)."""
        names, values = _columns([*record.headers, *extra_headers])
        full_name = self._origin.topic_prefix + topic
        self.has_emitted = True
        await self.connection.execute(_INSERT, full_name, record.key, record.value, names, values)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call this once the transaction is committed; never when it is rolled back."""
        self._callbacks.append(callback)

    def run_callbacks(self) -> None:
        for callback in self._callbacks:
            callback()

    def _trace(self, cause: Event[Payload] | None) -> str:
        """W3C trace context: the cause's trace goes on, each event is a span of its own."""
        parent = (cause.traceparent if cause else None) or self._traceparent
        _, trace_id, _, flags = parent.split("-") if parent else ("", "", "", "01")
        trace_id = trace_id or secrets.token_hex(16)
        self._traceparent = f"00-{trace_id}-{secrets.token_hex(8)}-{flags}"
        return self._traceparent


def _columns(headers: Headers) -> tuple[list[str], list[bytes | None]]:
    """Names and values apart; Postgres takes no NUL in a text, Kafka does."""
    return [name.replace("\0", "\ufffd") for name, _ in headers], [value for _, value in headers]
