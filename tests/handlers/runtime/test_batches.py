"""Many events of one partition in one transaction, with the guarantees of one event in its own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event, InvalidPayload
from services.runtime import consumer as consumer_module
from services.runtime.bus import OutRecord, Record
from services.runtime.consumer import Consumer, FailedAtRecord
from services.runtime.database import Database
from services.runtime.processing import EventProcessor, NotTogether
from services.runtime.transaction import Tx
from tests.conftest import OpenDatabase
from tests.events import emitted, make_event, make_record, parked, process
from tests.fakes import InMemoryBus, ManualClock
from tests.handlers.runtime.charges import charge
from tests.handlers.runtime.service import (
    GROUP,
    TOPIC,
    Adder,
    Bug,
    Killed,
    make_adder,
    publish,
    say,
    until,
)


@pytest_asyncio.fixture
async def adder(database: OpenDatabase) -> Adder:
    return await make_adder(await database("cost"))


async def num_transactions(adder: Adder) -> int:
    async with adder.database.connection() as connection:
        return int(await connection.fetchval("select count(distinct xmin::text) from heard"))


async def run_until(adder: Adder, num_done: int) -> None:
    async with adder.running():
        await until(lambda: sum(adder.committed().values()) == num_done)


async def test_a_batch_is_one_transaction_in_order(adder: Adder) -> None:
    await say(adder.bus, *range(1, 151))
    await run_until(adder, 150)
    assert await adder.heard() == list(range(1, 151))
    assert [event.seq for event in await emitted(adder.database)] == list(range(1, 151))
    assert await num_transactions(adder) == 1


async def test_an_event_twice_in_one_batch_has_its_effects_once(adder: Adder) -> None:
    event = make_event(charge(1))
    await publish(adder.bus, event, make_event(charge(2)), event, event)
    await run_until(adder, 4)
    assert await adder.heard() == [1, 2]


async def test_of_a_batch_only_the_new_events_are_handled(adder: Adder) -> None:
    first, second, third = (make_event(charge(amount)) for amount in (1, 2, 3))
    await publish(adder.bus, second)
    await run_until(adder, 1)
    await publish(adder.bus, first, second, third)
    await run_until(adder, 4)
    assert await adder.heard() == [2, 1, 3]


async def test_a_batch_with_a_bug_is_done_again_up_to_the_very_record(adder: Adder) -> None:
    await say(adder.bus, 1, 2, 3, 4)

    async def bug(amount: int) -> None:
        if amount == 3:
            raise Bug

    adder.misbehave = bug
    await adder.crash()
    assert await adder.heard() == [1, 2]
    assert sum(adder.committed().values()) == 2


async def test_after_the_batch_that_failed_there_are_batches_again(adder: Adder) -> None:
    """A batch may fail where none of its records does."""
    await say(adder.bus, 1, 2)
    tries: list[int] = []

    async def bug_in_company(amount: int) -> None:
        tries.append(amount)
        if tries == [1, 2]:
            raise Bug

    adder.misbehave = bug_in_company
    await run_until(adder, 2)
    assert tries == [1, 2, 1, 2]
    adder.misbehave = None
    await say(adder.bus, 3, 4)
    await run_until(adder, 4)
    assert await adder.heard() == [1, 2, 3, 4]
    assert await num_transactions(adder) == 3


async def test_what_cannot_be_read_is_parked_in_the_transaction_of_its_batch(adder: Adder) -> None:
    await say(adder.bus, 1)
    await adder.bus.publish([OutRecord(TOPIC, None, b"not JSON")])
    await say(adder.bus, 2)
    await run_until(adder, 3)
    assert await adder.heard() == [1, 2]
    assert [facts["offset"] for facts in await parked(adder.database)] == ["1"]
    async with adder.database.connection() as connection:
        found = await connection.fetch(
            "select xmin::text as id from outbox union select xmin::text from heard"
        )
    assert len(found) == 1


async def test_a_record_that_kills_inside_a_batch_is_found_and_parked(adder: Adder) -> None:
    await say(adder.bus, *range(1, 21))

    async def kill(amount: int) -> None:
        if amount == 13:
            raise Killed

    adder.misbehave = kill
    for _ in range(3):
        await adder.crash(Killed)
        assert await parked(adder.database) == []
    await run_until(adder, 20)
    assert await adder.heard() == [*range(1, 13), *range(14, 21)]
    assert [facts["offset"] for facts in await parked(adder.database)] == ["12"]


@dataclass
class Folder:
    """A service that takes its new events all at once."""

    database: Database
    bus: InMemoryBus = field(default_factory=lambda: InMemoryBus(1))
    batches: list[list[int]] = field(default_factory=list)
    deadly: int = 0

    async def fold(self, tx: Tx, events: Sequence[Event[Any]]) -> None:
        amounts = [event.payload.amount_micro_usd for event in events]
        self.batches.append(amounts)
        if self.deadly in amounts:
            raise Bug

    async def never(self, tx: Tx, event: Event[Any]) -> None:
        raise AssertionError("the hook takes the place of the handlers")

    async def refuse(self, tx: Tx, invalid: InvalidPayload) -> bool:
        return "request" in invalid.data

    def processor(self) -> EventProcessor:
        return EventProcessor(
            "gateway",
            "drivetrain.",
            {ChargeRecorded: self.never},
            {ChargeRecorded: self.refuse},
            handle_batch=self.fold,
        )

    def consumer(self) -> Consumer:
        source = self.bus.source(GROUP, [TOPIC])
        return Consumer(GROUP, source, self.processor(), self.database, ManualClock())


@pytest_asyncio.fixture
async def folder(database: OpenDatabase) -> Folder:
    return Folder(await database("cost"))


async def transact(folder: Folder, *records: Record) -> None:
    work = folder.processor().plan(records)
    assert work is not None
    async with folder.database.transaction() as tx:
        await work(tx)


async def test_the_hook_takes_the_new_events_of_a_transaction_in_order(folder: Folder) -> None:
    records = [make_record(make_event(charge(n)), offset=n) for n in range(1, 6)]
    await transact(folder, records[1])
    await transact(folder, *records, records[0])
    assert folder.batches == [[2], [1, 3, 4, 5]]


async def test_the_hook_is_given_one_event_at_a_time_where_it_failed(folder: Folder) -> None:
    await say(folder.bus, 1, 2, 3)
    folder.deadly = 2
    with pytest.raises(FailedAtRecord) as failed:
        await folder.consumer().run(asyncio.Event())
    assert isinstance(failed.value.__cause__, Bug)
    assert folder.batches == [[1, 2, 3], [1], [2]]


def invalid(event_id: str, offset: int, value: bytes) -> Record:
    record = make_record(make_event(charge(9), event_id=event_id), offset=offset)
    return Record(TOPIC, 0, offset, 0, record.key, value, record.headers)


async def test_a_refusal_keeps_its_place_between_the_events(folder: Folder) -> None:
    before, after = (make_record(make_event(charge(n)), offset=n) for n in (1, 3))
    await transact(folder, before, invalid("one", 2, b'{"request": 1}'), after)
    assert folder.batches == [[1], [3]]
    assert await parked(folder.database) == []


async def test_an_id_that_a_parked_request_leaves_free_is_not_lost_in_its_batch(
    folder: Folder,
) -> None:
    """One by one, the second record is handled; so the batch must not take it for a duplicate."""
    nobody_asks = invalid("one", 1, b"{}")
    sound = make_record(make_event(charge(1), event_id="one"), offset=2)
    with pytest.raises(NotTogether):
        await transact(folder, nobody_asks, sound)
    for record in (nobody_asks, sound):
        async with folder.database.transaction() as tx:
            await process(folder.processor(), tx, record)
    assert folder.batches == [[1]]
    assert len(await parked(folder.database)) == 1


async def test_a_batch_that_takes_too_long_is_done_one_by_one(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "BATCH_SECONDS", 0.05)
    adder = await make_adder(await database("cost"))
    await say(adder.bus, 1, 2, 3)

    async def slow_in_a_batch(amount: int) -> None:
        if amount == 2 and not await adder.heard():  # the first is not committed yet
            await asyncio.Event().wait()

    adder.misbehave = slow_in_a_batch
    async with adder.running():
        await until(lambda: sum(adder.committed().values()) == 3, adder.clock)
    assert await adder.heard() == [1, 2, 3]
    assert await num_transactions(adder) == 3
