"""The outbox relay on a real Postgres: in order, never too late, never left behind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from drivetrain_schemas.envelope import parse
from services.runtime import flow as flow_module
from services.runtime import relay as relay_module
from services.runtime.bus import (
    DELIVERED,
    BusUnavailable,
    Delivery,
    OnSettled,
    Outcome,
    OutRecord,
    PublishFailed,
)
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from services.runtime.errors import is_temporary
from services.runtime.instruments import OUTBOX_REFUSED
from services.runtime.relay import Relay
from tests.conftest import OpenDatabase
from tests.fakes import ManualClock
from tests.handlers.runtime.charges import charge
from tests.handlers.runtime.service import until

UNKNOWN = Delivery(Outcome.UNKNOWN, "no answer")
REFUSED = Delivery(Outcome.REFUSED, "too large")


class Broker:
    """Takes records, and answers for each by `answer`: None leaves it open until `give_up`."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.calls: list[int] = []
        self.is_available = True
        self.answer: Callable[[int], Delivery | None] = lambda amount: DELIVERED
        self.give_up = asyncio.Event()

    async def publish(
        self, records: Sequence[OutRecord], on_settled: OnSettled | None = None
    ) -> None:
        assert on_settled is not None
        self.calls.append(len(records))
        if not self.is_available:
            for index in range(len(records)):
                on_settled(index, UNKNOWN)
            raise BusUnavailable([UNKNOWN] * len(records), "connection refused")
        amounts = [parse(it.headers, it.value).payload.amount_micro_usd for it in records]
        self.taken += amounts
        answers = [self.answer(amount) for amount in amounts]
        for index, answer in enumerate(answers):
            if answer is not None:
                on_settled(index, answer)
        if None in answers:
            await self.give_up.wait()
            for index, answer in enumerate(answers):
                if answer is None:
                    on_settled(index, UNKNOWN)
        deliveries = [answer or UNKNOWN for answer in answers]
        if any(it is not DELIVERED for it in deliveries):
            raise PublishFailed(deliveries, "no answer")

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
        return await connection.fetchval("select count(*) from outbox where refused_at is null")


async def test_rows_are_published_in_order_and_deleted(database: OpenDatabase) -> None:
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


async def emit(database: Database, **amounts: int) -> None:
    """One event per keyword: its key, with digits to tell the events of a key apart, and amount."""
    for key, amount in amounts.items():
        tenant_id = key.rstrip("0123456789")
        async with database.transaction() as tx:
            await tx.emit(charge(amount, tenant_id), tenant_id=tenant_id)


async def test_after_a_failure_a_key_begins_at_its_first_that_is_not_acknowledged(
    database: OpenDatabase,
) -> None:
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    await say(db, 1, 2, 3)
    broker.answer = lambda amount: DELIVERED if amount == 1 else UNKNOWN
    async with relaying(db, broker, clock):
        await until(lambda: len(broker.calls) == 1)
        broker.answer = lambda amount: DELIVERED
        await until(lambda: broker.taken == [1, 2, 3, 2, 3], clock)
        await until_async_zero(db)


async def test_a_key_that_is_not_acknowledged_holds_back_nothing_but_itself(
    database: OpenDatabase,
) -> None:
    """One topic or partition that is unavailable; each acknowledged row is deleted at once."""
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    await emit(db, lost1=1, fine1=2, lost2=3, fine2=4)
    broker.answer = lambda amount: UNKNOWN if amount % 2 else DELIVERED
    async with relaying(db, broker, clock):
        await until(lambda: broker.taken == [1, 2, 3, 4])
        await until(lambda: has_waiting(db, 2))
        await emit(db, lost3=5, fine3=6, other1=8)
        await until(lambda: broker.taken[4:] == [6, 8])
        await until(lambda: has_waiting(db, 3))
        broker.answer = lambda amount: DELIVERED
        await until(lambda: broker.taken[6:] == [1, 3, 5], clock)
        await until_async_zero(db)


async def has_waiting(database: Database, want: int) -> bool:
    return await waiting(database) == want


async def test_other_keys_continue_while_an_acknowledgement_is_awaited(
    database: OpenDatabase,
) -> None:
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    await emit(db, slow1=1, fine1=2)
    broker.answer = lambda amount: None if amount == 1 else DELIVERED
    async with relaying(db, broker, clock):
        await until(lambda: has_waiting(db, 1))
        await emit(db, slow2=3, fine2=4)
        await until(lambda: has_waiting(db, 2))
        assert broker.taken == [1, 2, 4], "the later row of the slow key waits"
        broker.answer = lambda amount: DELIVERED
        broker.give_up.set()
        await until(lambda: broker.taken == [1, 2, 4, 1, 3], clock)
        await until_async_zero(db)


