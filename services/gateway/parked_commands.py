"""Decisions about parked records: replay or discard one, or all that match a filter.

A decision is an event (`parked.replayed`, `parked.discarded`) of at most 1,000 records; the read
model follows from it. Records are published again before the decision is, so that a crash between
the two repeats a replay (readers drop what they have handled) and never loses one. Work on a filter
runs from newest to oldest for a bounded time and returns the position to continue from; what is
parked in the meantime is newer and is not touched.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from drivetrain_schemas.ids import digest_id
from drivetrain_schemas.parked import (
    MAX_RECORDS,
    ParkedDiscarded,
    ParkedRecord,
    ParkedReplayed,
)
from drivetrain_schemas.topics import TOPICS
from services.gateway import parked_queries
from services.gateway.commands import as_record, confirmed, publish
from services.gateway.context import Gateway
from services.gateway.core.parked import ParkedState
from services.gateway.instruments import PARKED_DECIDED
from services.gateway.parked_queries import Selection
from services.gateway.problem import Problem
from services.gateway.queries.rows import Position, Row
from services.runtime import logs
from services.runtime.bus import OutRecord
from services.runtime.parking import replay_header
from services.runtime.retention import replay_refusal

log = logs.get()

BUDGET_SECONDS = 10.0
CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do with records; `note` goes with a discard."""

    state: ParkedState
    note: str = ""


REPLAY = Choice(ParkedState.REPLAYED)


@dataclass(slots=True)
class Outcome:
    """`next` is the position to continue from, where the time was not enough."""

    num_records: int = 0
    num_skipped: int = 0
    next: Position | None = None
    is_confirmed: bool = True


@dataclass(slots=True)
class _Decision:
    """One decision in the making: its events are numbered under its id."""

    gateway: Gateway
    tenant_id: str
    choice: Choice
    decision_id: str = field(
        default_factory=lambda: f"decision_{digest_id('decision', uuid.uuid4().hex)}"
    )
    num_events: int = 0
    num_records: int = 0
    last: ParkedReplayed | ParkedDiscarded | None = None

    async def take(self, rows: Sequence[Row]) -> None:
        """Publish what is decided about these records, at most MAX_RECORDS of them."""
        if self.choice.state is ParkedState.REPLAYED:
            await publish(self.gateway, [_original(row) for row in rows])
        payload = self._payload(rows)
        self.num_events += 1
        event_id = f"{self.decision_id}_{self.num_events}"
        event = as_record(self.gateway, self.tenant_id, event_id, payload, self.num_events)
        await publish(self.gateway, [event])
        self.num_records += len(rows)
        self.last = payload
        PARKED_DECIDED.labels(self.choice.state.value).inc(len(rows))

    async def is_confirmed(self) -> bool:
        """True once the read model shows the last event, and so all before it."""
        if self.last is None:
            return True
        log.info(
            "parked records decided",
            decision_id=self.decision_id,
            decision=self.choice.state.value,
            num_records=self.num_records,
        )
        one, database = self.last.records[-1], self.gateway.platform.database

        async def read() -> bool | None:
            async with database.connection() as connection:
                is_shown = await parked_queries.is_decided(
                    connection, one.parked_id, one.num_parkings
                )
            return True if is_shown else None

        return bool(await confirmed(self.gateway, self.last, read))

    def _payload(self, rows: Sequence[Row]) -> ParkedReplayed | ParkedDiscarded:
        records = tuple(
            ParkedRecord(parked_id=row["parked_id"], num_parkings=row["num_parkings"])
            for row in rows
        )
        now = self.gateway.platform.clock.now()
        if self.choice.state is ParkedState.REPLAYED:
            return ParkedReplayed(decision_id=self.decision_id, records=records, decided_at=now)
        return ParkedDiscarded(
            decision_id=self.decision_id, records=records, decided_at=now, note=self.choice.note
        )


async def decide_one(gateway: Gateway, tenant_id: str, row: Row, choice: Choice) -> bool:
    """True once it is shown. Raises Problem where the record cannot be replayed."""
    now = gateway.platform.clock.now()
    reason = _reason_against(choice, row, _known_topics(gateway), now)
    if reason is not None:
        raise Problem(409, "cannot_be_replayed", reason)
    decision = _Decision(gateway, tenant_id, choice)
    await decision.take([row])
    return await decision.is_confirmed()


async def decide_all(
    gateway: Gateway, wanted: Selection, choice: Choice, after: Position | None
) -> Outcome:
    """Every record that matches, from `after` on, until the time is used up."""
    clock, known = gateway.platform.clock, _known_topics(gateway)
    until = clock.monotonic() + BUDGET_SECONDS
    decision = _Decision(gateway, wanted.tenant_id, choice)
    outcome = Outcome(next=after)
    while True:
        async with gateway.platform.database.connection() as connection:
            rows = await parked_queries.parked(connection, wanted, outcome.next, MAX_RECORDS)
        if not rows:
            outcome.next = None
            break
        chunk = _first_bytes(rows) if choice.state is ParkedState.REPLAYED else rows
        now = gateway.platform.clock.now()
        fit = [row for row in chunk if _reason_against(choice, row, known, now) is None]
        if choice.state is ParkedState.REPLAYED:
            async with gateway.platform.database.connection() as connection:
                parked_ids = [row["parked_id"] for row in fit]
                fit = await parked_queries.records(connection, wanted.tenant_id, parked_ids)
        if fit:
            await decision.take(fit)
        outcome.num_skipped += len(chunk) - len(fit)
        outcome.next = (chunk[-1]["parked_at"], chunk[-1]["parked_id"])
        if clock.monotonic() >= until:
            break
    outcome.num_records = decision.num_records
    outcome.is_confirmed = await decision.is_confirmed()
    return outcome


def _first_bytes(rows: Sequence[Row]) -> Sequence[Row]:
    """As many records as are held in memory at once, at least one."""
    total = 0
    for index, row in enumerate(rows):
        total += row["size_bytes"]
        if total > CHUNK_BYTES and index:
            return rows[:index]
    return rows


def _known_topics(gateway: Gateway) -> frozenset[str]:
    prefix = gateway.settings.topic_prefix
    return frozenset(prefix + one.name for one in TOPICS if not one.name.startswith("parked."))


def _reason_against(
    choice: Choice, row: Row, known_topics: Collection[str], now: datetime
) -> str | None:
    if choice.state is not ParkedState.REPLAYED:
        return None
    if row["topic"] not in known_topics:
        return f"the record's topic is not a topic of this platform ({row['topic'][:120]!r})"
    if row["is_omitted"]:
        return f"the record was too large to be kept ({row['size_bytes']:,} bytes)"
    return replay_refusal(row["topic"], row["parked_at"], now)


def _original(row: Row) -> OutRecord:
    """The record as received, and the header that names the parked record."""
    headers = zip(row["header_names"], row["header_values"], strict=True)
    return OutRecord(
        topic=row["topic"],
        key=row["key"],
        value=row["value"],
        headers=(*headers, replay_header(row["parked_id"])),
    )
