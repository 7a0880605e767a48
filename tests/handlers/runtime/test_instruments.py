"""What the runtime measures of events, of the outbox and of the pool, on a real Postgres."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from services.runtime import relay as relay_module
from services.runtime import watchdog
from services.runtime.relay import Relay
from tests.conftest import OpenDatabase
from tests.fakes import ManualClock
from tests.handlers.runtime.service import GROUP, Bug, make_adder, say, until
from tests.handlers.runtime.test_relay import Broker
from tests.handlers.runtime.test_relay import say as emit

OF_TYPE = {"type": "charge.recorded"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # when the records of the bus in memory are written


def value(name: str, labels: dict[str, str] | None = None) -> float:
    return REGISTRY.get_sample_value(f"drivetrain_{name}", labels or {}) or 0.0


def delays(le: str) -> float:
    return value("event_delay_seconds_bucket", {"group": GROUP, "le": le})


async def test_an_event_counts_with_its_duration_and_its_delay(database: OpenDatabase) -> None:
    adder = await make_adder(await database("cost"))
    adder.clock = ManualClock(EPOCH + timedelta(seconds=3))
    before = value("event_handling_seconds_count", OF_TYPE), delays("2.0"), delays("5.0")
    await say(adder.bus, 1, 2)
    async with adder.running():
        await until(lambda: sum(adder.committed().values()) == 2)
    after = value("event_handling_seconds_count", OF_TYPE), delays("2.0"), delays("5.0")
    assert after == (before[0] + 2, before[1], before[2] + 2)


async def test_history_that_a_rebuild_reads_is_no_delay(database: OpenDatabase) -> None:
    adder = await make_adder(await database("cost"))
    adder.clock = ManualClock(EPOCH + timedelta(hours=2))
    before = delays("+Inf")
    await say(adder.bus, 1)
    async with adder.running():
        await until(lambda: sum(adder.committed().values()) == 1)
    assert delays("+Inf") == before


async def test_a_handler_that_fails_counts_by_the_type_of_its_event(database: OpenDatabase) -> None:
    adder = await make_adder(await database("cost"))
    await say(adder.bus, 1, 2, 3)

    async def broken(amount: int) -> None:
        if amount == 2:
            raise Bug

    adder.misbehave = broken
    before = value("events_failed_total", OF_TYPE)
    await adder.crash(Bug)
    assert value("events_failed_total", OF_TYPE) >= before + 1


async def test_the_watchdog_measures_how_long_records_wait(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    adder = await make_adder(await database("cost"))
    consumer = adder.consumer()
    await consumer.source.start()
    await consumer.source.poll(0)
    await say(adder.bus, 1)
    watching = asyncio.create_task(watchdog.watch(consumer, adder.clock))
    try:
        for _ in range(7):
            await asyncio.sleep(0)
            await adder.clock.advance(watchdog.CHECK_SECONDS)
        await until(lambda: value("consumer_lag_seconds", {"group": GROUP}) >= 20)
        assert value("consumer_lag_records", {"group": GROUP}) == 1
        assert value("consumer_still_seconds", {"group": GROUP}) >= 20
    finally:
        watching.cancel()


async def test_the_age_of_the_outbox_is_that_of_its_oldest_row(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "COUNT_SECONDS", 0.0)
    opened = await database("cost")
    await emit(opened, 1)
    async with opened.connection() as connection:
        await connection.execute("update outbox set created_at = created_at - interval '90 s'")
    broker = Broker()
    broker.answer = lambda amount: None
    relay = Relay(opened, broker, ManualClock())
    relaying = asyncio.create_task(relay.run())
    try:
        await until(lambda: value("outbox_oldest_seconds") >= 90)
        assert value("outbox_waiting_rows") == 1
    finally:
        relaying.cancel()
        await asyncio.wait({relaying})
    assert value("outbox_oldest_seconds") == 0, "another replica relays now"


async def test_the_pool_is_measured_when_it_is_read(database: OpenDatabase) -> None:
    opened = await database("cost", is_fresh=True)
    pool = "database_pool_connections"
    total = sum(value(pool, {"state": state}) for state in ("used", "idle", "spare"))
    before, waits = value(pool, {"state": "used"}), value("database_pool_wait_seconds_count")
    async with opened.connection():
        assert value(pool, {"state": "used"}) == before + 1
    assert value(pool, {"state": "used"}) == before
    assert sum(value(pool, {"state": it}) for it in ("used", "idle", "spare")) == total
    assert value("database_pool_wait_seconds_count") > waits  # of other pools too