async def test_held_keys_are_probed_in_turn_and_released_together(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many keys one unavailable partition has, one that is available again is found."""
    monkeypatch.setattr(flow_module, "MAX_PROBED_KEYS", 2)
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    await emit(db, a=1, b=2, c=3, d=4, e=5)
    broker.answer = lambda amount: UNKNOWN
    async with relaying(db, broker, clock):
        await until(lambda: broker.taken == [1, 2, 3, 4, 5])
        broker.answer = lambda amount: DELIVERED if amount >= 4 else UNKNOWN
        await until(lambda: has_waiting(db, 3), clock)
        assert broker.taken[5:9] == [1, 2, 3, 4]
        broker.answer = lambda amount: DELIVERED
        await until(lambda: has_waiting(db, 0), clock)


async def test_a_held_key_is_probed_by_its_first_row_however_many_another_has(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    await emit(db, a1=1, a2=2, a3=3, b1=4)
    broker.answer = lambda amount: UNKNOWN
    async with relaying(db, broker, clock):
        await until(lambda: broker.taken == [1, 2, 3, 4])
        monkeypatch.setattr(relay_module, "BATCH_ROWS", 2)
        await until(lambda: len(broker.taken) > 5, clock)
        assert broker.taken[4:6] == [1, 4]


async def test_a_bus_that_is_unavailable_is_tried_by_one_call_at_a_time(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "BATCH_ROWS", 1)
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    broker.is_available = False
    async with relaying(db, broker, clock):
        await emit(db, a=1)
        await until(lambda: broker.calls == [1])
        await emit(db, b=2, c=3)
        await until(lambda: len(broker.calls) == 3, clock)
        assert broker.taken == []
        broker.is_available = True
        await until(lambda: broker.taken == [1, 2, 3], clock)
        await until_async_zero(db)


async def test_after_an_outage_a_key_that_still_fails_holds_back_nothing_but_itself(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "BATCH_ROWS", 1)
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    await emit(db, lost1=1, fine1=2)
    broker.is_available = False
    broker.answer = lambda amount: UNKNOWN if amount == 1 else DELIVERED
    async with relaying(db, broker, clock):
        await until(lambda: broker.calls == [1, 1])
        broker.is_available = True
        await until(lambda: 2 in broker.taken, clock)


async def test_a_probe_reads_its_rows_and_not_the_whole_outbox(database: OpenDatabase) -> None:
    db = await database("cost")
    await emit(db, a=1)
    async with db.transaction() as tx:
        await tx.connection.execute("set local enable_seqscan = off")
        plan = await tx.connection.fetch("explain " + relay_module._THESE, [1])
    assert "Index Cond" in str(plan)


async def test_a_held_key_whose_row_another_replica_sent_continues(database: OpenDatabase) -> None:
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    await emit(db, a1=1, a2=2)
    broker.answer = lambda amount: UNKNOWN
    async with relaying(db, broker, clock):
        await until(lambda: broker.taken == [1, 2])
        async with db.connection() as connection:
            await connection.execute("delete from outbox where id = (select min(id) from outbox)")
        broker.answer = lambda amount: DELIVERED
        await until(lambda: broker.taken == [1, 2, 2], clock)
        await until_async_zero(db)


async def test_a_row_that_kafka_will_never_accept_is_set_aside_and_its_key_continues(
    database: OpenDatabase,
) -> None:
    db, broker = await database("cost"), Broker()
    await say(db, 1, 2, 3)
    broker.answer = lambda amount: REFUSED if amount == 2 else DELIVERED
    before = OUTBOX_REFUSED.labels("drivetrain.events.charges")._value.get()
    async with relaying(db, broker):
        await until_async_zero(db)
        await say(db, 4)
        await until(lambda: broker.taken == [1, 2, 3, 4])
        await until_async_zero(db)
    async with db.connection() as connection:
        (row,) = await connection.fetch("select * from outbox")
    assert (row["refusal"], row["refused_at"] is None) == ("too large", False)
    assert OUTBOX_REFUSED.labels("drivetrain.events.charges")._value.get() == before + 1


async def test_a_publisher_that_raises_anything_else_ends_nothing(database: OpenDatabase) -> None:
    db, broker, clock = await database("cost"), Broker(), ManualClock()
    await say(db, 1)

    def bug(amount: int) -> Delivery:
        raise KeyError("batch")

    broker.answer = bug
    async with relaying(db, broker, clock):
        await until(lambda: broker.taken == [1])
        broker.answer = lambda amount: DELIVERED
        await until(lambda: broker.taken == [1, 1], clock)
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


async def test_a_batch_is_bounded_in_bytes_but_never_empty(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "BATCH_BYTES", 1)
    db, broker = await database("cost"), Broker()
    await emit(db, a=1, b=2)
    await Relay(db, broker, SystemClock()).drain()
    assert (broker.taken, broker.calls) == ([1, 2], [1, 1])


async def test_the_bytes_of_headers_count_as_they_are_encoded(database: OpenDatabase) -> None:
    db = await database("cost")
    record = OutRecord("", b"key", b"value", (("\ufffd" * 1000, b"x" * 1000), ("none", None)))
    async with db.transaction() as tx:
        tx.forward("parked.cost", record)
    async with db.connection() as connection:
        num_bytes = await connection.fetchval("select size_bytes from outbox")
    assert num_bytes == len(b"key") + len(b"value") + 4000 + len("none") + 20


async def test_two_replicas_do_not_relay_at_once(database: OpenDatabase) -> None:
    db, first, second = await database("cost"), Broker(), Broker()
    async with relaying(db, first):
        await say(db, 1)
        await until(lambda: first.taken == [1])
        async with relaying(db, second):
            await say(db, 2)
            await until(lambda: first.taken == [1, 2])
            assert second.taken == []
        await until_async_zero(db)
    async with relaying(db, second):  # the lock goes with its connection
        await say(db, 3)
        await until(lambda: second.taken == [3])


async def test_it_continues_after_its_connection_was_killed(
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
