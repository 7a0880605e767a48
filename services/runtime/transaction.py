"""The unit of work of a handler: its connection, what it emits, and what to do after the commit.

`emit` only collects; `Database.transaction` writes the outbox rows as the last statements before
COMMIT (`outbox`). Causation, correlation and trace follow from the event that is being handled.
"""

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import asyncpg

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import MAX_EVENT_BYTES, Cause, Event, encode
from services.runtime import outbox, tracing
from services.runtime.bus import OutRecord
from services.runtime.errors import EventTooLarge


@dataclass(frozen=True, slots=True)
class Origin:
    """The emitter: the CloudEvents `source`, and the prefix of topic names."""

    source: str
    topic_prefix: str


class Tx:
    """One open transaction."""

    def __init__(self, connection: asyncpg.Connection, origin: Origin) -> None:
        self.connection = connection
        self._origin = origin
        self._emitted: list[outbox.Emitted] = []
        self._callbacks: list[Callable[[], None]] = []
        self._traceparents: dict[str, str] = {}  # by the id of the cause

    @property
    def has_emitted(self) -> bool:
        return bool(self._emitted)

    async def emit(
        self, payload: Payload, *, tenant_id: str, cause: Event[Payload] | Cause | None = None
    ) -> str:
        """Publish `payload` on its own topic once this transaction commits. Returns the event id.

        Commands carry no `seq`: any client may write them. Raises EventTooLarge.
        """
        event = Event(
            event_id=uuid.uuid4().hex,
            source=self._origin.source,
            occurred_at=datetime.now(UTC),
            tenant_id=tenant_id,
            payload=payload,
            correlation_id=(cause.correlation_id or cause.event_id) if cause else None,
            causation_id=cause.event_id if cause else None,
            traceparent=self._trace(cause, payload.kind.type),
            subject=payload.key,
        )
        headers, key, value = encode(event)
        if len(value) > MAX_EVENT_BYTES:
            raise EventTooLarge(
                f"{event.type} of {payload.key} has {len(value)} bytes; "
                f"its producer must bound its fields to {MAX_EVENT_BYTES}"
            )
        topic = payload.kind.topic.name
        record = OutRecord(self._origin.topic_prefix + topic, key, value, tuple(headers))
        counter = payload.key if topic.startswith("events.") else None
        self._emitted.append(outbox.Emitted(record, counter))
        return event.event_id

    def forward(self, topic: str, record: OutRecord) -> None:
        """Publish a record as it is, on the topic of this name without prefix (parking)."""
        full_name = self._origin.topic_prefix + topic
        self._emitted.append(outbox.Emitted(replace(record, topic=full_name)))

    async def write_outbox(self) -> None:
        """Write what was emitted; the last statements before COMMIT."""
        if self._emitted:
            await outbox.write(self.connection, self._emitted)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call this after the commit; never after a rollback."""
        self._callbacks.append(callback)

    def run_callbacks(self) -> None:
        for callback in self._callbacks:
            callback()

    def _trace(self, cause: Event[Payload] | Cause | None, event_type: str) -> str:
        """W3C trace context: the trace of the cause continues, each event is a span of its own."""
        # The events of a batch share a transaction and not a trace.
        cause_id = cause.event_id if cause else ""
        parent = (cause.traceparent if cause else None) or self._traceparents.get(cause_id)
        _, trace_id, _, flags = parent.split("-") if parent else ("", "", "", "01")
        trace_id = trace_id or secrets.token_hex(16)
        own = f"00-{trace_id}-{secrets.token_hex(8)}-{flags}"
        traceparent = tracing.sent(event_type, parent) or own
        # Later events without a cause belong to this trace.
        self._traceparents[cause_id] = self._traceparents[""] = traceparent
        return traceparent
