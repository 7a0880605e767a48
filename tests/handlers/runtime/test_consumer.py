"""The consuming loop on a bus in memory and a real Postgres: nothing lost, nothing doubled."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from random import Random

import pytest
import pytest_asyncio

from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import InvalidPayload
from services.runtime import consumer
from services.runtime.bus import OutRecord, Partition, Record
from services.runtime.crashes import CrashWatch
from services.runtime.errors import TemporaryError
from services.runtime.migrations import migrate
from services.runtime.parking import MAX_KEPT_BYTES
from services.runtime.processing import EventProcessor
from services.runtime.rewind import SchemaReplaced
from services.runtime.transaction import Tx
from tests.conftest import OpenDatabase
from tests.events import emitted, make_event, make_record, parked, process
from tests.fakes import InMemorySource
from tests.handlers.runtime.charges import charge
from tests.handlers.runtime.service import (
    TOPIC,
    Adder,
    Bug,
    Killed,
    make_adder,
    publish,
    say,
    until,
)


@pytest_asyncio.fixture(params=[1, 200], ids=["one by one", "in batches"])
async def adder(database: OpenDatabase, request: pytest.FixtureRequest) -> Adder:
    return await make_adder(await database("cost"), max_batch=request.param)


def heard(adder: Adder, want: list[int]) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return await adder.heard() == want

    return check


def committed(adder: Adder, want: int) -> Callable[[], bool]:
    return lambda: sum(adder.committed().values()) == want


async def test_an_event_that_comes_twice_has_its_effects_once(adder: Adder) -> None:
    event = make_event(charge(1))
    await publish(adder.bus, event, event, make_event(charge(2)))
    async with adder.running():
        await until(committed(adder, 3))
    assert await adder.heard() == [1, 2]
    assert [item.seq for item in await emitted(adder.database)] == [1, 2]


async def test_killed_between_the_commit_and_the_offset_nothing_is_doubled(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await say(adder.bus, 1, 2, 3)

    async def killed(source: InMemorySource, offsets: object) -> bool:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(InMemorySource, "commit", killed)
        await adder.crash(Killed)
    assert await adder.heard() == [1, 2, 3]
    assert not adder.committed()
    async with adder.running():
        await until(committed(adder, 3))
    assert await adder.heard() == [1, 2, 3]
    assert len(await emitted(adder.database)) == 3


async def test_killed_before_the_commit_nothing_is_lost(adder: Adder) -> None:
    await say(adder.bus, 1, 2)
    adder.misbehave = bug_at(2, Killed)
    await adder.crash(Killed)
    assert await adder.heard() == ([1] if adder.max_batch == 1 else [])
    adder.misbehave = None
    async with adder.running():
        await until(heard(adder, [1, 2]))


async def test_a_temporary_failure_waits_in_order_and_is_never_parked(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "POLL_SECONDS", 0.05)  # these are real seconds
    await say(adder.bus, 1, 2, 3)
    tries = []

    async def away(amount: int) -> None:
        tries.append(amount)
        if amount == 2 and tries.count(2) < 12:
            raise TemporaryError("the object store is away")

    adder.misbehave = away
    async with adder.running():
        await until(lambda: tries.count(2) == 5, adder.clock)
        assert adder.committed() == {Partition(TOPIC, 0): 1}
        await until(committed(adder, 3), adder.clock)
    assert await adder.heard() == [1, 2, 3]
    failed_batch = [] if adder.max_batch == 1 else [1, 2]
    assert tries == [*failed_batch, 1, *[2] * (12 - failed_batch.count(2)), 3]
    assert await parked(adder.database) == []


async def test_other_partitions_continue_while_one_backs_off(database: OpenDatabase) -> None:
    adder = await make_adder(await database("cost"), num_partitions=2)
    await say(adder.bus, 1, tenant_id="a")
    await say(adder.bus, 2, tenant_id="d")
    assert len({record.partition for record in adder.bus.records(TOPIC)}) == 2

    async def away(amount: int) -> None:
        if amount == 1:
            raise TemporaryError("the object store is away")

    adder.misbehave = away
    async with adder.running():
        await until(heard(adder, [2]))
        await say(adder.bus, 3, tenant_id="d")
        await until(heard(adder, [2, 3]))


async def test_a_partition_without_a_leader_keeps_no_other_from_starting(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end offset is not known, so its start cannot be counted before anything is decoded."""
    adder = await make_adder(await database("cost"), num_partitions=2)
    await say(adder.bus, 1, tenant_id="a")
    await say(adder.bus, 2, tenant_id="d")
    (first,) = (it for it in adder.bus.records(TOPIC) if it.key == b"a")
    ask = InMemorySource.end_offsets

    async def of_others(source: InMemorySource) -> Mapping[Partition, int]:
        ends = await ask(source)
        return {item: end for item, end in ends.items() if item.number != first.partition}

    monkeypatch.setattr(InMemorySource, "end_offsets", of_others)
    async with adder.running():
        await until(heard(adder, [2]))
        monkeypatch.undo()
        await until(heard(adder, [2, 1]))


