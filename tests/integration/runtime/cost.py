"""The cost service for tests on real parts: fresh topics and schema, and releases to charge."""

import asyncio
import secrets
from collections.abc import Iterable
from datetime import timedelta

import asyncpg

from drivetrain_schemas.allocations import AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import allocation_id_for, job_id_for, run_id_for
from services.cost.settings import CostSettings
from services.cost.wiring import build
from services.runtime.bus import Record
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_source import KafkaSource
from services.runtime.service import Service
from services.runtime.topics import create_topics
from tests.events import make_event
from tests.handlers.cost.test_handlers import released
from tests.platform_service import parsed, service_environment


async def cost(kafka: KafkaAccess, dsn: str, prefix: str, copies: int = 1) -> Service:
    """The cost service on topics of this test alone, its schema dropped first."""
    await create_topics(kafka, prefix, copies)
    connection = await asyncpg.connect(dsn)
    await connection.execute("drop schema if exists cost cascade")
    await connection.execute("drop schema if exists gateway cascade")
    await connection.close()
    return build(CostSettings(**service_environment(kafka, dsn, prefix)))


def releases(
    number: int, within: timedelta = timedelta(seconds=1), first: int = 0
) -> list[Event[AllocationReleased]]:
    """One release each of `number` jobs, on several partitions."""
    events = []
    for index in range(first, first + number):
        job_id = job_id_for("default", f"job {index}")
        facts = {
            "job_id": job_id,
            "run_id": run_id_for(job_id, 1),
            "allocation_id": allocation_id_for(job_id, 1),
        }
        events.append(make_event(released(within).model_copy(update=facts)))
    return events


async def until_charged(
    kafka: KafkaAccess, prefix: str, causes: Iterable[str]
) -> list[Event[Payload]]:
    """Every charge on the topic, once each of these events is the cause of one.

    Read to the end each time: after a crash the relay may have sent some of them twice.
    """
    group = f"reader-{secrets.token_hex(4)}"
    source = KafkaSource(
        kafka, group, [f"{prefix}events.charges"], member=f"{group}.0", max_records=1000
    )
    await source.start()
    records: list[Record] = []
    try:
        async with asyncio.timeout(60):
            while True:
                polled = await source.poll(0.2)
                records += [record for batch in polled.values() for record in batch]
                charges = parsed(records)
                if not polled and {event.causation_id for event in charges} >= set(causes):
                    return charges
    finally:
        await source.stop()
