"""The outbox relay on a real Postgres: in order, never too late, never left behind."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from drivetrain_schemas.envelope import parse
from services.runtime import relay as relay_module
from services.runtime.bus import OutRecord, PublishFailed
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.errors import is_temporary
from services.runtime.relay import Relay
from services.runtime.testing import ManualClock
from tests.conftest import OpenDatabase
from tests.handlers.runtime.charges import charge
from tests.handlers.runtime.service import until


class Broker:
    """Takes records; acknowledges only the next `num_acks` of them while that is set."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.calls: list[int] = []
        self.num_acks: int | None = None

    async def publish(self, records: Sequence[OutRecord]) -> None:
        self.calls.append(len(records))
        self.taken += [
            parse(record.headers, record.value).payload.amount_micro_usd for record in records
        ]
        if self.num_acks is not None:
            raise PublishFailed(min(self.num_acks, len(records)), "no answer")

    async def close(self) -> None: ...


@asynccontextmanager
async def relaying(
    database: Database, broker: Broker, clock: SystemClock | ManualClock | None = None
) -> AsyncIterator[None]:
    task = asyncio.create_task(Relay(database, broker, clock or SystemClock()).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def say(database: Database, *amounts: int, tenant_id: str = "default") -> None:
    for amount in amounts:
        async with database.transaction() as tx:
            await tx.emit(charge(amount, tenant_id), tenant_id=tenant_id)


async def waiting(database: Database) -> int:
    async with database.connection() as connection:
        return await connection.fetchval("select count(*) from outbox where published_at is null")


async def test_rows_are_published_in_order_and_marked(database: OpenDatabase) -> None:
    db, broker = await database("cost"), Broker()
    await say(db, 1, 2, 3)
    await Relay(db, broker, SystemClock()).drain()
    assert broker.taken == [1, 2, 3]
    assert await waiting(db) == 0


async def test_what_is_written_meanwhile_follows(database: OpenDatabase) -> None:
    db, broker = await database("cost"), Broker()
    async with relaying(db, broker):
        await say(db, 1)
        await until(lambda: broker.taken == [1])
        await say(db, 2)
        await until(lambda: broker.taken == [1, 2])


async def test_after_a_failure_it_begins_at_the_first_that_is_not_acknowledged(
    database: OpenDatabase,
) -> None:
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    await say(db, 1, 2, 3)
    broker.num_acks = 1
    async with relaying(db, broker, clock):
        await until(lambda: len(broker.calls) == 1)
        broker.num_acks = None
        await until(lambda: broker.taken == [1, 2, 3, 2, 3], clock)
        await until_async_zero(db)


async def until_async_zero(database: Database) -> None:
    async def none_waits() -> bool:
        return await waiting(database) == 0

    await until(none_waits)


async def test_a_row_that_becomes_visible_late_is_not_passed_over(database: OpenDatabase) -> None:
    """Ids become visible out of order: a watermark would never see the smaller one."""
    db, broker = await database("cost"), Broker()
    async with db.transaction() as late:
        await late.emit(charge(1, "slow"), tenant_id="slow")
        await say(db, 2)
        await Relay(db, broker, SystemClock()).drain()
        assert broker.taken == [2]
    await Relay(db, broker, SystemClock()).drain()
    assert broker.taken == [2, 1]


async def test_what_another_process_wrote_is_found_by_polling(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, broker = await database("cost"), Broker()
    async with relaying(db, broker):
        monkeypatch.setattr(db, "on_emitted", lambda: None)
        await say(db, 1)
        await until(lambda: broker.taken == [1])


async def test_a_commit_wakes_the_relay_and_a_rollback_does_not(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    woken = []
    db.on_emitted = lambda: woken.append(1)
    async with db.transaction() as tx:
        await tx.connection.execute("select 1")
    with pytest.raises(asyncpg.UndefinedTableError):
        await emit_and_fail(db)
    assert woken == []
    await say(db, 1)
    assert woken == [1]


async def emit_and_fail(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.emit(charge(1), tenant_id="default")
        await tx.connection.execute("select * from nothing")


async def test_what_stands_in_headers_counts_too(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, broker = await database("cost"), Broker()
    monkeypatch.setattr(relay_module, "BATCH_BYTES", 15_000)
    await say(db, 1, 2, 3)
    async with db.connection() as connection:
        await connection.execute(
            "update outbox set header_names = header_names || 'large'::text, "
            "header_values = header_values || $1::bytea",
            b"x" * 10_000,
        )
    await Relay(db, broker, SystemClock()).drain()
    assert (broker.taken, broker.calls) == ([1, 2, 3], [2, 1])


async def test_a_batch_is_bounded_in_bytes_but_never_empty(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "BATCH_BYTES", 1)
    db, broker = await database("cost"), Broker()
    await say(db, 1, 2)
    await Relay(db, broker, SystemClock()).drain()
    assert (broker.taken, broker.calls) == ([1, 2], [1, 1])


async def test_two_replicas_do_not_relay_at_once(database: OpenDatabase) -> None:
    db, first, second = await database("cost"), Broker(), Broker()
    async with relaying(db, first):
        await say(db, 1)
        await until(lambda: first.taken == [1])
        async with relaying(db, second):
            await say(db, 2)
            await until(lambda: first.taken == [1, 2])
            assert second.taken == []
    async with relaying(db, second):  # the lock goes with its connection
        await say(db, 3)
        await until(lambda: second.taken == [3])


async def test_it_goes_on_after_its_connection_was_killed(
    database: OpenDatabase, postgres_dsn: str
) -> None:
    db, broker = await database("cost"), Broker()
    async with relaying(db, broker):
        await say(db, 1)
        await until(lambda: broker.taken == [1])
        admin = await asyncpg.connect(postgres_dsn)
        await admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1",
            f"drivetrain-{db.schema}",
        )
        await admin.close()
        await until(lambda: _said_again(db))
        await until(lambda: 2 in broker.taken)


async def _said_again(database: Database) -> bool:
    """The pool's own connections were killed too: the first use of each may fail."""
    try:
        await say(database, 2)
    except Exception as error:
        if not is_temporary(error):
            raise
        return False
    return True


async def test_the_sweep_takes_what_was_published_long_ago(database: OpenDatabase) -> None:
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    await say(db, 1, 2, 3)
    await Relay(db, broker, clock).drain()
    await say(db, 4)
    async with db.connection() as connection:
        await connection.execute(
            "update outbox set published_at = published_at - interval '2 hours' where id < 3"
        )

    async def ids() -> list[int]:
        async with db.connection() as connection:
            return [
                row["id"] for row in await connection.fetch("select id from outbox order by id")
            ]

    broker.num_acks = 0  # what waits is never swept
    async with relaying(db, broker, clock):

        async def is_swept() -> bool:
            return await ids() == [3, 4]

        await until(is_swept, clock)