async def test_a_bug_ends_the_process_and_keeps_what_was_done(adder: Adder) -> None:
    await say(adder.bus, 1, 2)
    adder.misbehave = bug_at(2)
    await adder.crash()
    assert adder.committed() == {Partition(TOPIC, 0): 1}
    assert await adder.heard() == [1]


def bug_at(wrong: int, kind: type[BaseException] = Bug) -> Callable[[int], Awaitable[None]]:
    async def behave(amount: int) -> None:
        if amount == wrong:
            raise kind

    return behave


async def test_the_third_crash_on_an_event_parks_it_and_the_rest_continues(
    database: OpenDatabase,
) -> None:
    adder = await make_adder(await database("cost"), num_partitions=2)
    await say(adder.bus, 1, 2, 3, tenant_id="a")
    await say(adder.bus, 4, tenant_id="d")
    (deadly,) = (it for it in adder.bus.records(TOPIC) if it.key == b"a" and it.offset == 1)
    adder.misbehave = bug_at(2)
    for _ in range(3):
        await adder.crash()
        assert await parked(adder.database) == []
    async with adder.running():
        await until(committed(adder, 4))
    assert sorted(await adder.heard()) == [1, 3, 4]
    (facts,) = await parked(adder.database)
    assert facts["reason"] == "crash_loop"
    assert (facts["topic"], facts["offset"]) == (TOPIC, "1")
    async with adder.database.connection() as connection:
        row = await connection.fetchrow("select * from outbox where topic like '%parked%'")
        assert await connection.fetchval("select count(*) from crash_watch") == 0
    assert (row["key"], row["value"]) == (deadly.key, deadly.value)


async def test_an_event_that_kills_without_an_error_is_found_and_parked(adder: Adder) -> None:
    """Out of memory leaves no exception and no offset: the record is found by handling it alone."""
    await say(adder.bus, 1, 2, 3)
    adder.misbehave = bug_at(2, Killed)
    for death in range(3):
        await adder.crash(Killed)
        assert await parked(adder.database) == [], death
    adder.misbehave = bug_at(2)
    async with adder.running():
        await until(committed(adder, 3))
    assert await adder.heard() == [1, 3]
    assert [facts["reason"] for facts in await parked(adder.database)] == ["crash_loop"]


