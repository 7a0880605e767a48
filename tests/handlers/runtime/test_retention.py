"""What is deleted from the runtime's own tables, and that nothing is handled twice afterwards."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.topics import (
    COMMANDS_JOBS,
    EVENTS_CHARGES,
    FOR_EVER,
    REPORTS,
    TOPICS,
    Topic,
)
from services.runtime import retention as retention_module
from services.runtime.bus import OutRecord, Record
from services.runtime.database import Database
from services.runtime.instruments import PRUNED
from services.runtime.processing import EventProcessor
from services.runtime.retention import KEEP, MARGIN, Retention, inbox_keep, replay_refusal
from services.runtime.transaction import Tx
from tests.conftest import OpenDatabase
from tests.events import make_event, make_record
from tests.fakes import ManualClock
from tests.handlers.runtime.charges import charge

TOPIC = f"drivetrain.{EVENTS_CHARGES.name}"
LONG_AGO = datetime.now(UTC) - KEEP - timedelta(days=1)


def test_an_inbox_row_is_kept_longer_than_any_record_of_a_topic_with_retention() -> None:
    for topic in TOPICS:
        if topic.retention_ms != FOR_EVER:
            assert inbox_keep(topic) >= timedelta(milliseconds=topic.retention_ms) + MARGIN
    assert inbox_keep(REPORTS) < timedelta(days=8), "pods write many"


@pytest.mark.parametrize("topic", [COMMANDS_JOBS, EVENTS_CHARGES, REPORTS])
def test_a_replay_is_possible_only_while_every_inbox_remembers(topic: Topic) -> None:
    now = datetime.now(UTC)
    limit, name = inbox_keep(topic) / 2, f"t.{topic.name}"
    assert replay_refusal(name, now - limit, now) is None
    assert replay_refusal(name, now - limit - timedelta(seconds=1), now) is not None


def records(*offsets: int, appended_at: datetime = LONG_AGO) -> list[Record]:
    """One event each; the same offset is the same event."""
    made = []
    for offset in offsets:
        event = make_event(charge(offset), event_id=f"event {offset}")
        record = make_record(event, topic=TOPIC, offset=offset)
        made.append(replace(record, timestamp_ms=int(appended_at.timestamp() * 1000)))
    return made


class Reader:
    """A service that remembers what it handled."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.handled: list[int] = []
        self._processor = EventProcessor("cost", "drivetrain.", {ChargeRecorded: self._handle}, {})

    async def read(self, *read: Record) -> list[int]:
        """Returns what is handled now."""
        before = len(self.handled)
        work = self._processor.plan(read)
        assert work is not None
        async with self.database.transaction() as tx:
            await work(tx)
        return self.handled[before:]

    async def _handle(self, tx: Tx, event: Event[ChargeRecorded]) -> None:
        self.handled.append(event.payload.amount_micro_usd)


async def age(connection: asyncpg.Connection, table: str, column: str, by: timedelta) -> None:
    await connection.execute(f"update {table} set {column} = {column} - $1::interval", by)


async def count(database: Database, table: str) -> int:
    async with database.connection() as connection:
        return await connection.fetchval(f"select count(*) from {table}")


async def test_old_inbox_rows_go_and_what_they_stood_for_is_still_dropped(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a group lost its offsets, and reads a topic that is kept for ever from its start."""
    monkeypatch.setattr(retention_module, "STEP_ROWS", 2)
    monkeypatch.setattr(retention_module, "STEP_SECONDS", 0.0)
    db = await database("cost")
    reader = Reader(db)
    assert await reader.read(*records(1, 2, 3, 4, 5)) == [1, 2, 3, 4, 5]
    async with db.connection() as connection:
        await age(connection, "inbox", "handled_at", KEEP)
    assert await reader.read(*records(6, 7, appended_at=datetime.now(UTC))) == [6, 7]
    before = PRUNED.labels("inbox")._value.get()
    await Retention(db, "drivetrain.", ManualClock()).prune()
    assert await count(db, "inbox") == 2
    assert PRUNED.labels("inbox")._value.get() == before + 5
    assert await reader.read(*records(1, 2, 3, 4, 5)) == []
    assert await reader.read(*records(6, 7, 8)) == [8]


async def test_what_is_kept_shorter_goes_earlier(database: OpenDatabase) -> None:
    db = await database("cost")
    async with db.connection() as connection:
        for topic in (REPORTS, EVENTS_CHARGES):
            await connection.execute(
                'insert into inbox (digest, topic, partition, "offset", handled_at) '
                "values (sha256($1::text::bytea), $1, 0, 1, clock_timestamp() - $2::interval)",
                f"drivetrain.{topic.name}",
                timedelta(days=8),
            )
        await Retention(db, "drivetrain.", ManualClock()).prune()
        left = await connection.fetchval("select topic from inbox")
    assert left == TOPIC


async def test_a_topic_that_was_created_again_is_read_from_its_start(
    database: OpenDatabase,
) -> None:
    """Its offsets are below those that were handled on the old one; its times are not."""
    db = await database("cost")
    reader = Reader(db)
    await reader.read(*records(1, 2, 3))
    async with db.connection() as connection:
        await age(connection, "inbox", "handled_at", KEEP)
    await Retention(db, "drivetrain.", ManualClock()).prune()
    new = records(1, 2, appended_at=datetime.now(UTC))
    assert await reader.read(*new) == [1, 2]
    assert await reader.read(*new) == []


@pytest.mark.parametrize("ahead", [timedelta(seconds=1), timedelta(hours=23)])
async def test_a_broker_whose_clock_is_ahead_makes_nothing_new(
    database: OpenDatabase, ahead: timedelta
) -> None:
    db = await database("cost")
    reader = Reader(db)
    read = records(1, 2, appended_at=datetime.now(UTC) - KEEP + ahead)
    await reader.read(*read)
    async with db.connection() as connection:
        await age(connection, "inbox", "handled_at", KEEP)
    await Retention(db, "drivetrain.", ManualClock()).prune()
    assert await count(db, "inbox") == 0
    assert await reader.read(*read) == []


@pytest.mark.parametrize("timestamp_ms", [-(2**63), -1, 2**63 - 1])
async def test_a_record_may_claim_any_time(database: OpenDatabase, timestamp_ms: int) -> None:
    """Where a topic takes the sender's time."""
    reader = Reader(await database("cost"))
    (record,) = records(1)
    assert await reader.read(replace(record, timestamp_ms=timestamp_ms)) == [1]


async def test_refused_rows_of_the_outbox_go_and_rows_that_wait_stay(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    async with db.transaction() as tx:
        for value in (b"refused", b"waiting"):
            tx.forward("parked.cost", OutRecord("", b"k", value))
    async with db.connection() as connection:
        await connection.execute(
            "update outbox set refused_at = clock_timestamp() where value = 'refused'"
        )
        await Retention(db, "drivetrain.", ManualClock()).prune()
        assert await count(db, "outbox") == 2
        for column in ("refused_at", "created_at"):
            await age(connection, "outbox", column, KEEP)
        await Retention(db, "drivetrain.", ManualClock()).prune()
        assert await connection.fetchval("select value from outbox") == b"waiting"
        assert await count(db, "outbox") == 1
