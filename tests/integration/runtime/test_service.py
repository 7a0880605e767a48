"""A whole service on the real broker and the real Postgres."""

import asyncio
from datetime import timedelta

import asyncpg

from drivetrain_schemas.charges import ChargeRecorded
from services.runtime.bus import OutRecord
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.retention import KEEP
from tests.events import make_event
from tests.handlers.cost.test_handlers import released
from tests.integration.runtime.cost import cost
from tests.platform_service import (
    produce,
    read_events,
    read_topic,
    running,
)


async def test_an_event_is_handled_once_however_often_it_comes(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    service = await cost(kafka, postgres_dsn, topic_prefix)
    event = make_event(released(timedelta(seconds=1)))
    await produce(kafka, topic_prefix, event, event)
    async with running(service):
        await read_events(kafka, topic_prefix + "events.charges", at_least=1)
    async with running(service):  # a restart, and once more the same event
        other = make_event(released(timedelta(seconds=2)).model_copy(update={"tenant_id": "b"}))
        await produce(kafka, topic_prefix, event)
        other = make_event(
            other.payload.model_copy(update={"allocation_id": other.payload.allocation_id + "1"})
        )
        await produce(kafka, topic_prefix, other)
        charges = await read_events(kafka, topic_prefix + "events.charges", at_least=2)
    assert [item.payload.tenant_id for item in charges] in (["default", "b"], ["b", "default"])
    assert all(isinstance(item.payload, ChargeRecorded) for item in charges)
    assert {item.causation_id for item in charges} == {event.event_id, other.event_id}


async def test_what_cannot_be_read_is_parked_by_one_service_and_stops_nothing(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    """events.jobs names the gateway for parking: the cost service goes past the garbage."""
    service = await cost(kafka, postgres_dsn, topic_prefix)
    publisher = KafkaPublisher(kafka, "tests")
    topic = topic_prefix + "events.jobs"
    await publisher.publish([OutRecord(topic, b"k", b"\xff not json", ()) for _ in range(3)])
    await publisher.close()
    await produce(kafka, topic_prefix, make_event(released(timedelta(seconds=1))))
    async with running(service):
        await read_topic(kafka, topic_prefix + "events.charges", at_least=1)
    connection = await asyncpg.connect(postgres_dsn)
    num_parked = await connection.fetchval(
        "select count(*) from cost.outbox where topic like '%parked%'"
    )
    await connection.close()
    assert num_parked == 0


async def test_a_service_prunes_its_inbox(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str
) -> None:
    service = await cost(kafka, postgres_dsn, topic_prefix)
    await produce(kafka, topic_prefix, make_event(released(timedelta(seconds=1))))
    async with running(service):
        await read_topic(kafka, topic_prefix + "events.charges", at_least=1)
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("update cost.inbox set handled_at = handled_at - $1::interval", KEEP)
    async with running(service), asyncio.timeout(30):
        while await connection.fetchval("select count(*) from cost.inbox"):
            await asyncio.sleep(0.05)
    await connection.close()