async def test_records_handled_alone_ask_for_the_end_once(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request waits for the fetch of idle partitions before it, for up to a second."""
    await say(adder.bus, *range(1, 31))
    adder.misbehave = bug_at(1, Killed)
    for _ in range(2):
        await adder.crash(Killed)
    adder.misbehave = None
    ask, asked = InMemorySource.end_offsets, []

    async def counted(source: InMemorySource) -> Mapping[Partition, int]:
        asked.append(source)
        return await ask(source)

    monkeypatch.setattr(InMemorySource, "end_offsets", counted)
    async with adder.running():
        await until(committed(adder, 30))
    assert await adder.heard() == list(range(1, 31))
    assert len(asked) <= 3


async def test_an_outage_of_postgres_while_records_are_handled_alone_is_waited_for(
    adder: Adder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the record did not end the process cannot be saved either."""
    await say(adder.bus, 1, 2, 3)
    adder.misbehave = bug_at(1, Killed)
    for _ in range(2):
        await adder.crash(Killed)

    async def unavailable(*_: object) -> None:
        raise TemporaryError("Postgres is away")

    failed = asyncio.Event()

    async def away(amount: int) -> None:
        if amount == 2 and not failed.is_set():
            monkeypatch.setattr(CrashWatch, "survives", unavailable)
            failed.set()
            raise TemporaryError("Postgres is away")

    adder.misbehave = away
    async with adder.running():
        await failed.wait()
        await until(heard(adder, [1]))
        monkeypatch.undo()
        await until(heard(adder, [1, 2, 3]), adder.clock)


async def test_the_next_deadly_event_has_three_crashes_of_its_own(adder: Adder) -> None:
    await say(adder.bus, 1, 2)

    async def always(amount: int) -> None:
        raise Bug

    adder.misbehave = always
    num_crashes = 0
    while len(await parked(adder.database)) < 2:
        async with adder.running() as task:
            await until(lambda task=task: task.done() or sum(adder.committed().values()) == 2)
            num_crashes += task.done()
        assert num_crashes <= 6
    assert num_crashes == 6


async def test_restarts_in_order_are_no_crashes(adder: Adder) -> None:
    """A service that is stopped again and again at one offset parks nothing."""
    await say(adder.bus, 1)
    for _ in range(6):
        stopping, entered = asyncio.Event(), asyncio.Event()

        async def away(amount: int, entered: asyncio.Event = entered) -> None:
            entered.set()
            raise TemporaryError("the object store is away")

        adder.misbehave = away
        task = asyncio.create_task(adder.consumer().run(stopping))
        await entered.wait()
        stopping.set()
        await task
        adder.misbehave = None
    assert await parked(adder.database) == []


async def test_what_is_abandoned_again_and_again_is_no_crash_of_the_event(adder: Adder) -> None:
    """A handler cancelled by a stop's deadline, or because another part of the process failed."""
    await say(adder.bus, 1, 2)
    for _ in range(6):
        entered = asyncio.Event()

        async def hang(amount: int, entered: asyncio.Event = entered) -> None:
            if amount == 2:
                entered.set()
                await asyncio.Event().wait()

        adder.misbehave = hang
        async with adder.running():
            await entered.wait()
        done = 1 if adder.max_batch == 1 else 0
        assert adder.committed() == {Partition(TOPIC, 0): done}, "what was done is kept"
    adder.misbehave = None
    async with adder.running():
        await until(committed(adder, 2))
    assert await adder.heard() == [1, 2]
    assert await parked(adder.database) == []


async def test_stopping_leaves_the_rest_to_the_next_owner(adder: Adder) -> None:
    await say(adder.bus, 1, 2, 3)
    stopping = asyncio.Event()

    async def stop(amount: int) -> None:
        stopping.set()

    adder.misbehave = stop
    await adder.consumer().run(stopping)
    assert adder.committed() == {Partition(TOPIC, 0): 1 if adder.max_batch == 1 else 3}
    adder.misbehave = None
    async with adder.running():
        await until(heard(adder, [1, 2, 3]))


async def test_a_new_schema_reads_from_the_start_whatever_was_committed(adder: Adder) -> None:
    await say(adder.bus, 1, 2)
    adder.bus._committed["adder", Partition(TOPIC, 0)] = 2
    async with adder.running(from_start=True):
        await until(committed(adder, 2))
        await until(heard(adder, [1, 2]))
    async with adder.running(from_start=True):  # once, not at every start
        await say(adder.bus, 3)
        await until(heard(adder, [1, 2, 3]))


async def test_a_replica_that_does_not_see_the_missing_tables_restarts_too(
    adder: Adder,
) -> None:
    """Another one may have migrated before this one has anything to handle."""
    await say(adder.bus, 1, 2)
    database = adder.database
    async with adder.running(from_start=True) as idle:
        await until(heard(adder, [1, 2]))
        # At once, so that this one never finds a table missing.
        async with database.connection() as connection, connection.transaction():
            await connection.execute(f'drop schema "{database.schema}" cascade')
            await migrate(connection, database.schema, ["services.runtime"])
        await make_adder(database)
        await asyncio.wait({idle})
        assert isinstance(idle.exception(), SchemaReplaced)
    async with adder.running(from_start=True):
        await until(heard(adder, [1, 2]))


async def test_a_rebuild_killed_before_its_first_event_still_begins_at_the_start(
    database: OpenDatabase,
) -> None:
    adder = await make_adder(await database("cost"), num_partitions=2)
    await say(adder.bus, 1, tenant_id="a")
    await say(adder.bus, 2, tenant_id="d")
    for number in range(2):
        adder.bus._committed["adder", Partition(TOPIC, number)] = 1
    adder.misbehave = bug_at(1, Killed)
    await adder.crash(Killed, from_start=True)
    adder.misbehave = None
    async with adder.running(from_start=True):
        await until(lambda: sum(adder.committed().values()) == 2)
    assert sorted(await adder.heard()) == [1, 2]


STRUCTURED = (("content-type", b"application/cloudevents+json"),)
HOSTILE = [
    pytest.param(b"", (), id="nothing"),
    pytest.param(b"\xff not json", (), id="not JSON"),
    pytest.param(b"{}", (("ce_\0id", b"1"), ("\0", None)), id="NUL in a header's name"),
    pytest.param(b"{}", (("ce_id", None), ("x-parked-id", None)), id="headers without a value"),
    pytest.param(b"{}", (("ce_id", b"\xff\xfe"),), id="a header that is not UTF-8"),
    pytest.param(b'{"\\ud800": 1}', STRUCTURED, id="half a character"),
    pytest.param(b"x" * (MAX_KEPT_BYTES + 1), (), id="too large to be kept"),
    pytest.param(b"[" * 100_000, (), id="deep nesting"),
]


@pytest.mark.parametrize(("value", "headers"), HOSTILE)
async def test_whatever_bytes_come_they_are_parked_and_the_next_event_is_handled(
    adder: Adder, value: bytes, headers: tuple[tuple[str, bytes], ...]
) -> None:
    await adder.bus.publish([OutRecord(TOPIC, None, value, headers)])
    await say(adder.bus, 1)
    async with adder.running():
        await until(heard(adder, [1]))
    (facts,) = await parked(adder.database)
    assert facts["service"] == "gateway"
    async with adder.database.connection() as connection:
        kept = await connection.fetchval("select value from outbox where topic like '%parked%'")
    assert kept == (None if "omitted" in facts else value)


async def test_a_service_that_does_not_park_a_topic_goes_past(adder: Adder) -> None:
    adder.service = "cost"
    await adder.bus.publish([OutRecord(TOPIC, None, b"\xff not json")])
    await say(adder.bus, 1)
    async with adder.running():
        await until(heard(adder, [1]))
    assert await parked(adder.database) == []


@pytest.mark.parametrize("value", [None, b'{"amount_micro_usd": "x"}'], ids=["sound", "invalid"])
async def test_an_event_on_a_topic_that_is_not_its_own_is_parked(
    adder: Adder, value: bytes | None
) -> None:
    """A writer of one topic could otherwise impersonate the writers of all others."""

    async def answer(tx: Tx, invalid: InvalidPayload) -> bool:
        raise AssertionError("it is nobody's request")

    processor = EventProcessor(
        "gateway", "drivetrain.", {ChargeRecorded: adder.handle}, {ChargeRecorded: answer}
    )
    record = make_record(make_event(charge(1)), topic="drivetrain.events.jobs")
    async with adder.database.transaction() as tx:
        await process(processor, tx, replace(record, value=value or record.value))
    assert await adder.heard() == []
    (facts,) = await parked(adder.database)
    assert (facts["reason"], facts["topic"]) == ("wrong_topic", "drivetrain.events.jobs")
    assert facts["detail"] == "charge.recorded is written to events.charges"


async def test_an_event_under_another_key_than_its_id_is_parked(adder: Adder) -> None:
    record = make_record(make_event(charge(1)))
    await adder.bus.publish([OutRecord(TOPIC, b"another", record.value, record.headers)])
    await say(adder.bus, 2)
    async with adder.running():
        await until(heard(adder, [2]))
    (facts,) = await parked(adder.database)
    assert facts["reason"] == "wrong_key"


async def test_an_id_and_a_source_of_512_characters_are_handled_once(adder: Adder) -> None:
    """Random ones of four bytes each, which no index row of Postgres takes together."""
    random = Random(0)
    long = ["".join(chr(random.randrange(0x20000, 0x2A000)) for _ in range(512)) for _ in "ab"]
    event = replace(make_event(charge(1)), event_id=long[0], source=long[1])
    await publish(adder.bus, event, make_event(charge(2)), event)
    async with adder.running():
        await until(committed(adder, 3))
    assert await adder.heard() == [1, 2]
    assert await parked(adder.database) == []


async def test_a_request_that_cannot_be_answered_is_parked_and_can_be_replayed(
    adder: Adder,
) -> None:
    async def nobody(tx: Tx, invalid: InvalidPayload) -> bool:
        return False

    processor = EventProcessor("gateway", "drivetrain.", {}, {ChargeRecorded: nobody})
    good = make_record(make_event(charge(1), event_id="the-same"))
    bad = Record(good.topic, 0, 0, 0, good.key, b'{"amount_micro_usd": "x"}', good.headers)
    async with adder.database.transaction() as tx:
        await process(processor, tx, bad)
    assert [facts["reason"] for facts in await parked(adder.database)] == ["invalid_payload"]
    # For a later version that can read it, its id is new.
    await adder.bus.publish([OutRecord(TOPIC, good.key, good.value, good.headers)])
    async with adder.running():
        await until(heard(adder, [1]))
