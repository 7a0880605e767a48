"""A group's committed offsets are deleted: everything is read again, without a second effect."""

import asyncio
from collections import Counter

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DeleteGroupsRequest

from services.runtime import kafka_source
from services.runtime.kafka_access import KafkaAccess
from tests.integration.runtime.cost import cost, releases, until_charged
from tests.platform_service import produce, running

NON_EMPTY_GROUP = 68


async def delete_group(kafka: KafkaAccess, group: str) -> None:
    """Once its static member's session has ended: until then the group is not empty."""
    client = AIOKafkaClient(**kafka.options())
    await client.bootstrap()
    try:
        node = client.get_random_node()
        async with asyncio.timeout(90):
            while True:
                answer = await client.send(node, DeleteGroupsRequest([group]))
                ((_, code),) = answer.results
                if code == 0:
                    return
                assert code == NON_EMPTY_GROUP
                await asyncio.sleep(0.5)
    finally:
        await client.close()


@pytest.mark.heavy
async def test_a_service_whose_offsets_are_deleted_charges_nothing_twice(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
    options = {**kafka_source.CONSUMER_OPTIONS, **shorter}
    monkeypatch.setattr(kafka_source, "CONSUMER_OPTIONS", options)
    service = await cost(kafka, postgres_dsn, topic_prefix)
    before, after = releases(20), releases(5, first=20)
    await produce(kafka, topic_prefix, *before)
    async with running(service):
        await until_charged(kafka, topic_prefix, [event.event_id for event in before])
    await delete_group(kafka, f"{topic_prefix}cost")
    await produce(kafka, topic_prefix, *after)
    async with running(service):
        charges = await until_charged(
            kafka, topic_prefix, [event.event_id for event in (*before, *after)]
        )
    ids = Counter(charge.payload.charge_id for charge in charges)
    assert len(ids) == 25
    assert set(ids.values()) == {1}
