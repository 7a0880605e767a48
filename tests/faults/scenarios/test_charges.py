"""kill -9 of the cost service, of Postgres and of the broker under load: the same charges."""

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from drivetrain_schemas.allocations import AllocationReleased
from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event
from services.runtime.kafka_access import KafkaAccess
from services.runtime.topics import create_topics
from services.standalone.embedded import running_kafka, running_postgres
from services.standalone.ports import free_port
from tests.integration.runtime.cost import releases, until_charged
from tests.killable_service import killable_service
from tests.platform_service import produce_patiently, service_environment

pytestmark = pytest.mark.timeout(600)

NUM_RELEASES = 3000
PREFIX = "faults."
PRICES = """
prices:
  - {id: cpu, device_type: cpu, micro_usd_per_slot_hour: 12345679, valid_from: 2020-01-01T00:00:00Z}
"""
MICRO_USD_PER_SLOT_HOUR = 12_345_679


def made() -> list[Event[AllocationReleased]]:
    """Of two slots each, for a time that is no whole number of seconds."""
    rng = random.Random(12)
    return [
        releases(1, timedelta(microseconds=rng.randrange(1, 10**10)), first=number)[0]
        for number in range(NUM_RELEASES)
    ]


def amount(released: AllocationReleased) -> int:
    held = (released.released_at - released.granted_at) // timedelta(microseconds=1)
    exact = Fraction(len(released.slots) * held * MICRO_USD_PER_SLOT_HOUR, 3600 * 10**6)
    return round(exact)  # half to even


async def produce_all(
    access: KafkaAccess, events: Sequence[Event[Any]], sent: asyncio.Event
) -> None:
    """Some twice."""
    for start in range(0, len(events), 50):
        again = events[start : start + 10] if start % 200 == 0 else ()
        await produce_patiently(access, PREFIX, *events[start : start + 50], *again)
    sent.set()


async def num_charges(dsn: str) -> int:
    """0 while Postgres does not answer."""
    try:
        connection = await asyncpg.connect(dsn, timeout=5)
        try:
            return int(await connection.fetchval("select count(*) from cost.charges"))
        finally:
            await connection.close()
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return 0


async def until_stored(dsn: str, share: float) -> None:
    while await num_charges(dsn) < NUM_RELEASES * share:
        await asyncio.sleep(0.05)


async def test_kills_of_cost_postgres_and_the_broker_under_load_change_no_charge(
    tmp_path: Path,
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(PRICES)
    events = made()
    expected = {event.payload.allocation_id: amount(event.payload) for event in events}
    async with (
        asyncio.timeout(540),
        running_kafka(tmp_path / "kafka") as kafka,
        running_postgres(tmp_path / "postgres") as postgres,
    ):
        access = KafkaAccess(kafka.bootstrap_servers, kafka.username, kafka.password)
        await create_topics(access, PREFIX)
        settings = service_environment(access, postgres.dsn, PREFIX) | {
            "http_port": free_port(),
            "price_book": prices,
        }
        sent = asyncio.Event()
        async with (
            killable_service("services.cost", settings, tmp_path / "cost.log") as cost,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(produce_all(access, events, sent))
            for share in (0.1, 0.4):
                await until_stored(postgres.dsn, share)
                cost.kill()
                await until_stored(postgres.dsn, share + 0.1)
                await postgres.child.kill_and_wait_ready()
                await until_stored(postgres.dsn, share + 0.2)
                await kafka.child.kill_and_wait_ready()
            await sent.wait()
            await until_stored(postgres.dsn, 1.0)
            told = await until_charged(access, PREFIX, [event.event_id for event in events])
        connection = await asyncpg.connect(postgres.dsn)
        rows = await connection.fetch("select allocation_id, amount_micro_usd from cost.charges")
        await connection.close()
    assert sorted(map(tuple, rows)) == sorted(expected.items()), "each is charged once, exactly"
    by_id = {}
    for event in told:
        assert isinstance(event.payload, ChargeRecorded)
        assert by_id.setdefault(event.payload.charge_id, event.payload) == event.payload
    found = {charge.allocation_id: charge.amount_micro_usd for charge in by_id.values()}
    assert (len(by_id), found) == (NUM_RELEASES, expected)
